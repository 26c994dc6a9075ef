from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelpro import problems
from kernelpro.lessons.features import Features, distance, of_counts, of_problem

MODULE = """
import torch


class {model}(torch.nn.Module):
    def forward(self, x):
        return {expression}


Model = {model}


def get_inputs():
    return [torch.randn(256, 512)]
"""
EXPRESSIONS = {
    "softmax": "torch.softmax(x, dim=-1)",
    "log_softmax": "torch.log_softmax(x, dim=-1)",
    "column_softmax": "torch.softmax(x, dim=0)",
    "matmul": "x @ x.T",
    "scale": "x * 2.0 + 1.0",
    "renamed": "torch.softmax(x, dim=-1)",
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("problems")
    for name, expression in EXPRESSIONS.items():
        model = "Model" if name != "renamed" else "AnotherName"
        text = MODULE.format(model=model, expression=expression)
        (folder / f"{name}.py").write_text(text if model != "Model" else text.replace(
            "Model = Model\n", ""
        ))  # fmt: skip
    return {name: problems.load(str(folder / f"{name}.py")) for name in EXPRESSIONS}


@pytest.fixture(scope="module", params=["graph", "counts"])
def known(loaded, request):
    read = of_problem if request.param == "graph" else of_counts
    found = {name: read(problem) for name, problem in loaded.items()}
    assert all(features.traced == (request.param == "graph") for features in found.values())
    return found


def test_a_renamed_problem_is_nearest_to_itself(known):
    assert known["renamed"].fingerprint == known["softmax"].fingerprint
    assert distance(known["renamed"], known["softmax"]) == 0.0
    apart = [name for name in known if distance(known["renamed"], known[name]) > 0.0]
    # Counts do not say which dimension is reduced.
    same = 2 if known["softmax"].traced else 3
    assert len(apart) == len(known) - same


def test_softmax_is_nearer_to_log_softmax_than_to_anything_else(known):
    far = {name: distance(known["softmax"], known[name]) for name in EXPRESSIONS}
    assert 0.0 < far["log_softmax"] < min(far["matmul"], far["scale"])
    assert far["matmul"] > 0.5


def test_operator_classes_follow_the_costliest_operator(known):
    assert known["softmax"].operator_class == "row-wise"
    assert known["matmul"].operator_class == "matmul"
    assert known["scale"].operator_class == "pointwise"


def test_only_the_graph_knows_which_dimensions_are_reduced(loaded):
    rows, columns = (of_problem(loaded[name]) for name in ("softmax", "column_softmax"))
    assert (rows.strided, columns.strided) == (False, True)
    assert (rows.row_log2, columns.row_log2) == (9.0, 8.0)
    assert not of_counts(loaded["column_softmax"]).strided


def test_what_was_traced_compares_with_what_could_not_be(loaded):
    far = distance(of_problem(loaded["softmax"]), of_counts(loaded["softmax"]))
    assert far == 0.0


def test_a_problem_that_torch_cannot_trace_has_the_features_of_its_counts(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(
        MODULE.format(model="Model", expression="torch.softmax(x, 1) if x.sum() == x.sum() else x")
        .replace("Model = Model\n", "")
        .replace("x.sum() == x.sum()", "float(torch.ones(2).sum()) > len(str(x.shape[0])) - 9")
        .replace("def forward(self, x):", "def forward(self, *x):\n        (x,) = x")
    )
    problem = problems.load(str(path))
    features = of_problem(problem)
    assert features == of_counts(problem)
    assert features.operators["exp"] == 1


SOME = st.builds(
    Features,
    operators=st.dictionaries(st.sampled_from(["exp", "sum", "mul", "matmul"]), st.integers(1, 9)),
    row_log2=st.floats(0, 20),
    strided=st.booleans(),
    input_log2=st.floats(0, 30),
    output_log2=st.floats(0, 30),
    intensity_log2=st.floats(-5, 12),
    dtype=st.sampled_from(["float32", "float16"]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a busy machine
@given(SOME, SOME)
def test_a_distance_is_symmetric_within_bounds_and_zero_for_equals(one, other):
    assert distance(one, other) == distance(other, one)
    assert 0.0 <= distance(one, other) <= 1.0 + 1e-12
    assert distance(one, replace(one)) == 0.0
