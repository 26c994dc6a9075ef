import pytest

from kernelpro.plugins import detect_front_end as plugin
from kernelpro.profiling.issue_slots import LATENCY, stall
from tests.plugins.faults import Fault, finds, see


@pytest.mark.parametrize(
    ("name", "rate", "reason", "hit", "least"),
    [
        ("constant_cache_miss", plugin.CONSTANTS, "imc_miss", 90.0, 5.0),
        ("icache_pressure", plugin.CODE, "no_instruction", 95.0, 10.0),
    ],
)
def test_misses_count_when_warps_wait_for_them(name, rate, reason, hit, least):
    case = Fault(
        metrics={rate: 60.0, stall(reason): 20.0, LATENCY: 100.0},
        fix={rate: 99.9},
        edge={rate: hit},
    )
    found = see(plugin, name, case)
    assert found.gain == pytest.approx(0.2)
    assert "40% of" in found.bottleneck
    assert finds(plugin, name, case.metrics | {stall(reason): least}, case) == ()
