import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelpro.profiling.sass import control_word, listing
from kernelpro.profiling.sass.errors import SassError
from tests.profiling.sass.listings import CHIPS, functions, text

CUOBJDUMP = """
\tcode for sm_90a
\t.target\tsm_90a

\t\tFunction : copy
\t.headerflags\t@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;        /* 0x00000a00ff017b82 */
                                                                 /* 0x000e220000000800 */
        /*0010*/              @!PT LDS RZ, [RZ] ;                /* 0x00000000fffff984 */
                                                                 /* 0x000fe20000000800 */
        /*0020*/               @P0 BRA 0x0 ;                     /* 0x00000000fffff984 */
                                                                 /* 0x000fe20000000800 */
        /*0030*/                   EXIT ;                        /* 0x000000000000794d */
                                                                 /* 0x000fea0003800000 */
        /*0040*/                   BRA 0x40;                     /* 0xfffffffc00fc7947 */
                                                                 /* 0x000fc0000383ffff */
        /*0050*/                   NOP;                          /* 0x0000000000007918 */
                                                                 /* 0x000fc00000000000 */
"""
NVDISASM = """
\t.target\tsm_80
//--------------------- .text.f --------------------------
.text.f:
\t//## File "/home/me/f.cu", line 7
.L_x_1:
        /*0000*/                   IMAD.WIDE R2, R0, 0x4, c[0x0][0x160] ;  // |   4   |  1  |
        /*0010*/                   STL [R1+0x8], R2 (*"SpillRefill"*) ;
\t//## File "/home/me/f.cu", line 8 inlined at "/home/me/f.cu", line 9
        /*0020*/                   BRX R2 -0x50 (*"BRANCH_TARGETS .L_x_1,.L_x_2"*) ;
.L_x_2:
        /*0030*/                   LDG.E.128.CONSTANT R4, [R2.64+0x10] ;
        /*0040*/                   EXIT ;
"""


def test_a_control_word_is_decoded_field_by_field():
    assert control_word.decode(0x000E220000000800) == control_word.ControlWord(
        stall_cycles=1, yield_bit=1, write_barrier=0, read_barrier=None, wait_mask=0, reuse_mask=0
    )
    waits = control_word.decode(0x004FE40000000000)
    assert waits.wait_mask == 0b000100
    assert waits.stall_cycles == 2
    assert waits.write_barrier is None


def test_text_of_cuobjdump_is_read_without_what_never_runs():
    (found,) = listing.parse(CUOBJDUMP)
    assert found.name == "copy"
    assert found.target == "sm_90a"
    assert [i.opcode for i in found.instructions] == ["LDC", "BRA", "EXIT"]
    assert found.instructions[1].targets == (0,)
    assert found.instructions[1].predicate == "P0"
    assert found.instructions[0].control == control_word.decode(0x000E220000000800)


def test_text_of_nvdisasm_gives_lines_labels_live_registers_and_marks():
    (found,) = listing.parse(NVDISASM)
    wide, spill, jump, load, _ = found.instructions
    assert found.target == "sm_80"
    assert wide.where == "f.cu:7 IMAD.WIDE R2, R0, 0x4, c[0x0][0x160]"
    assert wide.live == 4
    assert wide.writes == (2, 3)
    assert spill.spill
    assert spill.operands == ("[R1+0x8]", "R2")
    assert jump.targets == (0x0, 0x30)
    assert (jump.file, jump.line) == ("f.cu", 8)
    assert load.width == 16
    assert load.writes == (4, 5, 6, 7)
    assert load.reads == (2, 3)


def test_a_function_that_the_host_cannot_launch_is_no_entry():
    header = '        .other          f,@"STO_CUDA_FUNC STV_DEFAULT"\n.text.f:'
    (found,) = listing.parse(NVDISASM.replace(".text.f:\n", header + "\n", 1))
    assert not found.entry


@pytest.mark.parametrize("chip", CHIPS)
def test_recorded_listings_have_all_kernels_and_their_subroutines(chip):
    found = functions(chip)
    assert len(found) == len([n for n in found if n.startswith(("bad_", "fix_"))]) >= 44
    assert any("outside" in name for name in found["bad_device_calls"].subroutines.values())
    for function in found.values():
        assert function.target == chip
        assert all(i.control is not None and i.line for i in function.instructions)
        assert all(i.predicate != "!PT" for i in function.instructions)
        assert function.instructions[-1].opcode != "NOP"


@pytest.mark.parametrize("empty", ["", "\n\n", "hello", "//---- .text.f ----\n.text.f:\n", "\0\0"])
def test_text_without_instructions_is_refused_in_one_sentence(empty):
    with pytest.raises(SassError, match="holds no SASS instruction; expected the text of"):
        listing.parse(empty)


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(noise):
    try:
        found = listing.parse(noise)
    except SassError:
        return
    assert all(f.instructions for f in found)


@settings(max_examples=30, deadline=None)
@given(st.integers(min_value=0, max_value=240_000), st.sampled_from(CHIPS))
def test_a_listing_that_is_cut_anywhere_gives_a_prefix_or_a_sentence(length, chip):
    whole = list(functions(chip).values())
    try:
        found = listing.parse(text(chip)[:length])
    except SassError:
        return
    for part, function in zip(found[:-1], whole, strict=False):
        assert part == function
    assert len(found[-1].instructions) <= len(whole[len(found) - 1].instructions) + 1


_NAME = st.from_regex(r"[A-Z][A-Z0-9]{1,6}(\.[A-Z0-9]{1,6}){0,3}", fullmatch=True)
_OPERAND = st.from_regex(
    r"R[0-9]{1,2}|-R[0-9]|0x[0-9a-f]{1,4}|\[R[0-9]\.64\+0x10\]", fullmatch=True
)


@given(
    st.lists(
        st.tuples(_NAME, st.lists(_OPERAND, max_size=4), st.sampled_from(["", "P0", "!P3", "UP1"])),
        min_size=1,
        max_size=20,
    )
)
def test_what_is_printed_is_read_back(instructions):
    lines = ["//---- .text.k ----"]
    for number, (name, operands, predicate) in enumerate(instructions):
        guard = f"@{predicate} " if predicate else ""
        lines.append(f"  /*{16 * number:04x}*/  {guard}{name} {', '.join(operands)} ;")
    lines.append(f"  /*{16 * len(instructions):04x}*/  EXIT ;")
    (found,) = listing.parse("\n".join(lines))
    assert [(i.opcode, list(i.operands), i.predicate) for i in found.instructions[:-1]] == [
        (name, operands, predicate) for name, operands, predicate in instructions
    ]
    for i in found.instructions:
        assert i.text in i.where
        assert i.result is None or i.result == i.writes[0]
