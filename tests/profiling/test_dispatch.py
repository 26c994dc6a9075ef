import itertools
import threading
from dataclasses import replace

import pytest

from kernelpro import Detector, Diagnosis, Kernel, Metric
from kernelpro.profiling import dispatch, roofline
from kernelpro.profiling.dispatch import Dispatcher
from tests.profiling.samples import evidence


def finding(name="d", gain=0.5, confidence=0.5):
    return Diagnosis(
        detector=name, level="kernel", bottleneck="x", why="y.", gain=gain, confidence=confidence
    )


def tool(name, diagnose, needs=("a",), **fields):
    return ("plug", Detector(name=name, level="kernel", needs=needs, diagnose=diagnose, **fields))


def test_findings_are_ranked_by_gain_times_confidence():
    made = Dispatcher(
        [
            tool("low", lambda e: finding("low", 0.9, 0.1)),
            tool("many", lambda e: [finding("first", 1.0, 0.9), finding("last", 0.1, 0.1)]),
            tool("mid", lambda e: finding("mid", 0.5, 0.5)),
            tool("quiet", lambda e: None),
        ]
    )
    found = [d.detector for d in made.diagnose(evidence({"a": 1}))]
    assert found == ["first", "mid", "low", "last"]
    assert made.complaints == []


def raises(e):
    raise RuntimeError("bad\nluck")


def leaves(e):
    raise SystemExit(3)


def reads_absent(e):
    return e.profile["b"]


@pytest.mark.parametrize(
    ("diagnose", "words"),
    [
        (raises, "RuntimeError: bad"),
        (leaves, "SystemExit"),
        (reads_absent, "MissingMetric"),
        (lambda e: "slow memory", "no Diagnosis"),
        (lambda e: 3, "no Diagnosis"),
        (lambda e: [finding(), None], "no Diagnosis"),
        (lambda e: itertools.repeat(finding()), "more than 16"),
        (lambda e: finding(gain=7.0), "ValueError"),
        (lambda e: finding(gain=float("nan")), "ValueError"),
    ],
)
def test_a_faulty_detector_is_muted_and_named_and_stops_nothing(diagnose, words):
    runs = []

    def counted(e):
        runs.append(1)
        return diagnose(e)

    made = Dispatcher([tool("faulty", counted), tool("good", lambda e: finding("good"))])
    for _ in range(3):
        assert [d.detector for d in made.diagnose(evidence({"a": 1}))] == ["good"]
    assert len(runs) == 1
    (complaint,) = made.complaints
    assert words in complaint
    assert "'faulty' of plugin 'plug'" in complaint
    assert "\n" not in complaint


def test_a_complaint_names_the_distribution_that_a_plugin_comes_from():
    made = Dispatcher([tool("faulty", raises)], {"plug": "some-package 1.2"})
    made.diagnose(evidence({"a": 1}))
    assert "'faulty' of plugin 'plug' (some-package 1.2) raised" in made.complaints[0]


def spins(e):
    while True:
        pass


def sleeps(e):
    threading.Event().wait(60)


@pytest.mark.parametrize("hang", [spins, sleeps])
def test_a_detector_that_hangs_is_left_behind_and_stops_nothing(hang, monkeypatch):
    monkeypatch.setattr(dispatch, "TIME_LIMIT_S", 0.2)
    made = Dispatcher([tool("hangs", hang), tool("good", lambda e: finding("good"))])
    for _ in range(2):
        assert [d.detector for d in made.diagnose(evidence({"a": 1}))] == ["good"]
    (complaint,) = made.complaints
    assert "'hangs' of plugin 'plug' did not end within 0.2 s" in complaint


def test_each_kernel_is_examined_with_its_own_metrics_and_weighed_by_its_share():
    kernels = (
        Kernel(name="long", share=0.7, metrics={"a": Metric(value=1.0)}),
        Kernel(name="short", share=0.25, metrics={"a": Metric(value=2.0)}),
        Kernel(name="tiny", share=0.05, metrics={"a": Metric(value=3.0)}),
    )
    seen = evidence({"a": 9, "system.gap_share": 0.5}, target="cuda", kernels=kernels)
    made = Dispatcher(
        [
            tool("kernels", lambda e: finding("kernels", gain=e.profile["a"] / 2)),
            ("plug", Detector(name="whole", level="system", needs=("a",), diagnose=whole)),
        ]
    )
    found = {(d.detector, d.kernel): d.gain for d in made.diagnose(seen)}
    assert found == {
        ("kernels", "long"): pytest.approx(0.5 * 0.7 * 0.5),
        ("kernels", "short"): pytest.approx(1.0 * 0.25 * 0.5),
        ("whole", ""): pytest.approx(0.9),
    }


def test_a_share_that_is_no_number_weighs_nothing():
    odd = (Kernel(name="odd", share=float("nan")),)
    made = Dispatcher([tool("kernels", lambda e: finding("kernels"))])
    (found,) = made.diagnose(evidence({"a": 1}, kernels=odd))
    assert found.gain == 0


def whole(e):
    return Diagnosis(bottleneck="x", why="y.", gain=e.profile["a"] / 10)


def test_a_detector_whose_needs_are_absent_does_not_run():
    made = Dispatcher([tool("needy", raises, needs=("a", "b"))])
    assert made.diagnose(evidence({"a": 1})) == ()
    assert made.complaints == []


def test_needs_are_those_of_fitting_detectors_and_the_rooflines():
    made = Dispatcher(
        [
            tool("cpu", raises, needs=("c",), targets=("cpu",)),
            tool("gpu", raises, needs=("g",), targets=("cuda",)),
            tool("both", raises, needs=("a", "b"), classes=("memory",)),
            tool("compute", raises, needs=("z",), classes=("compute",)),
        ]
    )
    assert made.needs("cpu", "memory") == {"a", "b", "c", *roofline.NEEDS["cpu"]}
    assert made.needs("cuda", "compute") == {"g", "z", *roofline.NEEDS["cuda"]}


def test_only_the_dispatched_class_and_target_run():
    made = Dispatcher(
        [
            tool("other_class", lambda e: finding("other_class"), classes=("compute",)),
            tool("other_target", lambda e: finding("other_target"), targets=("cuda",)),
            tool("right", lambda e: finding("right"), classes=("memory",)),
        ]
    )
    seen = evidence({"a": 1})
    assert [d.detector for d in made.diagnose(seen)] == ["right"]
    compute = replace(seen, classification=replace(seen.classification, dispatched="compute"))
    assert [d.detector for d in made.diagnose(compute)] == ["other_class"]


def test_a_muted_detector_no_longer_asks_for_metrics():
    made = Dispatcher([tool("faulty", raises, needs=("only_mine",))])
    assert "only_mine" in made.needs("cpu", "memory")
    made.diagnose(evidence({"only_mine": 1}))
    assert "only_mine" not in made.needs("cpu", "memory")
