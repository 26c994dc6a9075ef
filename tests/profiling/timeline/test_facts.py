import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro.profiling.timeline import calls, intervals, steps
from kernelpro.profiling.timeline.events import Device
from kernelpro.profiling.timeline.facts import facts
from kernelpro.profiling.timeline.occupancy import occupancy
from tests.profiling.timeline.recorded import Recording

H100 = Device(
    name="H100",
    multiprocessors=132,
    threads=2048,
    registers=65536,
    shared_bytes=233472,
    capability=(9, 0),
)


def layer(recording):
    recording.kernel("a", 10_000).kernel("b", 20_000).host(30_000)


def test_named_steps_are_counted_without_the_first():
    window = steps.find(Recording().steps(4, layer).timeline())
    assert (window.steps, window.dropped, window.named) == (3, 1, True)
    assert "ProfilerStep#" in window.how
    own = steps.find(Recording().steps(4, layer, name="forward").timeline())
    assert (own.steps, own.how) == (3, "ranges named forward##")


def test_ranges_that_hold_few_launches_are_no_steps():
    recording = Recording().steps(3, lambda r: r.kernel("x", 1_000), name="part")
    for i in range(20):
        recording.kernel(f"other{i}", 5_000)
    assert steps.find(recording.timeline()).steps == 1


def test_steps_without_a_name_are_found_by_their_launches():
    recording = Recording()
    for _ in range(4):
        layer(recording)
    window = steps.find(recording.timeline())
    assert (window.steps, window.dropped, window.named) == (3, 1, False)
    profile = facts(recording.timeline())
    assert profile["system.launches"] == 2
    assert profile["system.kernel_us"] == pytest.approx(30.0)
    assert [launch.name for launch in profile.launches] == ["a", "b"]


def test_a_repeated_kernel_within_a_longer_call_is_no_step():
    recording = Recording()
    for name in ("a", "a", "a", "b", "c", "d", "e"):
        recording.kernel(name, 5_000)
    assert steps.find(recording.timeline()).steps == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("abcabcabc", (0, 3, 3)), ("xabababab", (1, 2, 4)), ("abcdef", (0, 0, 0)), ("", (0, 0, 0))],
)
def test_the_shortest_sequence_that_repeats_is_found(text, expected):
    assert steps.sequence(list(text)) == expected


def test_times_are_those_of_one_step():
    profile = facts(Recording().steps(3, layer).timeline())
    assert profile["system.steps"] == 2
    # A step takes 36 us on the host, 30 us on the device.
    assert profile["system.window_us"] == pytest.approx(36.0, rel=0.2)
    assert profile["system.kernel_us"] == pytest.approx(30.0)
    assert profile["system.gap_share"] == pytest.approx(
        1 - 30.0 / profile["system.window_us"], abs=1e-9
    )


def test_the_judges_time_takes_precedence_over_the_profilers():
    recording = Recording()
    for i in range(6):
        recording.kernel(f"k{i}", 5_000).host(40_000)
    slow = facts(recording.timeline())
    true = facts(recording.timeline(), call_us=40.0)
    assert slow["system.gap_share"] > 0.8
    assert true["system.gap_share"] == pytest.approx(0.25)
    assert true["system.long_gap_share"] <= 0.25
    assert true["system.host_gap_us"] < slow["system.host_gap_us"]


def test_the_longest_gap_is_named_with_what_the_host_did():
    recording = Recording().kernel("first", 5_000)
    recording.call("cudaMalloc", 400_000).kernel("second", 5_000)
    note = facts(recording.timeline()).note("system.long_gaps")
    assert "after first" in note
    assert "before second" in note
    assert "cudaMalloc" in note


def test_the_last_wait_of_a_window_does_not_count():
    recording = Recording().kernel("a", 50_000).wait()
    assert facts(recording.timeline())["system.sync_calls"] == 0
    recording.kernel("b", 50_000)
    assert facts(recording.timeline())["system.sync_calls"] == 1


def test_overlapping_copies_cost_nothing():
    alone = Recording().kernel("a", 50_000).copy("HtoD", 50_000, 4096)
    assert facts(alone.timeline())["system.host_copy_share"] == pytest.approx(0.5)
    both = Recording().kernel("a", 50_000)
    both.device = 0
    both.copy("HtoD", 40_000, 4096)
    assert facts(both.timeline())["system.host_copy_share"] < 0.1


def test_a_recording_of_the_host_alone_has_operators_only():
    from kernelpro.profiling.timeline import kineto

    operator = {"ph": "X", "cat": "cpu_op", "tid": 1}
    timeline = kineto.table(
        [
            operator | {"name": "aten::linear", "ts": 0, "dur": 30},
            operator | {"name": "aten::addmm", "ts": 0, "dur": 29},
            operator | {"name": "aten::copy_", "ts": 40, "dur": 10},
            operator | {"name": "aten::relu", "ts": 50, "dur": 10, "tid": 2},
        ]
    )
    profile = facts(timeline)
    assert [launch.name for launch in profile.launches] == [
        "aten::linear",
        "aten::copy_",
        "aten::relu",
    ]
    assert profile["system.gap_share"] == pytest.approx(1 / 6)
    assert profile["system.library_share"] == pytest.approx(0.5)
    assert profile["system.layout_share"] == pytest.approx(1 / 6)
    assert "system.kernel_us" not in profile


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limiter"),
    [
        (256, 32, 0, 8, "warps"),
        (256, 80, 0, 3, "registers"),  # 80 * 32 = 2560, 6 of a quarter's 16384, 24 warps
        (128, 32, 65536, 3, "shared memory"),
        (32, 16, 0, 32, "blocks"),
        (1024, 255, 0, 0, "registers"),
    ],
)
def test_blocks_that_fit_follow_from_the_launch_record(threads, registers, shared, blocks, limiter):
    fit = occupancy(H100, threads=threads, registers=registers, shared_bytes=shared)
    assert fit is not None
    assert (fit.blocks, fit.limiter) == (blocks, limiter)


def test_occupancy_is_unknown_without_the_devices_limits():
    assert occupancy(Device(), threads=256, registers=32, shared_bytes=0) is None
    assert occupancy(H100, threads=0, registers=32, shared_bytes=0) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernelExC", "LAUNCH"),
        ("cuLaunchKernel", "LAUNCH"),
        ("cudaGraphLaunch", "LAUNCH"),
        ("cuStreamSynchronize", "WAIT"),
        ("cudaMemcpy2D", "COPY"),
        ("cudaMemset", "FILL"),
        ("cudaHostAlloc", "ALLOCATE"),
        ("cuMemAlloc", "ALLOCATE"),
        ("cuLibraryLoadData", "LOAD"),
        ("Lazy Function Loading", "LOAD"),
        ("cudaMemcpyAsync", None),
        ("cudaMallocAsync", None),
        ("cudaMallocFromPoolAsync", None),
        ("cudaStreamIsCapturing", None),
    ],
)
def test_calls_are_told_apart_by_their_names(name, kind):
    kinds = ("LAUNCH", "WAIT", "COPY", "FILL", "ALLOCATE", "LOAD")
    assert [k for k in kinds if getattr(calls, k).match(name)] == ([kind] if kind else [])


def test_a_version_and_a_default_stream_are_no_part_of_a_name():
    assert calls.bare("cudaLaunchKernel_ptsz_v7000") == "cudaLaunchKernel"
    assert calls.bare("cuMemcpyHtoDAsync_v2") == "cuMemcpyHtoDAsync"
    assert calls.bare("my_v2_kernel") == "my_v2_kernel"


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=8)


def ticks(listed):
    return {t for start, length in listed for t in range(start, start + length)}


@given(spans, spans)
def test_spans_add_up_as_sets_of_ticks_do(one, two):
    a, b = (
        intervals.union([s for s, _ in listed], [s + n for s, n in listed]) for listed in (one, two)
    )
    assert intervals.total(a) == len(ticks(one))
    assert intervals.overlaps(a, b).sum() == len(ticks(one) & ticks(two))
    assert intervals.total(intervals.gaps(a, 5, 30)) == len(set(range(5, 30)) - ticks(one))
    assert intervals.total(intervals.clip(a, 5, 30)) == len(ticks(one) & set(range(5, 30)))
    assert (np.diff(a.ravel()) >= 0).all()
