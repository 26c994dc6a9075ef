"""One timing at a time on a device, across processes."""

import subprocess
import sys

import pytest

from kernelpro import targets
from kernelpro.judge.device_lock import DeviceLock, device_name

HOLD = """
import sys
from pathlib import Path
from kernelpro.judge.device_lock import DeviceLock
with DeviceLock("cpu", Path(sys.argv[1])).held() as alone:
    print(alone, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


def test_the_lock_is_held_by_one_process_and_free_when_that_one_is_killed(tmp_path, holder):
    lock = DeviceLock("cpu", tmp_path)
    with lock.held(wait_s=0.1) as alone:
        assert not alone
    holder.kill()
    with lock.held(wait_s=30) as alone:
        assert alone


def test_other_devices_do_not_wait(tmp_path, holder):
    with DeviceLock("cuda-GPU/1", tmp_path).held(wait_s=0) as alone:
        assert alone


def test_work_goes_on_where_no_lock_can_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with DeviceLock("cpu", tmp_path / "file").held() as alone:
        assert not alone


def test_the_lock_is_free_after_an_error(tmp_path):
    lock = DeviceLock("cpu", tmp_path)
    with pytest.raises(ZeroDivisionError), lock.held():
        raise ZeroDivisionError
    with lock.held(wait_s=0) as alone:
        assert alone


def test_a_cpu_has_one_name():
    assert device_name(targets.get("cpu")) == "cpu"


def test_some_processors_are_locked_each_for_one_and_never_beside_all_of_them(tmp_path):
    first, second = DeviceLock("cpu:0,1", tmp_path), DeviceLock("cpu:2", tmp_path)
    same, whole = DeviceLock("cpu:1", tmp_path), DeviceLock("cpu", tmp_path)
    with first.held(wait_s=0) as alone, second.held(wait_s=0) as beside:
        assert alone
        assert beside
        for other in (same, whole):
            with other.held(wait_s=0) as third:
                assert not third
    with whole.held(wait_s=0) as alone, second.held(wait_s=0) as beside:
        assert alone
        assert not beside
