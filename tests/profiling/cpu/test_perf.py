import errno
import threading

import pytest

from kernelpro.profiling.cpu import perf, threads


def test_software_events_of_a_thread_are_counted_or_refused_with_a_reason():
    with perf.counting(threads.ids()) as counts:
        sum(range(200_000))
    assert set(counts.values) | set(counts.reasons) == set(perf.EVENTS)
    assert not set(counts.values) & set(counts.reasons)
    assert all(counts.reasons.values())
    if "task_clock_ns" in counts.values:
        assert counts.values["task_clock_ns"] > 0


def test_the_descriptors_are_closed_even_when_the_block_raises():
    from pathlib import Path

    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ZeroDivisionError), perf.counting(threads.ids()):
        raise ZeroDivisionError
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "perf_event_paranoid"),
        (errno.EPERM, "perf_event_paranoid"),
        (errno.ENOENT, "virtual machines"),
        (errno.ENOSYS, "no perf_event_open"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EINVAL, "Invalid argument"),
    ],
)
def test_a_refusal_is_told_in_words(number, words):
    assert words in perf.reason(number, "cycles")


def test_without_a_counting_unit_the_other_hardware_events_are_not_tried(monkeypatch):
    tried = []

    def refuse(event, thread):
        tried.append(event)
        return -errno.ENOENT

    monkeypatch.setattr(perf, "_open", refuse)
    with perf.counting([1]) as counts:
        pass
    hardware = [event for event, (kind, _) in perf.EVENTS.items() if kind != perf.SOFTWARE]
    assert tried.count("cycles") == 1
    assert not set(hardware[1:]) & set(tried)
    assert {counts.reasons[event] for event in hardware} == {perf.reason(errno.ENOENT, "cycles")}


def test_a_thread_that_is_gone_is_left_out():
    gone = 1 << 22  # Linux numbers threads below this
    assert threads.clocks_us([gone]) == {}
    with perf.counting([*threads.ids(), gone]) as counts:
        sum(range(10_000))
    assert "no such" not in counts.reasons.get("task_clock_ns", "").lower()


def test_the_work_of_a_thread_is_on_its_own_clock():
    worked, read = threading.Event(), threading.Event()

    def work():
        sum(range(3_000_000))
        worked.set()
        read.wait()

    before = threads.clocks_us(threads.ids())
    worker = threading.Thread(target=work)
    worker.start()
    worked.wait()
    after = threads.clocks_us(threads.ids())
    read.set()
    worker.join()
    assert worker.native_id is not None
    assert worker.native_id not in before
    assert after[worker.native_id] > 0
    spent = threads.spent_us(before, after)
    assert after[worker.native_id] in spent
    assert spent == sorted(spent, reverse=True)


@pytest.mark.parametrize(
    ("spent", "active", "imbalance"),
    [
        ([100.0, 100.0], 2, 0.0),
        ([100.0, 50.0], 2, 0.25),
        ([100.0, 1.0], 1, 0.0),  # one works, the other waits
        ([0.0], 0, 0.0),
        ([], 0, 0.0),
    ],
)
def test_imbalance_is_what_an_even_split_would_save(spent, active, imbalance):
    assert len(threads.taking_part(spent)) == active
    assert threads.imbalance(spent) == pytest.approx(imbalance)
