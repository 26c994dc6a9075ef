"""Products of matrices and transposes: text, reasons, C++ that runs, CUDA run thread by thread."""

import ast
from dataclasses import replace

import pytest
import torch

from benchmarks import gemm
from kernelpro.language.legal import legal, repaired
from kernelpro.language.limits import Limits, limits_of
from kernelpro.language.lower import lower
from kernelpro.language.moves import neighbours
from kernelpro.language.parse import ProgramError, parse
from kernelpro.language.program import text
from kernelpro.language.rewrites import rewrites
from kernelpro.language.schedule import KNOBS, CpuSchedule, CudaSchedule, family_of, from_knobs
from kernelpro.language.tiles import TILE_CLASSES, CudaGemm, start_tiles
from kernelpro.language.writer import check, first_program, reference, start, write_program
from kernelpro.problems.module import instantiate
from kernelpro.records import Machine
from tests.language import cuda_on_cpu

LINEAR = """@cpu
def linear(x: float32[2, 64, 32], w: float32[48, 32], b: float32[48]):
    with gemm(128, 48, 32, tile_m=48, threads=2):
        h = matmul(x, transpose(w)) + b
        y = relu(h) * 2.0
    with transpose(2, 48, 64, tile=16):
        z = transpose(y)
    return z
"""


def changed(before, after):
    """LINEAR with one place changed."""
    assert before in LINEAR
    return LINEAR.replace(before, after)


def test_a_program_prints_as_it_was_read_and_says_its_sizes():
    program = parse(LINEAR)
    assert text(program) == LINEAR
    lowered = lower(program)
    product, turned = (region.head for region in lowered.regions)
    assert product is not None
    assert turned is not None
    assert (product.batch, product.m, product.n, product.k) == (1, 128, 48, 32)
    assert (product.layout, product.shared) == ("NT", (False, True))
    assert (turned.batch, turned.m, turned.n) == (2, 48, 64)
    assert [family_of(one) for one in program.schedules] == ["cpu gemm", "cpu transpose"]


@pytest.mark.parametrize(
    ("source", "line", "column", "words"),
    [
        (changed("gemm(128, 48, 32,", "gemm(128, 48, 64,"), 4, 13, "is gemm(128, 48, 32)"),
        (changed("gemm(128, 48, 32,", "gemm(128, 48,"), 3, 10, "expected gemm(m, n, k)"),
        (changed("matmul(x, transpose(w))", "matmul(x, w)"), 4, 13, "write transpose(w)"),
        (changed("matmul(x, transpose(w))", "matmul(x + 1.0, w)"), 4, 20, "in a kernel before"),
        (changed("relu(h)", "relu(matmul(x, transpose(w)))"), 5, 18, "make another kernel"),
        (changed("relu(h)", "sum(h)"), 3, 5, "in a rowwise kernel after it"),
        (changed("matmul(x, transpose(w)) + b", "b * 2.0"), 3, 5, "computes one matmul(x, w)"),
        (changed("transpose(2, 48, 64,", "transpose(48, 64,"), 7, 13, "is transpose(2, 48, 64)"),
        (changed("tile_m=48", "tile=48"), 3, 28, "did you mean 'tile_n'?"),
        (changed("tile_m=48", "tile_m=50"), 3, 10, "tile_m must be one of 24, 48, 96, 192, 384"),
        (changed("z = transpose(y)", "z = transpose(b)"), 7, 23, "needs matrices"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place_and_the_fix(source, line, column, words):
    with pytest.raises(ProgramError) as caught:
        lower(parse(source))
    assert (caught.value.line, caught.value.column) == (line, column)
    assert words in caught.value.reason


def cuda_work(dtype="bfloat16", k=512, layout="NT"):
    case = gemm.Case(name="c", m=256, n=256, k=k, dtype=dtype, layout=layout, after="none")
    return lower(parse(gemm.program_text(case, "cuda", ""))).works


@pytest.mark.parametrize(
    ("knobs", "work", "limits", "words"),
    [
        ({"tile_k": 64, "stages": 5}, cuda_work("float32"), Limits(), "of shared memory, more"),
        (
            {"tile_m": 256, "stages": 5, "tile_k": 32},
            cuda_work(),
            Limits(shared_bytes=101376),
            "5 stages take 122880 bytes of shared memory, more than 101376",
        ),
        ({"tile_m": 256, "tile_n": 256, "warps_m": 1}, cuda_work(), Limits(), "registers"),
        ({"tile_m": 32, "warps_m": 4}, cuda_work(), Limits(), "must be 16 x 16 at least"),
        ({"tile_k": 8}, cuda_work(), Limits(), "tile_k 8 is no whole number of 16"),
        ({}, cuda_work(k=100), Limits(), "have 100 elements of 2 bytes, which do not divide"),
        ({"math": "tf32"}, cuda_work("float32"), Limits(), "needs the precision policy tf32"),
        (
            {"math": "tf32", "instruction": "wgmma"},
            cuda_work("float32", layout="NN"),
            Limits(tf32=True),
            "along k",
        ),
        ({"math": "3xtf32"}, cuda_work(), Limits(), "is for float32"),
        (
            {"math": "3xtf32", "instruction": "wgmma"},
            cuda_work("float32"),
            Limits(),
            "multiplies from registers; use instruction 'mma'",
        ),
        (
            {"math": "3xtf32"},
            cuda_work("float32"),
            Limits(capability="7.5"),
            "of compute capability 8.0 and above, but the GPU has 7.5",
        ),
        (
            {"math": "3xtf32", "tile_m": 256, "tile_n": 128, "warps_m": 2},
            cuda_work("float32"),
            Limits(shared_bytes=227 << 10),
            "registers per thread exceed",
        ),
        ({"math": "tf32"}, cuda_work(), Limits(tf32=True), "is for float32"),
        ({"split_k": 16, "tile_k": 64}, cuda_work(), Limits(), "has no 16 parts of 64"),
        ({"instruction": "wgmma"}, cuda_work(), Limits(capability="8.0"), "the GPU has 8.0"),
        ({"instruction": "wgmma"}, cuda_work("float32"), Limits(), "runs on tensor cores"),
        ({"instruction": "wgmma", "tile_k": 32}, cuda_work(), Limits(), "needs tile_k=64"),
        (
            {"instruction": "wgmma", "tile_k": 64, "tile_n": 64},
            cuda_work(),
            Limits(),
            "32 columns for each of 2 groups",
        ),
        (
            {"instruction": "wgmma", "tile_k": 64, "tile_m": 256, "tile_n": 256, "warps_n": 1},
            cuda_work(),
            Limits(),
            "registers per thread exceed",
        ),
    ],
)
def test_a_product_that_cannot_run_is_refused_with_the_reason(knobs, work, limits, words):
    assert words in legal(from_knobs("cuda gemm", knobs), work, limits)


def test_registers_and_tiles_of_the_cpu_are_counted():
    work = lower(parse(LINEAR)).works[:1]
    why = legal(from_knobs("cpu gemm", {"rows": 6, "vectors": 3}), work)
    assert why == "6 rows of 3 vectors need 22 vector registers, of which there are 16"
    assert "exceed a thread's" in legal(
        from_knobs("cpu gemm", {"tile_m": 384, "tile_n": 1024}), work
    )
    assert "its own knobs" in legal(CpuSchedule(), work)
    assert "do not fit a gemm" in legal(from_knobs("cpu transpose", {}), work)


@pytest.mark.parametrize("sizes", [(4096, 4096, 1024), (64, 64, 64), (3, 5, 7), (1, 8192, 16)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_start_is_legal_wherever_a_kernel_is(sizes, dtype):
    m, n, k = sizes
    case = gemm.Case(name="c", m=m, n=n, k=k, dtype=dtype, after="none")
    (work,) = lower(parse(gemm.program_text(case, "cuda", ""))).works
    assert work.tiled is not None
    for limits in (Limits(shared_bytes=101376), Limits(shared_bytes=232448, capability="9.0")):
        begun = start_tiles("cuda", work.tiled, 0, 0, 132, limits.capability)
        why = legal(begun, [work], limits)
        assert not why or "do not divide into copies" in why
    assert isinstance(begun, CudaGemm)
    assert (begun.instruction == "wgmma") == (dtype == "bfloat16")


@pytest.mark.parametrize("knob", sorted(set(KNOBS["cuda gemm"]) - {"instruction", "math"}))
def test_whatever_the_other_knobs_are_they_follow_the_instruction(knob):
    (work,) = cuda_work(k=4096)
    limits = Limits(shared_bytes=232448, capability="9.0")
    for value in KNOBS["cuda gemm"][knob]:
        changed = from_knobs("cuda gemm", {knob: value, "instruction": "wgmma"})
        assert not legal(repaired(changed, work), [work], limits)


def test_two_blocks_of_warp_groups_have_fewer_tiles_in_flight():
    (work,) = cuda_work(k=4096)
    limits = Limits(shared_bytes=232448, capability="9.0")
    alone = CudaGemm(instruction="wgmma", tile_k=64, warps_n=1, stages=4)
    assert not legal(alone, [work], limits)
    wanted = replace(alone, min_blocks=2)
    assert "2 blocks of 132096 bytes do not fit" in legal(wanted, [work], limits)
    assert repaired(wanted, work) == replace(wanted, stages=3)
    assert not legal(replace(wanted, stages=3), [work], limits)


def test_every_knob_of_products_and_transposes_is_on_the_page():
    page = reference()
    for which in ("cpu gemm", "cuda gemm"):
        part = page.partition(f"\n{which}:\n")[2].partition("\n\n")[0]
        plain = TILE_CLASSES[which]()
        for name, values in KNOBS[which].items():
            (row,) = [line for line in part.splitlines() if name in line.split("|")[1].split()]
            assert f"**{getattr(plain, name)!r}**" in row
            shown = row.split("|")[2].replace("**", "").split()
            assert name == "threads" or shown == [repr(value) for value in values]


# --- C++ ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        gemm.Case(name="gelu", m=53, n=47, k=71, knobs="rows=4, vectors=3, tile_k=64, threads=2"),
        gemm.Case(name="nn", m=40, n=96, k=130, layout="NN", after="none", knobs="tile_k=64"),
        gemm.Case(name="tn", m=70, n=33, k=20, layout="TN", after="residual", knobs="tile_m=24"),
        gemm.Case(name="tt", m=9, n=8, k=7, layout="TT", batch=5, after="bias", knobs="vec=4"),
        gemm.Case(name="turn", m=37, n=50, k=0, batch=3, knobs="tile=16, threads=2"),
    ],
    ids=lambda case: case.name,
)
def test_products_and_transposes_are_computed_right(case, tmp_path, needs_compiler, folder):
    problem = gemm.problem_of(case, "cpu", tmp_path)
    program = parse(gemm.program_text(case, "cpu", case.knobs))
    candidate = gemm.loaded(write_program(problem, program), tmp_path / "candidate.py").ModelNew()
    torch.manual_seed(5)
    module = gemm.loaded(problem.source, tmp_path / "module.py")
    inputs = module.get_inputs()
    wanted = module.Model()(*(tensor.double() for tensor in inputs))
    assert gemm.largest(candidate(*inputs), wanted) < 1e-5


# --- moves --------------------------------------------------------------------------------------


def by_name(program, name):
    return [found.program for found in rewrites(program) if found.name == name]


def test_a_product_of_torch_becomes_a_kernel_and_takes_in_what_follows(
    make_problem, load_candidate, needs_compiler
):
    problem = make_problem(
        "h = torch.addmm(self.b, x0, self.w.t())\n"
        "t = F.gelu(h).t().contiguous()\n"
        "return torch.tanh(t) + t @ self.v",
        "torch.randn(64, 48)",
        "self.w = nn.Parameter(torch.randn(80, 48))\nself.b = nn.Parameter(torch.randn(80))\n"
        "self.v = nn.Parameter(torch.randn(64, 64))",
    )
    program = first_program(problem, CpuSchedule(threads=2))
    for _ in range(2):
        program = by_name(program, "own_gemm")[0]
    (program,) = by_name(program, "own_transpose")
    while merged := by_name(program, "merge_kernels"):
        program = merged[0]
    kinds = [line.strip().partition("(")[0] for line in text(program).splitlines()]
    assert kinds.count("with gemm") == 2
    assert kinds.count("with transpose") == 1
    assert "aten" not in text(program)
    assert all(one.threads == 2 for one in program.schedules)
    check(problem, program, Limits(threads=2))
    candidate = load_candidate(write_program(problem, program))
    module = instantiate(problem)
    torch.manual_seed(3)
    mine, inputs = candidate.ModelNew(), module.inputs(5)
    with torch.no_grad():
        wanted = module.model(3).double()(*(x.double() for x in inputs))
        torch.testing.assert_close(mine(*inputs).double(), wanted, rtol=1e-4, atol=1e-4)


def test_a_problem_that_is_one_product_starts_with_a_kernel(make_problem):
    problem = make_problem("return torch.bmm(x0, x1)", "torch.ones(3, 8, 9); torch.ones(3, 9, 7)")
    program = start(problem, Machine(target="cpu", device="test", threads=2))
    assert "with gemm(3, 8, 7, 9, tile_m=24, threads=2):" in text(program)
    check(problem, program)


def test_tensor_cores_for_float32_need_the_policy(make_problem):
    case = gemm.Case(name="c", m=64, n=64, k=64, after="none")
    problem = make_problem(
        "return x0 @ x1.t()", "torch.ones(64, 64); torch.ones(64, 64)", target="cuda"
    )
    program = parse(gemm.program_text(case, "cuda", "math='tf32'"))
    with pytest.raises(ProgramError, match="strict keeps exact"):
        check(problem, program)
    assert check(replace(problem, precision="tf32"), program)


# --- CUDA, thread by thread ----------------------------------------------------------------------

TINY = "tile_m=32, tile_n=32, warps_m=1, warps_n=1"
GROUPS = "instruction='wgmma', tile_k=64"


@pytest.mark.parametrize(
    ("case", "limit"),
    [
        (gemm.Case(name="f32_nt", m=37, n=35, k=29, after="bias", knobs=TINY), 1e-5),
        (
            gemm.Case(
                name="f32_tn_split", m=40, n=36, k=64, layout="TN", knobs=TINY + ", split_k=2"
            ),
            1e-5,
        ),
        (
            gemm.Case(
                name="f32_nt_whole_tiles_two_steps",
                m=64,
                n=128,
                k=48,
                knobs="tile_m=64, tile_n=128, warps_m=1, warps_n=2, stages=2",
            ),
            1e-5,
        ),
        (
            gemm.Case(
                name="f32_nn_two_steps",
                m=50,
                n=132,
                k=36,
                layout="NN",
                after="bias",
                knobs="tile_m=64, tile_n=128, warps_m=1, warps_n=2, tile_k=8, stages=4",
            ),
            1e-5,
        ),
        (
            gemm.Case(
                name="f32_tt", m=33, n=64, k=32, layout="TT", batch=2, after="none", knobs=TINY
            ),
            1e-5,
        ),
        (
            gemm.Case(
                name="bf16_nt",
                m=72,
                n=56,
                k=40,
                dtype="bfloat16",
                batch=2,
                after="none",
                knobs="tile_m=64, tile_n=32, tile_k=32, warps_m=2, warps_n=1",
            ),
            1e-2,
        ),
        (
            gemm.Case(
                name="f16_tt",
                m=40,
                n=40,
                k=72,
                dtype="float16",
                layout="TT",
                after="bias",
                knobs=TINY + ", tile_k=64, stages=2",
            ),
            2e-3,
        ),
        (
            gemm.Case(
                name="tf32",
                m=40,
                n=36,
                k=40,
                after="bias",
                precision="tf32",
                knobs=TINY + ", math='tf32'",
            ),
            5e-3,
        ),
        (gemm.Case(name="turn", m=37, n=50, k=0, batch=3, after="none", knobs="tile=16"), 0.0),
        (
            gemm.Case(
                name="groups_nt",
                m=136,
                n=200,
                k=328,
                dtype="bfloat16",
                after="residual",
                knobs=GROUPS + ", tile_m=128, tile_n=128, warps_n=2, stages=2",
            ),
            1.5e-2,
        ),
        (
            gemm.Case(
                name="groups_tn",
                m=72,
                n=264,
                k=136,
                dtype="float16",
                layout="TN",
                batch=2,
                after="none",
                knobs=GROUPS + ", tile_m=64, tile_n=256, warps_n=1, stages=3",
            ),
            2e-3,
        ),
        (
            gemm.Case(
                name="groups_split",
                m=64,
                n=72,
                k=320,
                dtype="bfloat16",
                layout="NN",
                after="bias",
                knobs=GROUPS + ", tile_m=64, tile_n=128, warps_n=1, stages=2, split_k=2",
            ),
            1.5e-2,
        ),
        *(
            (
                gemm.Case(
                    name=f"tf32_{layout.lower()}",
                    m=40,
                    n=36,
                    k=52,
                    layout=layout,
                    precision="tf32",
                    knobs=TINY + ", math='tf32'",
                ),
                5e-3,
            )
            for layout in ("NT", "NN", "TN", "TT")
        ),
        (
            gemm.Case(
                name="groups_tf32",
                m=72,
                n=68,
                k=100,
                after="bias",
                precision="tf32",
                knobs="instruction='wgmma', math='tf32', tile_m=64, tile_n=64, tile_k=32, "
                "warps_n=1, stages=2",
            ),
            5e-3,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, gemm.Case) else "",
)
def test_the_indices_of_a_cuda_kernel_are_right(case, limit, tmp_path, needs_compiler):
    program = parse(gemm.program_text(case, "cuda", case.knobs))
    assert not legal(program.schedules[0], lower(program).works, Limits(tf32=True))
    torch.manual_seed(3)
    module = gemm.loaded(gemm.module_text(case), tmp_path / "module.py")
    inputs = module.get_inputs()
    wanted = module.Model()(*(tensor.double() for tensor in inputs))
    assert gemm.largest(cuda_on_cpu.run(program, inputs, tmp_path), wanted) <= limit


@pytest.mark.parametrize("layout", ["NT", "NN", "TN", "TT"])
def test_three_products_of_tensor_cores_are_as_near_as_float32(layout, tmp_path, needs_compiler):
    """Sums of many elements of one sign, where what is left out or cut off would add up."""
    knobs = "math='3xtf32', tile_m=32, tile_n=64, tile_k=16, warps_m=1, warps_n=2, split_k=2"
    case = gemm.Case(name="c", m=40, n=36, k=516, layout=layout, after="none", batch=2)
    program = parse(gemm.program_text(case, "cuda", knobs))
    assert not legal(program.schedules[0], lower(program).works, Limits())
    torch.manual_seed(5)
    module = gemm.loaded(gemm.module_text(case), tmp_path / "module.py")
    inputs = [tensor.abs() for tensor in module.get_inputs()]
    found = cuda_on_cpu.run(program, inputs, tmp_path).double()
    wanted = module.Model()(*(tensor.double() for tensor in inputs))
    assert ((found - wanted) / wanted).abs().max() < 6e-7  # three times float32's last bit
    rounded = [(t.view(torch.int32) & -(1 << 13)).view(torch.float32).double() for t in inputs]
    assert ((module.Model()(*rounded) - wanted) / wanted).abs().max() > 1e-4  # what one would do


@pytest.mark.parametrize("layout", ["NT", "NN", "TN", "TT"])
def test_infinities_and_nan_come_out_of_three_products_as_of_one(layout, tmp_path, needs_compiler):
    knobs = "math='3xtf32', tile_m=32, tile_n=32, tile_k=16, warps_m=1, warps_n=1"
    case = gemm.Case(name="c", m=20, n=24, k=36, layout=layout, after="none")
    program = parse(gemm.program_text(case, "cuda", knobs))
    torch.manual_seed(6)
    module = gemm.loaded(gemm.module_text(case), tmp_path / "module.py")
    x, w = module.get_inputs()
    x[3, 5], x[4, 6], x[7, 8], w[9, 2] = float("inf"), float("nan"), 3e38, float("-inf")
    found = cuda_on_cpu.run(program, [x, w], tmp_path)
    wanted = module.Model()(x, w)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert wanted.isinf().any()
    assert wanted.isnan().any()


def test_large_products_of_float32_start_in_three_parts_where_that_is_faster(make_problem):
    body = "return torch.relu(torch.relu(x0 @ x1.t() + x2) @ x3)"
    sizes = "torch.randn(1024, 1024); torch.randn(2048, 1024); torch.randn(2048); "
    large = make_problem(body, sizes + "torch.randn(2048, 512)", target="cuda")

    def products(problem, capability="9.0", **more):
        machine = Machine(
            target="cuda",
            device="test",
            facts={"capability": capability, "multiprocessors": "132"},
        )
        limits = limits_of(machine)
        program = start(problem, machine, limits, **more)
        assert check(problem, program, limits)
        return [s for s in program.schedules if isinstance(s, CudaGemm)], program

    found, program = products(large)
    assert [one.math for one in found] == ["3xtf32", "3xtf32"]
    assert len(program.schedules) == 2  # each took in what follows it
    assert (found[0].tile_m, found[0].tile_n) == (64, 128)
    assert found[1].tile_n == 64
    assert [one.math for one in products(large, "8.0")[0]] == ["3xtf32", "3xtf32"]
    assert products(large, "8.9")[0] == []  # whose tensor cores are no faster at it
    assert products(large, threefold=False)[0] == []
    assert products(replace(large, precision="tf32"))[0] == []  # once is enough
    one, few, shallow = "torch.randn(64, 512)", "torch.randn(8, 512)", "torch.randn(4096, 16)"
    for left, right in ((one, one), (few, "torch.randn(65536, 512)"), (shallow, shallow)):
        small = make_problem("return torch.relu(x0 @ x1.t())", f"{left}; {right}", target="cuda")
        assert products(small)[0] == []


def test_tensors_may_be_called_what_the_kernel_calls_its_own(tmp_path, needs_compiler):
    names = ("a", "fetch", "next", "STEP")
    program = parse(
        f"@cuda\ndef case({names[0]}: float32[32, 16], {names[1]}: float32[32, 16], "
        f"{names[2]}: float32[32], {names[3]}: float32[32, 32]):\n"
        f"    with gemm(32, 32, 16, {TINY}):\n"
        f"        now = matmul({names[0]}, transpose({names[1]}))\n"
        f"        slot = now + {names[2]} * {names[3]}\n    return slot\n"
    )
    torch.manual_seed(3)
    x, w, b, r = tensors = [torch.randn(n, m) for n, m in ((32, 16), (32, 16), (1, 32), (32, 32))]
    tensors[2] = b[0]
    found = cuda_on_cpu.run(program, tensors, tmp_path)
    assert gemm.largest(found, x.double() @ w.double().T + b.double() * r.double()) <= 1e-5


def test_shared_memory_beyond_the_usual_is_asked_for(tmp_path):
    case = gemm.Case(name="c", m=256, n=256, k=256, dtype="bfloat16")
    problem = gemm.problem_of(case, "cuda", tmp_path)
    source = write_program(problem, parse(gemm.program_text(case, "cuda", "stages=5, tile_k=32")))
    ast.parse(source)
    assert "_allow(_region0, " in source
    assert ".get_device(), 81920, 1)" in source
    assert "shared_mem=81920" in source
    assert CudaGemm().threads == 256


@pytest.mark.parametrize(
    ("capability", "instruction"), [("9.0", "wgmma"), ("8.0", "mma"), ("", "mma")]
)
def test_a_product_is_fused_with_what_follows_in_one_move(make_problem, capability, instruction):
    problem = make_problem(
        "return F.gelu(F.linear(x0, self.w)) * 2.0",
        "torch.randn(512, 256).bfloat16()",
        "self.w = nn.Parameter(torch.randn(384, 256).bfloat16())",
        target="cuda",
    )
    program = first_program(problem, CudaSchedule())
    assert "aten.linear" in text(program)
    limits = Limits(capability=capability)
    found = [
        move.program
        for move in neighbours(program, lower(program).works, limits)
        if move.strategy == "fused_gemm"
    ]
    (fused,) = found
    (schedule,) = fused.schedules
    assert isinstance(schedule, CudaGemm)
    assert schedule.instruction == instruction
    assert "aten" not in text(fused)
    assert check(problem, fused, limits)
