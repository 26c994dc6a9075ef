import ctypes
import shutil
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelpro import KernelproError
from kernelpro.profiling.cpu import callgrind, calls, facts, instruction_mix
from tests.profiling.samples import library, needs_compiler

needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="valgrind is not on PATH (apt install valgrind)"
)
SCALE = """extern "C" void scale(const float* x, float* y, float a, int shift, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = x[i] * a + shift; }"""
N = 4096


@pytest.fixture
def candidate(tmp_path):
    """A loaded library and a call that reaches it as candidates do."""
    binary = library(tmp_path, SCALE)
    kernels = ctypes.CDLL(str(binary))
    scale = kernels.scale
    scale.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_float, ctypes.c_int, ctypes.c_size_t]
    scale.restype = None
    x = torch.arange(2.0 * N)

    def call():
        y = torch.empty(N)
        # The second half: an address inside a tensor's storage.
        scale(x[N:].data_ptr(), y.data_ptr(), 0.5, -3, N)
        return y

    return binary, call


@needs_compiler
def test_a_call_is_recorded_with_its_values_and_buffers(candidate, tmp_path):
    binary, call = candidate
    folder = tmp_path / "record"
    folder.mkdir()
    seen = calls.record(call, str(binary), str(folder))
    assert seen["reason"] == ""
    (one,) = seen["calls"]
    assert one["function"] == "scale"
    assert one["arguments"] == [
        ["pointer", 0, 4 * N],
        ["pointer", 1, 0],
        ["float", (0.5).hex()],
        ["int", "-3"],
        ["unsigned long", str(N)],
    ]
    assert seen["buffers"] == [8 * N, 4 * N]
    assert (folder / "buffer0").read_bytes() == torch.arange(2.0 * N).numpy().tobytes()
    assert torch.equal(call(), torch.arange(float(N), 2.0 * N) * 0.5 - 3)  # no longer watched


@needs_compiler
def test_what_cannot_be_recorded_is_a_reason(candidate, tmp_path):
    binary, call = candidate
    nowhere = calls.record(call, "/nowhere/other.so", str(tmp_path))
    assert "not called through ctypes" in nowhere["reason"]
    unreached = calls.record(lambda: None, str(binary), str(tmp_path))
    assert "does not reach its library" in unreached["reason"]
    unwritable = calls.record(call, str(binary), str(tmp_path / "missing"))
    assert "could not be written" in unwritable["reason"]


@needs_compiler
def test_an_address_outside_of_every_tensor_is_a_reason(tmp_path):
    binary = library(tmp_path, 'extern "C" void f(void*) {}')
    kernels = ctypes.CDLL(str(binary))
    kernels.f.argtypes = [ctypes.c_void_p]
    with FakeTensorMode():
        traced = torch.empty(8)  # has no memory, and lives while the call is recorded
    seen = calls.record(lambda: kernels.f(4096), str(binary), str(tmp_path))
    assert traced.shape == (8,)
    assert seen["reason"] == "argument 0 of f points into no live tensor, so its size is not known"


@needs_compiler
@needs_valgrind
def test_a_recorded_call_is_counted_exactly(candidate):
    binary, call = candidate
    counts = callgrind.counts(callgrind.collect(call, str(binary), 32 << 20))
    found = instruction_mix.metrics(facts.read(binary), counts)
    assert set(found) == set(instruction_mix.NAMES)
    # One fused multiply-add for each element, or a multiplication and an addition.
    assert found["cpu.callgrind.flops"].value == 2 * N
    assert found["cpu.callgrind.vector_share"].value == 1.0
    assert found["cpu.callgrind.stored_bytes"].value == pytest.approx(4 * N, rel=0.01)
    assert found["cpu.callgrind.hot_loop_share"].value == pytest.approx(1.0, abs=0.1)
    assert "33554432 B" in found["cpu.callgrind.dram_bytes"].note


def test_without_valgrind_there_is_a_reason(monkeypatch):
    monkeypatch.setenv("PATH", "")
    answer = callgrind.collect(lambda: None, "x.so", 0)
    assert "valgrind is not installed" in answer["reason"]
    with pytest.raises(KernelproError, match="valgrind"):
        callgrind.counts(answer)


@pytest.mark.parametrize(
    "argument",
    [
        ["pointer", 5, 0],
        ["pointer", 0, -8],
        ["int", "1); system(0"],
        ["struct x", "1"],
        ["float", "0x1.8p+1; x"],
    ],
)
def test_a_forged_record_makes_no_program(argument):
    with pytest.raises(ValueError, match=r"buffer|argument"):
        callgrind.driver([{"function": "f", "arguments": [argument]}], [64])
    with pytest.raises(ValueError, match="no C function"):
        callgrind.driver([{"function": "f(); g", "arguments": []}], [])


def test_a_driver_spells_every_kind_of_argument():
    text = callgrind.driver(
        [
            {
                "function": "f",
                "arguments": [
                    ["pointer", 0, 16],
                    ["pointer", -1, 0],
                    ["long", str(-(1 << 63))],
                    ["double", (0.1).hex()],
                    ["float", "inf"],
                ],
            }
        ],
        [64],
    )
    assert "(void (*)(void *, void *, long, double, float))" in text
    assert "(b0 + 16, (void *)0, (-9223372036854775807L - 1), 0x1.999999999999ap-4, INFINITY)" in (
        text
    )


OUTPUT = """\
desc: LL cache: 1048576 B, 64 B, 16-way associative
positions: instr
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim

ob=/lib/libm.so
fn=expf
0x1000 7
ob=/k.so
fn=f
0x2000 5 5
calls=3 0x1000
0x2004 99
0x2004 2
summary: 14 5
"""


def test_callgrinds_output_is_read_without_what_callees_cost():
    found = callgrind.read(OUTPUT, Path("/k.so"))
    assert isinstance(found, callgrind.Counts)
    assert found.executed == {0x2000: 5, 0x2004: 2}
    assert found.events["Ir"] == 14
    assert found.events["DLmr"] == 0
    assert found.cache.startswith("1048576 B")


@pytest.mark.parametrize("text", ["", "events: Ir\n", "events: Ir\nsummary: 0\n"])
def test_output_without_counts_is_a_sentence(text):
    assert "counted nothing" in str(callgrind.read(text, Path("/k.so")))
