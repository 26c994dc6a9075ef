import pytest

from kernelpro.isolation import Hooks
from kernelpro.manager import create_plugin_manager
from kernelpro.profiling.counters import libcupti, offline, packs
from kernelpro.profiling.counters.libcupti import CuptiError

CHIPS = ("GA100", "GH100")
REASON = offline.reason()
needs_cupti = pytest.mark.skipif(bool(REASON), reason=REASON or "a CUPTI is here")


@pytest.fixture(scope="module")
def detectors():
    """The built-in detectors of the CUDA target."""
    manager, _ = create_plugin_manager(entry_points=False)
    return [d for _, d in Hooks(manager).detectors() if "cuda" in d.targets]


@pytest.fixture(scope="module")
def counters(detectors):
    """Each counter that they read, with the names of those that read it."""
    found: dict[str, list[str]] = {}
    for detector in detectors:
        for name in (*detector.needs, *detector.wants):
            if packs.is_counter(name):
                found.setdefault(name, []).append(detector.name)
    return found


@pytest.fixture(scope="module")
def missing(counters):
    """By chip, those that it does not have."""
    return {chip: set(offline.check(chip, sorted(counters))) for chip in CHIPS}


@needs_cupti
@pytest.mark.parametrize("chip", CHIPS)
def test_the_lite_pack_takes_two_replays(chip):
    assert offline.check(chip, packs.LITE) == ()
    assert offline.passes(chip, packs.LITE) == 2


@needs_cupti
def test_each_counter_that_a_detector_reads_exists_on_a_chip(counters, missing):
    assert counters
    nowhere = set.intersection(*missing.values())
    assert {name: counters[name] for name in nowhere} == {}


@needs_cupti
def test_each_detector_can_run_on_a_chip(detectors, missing):
    never = {
        d.name: sorted(set(d.needs) & missing["GH100"])
        for d in detectors
        if all(set(d.needs) & gone for gone in missing.values())
    }
    assert never == {}


@needs_cupti
def test_all_detectors_together_need_fewer_replays_than_a_full_set_of_ncu(counters):
    # ncu 2025.3.1 needs 38 on an H100 for its full set.
    assert 2 < offline.passes("GH100", sorted(counters)) < 38


@needs_cupti
def test_bad_names_are_found_among_good_ones():
    good = ["dram__bytes.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"]
    names = ["no__such.sum", good[0], "dram__bytes.no_rollup", good[1], "also__bad.sum"]
    assert offline.check("GH100", names) == (names[0], names[2], names[4])
    assert offline.passes("GH100", names) == offline.passes("GH100", good) > 0
    assert offline.passes("GH100", ["no__such.sum"]) == 0
    assert offline.check("GH100", []) == ()


@needs_cupti
def test_metrics_together_take_no_more_replays_than_apart():
    first, second = packs.LITE, ("smsp__inst_executed.sum", "l1tex__t_bytes.sum")
    together = offline.passes("GH100", (*first, *second))
    assert together <= offline.passes("GH100", first) + offline.passes("GH100", second)


@needs_cupti
def test_base_metrics_are_listed_without_their_rollup():
    known = offline.known("GH100")
    assert "dram__bytes" in known
    assert "dram__bytes.sum" not in known
    assert len(known) > 3000


@needs_cupti
def test_an_unknown_chip_is_named():
    with pytest.raises(CuptiError, match="knows no chip 'ZX81'"):
        offline.known("ZX81")


def test_without_a_usable_cupti_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setattr(libcupti, "libraries", lambda: [])
    offline._cupti.cache_clear()
    try:
        assert "nvidia-cuda-cupti" in offline.reason()
    finally:
        offline._cupti.cache_clear()
