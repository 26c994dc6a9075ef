"""What a step keeps of a profile."""

import json

from kernelpro import Kernel, Metric, Profile
from kernelpro.search.kept import KERNELS, slim
from kernelpro.serial import encode


def metric(value, note="CUPTI, 1 kernel, 11 passes"):
    return Metric(value=value, note=note, how="measured" if value is not None else "absent")


def test_every_value_is_kept_with_six_digits_and_each_note_once():
    kept = slim(
        Profile(metrics={"a": metric(1 / 3), "b": metric(2e9 + 1), "c": metric(5.0, "own")})
    )
    assert dict(kept) == {"a": 0.333333, "b": 2e9, "c": 5.0}
    assert [kept.note(name) for name in "abc"] == ["CUPTI, 1 kernel, 11 passes", "", "own"]


def test_each_reason_for_an_absent_metric_is_kept_once():
    kept = slim(Profile(metrics={"a": metric(None, "no GPU"), "b": metric(None, "no GPU")}))
    assert list(kept.metrics) == ["a"]
    assert kept.note("a") == "no GPU"


def test_an_only_kernels_metrics_are_the_candidates():
    only = Kernel(name="k", share=1.0, metrics={"x": metric(2.0, ""), "y": metric(None, "why")})
    kept = slim(Profile(metrics={"x": metric(1.0), "z": metric(3.0)}, kernels=(only,)))
    assert dict(kept) == {"x": 2.0, "z": 3.0}
    assert kept.kernels == (Kernel(name="k", share=1.0),)


def test_of_many_kernels_the_longest_keep_what_differs():
    kernels = tuple(
        Kernel(name=str(n), share=0.5**n, metrics={"x": metric(float(n)), "same": metric(7.0)})
        for n in range(1, KERNELS + 3)
    )
    kept = slim(Profile(metrics={"same": metric(7.0), "x": metric(9.0)}, kernels=kernels))
    assert [dict(k.metrics) and k.metrics["x"].value for k in kept.kernels] == [1, 2, 3, {}, {}]
    assert all("same" not in k.metrics for k in kept.kernels)
    assert [k.share for k in kept.kernels] == [k.share for k in kernels]


def test_keeping_again_changes_nothing_and_takes_a_fraction_of_the_room():
    names = [f"unit__counter_{n}.avg.pct_of_peak_sustained_elapsed" for n in range(180)]
    full = {name: metric(n / 7) for n, name in enumerate(names)}
    kernel = Kernel(name="k", share=1.0, metrics=full)
    profile = Profile(metrics=full, kernels=(kernel,))
    kept = slim(profile)
    assert slim(kept) == kept
    assert len(json.dumps(encode(kept))) < len(json.dumps(encode(profile))) / 2
