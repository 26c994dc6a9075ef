"""Candidates of every kind against real workers: each judged, the next one unaffected."""

import os
from dataclasses import replace

import pytest

from kernelpro.errors import JudgeError
from kernelpro.records import Build, Candidate, Outcome


def test_an_honest_candidate_is_accepted_and_timed(judge, kit):
    with judge.judging(kit.honest) as (evaluation, session):
        assert evaluation.outcome is Outcome.ACCEPTED
        assert session is not None
    assert evaluation.verdict.decision == "accept"
    assert evaluation.verdict.calls_compared >= 4
    assert {c.inputs for c in evaluation.verdict.checks} >= {"shipped-0", "zero-mean"}
    assert all(c.ok for c in evaluation.verdict.checks)
    timing = evaluation.timing
    assert 0 < timing.speedup_low <= timing.speedup <= timing.speedup_high
    assert timing.runs >= 5
    assert timing.baseline == "eager"
    assert set(evaluation.phases_s) == {"start", "load", "judge", "time"}


def test_the_baseline_is_timed_by_itself(judge):
    evaluation = judge.baseline()
    assert evaluation.timing.speedup == 1.0
    assert evaluation.timing.median_us > 0


FAILURES = {
    "a wrong result": ({"forward": "return self.right(x) * 1.001"}, "wrong_result", "expected"),
    "a mutated input": (
        {"forward": "y = self.right(x)\nx.zero_()\nreturn y"},
        "wrong_result",
        "changed its input",
    ),
    "a wrong type": ({"forward": "return self.right(x).double()"}, "wrong_result", "float32"),
    "a wrong shape": ({"forward": "return self.right(x)[:1]"}, "wrong_result", "shape"),
    "a wrong arity": ({"forward": "return self.right(x), x"}, "wrong_result", "one tensor"),
    "no tensor": ({"forward": "return None"}, "wrong_result", "one tensor"),
    "a subclass": (
        {
            "at_import": "class Lazy(torch.Tensor): pass",
            "forward": "return self.right(x).as_subclass(Lazy)",
        },
        "wrong_result",
        "plain torch.Tensor",
    ),
    "overridden methods": (
        {"forward": "y = self.right(x)\ny.cpu = lambda: y\nreturn y"},
        "wrong_result",
        "plain torch.Tensor",
    ),
    "a result on another device": (
        {"forward": "return torch.empty(x.shape, device='meta')"},
        "wrong_result",
        "on cpu",
    ),
    "NaN": ({"forward": "return self.right(x) * float('nan')"}, "wrong_result", "non-finite"),
    "ignored parameters": ({"forward": "return torch.relu(x)"}, "wrong_result", "mismatch"),
    "half precision inside": (
        {"forward": "return torch.relu((x.half() * self.weight + self.bias).float())"},
        "wrong_result",
        "mismatch",
    ),
    "an exception in forward": (
        {"forward": "raise ValueError('no such kernel')"},
        "runtime_error",
        "no such kernel",
    ),
    "an exception while loading": (
        {"at_import": "raise ValueError('too early')"},
        "runtime_error",
        "too early",
    ),
    "an exit by exception": ({"forward": "sys.exit(0)"}, "runtime_error", "SystemExit"),
    "a compiler's refusal": (
        {
            "at_import": "class CompileError(RuntimeError): pass",
            "init": "raise CompileError('expected ; in line 3')",
        },
        "compile_error",
        "expected ; in line 3",
    ),
    "no Python": ({"forward": "return )"}, "compile_error", "SyntaxError"),
    "a silent exit": ({"forward": "os._exit(0)"}, "crashed", "exit status 0"),
    "an exit while loading": ({"at_import": "os._exit(3)"}, "crashed", "exit status 3"),
    "a segmentation fault": ({"forward": "ctypes.string_at(8)"}, "crashed", "SIGSEGV"),
    "an abort": ({"init": "os.abort()"}, "crashed", "SIGABRT"),
    "a kill by itself": (
        {"forward": "os.kill(os.getpid(), signal.SIGKILL)"},
        "crashed",
        "SIGKILL",
    ),
    "a death in a timed call": (
        {"forward": "if self.calls > 40: os._exit(0)\nreturn self.right(x)"},
        "crashed",
        "timed call",
    ),
    "an attempt to kill the fork server": (
        {"forward": "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(9)"},
        "runtime_error",
        "not permitted",
    ),
    "garbage on its channel": (
        {
            "forward": """
            import gc, socket
            for each in gc.get_objects():
                if isinstance(each, socket.socket):
                    each.sendall(b'{"nonce": "guessed"}\\n')
            return self.right(x)
            """
        },
        "crashed",
        "answered with a reply",
    ),
    "a closed channel": (
        {
            "forward": """
            for fd in range(3, 99):
                try: os.close(fd)
                except OSError: pass
            return self.right(x)
            """
        },
        "crashed",
        "in a call",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_judged_and_the_next_candidate_unaffected(judge, kit, verdict_on, name):
    parts, outcome, words = FAILURES[name]
    evaluation = verdict_on(**parts)
    assert evaluation.outcome.value == outcome, evaluation.message
    assert words in evaluation.message
    assert evaluation.timing is None
    with judge.judging(kit.honest) as (after, _):
        assert after.outcome is Outcome.ACCEPTED, after.message


@pytest.mark.parametrize(
    ("where", "part"),
    [
        ("loading", {"at_import": "while True: pass"}),
        ("a call", {"forward": "time.sleep(600)"}),
        (
            "a timed call",
            {"forward": "if self.calls > 40: signal.pause()\nreturn self.right(x)"},
        ),
    ],
)
def test_a_hang_is_killed_at_the_phases_deadline(kit, where, part):
    short = replace(kit.quick, load_deadline_s=1.0, first_call_deadline_s=1.0, call_deadline_s=1.0)
    with kit.judge(settings=short) as judge:
        with judge.judging(kit.candidate(**{"forward": "return self.right(x)", **part})) as (
            evaluation,
            session,
        ):
            assert session is None
        assert evaluation.outcome is Outcome.TIMEOUT
        assert where in evaluation.message
        with judge.judging(kit.honest) as (evaluation, session):
            assert evaluation.outcome is Outcome.ACCEPTED


def test_the_largest_mismatch_is_told_with_its_place_and_both_values(verdict_on):
    evaluation = verdict_on("y = self.right(x)\ny[7, 11] = 123\nreturn y")
    assert "[7, 11]" in evaluation.message
    assert "found 123" in evaluation.message
    assert evaluation.verdict.reasons == ("wrong_result",)
    assert [c for c in evaluation.verdict.checks if not c.ok]


CHEATS = {
    "keeps results by address": """
        key = x.data_ptr()
        if key not in self.cache:
            self.cache[key] = self.right(x)
        return self.cache[key].clone()
        """,
    "keeps results by address and version": """
        key = (x.data_ptr(), x._version, id(x))
        if key not in self.cache:
            self.cache[key] = self.right(x)
        return self.cache[key].clone()
        """,
    "keeps results by sampled values": """
        key = (float(x[0, 0]), float(x[-1, -1]), float(x[0, 7]))
        if key not in self.cache:
            self.cache[key] = self.right(x)
        return self.cache[key].clone()
        """,
    "is honest for the first calls only": """
        if self.calls < 45:
            self.last = self.right(x)
        return self.last.clone()
        """,
    "is honest until it is timed": """
        import inspect
        timed = any('prepare' in f.filename or self.calls > 28 for f in inspect.stack())
        return torch.zeros_like(x) if timed else self.right(x)
        """,
    "is wrong now and then": """
        y = self.right(x)
        if os.urandom(1)[0] < 100:
            y[0, 0] += 1
        return y
        """,
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_candidate_is_rejected_that(verdict_on, name):
    evaluation = verdict_on(CHEATS[name])
    assert evaluation.outcome is Outcome.WRONG_RESULT
    assert evaluation.verdict.decision == "reject"


def test_a_cache_keyed_by_all_bytes_of_the_input_never_hits_in_timed_calls(verdict_on):
    evaluation = verdict_on(
        """
        key = x.numpy().tobytes()
        assert self.calls <= 24 or key not in self.cache, 'an input came again'
        self.cache[key] = True
        return self.right(x)
        """
    )
    assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
    assert evaluation.verdict.calls_compared > 24


def test_inputs_are_refilled_at_the_same_address_with_new_values(verdict_on):
    evaluation = verdict_on(
        """
        self.cache.setdefault('place', x.data_ptr())
        assert self.cache['place'] == x.data_ptr(), 'moved'
        sums = self.cache.setdefault('sums', [])
        sums.append(float(x.double().square().sum()))
        assert len(sums) < 9 or len(set(sums)) > 1, 'same'
        return self.right(x)
        """
    )
    assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message


def test_a_reused_output_buffer_is_flagged_not_rejected(verdict_on):
    evaluation = verdict_on(
        """
        if 'out' not in self.cache:
            self.cache['out'] = torch.empty_like(x)
        torch.addcmul(self.bias, x, self.weight, out=self.cache['out'])
        return self.cache['out'].relu_()
        """
    )
    assert evaluation.outcome is Outcome.FLAGGED
    assert "reused_output_buffer" in evaluation.verdict.reasons
    assert evaluation.timing is not None


def test_other_parameters_than_the_references_are_accepted_with_a_note(verdict_on):
    evaluation = verdict_on(
        "return torch.relu(x * self.packed[0] + self.packed[1])",
        init="""
        self.packed = torch.nn.Parameter(torch.stack([self.weight, self.bias]).detach())
        del self.weight, self.bias
        """,
    )
    assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
    assert "params_unverified" in evaluation.verdict.reasons


def test_a_flood_of_output_is_drained_capped_and_rejected(verdict_on):
    evaluation = verdict_on("if self.calls < 20: print('x' * (1 << 20))\nreturn self.right(x)")
    assert evaluation.verdict.reasons == ("output_flood",)
    assert len(evaluation.message) < 2000


def test_secrets_of_the_environment_are_not_visible_in_the_worker(kit, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    with kit.judge() as judge:
        candidate = kit.candidate(
            "return self.right(x)",
            at_import="""
            seen = open('/proc/self/environ').read() + str(dict(os.environ))
            assert 'ANTHROPIC_API_KEY' not in seen and 'HF_TOKEN' not in seen, 'leak'
            assert os.environ['HOME'] == os.getcwd() == os.environ['TMPDIR']
            assert 'KERNELPRO_TEST_CACHE' in os.environ
            """,
        )
        with judge.judging(candidate) as (evaluation, _):
            # It saw nothing, or its own assertion would have failed; but it looked.
            assert evaluation.verdict.reasons == ("secrets",), evaluation.message


def test_the_worker_holds_no_reference_and_no_descriptor_but_its_own(verdict_on):
    evaluation = verdict_on(
        "return self.right(x)",
        at_import="""
        import gc
        names = [type(o).__name__ for o in gc.get_objects()]
        assert 'ProblemModule' not in names and 'Bank' not in names
        held = [os.readlink(f'/proc/self/fd/{n}') for n in range(64)
                if os.path.islink(f'/proc/self/fd/{n}')]
        assert sum(h.startswith('socket:') for h in held) == 1, held
        """,
    )
    # It found nothing, or its own assertions would have failed; but it looked.
    assert evaluation.verdict.reasons == ("introspection",), evaluation.message


def test_the_same_code_on_both_sides_is_not_faster(judge, kit):
    with judge.judging(kit.candidate("return self.right(x)")) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED
        assert not evaluation.timing.faster


def test_a_fraction_of_the_baseline_s_work_takes_less_time_and_a_multiple_more(kit):
    slow = """
    import torch

    class Model(torch.nn.Module):
        def forward(self, x):
            for _ in range(100):
                x = x * 2.0
            return x * 2.0**-90

    def get_inputs():
        return [torch.rand(256, 256)]

    def get_init_inputs():
        return []
    """
    quick = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    with kit.judge(slow) as judge:
        with judge.judging(Candidate(source=quick + "        return x * 1024.0")) as (found, _):
            assert found.outcome is Outcome.ACCEPTED, found.message
            # Whether it is called faster depends on how busy the machine is; see test_timing.py.
            assert found.timing.speedup > 1.0
        again = "        for _ in range(400): y = torch.sin(x)\n        return x * 1024.0"
        with judge.judging(Candidate(source=quick + again)) as (found, _):
            assert found.outcome is Outcome.ACCEPTED
            assert found.timing.speedup < 1.0


def test_faster_than_the_speed_of_light_is_flagged(kit):
    with (
        kit.judge(sol_us=1e9) as judge,
        judge.judging(kit.honest) as (evaluation, session),
    ):
        assert evaluation.outcome is Outcome.FLAGGED
        assert "faster_than_sol" in evaluation.verdict.reasons
        assert session is not None


def test_a_failed_build_is_a_compile_error_without_a_worker(judge, kit):
    build = Build(ok=False, log="error: expected ';'")
    with judge.judging(kit.honest, build) as (evaluation, session):
        assert session is None
    assert evaluation.outcome is Outcome.COMPILE_ERROR
    assert evaluation.build is build
    assert "expected ';'" in evaluation.message


def test_a_confirmation_judges_again_from_scratch(judge, kit):
    evaluation = judge.confirm(kit.honest)
    assert evaluation.outcome is Outcome.ACCEPTED
    with judge.judging(kit.honest) as (first, _):
        assert evaluation.verdict.calls_compared > first.verdict.calls_compared
    assert judge.confirm(kit.candidate("return x")).outcome is Outcome.WRONG_RESULT


@pytest.fixture(scope="module")
def collectors(tmp_path_factory):
    """A module of collectors that workers can import."""
    folder = tmp_path_factory.mktemp("collectors")
    (folder / "test_collectors.py").write_text(
        "import os\n"
        "def shape(call, scale):\n"
        "    return {'rows': call().shape[0] * scale, 'pid': os.getpid()}\n"
        "def end(call):\n"
        "    os._exit(7)\n"
        "def fail(call):\n"
        "    raise ValueError('no counters')\n"
        "def wrong(call):\n"
        "    return {'x': object()}\n"
    )
    return f"import sys; sys.path.insert(0, {str(folder)!r})"


def test_a_session_collects_in_the_workers_process(judge, kit, collectors):
    candidate = kit.candidate("return self.right(x)", at_import=collectors)
    with judge.judging(candidate) as (_, session):
        assert session.target == "cpu"
        found = session.collect("test_collectors:shape", {"scale": 2})
        assert found["rows"] == 96
        assert found["pid"] != os.getpid()
        for name, words in (("fail", "no counters"), ("wrong", "serializable"), ("none", "none")):
            with pytest.raises(JudgeError, match=words):
                session.collect(f"test_collectors:{name}", {})
        assert session.collect("test_collectors:shape", {"scale": 1})["rows"] == 48


def test_a_collector_that_ends_the_process_is_told_and_the_judge_goes_on(judge, kit, collectors):
    candidate = kit.candidate("return self.right(x)", at_import=collectors)
    with (
        judge.judging(candidate) as (_, session),
        pytest.raises(JudgeError, match="exit status 7"),
    ):
        session.collect("test_collectors:end", {})
    with judge.judging(kit.honest) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED


def test_the_baselines_session_runs_the_reference(kit, collectors):
    with kit.judge(f"{collectors}\n{kit.affine}") as judge:
        found = judge.baseline_session().collect("test_collectors:shape", {"scale": 1})
    assert found["rows"] == 48


def test_a_baseline_that_was_killed_is_started_again(judge, kit):
    trial = judge._trial
    os.kill(trial.baseline().pid, 9)
    with judge.judging(kit.honest) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED


def test_several_outputs_integers_masks_and_nan_rows_are_judged(kit):
    source = """
    import torch

    class Model(torch.nn.Module):
        def __init__(self, scale, bias=0.0):
            super().__init__()
            self.scale, self.bias = scale, bias

        def forward(self, x, mask):
            y = torch.softmax(x.masked_fill(mask, float('-inf')), dim=1) * self.scale + self.bias
            return y, x.argmax(dim=1)

    def get_inputs():
        mask = torch.rand(32, 64) > 0.7
        mask[:2] = True
        return [torch.randn(32, 64), mask]

    def get_init_inputs():
        return {'scale': 2.0, 'bias': 0.5}
    """
    problem = kit.problem(source).source
    right = problem.replace("class Model(", "class ModelNew(")
    wrong = right.replace("x.argmax(dim=1)", "x.argmax(dim=1) * 0")
    blind = right.replace("return y,", "return torch.nan_to_num(y),")
    with kit.judge(source) as judge:
        for text, outcome in (
            (right, Outcome.ACCEPTED),
            (wrong, Outcome.WRONG_RESULT),
            (blind, Outcome.WRONG_RESULT),
        ):
            with judge.judging(Candidate(source=text)) as (evaluation, _):
                assert evaluation.outcome is outcome, evaluation.message


def test_a_reference_that_fails_is_an_error_of_the_judge(kit):
    broken = kit.affine.replace("return torch.relu", "raise ValueError('boom')\n        return")
    with kit.judge(broken) as judge, pytest.raises(JudgeError, match="boom"):
        judge.baseline()
