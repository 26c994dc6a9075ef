"""CUDA candidates: compiled for an H100 where nvcc is, run where a GPU is."""

import random
from dataclasses import replace

import pytest
import torch

from kernelpro import problems, targets
from kernelpro.language import emit_cuda
from kernelpro.language.legal import legal
from kernelpro.language.limits import limits_of
from kernelpro.language.lower import lower
from kernelpro.language.parse import parse
from kernelpro.language.program import with_schedules
from kernelpro.language.schedule import KNOBS, CudaSchedule
from kernelpro.language.starts import default
from kernelpro.language.writer import first_program, prepare, write, write_program
from kernelpro.problems.module import instantiate
from kernelpro.records import Machine
from tests.language import cuda_on_cpu

H100 = Machine(target="cuda", device="NVIDIA H100", facts={"capability": "9.0"})


def start(name: str, **sizes: int):
    problem = problems.load(name, target="cuda", sizes=sizes)
    return problem, default(H100, prepare(problem).works, "cuda")


def test_the_text_has_no_include_and_a_launch_bound():
    problem, schedule = start("row_softmax")
    source = write(problem, schedule)
    assert "#include" not in source
    assert f"__launch_bounds__({schedule.threads}, {schedule.min_blocks})" in source


def test_an_index_beyond_two_to_the_31_gets_64_bits():
    problem, schedule = start("row_softmax", rows=1 << 20, columns=4096)
    assert "typedef long long index_t;" in write(problem, schedule)
    problem, schedule = start("row_softmax")
    assert "typedef int index_t;" in write(problem, schedule)


def test_a_map_computes_what_rows_share_and_writes_it_once():
    program = parse(
        "@cuda\ndef f(x: float32[64, 128], s: float32[64, 1]):\n    with map(64, 128):\n"
        "        a = sigmoid(s)\n        y = x * a\n    return y, a\n"
    )
    lowered = lower(program)
    kernels = [("region0", lowered.regions[0], CudaSchedule())]
    source = emit_cuda.emit(lowered.graph, kernels, "test")
    assert "const float v2 = logistic(s_r);" in source
    assert "if (c + k == 0) convert(out0[r], v2);" in source


@pytest.mark.parametrize("vec", [1, 4])
@pytest.mark.parametrize("split", [1, 2])
def test_a_mask_that_all_heads_of_an_example_share_is_read_by_groups(
    vec, split, tmp_path, needs_compiler
):
    program = parse(
        "@cuda\ndef f(x: float32[3, 4, 8, 64], m: bool[3, 1, 8, 64], s: float32[3, 1, 8, 1]):\n"
        f"    with rowwise(96, 64, vec={vec}, threads=32, split={split}):\n"
        "        e = exp(where(m, -inf, x * s))\n        y = e / sum(e)\n    return y\n"
    )
    x, s = torch.randn(3, 4, 8, 64), torch.randn(3, 1, 8, 1)
    m = torch.rand(3, 1, 8, 64) < 0.3
    found = cuda_on_cpu.run(program, [x, m, s], tmp_path)
    wanted = torch.softmax((x * s).masked_fill(m, float("-inf")), -1)
    torch.testing.assert_close(found.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("vec", [1, 4])
def test_int8_is_read_and_written(vec, tmp_path, needs_compiler):
    program = parse(
        "@cuda\ndef f(x: float32[16, 64], q: int8[16, 64]):\n"
        f"    with rowwise(16, 64, vec={vec}, threads=32):\n"
        "        s = amax(abs(x))\n"
        "        y = cast(x / s * 127.5 + cast(q, float32) * 0.01, int8)\n    return y\n"
    )
    x, q = torch.randn(16, 64), torch.randint(-128, 128, (16, 64), dtype=torch.int8)
    found = cuda_on_cpu.run(program, [x, q], tmp_path)
    wanted = x / x.abs().amax(-1, keepdim=True) * 127.5 + q.float() * 0.01
    wanted = wanted.to(torch.int8)
    assert torch.equal(found.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("op", ["sin", "cos", "floor", "round"])
def test_operators_are_torch_s(op, tmp_path, needs_compiler):
    program = parse(
        f"@cuda\ndef f(x: float32[256]):\n    with map(256):\n        y = {op}(x)\n    return y\n"
    )
    x = torch.arange(256.0) / 4 - 31
    found = cuda_on_cpu.run(program, [x], tmp_path)
    torch.testing.assert_close(found, getattr(torch, op)(x))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("row_softmax", {}),
        ("row_reductions", {"staging": "none", "passes": "one", "accumulators": 2}),
        ("layer_norm", {"staging": "shared", "stores": "streaming", "loads": "read_only"}),
        ("cross_entropy", {"vec": 1, "blocks": 4, "loads": "streaming"}),
        ("matmul_epilogue", {"unroll": 4, "vec": 2}),
    ],
)
def test_a_kernel_compiles_for_an_h100_without_spilling(name, change, check_cubin):
    problem, schedule = start(name)
    said = check_cubin(write(problem, replace(schedule, **change)))
    assert "0 bytes spill stores" in said


def test_kernels_with_different_schedules_compile_in_one_source(check_cubin):
    problem = problems.load("mlp_two_layer", target="cuda")
    program = first_program(problem, CudaSchedule())
    one, two = program.schedules
    assert isinstance(two, CudaSchedule)
    other = replace(two, vec=2, staging="registers", stores="streaming", loads="read_only")
    source = write_program(problem, with_schedules(program, [one, other]))
    assert "namespace schedule1 {" in source
    assert "0 bytes spill stores" in check_cubin(source)


@pytest.mark.parametrize("staging", ["none", "registers", "shared"])
@pytest.mark.parametrize("passes", ["multi", "one"])
def test_a_cluster_of_blocks_shares_a_row(staging, passes, check_cubin):
    problem, _ = start("row_softmax", rows=64, columns=65536)
    schedule = CudaSchedule(threads=512, cluster=16, staging=staging, passes=passes, blocks=2)
    source = write(problem, schedule)
    assert "__cluster_dims__(16, 1, 1)" in source
    assert "// 16 * 16" in source  # whole clusters are launched
    assert "0 bytes spill stores" in check_cubin(source)


def test_a_row_that_no_block_can_keep_starts_in_a_cluster_that_can(check_cubin):
    problem = problems.load("row_softmax", target="cuda", sizes={"rows": 512, "columns": 393216})
    works = prepare(problem).works
    schedule = default(H100, works, "cuda", limits_of(H100))
    assert isinstance(schedule, CudaSchedule)
    assert (schedule.cluster, schedule.staging) == (16, "shared")  # two blocks beside each other
    source = write(problem, schedule)
    assert f"_allow(_region0, x.get_device(), {393216 * 4 // 16}, 16)" in source
    check_cubin(source)
    # Where clusters are not known to be, the row is read again.
    other = default(replace(H100, facts={}), works, "cuda", limits_of(replace(H100, facts={})))
    assert isinstance(other, CudaSchedule)
    assert (other.cluster, other.staging) == (1, "none")


def test_16_bit_floats_compile_for_an_h100(make_problem, check_cubin):
    problem = make_problem(
        "return F.gelu(x0), torch.softmax(x1, -1)",
        "torch.randn(64, 96).bfloat16(); torch.randn(64, 96).half()",
        target="cuda",
    )
    schedule = default(H100, prepare(problem).works, "cuda")
    assert isinstance(schedule, CudaSchedule)
    assert schedule.vec == 8
    check_cubin(write(problem, schedule))


SMALL = {
    "bias_relu_residual": {"batch": 2, "channels": 13, "height": 6, "width": 6},
    "cross_entropy": {"rows": 19, "classes": 204},
    "layer_norm": {"batch": 3, "tokens": 7, "features": 76},
    "matmul_epilogue": {"batch": 17, "in_features": 9, "out_features": 45},
    "mlp_two_layer": {"batch": 23, "in_features": 5, "hidden_features": 37, "out_features": 20},
    "rms_norm": {"batch": 2, "tokens": 9, "features": 132},
    "row_reductions": {"rows": 21, "columns": 4100},
    "row_softmax": {"rows": 17, "columns": 131},
    "scale_gelu_residual": {"rows": 13, "features": 62},
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_bundled_problem_is_computed_right_on_the_gpu(name, load_candidate):
    torch.backends.cuda.matmul.allow_tf32 = False
    rng = random.Random(name)
    for sizes in (SMALL[name], {}):
        problem, first = start(name, **sizes)
        works = prepare(problem).works
        schedules = [first]
        while len(schedules) < (6 if sizes else 3):
            knobs = {knob: rng.choice(values) for knob, values in KNOBS["cuda"].items()}
            if not legal(drawn := CudaSchedule(**knobs), works):
                schedules.append(drawn)
        module = instantiate(problem)
        model = module.model(3).cuda()
        inputs = [v.cuda() if isinstance(v, torch.Tensor) else v for v in module.inputs(5)]
        with torch.no_grad():
            want = _flat(model.double()(*[_wide(v) for v in inputs]))
            for schedule in schedules:
                candidate = load_candidate(write(problem, schedule)).ModelNew(
                    *module.init_arguments()[0], **module.init_arguments()[1]
                )
                candidate.load_state_dict(module.model(3).state_dict())
                for mine, exact in zip(_flat(candidate.cuda()(*inputs)), want, strict=True):
                    rms = exact.double().pow(2).mean().sqrt()
                    assert mine.shape == exact.shape
                    assert (mine.double() - exact).pow(2).mean().sqrt() <= 2e-6 * rms, schedule
        del inputs, want
        torch.cuda.empty_cache()


def _wide(value):
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_float else value


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [8192, 40004, 393216])
def test_clusters_compute_a_softmax_right_on_the_gpu(columns, load_candidate):
    machine = targets.get("cuda").machine()
    problem, _ = start("row_softmax", rows=67, columns=columns)
    works = prepare(problem).works
    module = instantiate(problem)
    inputs = [v.cuda() for v in module.inputs(5)]
    want = module.model(3).double()(*[_wide(v) for v in inputs])
    tried = 0
    for cluster in (2, 4, 8, 16):
        for staging in ("none", "registers", "shared"):
            for passes, blocks, threads in (("multi", 0, 512), ("one", 1, 256)):
                schedule = CudaSchedule(
                    cluster=cluster, staging=staging, passes=passes, blocks=blocks, threads=threads
                )
                if legal(schedule, works, limits_of(machine)):
                    continue
                candidate = load_candidate(write(problem, schedule)).ModelNew().cuda()
                for _ in range(3):
                    mine = candidate(*inputs).double()
                    assert (mine - want).abs().max() <= 2e-6 * want.max(), schedule
                tried += 1
    assert tried >= 8 or limits_of(machine).cluster == 1


def _flat(value):
    return [value] if isinstance(value, torch.Tensor) else list(value)
