import pytest

from kernelpro.plugins import detect_atomics as plugin
from kernelpro.profiling.causes import ATOMICS
from tests.plugins.faults import Fault, finds, see

# As counted on an H100: a histogram of eight counters that all threads add to.
HISTOGRAM = {
    ATOMICS[0]: 0.0,
    ATOMICS[1]: 4.2e6,
    ATOMICS[2]: 7.1e6,
    plugin.UNIT: 1.0,
    plugin.HOTTEST: 80.0,
}
CASE = Fault(
    metrics=HISTOGRAM,
    fix={ATOMICS[1]: 4e3, plugin.HOTTEST: 1.0},
    edge={ATOMICS[1]: 0.71e6, plugin.HOTTEST: 60.0},
)


def test_atomics_on_few_addresses_saturate_one_slice_of_l2():
    found = see(plugin, "global_atomics", CASE)
    assert found.gain == pytest.approx(0.8)
    assert "59% of L2's sectors" in found.bottleneck
    assert "few addresses" in found.bottleneck


def test_atomics_that_are_spread_are_worth_what_their_units_take():
    spread = HISTOGRAM | {plugin.UNIT: 70.0, plugin.HOTTEST: 75.0, ATOMICS[1]: 0.0}
    (found,) = finds(plugin, "global_atomics", spread, CASE)
    assert found.gain == pytest.approx(0.75)
    assert "few addresses" not in found.bottleneck


def test_without_any_sectors_there_are_no_atomics():
    assert finds(plugin, "global_atomics", {plugin.UNIT: 0.0, ATOMICS[2]: 0.0}, CASE) == ()
