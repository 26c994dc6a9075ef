"""Products and transposes on a GPU, against float64; the same programs as on the CPU elsewhere."""

import pytest
import torch

from benchmarks import gemm
from kernelpro.language.parse import parse
from kernelpro.language.writer import write_program

THREE = "math='3xtf32', tile_k=32"
SMALL = (
    gemm.Case(name="plain", m=200, n=264, k=72),
    gemm.Case(
        name="odd", m=37, n=35, k=29, after="residual", knobs="tile_m=32, tile_n=64, warps_m=2"
    ),
    gemm.Case(name="turned", m=72, n=40, k=88, layout="TN", after="bias", knobs="stages=5"),
    gemm.Case(name="split", m=64, n=64, k=512, after="bias", knobs="split_k=4"),
    gemm.Case(name="bf16", m=200, n=264, k=72, dtype="bfloat16"),
    gemm.Case(name="bf16_nn", m=200, n=264, k=72, dtype="bfloat16", layout="NN", knobs="tile_k=64"),
    gemm.Case(name="f16_tn", m=136, n=72, k=320, dtype="float16", layout="TN", knobs="split_k=2"),
    gemm.Case(name="f16_tt", m=136, n=72, k=40, dtype="float16", layout="TT", batch=3),
    gemm.Case(name="tf32", m=136, n=72, k=100, knobs="math='tf32'", precision="tf32"),
    gemm.Case(
        name="tf32_tn", m=136, n=72, k=100, layout="TN", knobs="math='tf32'", precision="tf32"
    ),
    gemm.Case(name="three_nt", m=200, n=264, k=1100, after="residual", knobs=THREE),
    gemm.Case(name="three_nn", m=200, n=264, k=1100, layout="NN", knobs=THREE + ", split_k=4"),
    gemm.Case(name="three_tn", m=136, n=72, k=320, layout="TN", batch=3, knobs=THREE),
    gemm.Case(name="three_tt", m=136, n=72, k=40, layout="TT", after="bias", knobs=THREE),
    gemm.Case(name="transpose", m=133, n=71, k=0, batch=3, after="none"),
    gemm.Case(name="bf16_transpose", m=133, n=72, k=0, dtype="bfloat16", knobs="tile=64"),
)


@pytest.mark.gpu
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_a_product_or_transpose_is_computed_right_on_the_gpu(case, tmp_path):
    problem = gemm.problem_of(case, "cuda", tmp_path)
    source = write_program(problem, parse(gemm.program_text(case, "cuda", case.knobs)))
    candidate = gemm.loaded(source, tmp_path / "candidate.py").ModelNew()
    module = gemm.loaded(problem.source, tmp_path / "module.py")
    torch.manual_seed(3)
    inputs = [tensor.cuda() for tensor in module.get_inputs()]
    with torch.no_grad():
        wanted = module.Model()(*(tensor.double() for tensor in inputs))
        error = gemm.largest(candidate(*inputs), wanted)
    assert error <= (1e-2 if case.precision != "strict" else gemm.FLOOR[case.dtype])
