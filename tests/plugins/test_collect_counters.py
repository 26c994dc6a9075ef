import pytest

from kernelpro import KernelproError, Profile
from kernelpro.plugins.collect_counters import collect_metrics
from kernelpro.profiling.counters.packs import DURATION, LITE

READ = "dram__bytes_read.sum"
BUSY = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
TRACE = [
    {"name": "void scale<float>(float*)", "duration_us": 1.0},
    {"name": "reduce(float const*)", "duration_us": 2.0},
    {"name": "void scale<float>(float*)", "duration_us": 5.0},
]
ANSWER = {
    "ranges": [
        {DURATION: 100.0, READ: 5.0, BUSY: 10.0},
        {DURATION: 300.0, READ: 6.0},
        {DURATION: 300.0, READ: 7.0, BUSY: 50.0},
    ],
    "launches": TRACE,
    "rejected": ["odd__name.sum"],
    "skipped": [],
    "passes": 3,
    "dropped": 0,
    "chip": "GH100",
    "reason": "",
}


class Answering:
    """A session of a candidate that answers what it likes."""

    def __init__(self, answer, target="cuda"):
        self.answer, self.target, self.asked = answer, target, []

    def collect(self, function, arguments):
        self.asked.append((function, arguments))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def collected(names, answer):
    return collect_metrics(frozenset(names), Answering(answer))


def test_counts_of_all_kernels_are_added_and_the_rest_weighed():
    found = collected({READ, BUSY}, ANSWER)
    assert found[READ] == 18.0
    assert found.metrics[READ].unit == "bytes"
    assert found[BUSY] == pytest.approx(40.0)
    assert found.note(READ) == "CUPTI, 3 kernels, 3 passes"


def test_each_kernel_has_its_own_counters_name_and_share():
    scale, reduce = collected({READ, BUSY}, ANSWER).kernels
    assert (scale.name, scale.launches, scale.share) == ("scale<float>", 2, 0.75)
    assert (reduce.name, reduce.launches, reduce.share) == ("reduce", 1, 0.25)
    assert scale.metrics[READ].value == 12.0
    assert reduce.metrics[READ].value == 6.0


def test_a_counter_that_one_kernel_lacks_is_not_taken_from_the_others():
    profile = collected({READ, BUSY}, ANSWER)
    reduce = profile.kernels[1]
    assert BUSY in profile
    assert BUSY not in profile.of(reduce)


def test_kernels_that_cannot_be_told_apart_leave_the_totals_and_a_note():
    found = collected({READ}, {**ANSWER, "launches": TRACE[:2]})
    assert found.kernels == ()
    assert found[READ] == 18.0
    assert "the trace has 2 of them, the counters 3" in found.note(READ)


def test_what_is_absent_says_why():
    skipped = {**ANSWER, "skipped": ["l1tex__t_bytes.sum"], "dropped": 2}
    names = {READ, "odd__name.sum", "l1tex__t_bytes.sum", "smsp__inst_executed.sum"}
    found = collected(names, skipped)
    assert found.note("odd__name.sum") == "GH100 has no such counter"
    assert "3 kernels would have to be replayed" in found.note("l1tex__t_bytes.sum")
    assert found.note("smsp__inst_executed.sum") == "no kernel gave a value"
    assert "2 more kernels did not fit" in found.note(READ)


def test_locked_counters_are_absent_with_the_permission_that_is_missing():
    reason = "GPU counters are locked on this machine: run as root"
    names = {READ, "launch__grid_size", "cpu.time_us", "source.hottest_share"}
    found = collected(names, {**ANSWER, "ranges": [], "launches": [], "reason": reason})
    assert found.note(READ) == reason
    assert len(found) == 0
    assert set(found.metrics) == {DURATION, READ}


def test_the_lite_pack_is_asked_for_before_the_class_pack():
    session = Answering(ANSWER)
    collect_metrics(frozenset({*LITE, READ, "launch__grid_size"}), session)
    ((function, arguments),) = session.asked
    assert function == "kernelpro.profiling.counters.cupti:collect"
    assert arguments == {"packs": [list(LITE), [READ]]}


@pytest.mark.parametrize(
    ("names", "target"), [({READ}, "cpu"), ({"launch__grid_size", "system.gap_share"}, "cuda")]
)
def test_nothing_runs_when_no_counter_is_asked_for(names, target):
    session = Answering(ANSWER, target)
    assert collect_metrics(frozenset(names), session) == Profile()
    assert session.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"ranges": 3},
        {**ANSWER, "ranges": [{READ: "many"}]},
        {**ANSWER, "launches": [{}] * 3},
        KernelproError("it ended"),
        [],
    ],
)
def test_a_candidate_that_answers_nonsense_has_no_counters(answer):
    found = collected({READ}, answer)
    assert len(found) == 0
    assert found.note(READ)
