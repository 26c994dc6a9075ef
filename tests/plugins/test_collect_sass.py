import pytest

from kernelpro import Build, KernelproError
from kernelpro.plugins import collect_sass
from tests.profiling.samples import accepted
from tests.profiling.sass.listings import compiled, needs_compiler

SOURCE = """
extern "C" __global__ void third(const float* in, float* out) {
  out[threadIdx.x] = in[threadIdx.x] * 0.5 + 1.0 / 3.0;
}
"""
NAMES = frozenset(
    {"sass.fp64", "sass.registers", "compiler.registers", "compiler.wgmma_serialised", "cpu.x"}
)


class Session:
    """A session that gives what it was made with."""

    target = "cuda"

    def __init__(self, *paths, error=""):
        self.asked = []
        self._paths = paths
        self._error = error

    def collect(self, function, arguments):
        self.asked.append(function)
        if self._error:
            raise KernelproError(self._error)
        files = [{"path": str(p), "kind": "triton", "bytes": 1} for p in self._paths]
        return {"files": files, "folders": []}


def collect(session, binary="", names=NAMES):
    evaluation = accepted()
    if binary:
        evaluation = accepted(binary=str(binary))
        assert evaluation.build == Build(ok=True, binary=str(binary))
    return collect_sass.collect_metrics(evaluation, names, session)


@needs_compiler
def test_a_built_cubin_and_its_log_give_metrics_of_its_kernel(tmp_path):
    path, log = compiled(tmp_path, SOURCE, "-O3", "-lineinfo", "-Xptxas", "-v")
    path.with_suffix(".log").write_text(log)
    session = Session()
    found = collect(session, path)
    (kernel,) = found.kernels
    assert kernel.name == "third"
    assert set(kernel.metrics) == {"sass.fp64", "sass.registers", "compiler.registers"}
    assert found["sass.fp64"] == 3
    assert found["sass.registers"] == found["compiler.registers"]
    assert found.note("sass.fp64").startswith("kernel.cu:3 F2F.F64.F32")
    assert found.metrics["compiler.wgmma_serialised"].how == "absent"
    assert "cpu.x" not in found.metrics
    assert session.asked == []


@needs_compiler
def test_without_a_build_the_candidates_caches_are_read(tmp_path):
    path, _ = compiled(tmp_path, SOURCE + SOURCE.replace("third", "other"), "-O3")
    session = Session(path, tmp_path / "gone.cubin")
    found = collect(session)
    assert {k.name for k in found.kernels} == {"third", "other"}
    assert session.asked == ["kernelpro.profiling.sass.candidate_files:collect"]
    assert "sass.fp64" not in found  # of several kernels none stands for the whole
    assert all(k.metrics["sass.fp64"].value == 3 for k in found.kernels)


@pytest.mark.parametrize(
    ("session", "words"),
    [
        (Session(), "the candidate's tools left no cubin and no shared object"),
        (Session(error="the process ended"), "the process ended"),
        (Session("/nowhere/x.cubin"), "x.cubin cannot be read: No such file"),
    ],
)
def test_what_cannot_be_read_is_absent_with_the_reason(session, words):
    found = collect(session)
    assert found.kernels == ()
    assert words in found.metrics["sass.fp64"].note
    assert set(found.metrics) == {n for n in NAMES if not n.startswith("cpu")}


def test_a_damaged_binary_is_absent_with_the_reason(tmp_path):
    path = tmp_path / "kernel.cubin"
    path.write_bytes(b"")
    assert "is empty (0 bytes)" in collect(Session(), path).metrics["sass.fp64"].note


def test_nothing_is_done_when_nothing_is_asked_for():
    session = Session()
    assert not collect(session, names=frozenset({"cpu.x"})).metrics
    session.target = "cpu"
    assert not collect(session).metrics
    assert session.asked == []
