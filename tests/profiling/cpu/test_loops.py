import tracemalloc

import pytest

from kernelpro.profiling.cpu import disassembly, loops
from tests.profiling.samples import library, needs_compiler

pytestmark = needs_compiler

SUM = """extern "C" float sum(const float* x, size_t n) {
  float s = 0; for (size_t i = 0; i < n; i++) s += x[i]; return s; }"""
SCALE = """extern "C" void scale(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = x[i] * 2.f + 1.f; }"""


def hot(folder, body, *flags):
    text = disassembly.listing(library(folder, body, *flags))
    found = [
        loop
        for name, instructions in disassembly.functions(text).items()
        for loop in loops.innermost_loops(name, instructions)
    ]
    return loops.hottest(found), found


def test_a_strict_sum_is_a_scalar_chain_through_one_accumulator(tmp_path):
    loop, _ = hot(tmp_path, SUM)
    assert (loop.vector_share, loop.width, loop.accumulators) == (0.0, 4, 1)
    assert loop.chain == loop.operations["add"] == loop.elements
    assert loop.cycles > loop.throughput_cycles


def test_a_sum_that_may_be_reordered_works_on_whole_vectors(tmp_path):
    loop, _ = hot(tmp_path, SUM, "-ffast-math")
    assert (loop.vector_share, loop.width) == (1.0, 32)


def test_the_main_loop_is_chosen_over_its_remainder(tmp_path):
    loop, found = hot(tmp_path, SCALE)
    assert (loop.width, loop.elements, loop.chain) == (32, 8.0, 0)
    assert loops.has_scalar_remainder(loop, found)


def test_four_accumulators_are_four_chains(tmp_path):
    body = """extern "C" float sum4(const float* x, size_t n) { float a = 0, b = 0, c = 0, d = 0;
      for (size_t i = 0; i + 3 < n; i += 4) { a += x[i]; b *= x[i + 1]; c -= x[i + 2];
        d = d * 0.5f + x[i + 3]; } return a + b + c + d; }"""
    loop, _ = hot(tmp_path, body, "-fno-tree-vectorize", "-fno-tree-slp-vectorize")
    # The multiply and the add of d may be one FMA or two operations in a row.
    assert loop.accumulators == 4
    assert loop.chain in (1, 2)


def test_a_chain_that_leads_through_a_stack_slot_is_seen(tmp_path):
    body = """extern "C" float f(const float* x, size_t n) { float s = 0;
      for (size_t i = 0; i < n; i++) s += std::exp(x[i]); return s; }"""
    loop, _ = hot(tmp_path, body)
    assert loop.calls == ("expf",)
    assert loop.accumulators >= 1
    assert loop.spills > 0


def test_loops_of_an_openmp_region_are_found_and_named(tmp_path):
    body = """extern "C" void f(const float* x, float* y, long rows, long cols) {
      #pragma omp parallel for
      for (long r = 0; r < rows; r++) for (long c = 0; c < cols; c++)
        y[r * cols + c] = x[r * cols + c] / (1.f + x[r * cols + c]); }"""
    loop, _ = hot(tmp_path, body, "-fopenmp")
    assert loop.depth == 1
    assert loop.divisions == 1
    assert "f (parallel region)" in loop.where


def test_a_jump_back_to_a_shared_exit_is_no_loop():
    text = """
kernel.so:     file format elf64-x86-64
0000000000001000 <f>:
    1000:\ttest   rdi,rdi
    1003:\tje     1020 <f+0x20>
    1005:\tvaddss xmm0,xmm0,DWORD PTR [rsi]
    1009:\tret
    1020:\txor    eax,eax
    1022:\tjmp    1009 <f+0x9>
"""
    (body,) = disassembly.functions(text).values()
    assert len(body) == 6
    assert loops.innermost_loops("f", body) == []


def test_padding_before_a_loop_is_no_part_of_it():
    text = """
kernel.so:     file format elf64-x86-64
0000000000001000 <f>:
    1000:\tjmp    1008 <f+0x8>
    1002:\tnop
    1003:\tvaddss xmm0,xmm0,xmm0
    1008:\tcomiss xmm0,xmm1
    100b:\tja     1003 <f+0x3>
    100d:\tret
"""
    (body,) = disassembly.functions(text).values()
    (loop,) = loops.innermost_loops("f", body)
    assert [i.address for i in loop.body] == [0x1003, 0x1008, 0x100B]


def test_a_function_of_many_blocks_needs_no_memory_for_each_pair_of_them():
    count = 4000
    lines = [f"{4 * k:x}:\tjne    {4 * k + 4:x} <f>" for k in range(count)]
    lines.append(f"{4 * count:x}:\tjne    0 <f>")
    body = disassembly.functions("0 <f>:\n" + "\n".join(lines) + f"\n{4 * count + 4:x}:\tret\n")
    tracemalloc.start()
    (loop,) = loops.innermost_loops("f", body["f"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(loop.body) == count + 1
    assert peak < 2000 * count


def test_stubs_of_the_linker_are_left_out(tmp_path):
    text = disassembly.listing(library(tmp_path, SCALE))
    assert set(disassembly.functions(text)) == {"scale"}


def test_no_objdump_is_a_reason_and_not_a_crash(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(disassembly.ListingError, match="objdump is not installed"):
        disassembly.listing(tmp_path / "x.so")


def test_what_is_no_library_is_a_reason(tmp_path):
    (tmp_path / "x.so").write_text("not machine code")
    with pytest.raises(disassembly.ListingError, match="objdump failed"):
        disassembly.listing(tmp_path / "x.so")
