import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernelpro.profiling.occupancy import (
    BLOCK,
    DEVICE,
    GRID,
    LIMITS,
    MULTIPROCESSORS,
    REGISTERS,
    SHARED,
    occupancy,
    waves,
)


# As CUDA's occupancy calculator gives them for compute capability 8.0 and 9.0.
@pytest.mark.parametrize(
    ("block", "registers", "blocks", "limiter"),
    [
        (256, 32, 8, "warps"),
        (256, 33, 6, "registers"),
        (1024, 64, 1, "registers"),
        (1024, 32, 2, "warps"),
        (128, 255, 2, "registers"),
        (32, 16, 32, "blocks"),
        (96, 40, 16, "registers"),
    ],
)
def test_blocks_that_fit_are_those_of_the_occupancy_calculator(block, registers, blocks, limiter):
    fits = known({BLOCK: block, REGISTERS: registers})
    assert fits.blocks == blocks
    if limiter == "registers":
        assert fits.limiter == limiter
    assert fits.share == pytest.approx(blocks * -(-block // 32) / 64)


def known(facts):
    fits = occupancy(facts)
    assert fits is not None
    return fits


def test_shared_memory_limits_where_it_is_known():
    facts = {BLOCK: 128, REGISTERS: 32, SHARED: 100_000, DEVICE["shared"]: 233_472}
    assert known(facts).blocks == 2
    assert known(facts).limiter == "shared memory"


def test_the_profilers_own_limits_decide():
    facts = {BLOCK: 256, REGISTERS: 32, LIMITS["registers"]: 3}
    assert known(facts).blocks == 3


def test_without_a_block_size_nothing_is_said():
    assert occupancy({REGISTERS: 32}) is None
    assert waves({GRID: 100, MULTIPROCESSORS: 132}) == 0


def test_waves_are_grid_over_what_runs_at_once():
    facts = {GRID: 2112, MULTIPROCESSORS: 132, BLOCK: 256, REGISTERS: 32}
    assert waves(facts) == 2
    assert waves(facts | {"launch__waves_per_multiprocessor": 1.5}) == 1.5


@settings(max_examples=200, deadline=None)
@example({BLOCK: 5e-324})
@example({BLOCK: 1.0, REGISTERS: 5e-324})
@example({BLOCK: 1.0, SHARED: 5e-324, DEVICE["shared"]: 1e5, DEVICE["warps"]: 5e-324})
@given(
    st.dictionaries(
        st.sampled_from([BLOCK, REGISTERS, SHARED, GRID, *LIMITS.values(), *DEVICE.values()]),
        st.floats(allow_nan=True, allow_infinity=True),
    )
)
def test_no_reading_breaks_it(facts):
    fits = occupancy(facts)
    assert fits is None or 0 <= fits.share <= 1
    assert waves(facts) >= 0
