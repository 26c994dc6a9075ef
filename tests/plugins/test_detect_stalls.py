import pytest

from kernelpro.plugins import detect_stalls as plugin
from kernelpro.profiling.causes import ATOMICS
from kernelpro.profiling.issue_slots import ELIGIBLE, ISSUE, LATENCY, stall
from kernelpro.profiling.pipes import XU
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import CONFLICTS, CUDA_LEVELS, ISSUED, SHARED_WAVEFRONTS
from kernelpro.testing import evidence
from tests.plugins.faults import Fault, see

RULES = {rule.name: rule for rule in plugin.RULES}


def waits(reason, cycles=60.0, issue=0.3):
    return {stall(reason): cycles, LATENCY: 100.0, ISSUE: issue}


def diagnosed(name, metrics, notes=None):
    (detector,) = [d for d in plugin.detectors() if d.name == name]
    return detector.diagnose(evidence(metrics, notes=notes))


@pytest.mark.parametrize("name", RULES)
def test_a_stall_counts_from_30_percent_of_latency_while_issue_slots_are_free(name):
    reason = RULES[name].reason
    case = Fault(metrics=waits(reason), fix={stall(reason): 5.0}, edge={stall(reason): 30.0})
    found = see(plugin, name, case)
    assert (found.gain, found.confidence) == (pytest.approx(0.6), plugin.CONFIDENCE)
    assert "60% of a warp's time" in found.bottleneck
    assert diagnosed(name, waits(reason, issue=0.8)) is None


def test_the_rules_cover_every_reason_of_nvidias_but_those_that_are_no_stall():
    assert len({rule.reason for rule in plugin.RULES}) == len(plugin.RULES) == 14


def test_each_waits_in_its_own_words():
    assert len({rule.what for rule in plugin.RULES}) == len(plugin.RULES)
    assert all(1 <= len(rule.actions) <= 3 for rule in plugin.RULES)


@pytest.mark.parametrize(
    ("issue", "busy", "gain"),
    [
        (0.3, 0.0, 0.6),  # the stall itself
        (0.7, 0.0, 0.3),  # idle issue slots
        (0.3, 85.0, 0.15),  # what memory leaves
    ],
)
def test_its_gain_is_bounded_by_idle_slots_and_by_the_busiest_resource(issue, busy, gain):
    shares = {ISSUED: 10.0, CUDA_LEVELS["L2"]: busy}
    found = diagnosed("stall_global_latency", waits("long_scoreboard", issue=issue) | shares)
    assert found.gain == pytest.approx(gain)


@pytest.mark.parametrize(
    ("name", "reason", "evidence_of", "cause"),
    [
        (
            "stall_store_drain",
            "drain",
            {ATOMICS[0]: 0.0, ATOMICS[1]: 60.0, ATOMICS[2]: 100.0},
            "global atomics",
        ),
        (
            "stall_mio_latency",
            "short_scoreboard",
            {CONFLICTS: 90.0, SHARED_WAVEFRONTS: 100.0},
            "bank conflicts",
        ),
        ("stall_mio_queue", "mio_throttle", {XU: 90.0}, "a busy special function unit"),
        (
            "stall_global_latency",
            "long_scoreboard",
            {"launch__grid_size": 8.0, "device__attribute_multiprocessor_count": 132.0},
            "fewer blocks than multiprocessors",
        ),
    ],
)
def test_a_stall_whose_cause_is_seen_names_it_and_is_trusted_less(name, reason, evidence_of, cause):
    found = diagnosed(name, waits(reason) | evidence_of)
    assert f"Here a consequence of {cause}." in found.why
    assert found.confidence == plugin.SYMPTOM < plugin.CONFIDENCE


def test_samples_say_where_a_stall_is():
    sampled = {"source.stall.no_instructions": 0.4}
    notes = {"source.stall.no_instructions": "a.cu:7 FADD R1, R1, R2 (37%)"}
    found = diagnosed("stall_ifetch", waits("no_instruction") | sampled, notes)
    assert found.where == "a.cu:7 FADD R1, R1, R2 (37%)"
    assert diagnosed("stall_ifetch", waits("no_instruction")).where == ""


def test_a_hot_instruction_is_told_with_its_place():
    case = Fault(
        metrics={plugin.HOTTEST: 0.4, ISSUE: 0.7},
        fix={plugin.HOTTEST: 0.02},
        edge={plugin.HOTTEST: cut("stall_hotspots.share")},
        notes={plugin.HOTTEST: "a.cu:9 LDS R9, [R6]; short_scoreboard is 98% of its samples"},
    )
    found = see(plugin, "stall_hotspots", case)
    assert found.where.startswith("a.cu:9 LDS")
    assert found.gain == pytest.approx(0.3)  # no more than there are free issue slots


def test_a_hot_instruction_without_a_main_reason_is_not_told():
    mixed = {plugin.HOTTEST: 0.4, ISSUE: 0.2, plugin.HOTTEST_REASON: 0.3}
    assert diagnosed("stall_hotspots", mixed) is None


def test_more_warps_than_slots_promise_nothing_by_themselves():
    case = Fault(
        metrics={stall("not_selected"): 56.0, LATENCY: 100.0, ELIGIBLE: 9.0},
        fix={stall("not_selected"): 10.0},
        edge={ELIGIBLE: 2.0},
    )
    assert see(plugin, "too_many_warps", case).gain == 0
