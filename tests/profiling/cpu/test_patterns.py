import pytest

from kernelpro.profiling.cpu import disassembly, facts, patterns
from kernelpro.profiling.cpu.loops import Loop
from tests.profiling.samples import library, needs_compiler


def loop(*lines):
    """A loop body from objdump's words."""
    text = "0000000000001000 <f>:\n" + "".join(
        f"    {0x1000 + 4 * n:x}:\t{line}\n" for n, line in enumerate(lines)
    )
    (body,) = disassembly.functions(text).values()
    return Loop(function="f", body=body)


STEP = ("add    rax,0x20", "cmp    rax,rdx", "jne    1000 <f>")


@pytest.mark.parametrize(
    ("count", "lines", "expected"),
    [
        (patterns.conversions, ("vcvtss2sd xmm0,xmm0,DWORD PTR [rdi+rax*4]",), 1),
        (patterns.conversions, ("vcvtdq2ps ymm0,ymm0",), 0),
        (patterns.shuffles, ("vshufps ymm0,ymm1,ymm2,0x88", "vpermpd ymm0,ymm0,0xd8"), 2),
        (patterns.shuffles, ("vblendvps ymm0,ymm1,ymm2,ymm3",), 0),
        (patterns.horizontal, ("vhaddps ymm0,ymm0,ymm0", "vextractf128 xmm1,ymm0,0x1"), 2),
        (patterns.branches, ("vcomiss xmm0,xmm1", "jbe    1000 <f>"), 1),
        (patterns.branches, (), 0),
        (patterns.integer_divisions, ("idiv   rcx",), 1),
        (patterns.integer_divisions, ("vdivps ymm0,ymm1,ymm2",), 0),
        (patterns.atomics, ("lock cmpxchg DWORD PTR [rsi],edx",), 1),
        (patterns.atomics, ("xchg   DWORD PTR [rsi],edx",), 1),
        (patterns.atomics, ("cmpxchg DWORD PTR [rsi],edx",), 0),
        (patterns.fixed_stores, ("vmovss DWORD PTR [rsi],xmm0",), 1),
        (patterns.fixed_stores, ("vmovss DWORD PTR [rsi+rax*1],xmm0",), 0),
        (patterns.fixed_stores, ("vmovss DWORD PTR [rsp+0x8],xmm0",), 0),
        (patterns.fixed_stores, ("lock add DWORD PTR [rsi],edx",), 0),
        (patterns.fixed_stores, ("div    QWORD PTR [rsi]",), 0),
        (
            patterns.separate_multiply_adds,
            ("vmulps ymm0,ymm1,ymm2", "vaddps ymm0,ymm0,ymm3"),
            1,
        ),
        (
            patterns.separate_multiply_adds,
            ("vmulps ymm0,ymm1,ymm2", "vaddps ymm4,ymm5,ymm3"),
            0,
        ),
        (patterns.strided_loads, ("vaddss xmm0,xmm0,DWORD PTR [rdi]", "add    rdi,0xfa0"), 1),
        (patterns.strided_loads, ("vaddss xmm0,xmm0,DWORD PTR [rdi]", "add    rdi,rcx"), 1),
        (patterns.strided_loads, ("vaddss xmm0,xmm0,DWORD PTR [rdi]", "add    rdi,0x4"), 0),
        (patterns.strided_loads, ("vaddss xmm0,xmm0,DWORD PTR [rdi+rcx*4]", "inc    rcx"), 0),
        (patterns.strided_loads, ("vaddps ymm0,ymm0,YMMWORD PTR [rdi]", "add    rdi,rcx"), 0),
    ],
)
def test_a_pattern_is_counted_and_its_neighbour_is_not(count, lines, expected):
    assert count(loop(*lines, *STEP)) == expected


def test_overhead_is_what_touches_no_vector_register():
    assert patterns.overhead(loop("vaddps ymm0,ymm0,ymm1", *STEP)) == pytest.approx(0.75)


@needs_compiler
def test_a_library_without_a_loop_still_tells_of_allocations(tmp_path):
    body = '#include <cstdlib>\nextern "C" void* f(size_t n) { return malloc(n); }'
    found = facts.hot_loop(facts.read(library(tmp_path, body, "-fno-optimize-sibling-calls")))
    assert found["cpu.asm.allocations"].value == 1
    assert found["cpu.asm.parallel"].value == 0
    assert found["cpu.asm.chain"].value is None
    assert set(found) == set(facts.NAMES)
