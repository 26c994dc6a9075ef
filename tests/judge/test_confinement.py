"""What honest candidates need while they are confined, and the levels of confinement."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpro.errors import JudgeError
from kernelpro.judge import bubblewrap, environment
from kernelpro.records import Outcome
from tests.judge.attacks import (
    attacks_that_went_through,
    family,
    needs_landlock,
)

REPO = Path(__file__).resolve().parents[2]


def test_a_candidate_compiles_in_its_own_process_and_leaves_nothing_outside(judge, kit, tmp_path):
    from kernelpro.targets import cpp_loader

    loader = Path(cpp_loader.__file__).read_text(encoding="utf-8")
    candidate = kit.candidate(
        """
        out = torch.empty_like(x)
        library.apply(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(self.weight.data_ptr()),
                      ctypes.c_void_p(self.bias.data_ptr()), ctypes.c_void_p(out.data_ptr()),
                      x.numel())
        return out
        """,
        at_import=f"{loader}\nlibrary = load_cpp(r'''"
        + """
        extern "C" void apply(const float *x, const float *w, const float *b, float *y, int n) {
            for (int i = 0; i < n; ++i) {
                float v = x[i] * w[i % 256] + b[i % 256];
                y[i] = v > 0 ? v : 0;
            }
        }
        ''')""",
    )
    with judge.judging(candidate) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message


def test_temporary_files_and_caches_lie_in_the_scratch_folder(verdict_on):
    evaluation = verdict_on(
        at_import="""
        import tempfile, pathlib
        here = os.path.realpath(os.getcwd())
        with tempfile.NamedTemporaryFile() as file:
            assert os.path.realpath(file.name).startswith(here), file.name
        assert os.path.realpath(pathlib.Path.home()) == here
        assert os.path.realpath(os.environ['KERNELPRO_TEST_CACHE']) == here
        open('/dev/null', 'w').write('x')
        """
    )
    assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message


def test_workers_are_ready_ahead_of_need_and_used_once(judge, kit):
    judge.zygote.settle()
    (spare,) = judge.zygote._spares
    with judge.judging(kit.honest) as (evaluation, session):
        assert evaluation.outcome is Outcome.ACCEPTED
        assert session.worker is spare
    assert not spare.alive
    assert spare not in judge.zygote._spares


def test_a_worker_that_died_while_it_waited_is_replaced(judge, kit):
    judge.zygote.settle()
    os.kill(judge.zygote._spares[0].pid, signal.SIGKILL)
    with judge.judging(kit.honest) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message


def test_headers_that_nvcc_is_told_of_are_visible_where_the_home_is_not(tmp_path):
    tree = tmp_path / "cutlass" / "include"
    tree.mkdir(parents=True)
    found = environment.headers({"NVCC_PREPEND_FLAGS": f"-I{tree} --expt-relaxed-constexpr"})
    assert found == [tree]
    assert environment.headers({}) == []
    words = bubblewrap.command(tmp_path / "scratch", found, device="cpu")
    assert (words.count(str(tree)) == 2) == str(tree.resolve()).startswith(bubblewrap.HIDDEN)


STRICT_TROUBLE = bubblewrap.trouble()


@pytest.mark.skipif(bool(STRICT_TROUBLE), reason=f"{STRICT_TROUBLE} (apt install bubblewrap)")
def test_the_strict_level_hides_the_users_home_and_tmp(kit, tmp_path):
    victim = tmp_path / "secret"
    victim.write_text("secret")
    with kit.judge(settings=replace(kit.quick, isolation="strict")) as judge:
        tries = {
            "look": f"open({str(victim)!r})",
            "shared memory": "open('/dev/shm/x', 'w')",
        }
        judge.baseline()
        assert attacks_that_went_through(judge, kit, tries) == []
        with judge.judging(kit.honest) as (evaluation, _):
            assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
            assert evaluation.verdict.isolation.startswith("strict: ")
        started = family(judge)
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in started) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)


def test_a_level_that_is_not_to_be_had_is_an_error_in_one_sentence(kit, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    strict = kit.judge(settings=replace(kit.quick, isolation="strict"))
    with strict, pytest.raises(JudgeError, match="bwrap is not on PATH"):
        strict.baseline()
    other = kit.judge(settings=replace(kit.quick, isolation="perfect"))
    with other, pytest.raises(JudgeError, match="process, basic, strict"):
        other.baseline()


@needs_landlock
def test_confining_takes_effect_in_the_process_that_asks(tmp_path):
    code = (
        "import sys; from pathlib import Path; from kernelpro.judge.confinement import *\n"
        "confine(Rules(scratch=Path(sys.argv[1]) / 'in', device='cpu', file_bytes=1 << 20,\n"
        "              memory_bytes=1 << 30))\n"
        "(Path(sys.argv[1]) / 'in' / 'x').write_text('fine')\n"
        "try: (Path(sys.argv[1]) / 'y').write_text('bad')\n"
        "except PermissionError: print('confined')\n"
    )
    (tmp_path / "in").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True, text=True, check=True, cwd=REPO, timeout=60,
    )  # fmt: skip
    assert done.stdout == "confined\n"
