from hypothesis import given
from hypothesis import strategies as st

from kernelpro.profiling.sass import flow, listing
from kernelpro.profiling.sass.instruction import Instruction
from kernelpro.profiling.sass.listing import Function
from tests.profiling.sass.listings import functions, read

NESTED = """
//---- .text.f ----
 /*0000*/ S2R R0, SR_TID.X ;
 /*0010*/ IADD3 R1, R1, 0x1, RZ ;
 /*0020*/ FADD R2, R2, R3 ;
 /*0030*/ @P0 BRA 0x20 ;
 /*0040*/ CALL.REL.NOINC 0x80 ;
 /*0050*/ @P1 BRA 0x10 ;
 /*0060*/ EXIT ;
 /*0080*/ FMUL R2, R2, R2 ;
 /*0090*/ RET.REL.NODEC R8 0x50 ;
"""


def test_nested_loops_and_called_functions_have_their_depths():
    (function,) = listing.parse(NESTED)
    found = flow.analyse(function)
    assert [(loop.header, loop.depth, loop.inner) for loop in found.loops] == [
        (0x10, 1, False),
        (0x20, 2, True),
    ]
    assert found.depths == (0, 1, 2, 2, 1, 1, 0, 1, 1)


def test_unrolled_remainders_are_loops_of_their_own():
    loops = read("sm_90a", "fix_address_overhead").flow.loops
    assert len(loops) >= 2
    assert {loop.depth for loop in loops} == {1}


def test_the_hot_loop_computes_and_is_no_range_reduction():
    found = read("sm_90a", "bad_slow_math")
    assert found.loop is not None
    assert found.loop.depth == 1
    assert found.slow
    assert not found.slow.intersection(found.hot)
    inner = [loop for loop in found.flow.loops if loop.depth == 2]
    assert inner  # the loop over the digits of 2 / pi
    assert found.slow.issuperset(inner[0].places)


def test_a_loop_that_fills_a_tile_is_not_the_hot_one():
    hot = read("sm_90a", "bad_shared_width").hot_instructions
    assert any(i.stem == "FFMA" for i in hot)
    assert not any(i.stem == "LDG" for i in hot)


def test_every_instruction_lies_in_one_block():
    for function in functions("sm_80").values():
        blocks = flow.analyse(function).blocks
        places = [p for b in blocks for p in range(b.first, b.last + 1)]
        assert places == list(range(len(function.instructions)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["BRA", "BRX", "FADD", "EXIT", "CALL"]),
            st.integers(0, 24),
            st.sampled_from(["", "P0"]),
        ),
        min_size=1,
        max_size=24,
    )
)
def test_any_graph_of_branches_is_analysed(made):
    code = tuple(
        Instruction(
            address=16 * n,
            opcode=opcode,
            predicate=predicate,
            targets=(16 * target,) if opcode in ("BRA", "BRX", "CALL") else (),
        )
        for n, (opcode, target, predicate) in enumerate(made)
    )
    called = {t: "f" for i in code if i.opcode == "CALL" for t in i.targets}
    found = flow.analyse(Function(name="f", instructions=code, subroutines=called))
    assert len(found.depths) == len(code)
    for loop in found.loops:
        assert loop.depth >= 1
        assert code[loop.places[0]].address <= 16 * len(code)
        assert any(code[p].address == loop.header for p in loop.places)
