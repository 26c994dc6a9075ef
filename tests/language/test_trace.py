import time

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelpro import problems
from kernelpro.language.program import text
from kernelpro.language.regions import Region
from kernelpro.language.schedule import CpuSchedule
from kernelpro.language.trace import _conversions, trace
from kernelpro.language.writer import explain, first_program, prepare, write, write_program
from kernelpro.problems.module import instantiate

KERNELS = {
    "bias_relu_residual": 1,
    "cross_entropy": 1,
    "layer_norm": 1,
    "matmul_epilogue": 1,
    "mlp_two_layer": 2,
    "rms_norm": 1,
    "row_reductions": 1,
    "row_softmax": 1,
    "scale_gelu_residual": 1,
}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(("name", "kernels"), KERNELS.items())
def test_a_bundled_problem_becomes_as_few_kernels_as_its_matrix_products_allow(
    name, kernels, target
):
    prepared = prepare(problems.load(name, target=target))
    regions = [s for s in prepared.stages if isinstance(s, Region)]
    calls = len(prepared.stages) - len(regions)
    assert len(regions) == kernels
    assert calls == {"matmul_epilogue": 1, "mlp_two_layer": 2}.get(name, 0)


def test_tracing_a_problem_of_a_gpus_size_takes_no_memory_and_little_time():
    problem = problems.load("row_softmax", target="cuda", sizes={"rows": 1 << 20, "columns": 8192})
    start = time.perf_counter()
    graph = trace(problem)
    assert time.perf_counter() - start < 30  # 32 GiB of random numbers would take minutes
    assert graph.nodes[0].shape == (1 << 20, 8192)


def test_the_graph_reads_as_text():
    lines = trace(problems.load("row_softmax")).text().splitlines()
    assert lines[0] == "%0 = input x : float32[8192, 1024]"
    assert [line.split()[3].partition("(")[0] for line in lines[1:]] == [
        "amax",
        "sub",
        "exp",
        "sum",
        "reciprocal",
        "mul",
    ]


@pytest.mark.parametrize(
    ("forward", "inputs", "said"),
    [
        ("return x0.cumsum(-1)", "torch.randn(32, 32)", "no operator can be fused; torch computes"),
        ("return x0.double().relu()", "torch.randn(32, 32)", "no operator can be fused"),
        ("return x0.add_(1)", "torch.randn(32, 32)", "changes its inputs"),
        ("return x0 if x0.sum() > 0 else -x0", "torch.randn(32, 32)", "torch.export cannot follow"),
        ("return x0.relu()", "torch.randn(4, 4)", "no operator can be fused"),
    ],
)
def test_where_no_kernel_can_be_written_explain_says_why(forward, inputs, said, make_problem):
    problem = make_problem(forward, inputs)
    assert prepare(problem).reason
    assert said in explain(problem)
    with pytest.raises(ValueError, match="no kernel can be written"):
        write(problem, CpuSchedule())


def test_explain_names_kernels_and_torch_calls():
    text = explain(problems.load("mlp_two_layer"))
    assert text.count("torch: torch.ops.aten.linear") == 2
    assert text.count("kernel over") == 2


def test_a_schedule_for_another_target_or_machine_is_refused():
    problem = problems.load("row_softmax", target="cuda")
    with pytest.raises(ValueError, match="bound to cuda"):
        write(problem, CpuSchedule())
    with pytest.raises(ValueError, match="as many unrolled"):
        write(problems.load("row_softmax"), CpuSchedule(accumulators=4))


def test_plain_arguments_and_tensor_constants_of_forward_become_constants(make_problem):
    problem = make_problem("return x0 * x1 + torch.tensor(0.25)", "torch.randn(32, 32); 1.5")
    source = write(problem, CpuSchedule())
    assert "x0_c * 1.5f" in source
    assert "+ 0.25f" in source
    assert "if x1 != 1.5:" in source


def test_a_batch_norm_in_training_mode_keeps_counting_and_the_rest_is_fused(
    make_problem, load_candidate, needs_compiler
):
    problem = make_problem(
        "return torch.relu(self.n(x0)) * 2.0 + 0.5",
        "torch.randn(4, 6, 9, 9)",
        "self.n = nn.BatchNorm2d(6)",
    )
    program = first_program(problem, CpuSchedule())
    words = text(program)
    assert "aten.add_.Tensor(n_num_batches_tracked, 1)" in words
    assert "aten.batch_norm.default" in words
    assert words.count("    with ") == 1
    candidate = load_candidate(write_program(problem, program)).ModelNew()
    eager = instantiate(problem).model(0)
    x = torch.randn(4, 6, 9, 9)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(candidate(x), eager(x))
    for mine, own in zip(candidate.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(mine, own)
    assert int(candidate.n.num_batches_tracked) == 3


def test_other_changes_of_buffers_and_inputs_are_not_followed(make_problem):
    problem = make_problem(
        "self.seen.add_(x0.mean())\nreturn x0 * self.seen",
        "torch.randn(64, 9)",
        "self.register_buffer('seen', torch.zeros(()))",
    )
    assert "changes its inputs or the module's buffers" in prepare(problem).reason
    problem = make_problem("x0.add_(1.0)\nreturn x0 * 2.0", "torch.randn(64, 9)")
    assert "changes its inputs" in prepare(problem).reason


@pytest.mark.parametrize(
    "conversion", ["self.bfloat16()", "self.to(torch.bfloat16)", "self.half()"]
)
def test_a_module_that_converts_itself_when_made_is_followed(conversion, make_problem):
    dtype = "float16" if "half" in conversion else "bfloat16"
    init = "self.layer = nn.Linear(8, 8)\nself.tied = nn.Linear(8, 8)\n"
    init += f"self.tied.weight = self.layer.weight\n{conversion}"
    forward = "return self.tied(self.layer(x0).relu()) * 2"
    for target in ("cpu", "cuda"):
        problem = make_problem(
            forward, f"torch.randn(4, 8, dtype=torch.{dtype})", init, target=target
        )
        graph = trace(problem)
        read = [node for node in graph.nodes if node.kind == "parameter"]
        assert {node.dtype for node in read} == {dtype}
        with FakeTensorMode(), _conversions():
            model = instantiate(problem).model(0)
        assert model.get_parameter("tied.weight") is model.get_parameter("layer.weight")
