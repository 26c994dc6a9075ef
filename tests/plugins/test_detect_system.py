import pytest
import torch

from kernelpro.plugins import collect_timeline
from kernelpro.plugins import detect_system as plugin
from kernelpro.profiling import timeline
from kernelpro.profiling.dispatch import Dispatcher
from tests.profiling.samples import accepted, evidence, machine, problem

CASES = {
    "unfused_passes": (
        {"system.operators": 4, "system.operator_bytes": 400e6},
        {"system.operators": 1, "system.operator_bytes": 100e6},
    ),
    "launch_bound": (
        {"system.launches": 20, "system.mean_kernel_us": 3, "system.gap_share": 0.6},
        {"system.mean_kernel_us": 50, "system.gap_share": 0.05},
    ),
    "page_faults": (
        {"cpu.page_faults": 8000, "cpu.system_share": 0.6},
        {"cpu.page_faults": 2, "cpu.system_share": 0.01},
    ),
    "idle_threads": (
        {"cpu.thread_share": 0.5, "cpu.threads_used": 1.0},
        {"cpu.thread_share": 0.95, "cpu.threads_used": 1.9},
    ),
    "library_bound": ({"system.library_share": 0.8}, {"system.library_share": 0.1}),
}


def test_every_detector_has_a_case():
    assert {d.name for d in plugin.detectors()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_detector_sees_the_fault_and_not_its_fix(name):
    bad, fix = CASES[name]
    (detector,) = [d for d in plugin.detectors() if d.name == name]
    assert set(detector.needs) == set(bad)
    for target in detector.targets:
        made = Dispatcher([("detect_system", detector)])
        (found,) = made.diagnose(evidence(bad, target=target))
        assert found.detector == name
        assert 0 < found.gain < 1
        assert 1 <= len(found.actions) <= 3
        assert made.diagnose(evidence(bad | fix, target=target)) == ()
        assert made.complaints == []


def test_a_chain_of_operators_is_seen_and_its_fused_form_is_not():
    x = torch.zeros(64, 256)
    least = 2 * x.numel() * 4

    def look(call):
        profile = collect_timeline.read(timeline.collect_launches(call), accepted(), "cpu")
        return plugin.unfused_passes(
            evidence({}, of=problem(min_bytes=least), metrics=profile.metrics)
        )

    found = look(lambda: torch.relu(x * 2.0) + 1.0)
    assert found.gain == pytest.approx(2 / 3)
    assert "3 operators" in found.bottleneck
    assert look(lambda: torch.relu(x)) is None


def test_time_in_a_library_is_not_promised_to_fusion():
    chain = {"system.operators": 4, "system.operator_bytes": 400e6, "system.library_share": 0.9}
    found = plugin.unfused_passes(evidence(chain))
    assert found is not None
    assert found.gain == pytest.approx(0.075)


def test_a_machine_with_one_thread_has_no_idle_ones():
    alone = machine(threads=1)
    seen = {"cpu.thread_share": 0.2, "cpu.threads_used": 0.2}
    assert plugin.idle_threads(evidence(seen, on=alone)) is None
