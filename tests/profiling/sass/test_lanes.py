import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro.profiling.sass import flow, lanes, listing
from kernelpro.profiling.sass.lanes import Value
from tests.profiling.sass.listings import functions, value


def addresses(*lines):
    text = "//---- .text.f ----\n" + "\n".join(
        f" /*{16 * n:04x}*/ {line} ;" for n, line in enumerate((*lines, "EXIT"))
    )
    (function,) = listing.parse(text)
    found = lanes.addresses(function, flow.analyse(function))
    return [found[n] for n in sorted(found)]


def test_consecutive_lanes_read_consecutive_words():
    (at,) = addresses(
        "S2R R0, SR_TID.X",
        "S2R R3, SR_CTAID.X",
        "IMAD R0, R3, c[0x0][0x0], R0",
        "IMAD.WIDE R2, R0, 0x4, c[0x0][0x160]",
        "LDG.E R4, [R2.64+0x10]",
    )
    assert lanes.stride(at) == 4
    assert at.origins == {0x160}


def test_a_stride_that_is_not_known_is_not_guessed():
    at, _ = addresses(
        "S2R R0, SR_TID.X",
        "IMAD R0, R0, c[0x0][0x170], RZ",
        "IMAD.WIDE R2, R0, 0x4, c[0x0][0x160]",
        "LDG.E R4, [R2.64]",
        "LDG.E R4, [R9.64]",
    )
    assert at.lanes is None


def test_an_address_that_steps_in_a_loop_keeps_its_lanes():
    (at,) = addresses(
        "S2R R0, SR_TID.X",
        "SHF.L.U32 R2, R0, 0x3, RZ",
        "LDS.64 R4, [R2]",
        "IADD3 R2, R2, 0x100, RZ",
        "@P0 BRA 0x20",
    )
    assert lanes.stride(at) == 8
    assert at.shifted


def test_a_call_makes_unknown_what_the_callee_writes():
    (at,) = addresses(
        "S2R R0, SR_TID.X",
        "IMAD.SHL.U32 R2, R0, 0x4, RZ",
        "CALL.REL.NOINC 0x60",
        "LDS R4, [R2]",
        "EXIT",
        "NOP",
        "MOV R2, R7",
        "RET.REL.NODEC R8 0x30",
    )
    assert at.lanes is None


def test_a_swizzle_by_exclusive_or_is_followed():
    (at,) = addresses(
        "S2R R0, SR_TID.X",
        "LOP3.LUT R1, R0, 0x1f, RZ, 0xc0, !PT",
        "SHF.R.U32.HI R3, RZ, 0x3, R1",
        "LOP3.LUT R1, R1, R3, RZ, 0x3c, !PT",
        "LDS R4, [R1.X4]",
    )
    assert at.lanes == tuple(4 * (n ^ (n >> 3)) for n in range(32))
    assert lanes.bank_ways(at, 4) == 1


@pytest.mark.parametrize(
    ("step", "width", "ways"),
    [
        (4, 4, 1),
        (0, 4, 1),
        (8, 4, 2),
        (128, 4, 32),
        (132, 4, 1),
        (8, 8, 1),
        (16, 16, 1),
        (32, 16, 2),
    ],
)
def test_bank_conflicts_follow_from_the_stride(step, width, ways):
    assert lanes.bank_ways(Value(tuple(step * n for n in range(32))), width) == ways


@given(st.integers(-64, 64), st.integers(0, 1 << 20), st.sampled_from([4, 8, 16]))
def test_an_offset_that_all_lanes_share_changes_no_conflict(step, offset, width):
    one = Value(tuple(width * step * n for n in range(32)))
    other = Value(tuple(width * step * n + 4 * offset for n in range(32)), shifted=True)
    if width == 4:
        assert lanes.bank_ways(one, width) == lanes.bank_ways(other, width)
    assert 1 <= lanes.bank_ways(one, width) <= 32


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_the_transposed_tile_has_32_ways_and_the_padded_one_none(chip):
    assert value(chip, "bad_static_bank_model", "bank_ways") == 32
    assert value(chip, "fix_static_bank_model", "bank_ways") == 1


def test_code_that_is_too_long_is_not_followed(monkeypatch):
    function = functions("sm_80")["bad_access_width"]
    monkeypatch.setattr(lanes, "INSTRUCTION_LIMIT", 3)
    assert lanes.addresses(function, flow.analyse(function)) == {}
