from hypothesis import given
from hypothesis import strategies as st

from kernelpro.profiling.sass import ptxas_log

LOG = """\
ptxas info    : (C7519) warpgroup.arrive is injected in around line 141 by compiler to allow use of registers in GMMA in function 'gemm'
ptxas info    : (C7517) warpgroup.wait is injected in around line 139 by compiler to allow use of registers defined by GMMA in function 'gemm'
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'gemm'
ptxas /tmp/a.ptx, line 43; warning : Program is doing double precision computations.
ptxas warning : Local memory used for function '_Z5spillPf', size of stack frame: 776 bytes
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5spillPf' for 'sm_90a'
ptxas info    : Function properties for _Z5spillPf
    776 bytes stack frame, 1096 bytes spill stores, 1124 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 4096 bytes smem
ptxas info    : Compile time = 67.952 ms
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 58 registers, used 0 barriers
"""  # noqa: E501


def test_each_kernel_has_its_own_numbers():
    found = ptxas_log.facts(LOG)
    spill = {n: m.value for n, m in found["_Z5spillPf"].items()}
    assert spill == {
        "compiler.registers": 32,
        "compiler.barriers": 1,
        "compiler.shared_bytes": 4096,
        "compiler.stack_bytes": 776,
        "compiler.spill_store_bytes": 1096,
        "compiler.spill_load_bytes": 1124,
    }
    assert found["gemm"]["compiler.registers"].value == 58


def test_warnings_about_wgmma_are_counted_with_their_reason():
    gemm = ptxas_log.of_kernel(ptxas_log.facts(LOG), "gemm")
    assert gemm["compiler.wgmma_serialised"].value == 1
    assert "insufficient register resources" in gemm["compiler.wgmma_serialised"].note
    assert gemm["compiler.wgmma_injected"].value == 2
    assert gemm["compiler.double_precision"].value == 1  # it names no kernel, so it is all kernels'
    assert "compiler.wgmma_serialised" not in ptxas_log.facts(LOG)["_Z5spillPf"]


@given(st.text(max_size=200))
def test_any_text_is_read(noise):
    assert all(values for values in ptxas_log.facts(noise).values())
