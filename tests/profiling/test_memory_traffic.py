import pytest

from kernelpro.profiling import memory_traffic as traffic
from kernelpro.profiling.memory_traffic import (
    ACTIVE,
    ELAPSED,
    L1,
    LOAD_BYTES,
    LOADS,
    LOCAL,
    STORES,
)
from kernelpro.profiling.occupancy import GRID, MULTIPROCESSORS


def loads(sectors, used=None):
    seen = {LOADS[0]: sectors * 1000.0, LOADS[1]: 1000.0}
    return seen | ({LOAD_BYTES: used} if used is not None else {})


@pytest.mark.parametrize(
    ("sectors", "used", "width"),
    [(4, 32, 4), (16, 32, 16), (32, 4, 4), (32, 16, 16), (1, 4, 0.125)],
)
def test_the_width_of_a_lane_follows_from_sectors_and_used_bytes(sectors, used, width):
    assert traffic.lane_bytes(loads(sectors, used)) == pytest.approx(width)


def test_without_used_bytes_few_sectors_mean_narrow_and_many_mean_nothing():
    assert traffic.lane_bytes(loads(4)) == 4
    assert traffic.lane_bytes(loads(16)) == 0
    assert traffic.lane_bytes({}) == 0


def test_waste_is_what_contiguous_accesses_would_not_move():
    assert traffic.wasted(loads(32, 4), LOAD_BYTES) == pytest.approx(0.875)
    assert traffic.wasted(loads(4, 32), LOAD_BYTES) == 0
    assert traffic.wasted(loads(1, 4), LOAD_BYTES) == 0  # a broadcast
    assert traffic.wasted(loads(2, 4), LOAD_BYTES) == pytest.approx(0.5)
    assert traffic.wasted({}, LOAD_BYTES) == 0
    assert traffic.wasted({LOAD_BYTES: float("nan")}, LOAD_BYTES) == 0


def test_l1_is_busy_over_the_cycles_in_which_a_multiprocessor_has_a_block():
    assert traffic.busy({L1: 6.0}, L1) == pytest.approx(0.06)
    assert traffic.busy({L1: 6.0, ACTIVE: 10, ELAPSED: 100}, L1) == pytest.approx(0.6)
    assert traffic.busy({L1: 60.0, ACTIVE: 10, ELAPSED: 100}, L1) == 1.0
    assert traffic.busy({}, L1) == 0.0


def test_only_multiprocessors_are_scaled_to_the_cycles_that_they_work():
    seen = {traffic.DRAM: 30.0, traffic.L2: 40.0, L1: 6.0, ACTIVE: 10, ELAPSED: 100}
    assert traffic.busy(seen, traffic.DRAM) == pytest.approx(0.3)
    assert traffic.busiest(seen) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({}, ""),
        (loads(16, 32), ""),
        (loads(32), "uncoalesced"),
        (loads(8, 16), "uncoalesced"),
        (loads(4, 32), "narrow"),
        (loads(4, 32) | {LOCAL[0]: 1e4, STORES[0]: 0}, "local memory"),
        (loads(16, 32) | {GRID: 8, MULTIPROCESSORS: 132}, "fewer blocks"),
        (loads(16, 32) | {GRID: 132, MULTIPROCESSORS: 132}, ""),
    ],
)
def test_the_particular_cause_of_waiting_is_named_where_it_shows(seen, words):
    cause = traffic.known_cause(seen)
    assert words in cause
    assert bool(cause) == bool(words)


def test_accesses_are_narrow_only_where_they_are_coalesced_and_no_broadcast():
    assert traffic.narrow(loads(4, 32))
    assert traffic.narrow(loads(4))
    assert not traffic.narrow(loads(32, 4))
    assert not traffic.narrow(loads(1, 32))
    assert not traffic.narrow(loads(16, 32))


class Watched(dict[str, float]):
    """Notes which metrics are asked for."""

    def __init__(self, values):
        super().__init__(values)
        self.asked = set()

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name):
        self.asked.add(name)
        return super().__contains__(name)


def test_what_known_cause_reads_can_be_asked_for():
    seen = Watched(loads(16, 32) | {GRID: 264, MULTIPROCESSORS: 132})
    assert traffic.known_cause(seen) == ""
    assert seen.asked == set(traffic.CAUSES)
