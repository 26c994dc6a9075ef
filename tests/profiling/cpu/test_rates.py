import shutil

import pytest

from kernelpro.profiling.cpu import facts, rates
from tests.profiling.cpu.test_patterns import STEP, loop

SUM = loop("vaddps ymm0,ymm0,YMMWORD PTR [rdi+rax*1]", *STEP)

LLVM_MCA = """\
Iterations:        100
Instructions:      400
Total Cycles:      310
Total uOps:        400

Dispatch Width:    6
uOps Per Cycle:    1.29
IPC:               1.29
Block RThroughput: 0.7

Resources:
[0]   - FirstPort
[1.0] - SecondPort

Resource pressure per iteration:
[0]    [1.0]
 -     1.55

Resource pressure by instruction:
[0]    [1.0]   Instructions:
 -     1.55    vaddps ymm0, ymm0, ymmword ptr [rdi + rax]
"""

OSACA = """\
Combined Analysis Report
------------------------
     |  0   |  1   | DV0  |  8   - 8DV  ||  CP  | LCD  |
--------------------------------------------------------
   1 | 0.50 | 0.50 |      |             ||  3.0 |      |   vmulps ymm1,ymm1,ymm1
   2 |      |      | 3.50 |             || 10.0 |  2.0 |   vdivps ymm3,ymm1,ymm2

       0.50   0.50   3.50                 13.0    2.0
"""


def test_llvm_mcas_tables_are_read():
    found = rates.read_llvm_mca(LLVM_MCA)
    assert isinstance(found, rates.Rates)
    assert found.cycles == pytest.approx(3.1)
    assert found.throughput_cycles == pytest.approx(0.7)
    assert found.port == "SecondPort"
    assert found.port_share == pytest.approx(0.5)


def test_osacas_table_is_read_by_its_columns():
    found = rates.read_osaca(OSACA)
    assert isinstance(found, rates.Rates)
    assert (found.cycles, found.throughput_cycles, found.chain_cycles) == (3.5, 3.5, 2.0)
    assert found.port == "port DV0"
    assert found.port_share == 1.0


@pytest.mark.parametrize("text", ["", "nothing", "Iterations: 0\nTotal Cycles: 1\n", "| 0 |\n1 2"])
def test_foreign_output_is_a_sentence(text):
    assert "printed no" in str(rates.read_llvm_mca(text))
    assert "printed no" in str(rates.read_osaca(text))


def test_the_loop_is_written_for_an_assembler():
    text = rates.assembly(
        loop("lock xadd QWORD PTR [rdi],rax", "nop    WORD PTR [rax]", "jne    1000 <f+0x20>")
    )
    assert text.splitlines() == [
        ".intel_syntax noprefix",
        "kernel_loop:",
        "lock xadd QWORD PTR [rdi],rax",
        "jne kernel_loop",
    ]


@pytest.mark.skipif(
    shutil.which("llvm-mca") is None, reason="llvm-mca is not on PATH (apt install llvm)"
)
def test_a_sum_into_one_register_waits_for_itself():
    found, why = rates.rates(SUM)
    assert (found.tool, why) == ("llvm-mca", "")
    assert found.cycles > 1.5 * found.throughput_cycles
    assert found.port


def test_without_tools_the_own_model_is_used_and_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    rates.llvm_mca.cache_clear()
    found = rates.metrics(SUM, slow=True)
    assert set(found) == set(rates.NAMES)
    assert found["cpu.rate.cycles"].value == SUM.cycles
    assert "own model" in found["cpu.rate.cycles"].note
    assert "llvm-mca is not installed" in found["cpu.rate.cycles"].note
    assert "osaca" in found["cpu.rate.cycles"].note
    assert found["cpu.rate.port_share"].value is None


def test_a_loop_that_calls_is_not_given_to_a_model_of_ports():
    found, why = rates.rates(loop("vaddps ymm0,ymm0,ymm1", "call   1040 <expf@plt>", *STEP))
    assert found.tool.startswith("own model")
    assert "calls" in why


def test_no_loop_is_a_reason():
    found = rates.metrics(None)
    assert {metric.value for metric in found.values()} == {None}
    assert all(metric.note for metric in found.values())


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name"),
    [
        ("AuthenticAMD", 25, 1, "ZEN3"),
        ("AuthenticAMD", 25, 17, "ZEN4"),
        ("AuthenticAMD", 23, 49, "ZEN2"),
        ("GenuineIntel", 6, 143, "SPR"),
        ("GenuineIntel", 6, 1, ""),
    ],
)
def test_the_core_is_told_by_vendor_family_and_model(vendor, family, model, name):
    text = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: x\n"
    assert rates.core_name(text) == name
    assert rates.core_name("flags : a\n") == ""


def test_names_do_not_overlap_with_the_facts():
    assert not set(rates.NAMES) & set(facts.NAMES)
