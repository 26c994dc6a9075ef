"""Products of matrices and transposes of the kernel language: right, and how fast next to torch.

    python3 -m benchmarks.gemm [--target cuda] [--out DIR] [--only NAME] [--sweep N] [--quick]

Each case is a PyTorch module and a program for it. The program is checked, written, built and run:
the largest error against float64 stands beside torch's own, the median time beside torch's for the
same module (cuBLAS or MKL, and its element-wise kernels) and for the bare product. Some cases also
go through the product's judge. One case that fails is told and the others go on. Kernels through
CUTLASS are compiled by nvcc first, side by side. --sweep N tries N schedules of the largest
products. Exit status 1 if a case is wrong or fails.
"""

import argparse
import importlib.util
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernelpro import problems, targets
from kernelpro.judge import light_build
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.language import writer
from kernelpro.language.legal import legal
from kernelpro.language.limits import Limits
from kernelpro.language.lower import lower
from kernelpro.language.parse import ProgramError, parse
from kernelpro.language.schedule import KNOBS, from_knobs
from kernelpro.records import Candidate, Machine, Outcome, Problem

SUFFIX = {"float32": "", "bfloat16": ".bfloat16()", "float16": ".half()"}
TOLERANCE = 3.0  # times torch's own error, or the floor below
FLOOR = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 3e-3}  # of the largest error, over the rms
QUICK = JudgeSettings(min_pairs=3, max_pairs=5, max_timing_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A product (k > 0) or a transpose (k = 0), what follows it, and how the kernel runs.

    Attributes:
        name: of the case.
        m, n, k: sizes of the result, and the depth.
        batch: matrices; 1: none.
        dtype: of all tensors.
        layout: of both operands: `T` where memory holds the transpose.
        after: `none`, `bias`, `gelu` (of the sum with a bias) or `residual` (relu of that + r).
        knobs: of the schedule.
        precision: the problem's policy.
        judged: whether the judge says its word too.
    """

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "float32"
    layout: str = "NT"
    after: str = "gelu"
    knobs: str = ""
    precision: str = "strict"
    judged: bool = False


FAST = "tile_m=128, tile_n=128, tile_k=32, warps_m=2, warps_n=2, stages=4"
WIDE = "tile_m=128, tile_n=256, tile_k=32, warps_m=2, warps_n=4, stages=4"
DEEP = "tile_m=128, tile_n=128, tile_k=64, warps_m=2, warps_n=4, stages=3"
GROUPS = "instruction='wgmma', tile_m=128, tile_n=256, tile_k=64, warps_n=2, stages=4"
GROUPS_HALF = (
    "instruction='wgmma', tile_m=128, tile_n=128, tile_k=64, warps_n=1, stages=3, min_blocks=2"
)

CUDA: tuple[Case, ...] = (
    Case(name="f32_linear_gelu", m=4096, n=4096, k=1024, judged=True),
    Case(name="f32_nn", m=2048, n=2048, k=2048, layout="NN", after="none"),
    Case(name="f32_tn", m=2048, n=2048, k=2048, layout="TN", after="bias", knobs="tile_k=8"),
    Case(name="f32_odd", m=1001, n=1003, k=1005, after="residual", judged=True),
    Case(name="f32_split", m=128, n=256, k=16384, after="bias", knobs="split_k=8", judged=True),
    Case(
        name="bf16_linear_gelu", m=4096, n=4096, k=4096, dtype="bfloat16", knobs=FAST, judged=True
    ),
    Case(name="bf16_wide", m=4096, n=4096, k=4096, dtype="bfloat16", knobs=WIDE),
    Case(name="bf16_deep", m=4096, n=4096, k=4096, dtype="bfloat16", knobs=DEEP),
    Case(name="bf16_nn", m=4096, n=4096, k=4096, dtype="bfloat16", layout="NN", knobs=FAST),
    Case(name="bf16_tn", m=2048, n=2048, k=2048, dtype="bfloat16", layout="TN", knobs=FAST),
    Case(
        name="f16_residual", m=4096, n=1024, k=4096, dtype="float16", after="residual", knobs=DEEP
    ),
    Case(
        name="f16_tt",
        m=1032,
        n=1040,
        k=1048,
        dtype="float16",
        layout="TT",
        after="bias",
        knobs=FAST,
    ),
    Case(
        name="bf16_batched",
        m=512,
        n=512,
        k=64,
        batch=96,
        dtype="bfloat16",
        after="none",
        knobs=FAST,
        judged=True,
    ),
    Case(
        name="bf16_split",
        m=256,
        n=1024,
        k=16384,
        dtype="bfloat16",
        after="bias",
        knobs=FAST + ", split_k=8",
    ),
    Case(
        name="tf32_linear_gelu",
        m=4096,
        n=4096,
        k=1024,
        knobs="math='tf32', tile_k=32, warps_m=2, warps_n=4, stages=3",
        precision="tf32",
        judged=True,
    ),
    Case(name="f32_transpose", m=8192, n=8192, k=0, after="none", judged=True),
    Case(
        name="bf16_transpose_gelu", m=4096, n=2056, k=0, batch=3, dtype="bfloat16", knobs="tile=64"
    ),
)

ON_GROUPS = {
    "groups_linear_gelu": ("bf16_linear_gelu", GROUPS),
    "groups_half": ("bf16_linear_gelu", GROUPS_HALF),
    "groups_nn": ("bf16_nn", GROUPS),
    "groups_tn": ("bf16_tn", GROUPS_HALF),
    "groups_residual": ("f16_residual", GROUPS_HALF),
    "groups_tt": ("f16_tt", GROUPS_HALF),
    "groups_batched": ("bf16_batched", GROUPS_HALF),
    "groups_split": ("bf16_split", GROUPS_HALF + ", split_k=8"),
    "groups_tf32": (
        "tf32_linear_gelu",
        GROUPS.replace("tile_k=64", "tile_k=32") + ", math='tf32'",
    ),
}
"""Cases of warp groups: of which other case, with which knobs."""

PAIRS = "instruction='cutlass', tile_m=128, tile_n=256, tile_k=64, stages=4, cluster_m=2, swizzle=2"
PINGPONG = "instruction='cutlass', scheduler='pingpong', tile_k=64, stages=7, cluster_m=2"
STREAM_K = "instruction='cutlass', scheduler='stream_k', tile_k=64, stages=6"
STAGED = "instruction='cutlass', scheduler='multistage', swizzle=1, tile_k=32, warps_m=2, stages=4"
THROUGH_CUTLASS = {
    "cutlass_linear_gelu": ("bf16_linear_gelu", PAIRS),
    "cutlass_pingpong": ("bf16_linear_gelu", PINGPONG),
    "cutlass_nn": ("bf16_nn", PAIRS),
    "cutlass_tn": ("bf16_tn", PINGPONG),
    "cutlass_residual": ("f16_residual", PINGPONG),
    "cutlass_tt": ("f16_tt", STREAM_K),
    "cutlass_batched": ("bf16_batched", PINGPONG.replace(", cluster_m=2", "")),
    "cutlass_stream_k": ("bf16_split", STREAM_K),
    "cutlass_split": ("bf16_split", STREAM_K.replace("scheduler='stream_k'", "split_k=8")),
    "cutlass_tf32": (
        "tf32_linear_gelu",
        PAIRS.replace("tile_k=64", "tile_k=32") + ", math='tf32'",
    ),
    "cutlass_multistage": ("bf16_linear_gelu", STAGED),
}
"""Cases through CUTLASS, likewise; each is compiled by nvcc first."""
_BY_NAME = {case.name: case for case in CUDA}
CUDA += tuple(
    replace(_BY_NAME[other], name=name, knobs=knobs)
    for name, (other, knobs) in (ON_GROUPS | THROUGH_CUTLASS).items()
)

CPU = (
    Case(name="f32_linear_gelu", m=512, n=512, k=512, judged=True),
    Case(name="f32_nn", m=512, n=512, k=512, layout="NN", after="none"),
    Case(name="f32_tn", m=384, n=512, k=640, layout="TN", after="bias"),
    Case(name="f32_tt", m=384, n=512, k=640, layout="TT", after="bias"),
    Case(name="f32_odd", m=201, n=203, k=205, after="residual"),
    Case(name="f32_large", m=1024, n=1024, k=1024, after="residual"),
    Case(name="f32_wide", m=64, n=3072, k=768, knobs="tile_m=24"),
    Case(name="f32_batched", m=128, n=128, k=64, batch=48, after="none", judged=True),
    Case(name="f32_transpose", m=2048, n=2048, k=0, after="none", judged=True),
    Case(name="f32_transpose_gelu", m=512, n=260, k=0, batch=3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of a case: errors over the rms of the result, times in microseconds."""

    name: str
    state: str
    error: float = math.nan
    torch_error: float = math.nan
    us: float = math.nan
    torch_us: float = math.nan
    bare_us: float = math.nan
    teraflops: float = math.nan
    verdict: str = ""
    schedule: str = ""
    note: str = ""


def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Sizes of the module's inputs."""
    outer = (case.batch,) if case.batch > 1 else ()
    if case.k == 0:
        found = {"x": (*outer, case.n, case.m)}
    else:
        left = (case.m, case.k) if case.layout[0] == "N" else (case.k, case.m)
        right = (case.k, case.n) if case.layout[1] == "N" else (case.n, case.k)
        found = {"x": (*outer, *left), "w": (*outer, *right)}
    if case.after in ("bias", "residual") or (case.after == "gelu" and case.k):
        found["b"] = (case.n,)
    if case.after == "residual":
        found["r"] = (*outer, case.m, case.n)
    return found


def module_text(case: Case) -> str:
    """The module that is computed, in KernelBench's format."""
    given = shapes(case)
    suffix = SUFFIX[case.dtype]
    left = "x" if case.layout[0] == "N" else "x.transpose(-1, -2)"
    right = "w" if case.layout[1] == "N" else "w.transpose(-1, -2)"
    lines = ["h = x.transpose(-1, -2).contiguous()" if case.k == 0 else f"h = {left} @ {right}"]
    if "b" in given:
        lines.append("h = h + b")
    if case.after == "gelu":
        lines.append("h = torch.nn.functional.gelu(h)")
    if case.after == "residual":
        lines.append("h = torch.relu(h) + r")
    # Sums of k products have a deviation of about 1.
    scaled = {"w": f" * {case.k**-0.5!r}"} if case.k else {}
    inputs = ", ".join(
        f"(torch.randn({', '.join(map(str, sizes))}){scaled.get(name, '')}){suffix}"
        for name, sizes in given.items()
    )
    body = "\n".join(f"        {line}" for line in lines)
    return (
        "import torch\n\n\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, {', '.join(given)}):\n{body}\n        return h\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n"
    )


def program_text(case: Case, target: str, knobs: str) -> str:
    """The program for it: one kernel."""
    given = shapes(case)
    arguments = ", ".join(
        f"{name}: {case.dtype}[{', '.join(map(str, sizes))}]" for name, sizes in given.items()
    )
    sizes = ([case.batch] if case.batch > 1 else []) + [case.m, case.n] + [case.k] * (case.k > 0)
    head = ", ".join([*map(str, sizes), *([knobs] if knobs else [])])
    if case.k == 0:
        kind, value = "transpose", "transpose(x)"
    else:
        left = "x" if case.layout[0] == "N" else "transpose(x)"
        right = "w" if case.layout[1] == "N" else "transpose(w)"
        kind, value = "gemm", f"matmul({left}, {right})"
    lines = [f"h = {value}"]
    last = "h"
    if "b" in given:
        lines.append("s = h + b")
        last = "s"
    if case.after == "gelu":
        lines.append(f"y = {last} * 0.5 * (erf({last} * 0.7071067811865476) + 1.0)")
        last = "y"
    if case.after == "residual":
        lines.append(f"y = relu({last}) + r")
        last = "y"
    body = "\n".join(f"        {line}" for line in lines)
    return (
        f"@{target}\ndef case({arguments}):\n    with {kind}({head}):\n{body}\n    return {last}\n"
    )


def loaded(source: str, path: Path) -> Any:
    """Import a candidate and make its module."""
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


COMPILE = """
import sys
from pathlib import Path
from benchmarks.gemm import loaded
from kernelpro.judge import light_build

light_build.install()
loaded(Path(sys.argv[1]).read_text(encoding="utf-8"), Path(sys.argv[1]))
"""


def compiled(paths: Sequence[Path]) -> None:
    """Build candidates' extensions side by side; whoever loads one later finds it by its hash."""
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))

    def one(candidate: Path) -> None:
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", COMPILE, str(candidate)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        words = "" if done.returncode == 0 else f", but: {done.stderr[-1500:]}"
        print(
            f"compiled {candidate.stem} in {time.perf_counter() - began:.0f} s{words}", flush=True
        )

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) * 3 // 4)) as pool:
        list(pool.map(one, paths))


def microseconds(call: Callable[[], object], device: str, budget_s: float = 1.0) -> float:
    """Median time of a call: by events of the GPU, the clock, or the only thread's CPU time."""
    for _ in range(3):
        call()
    times: list[float] = []
    began = time.perf_counter()
    if device == "cuda":
        torch.cuda.synchronize()
        while len(times) < 10 or (time.perf_counter() - began < budget_s and len(times) < 200):
            pairs = [
                [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
                for _ in range(10)
            ]
            for start, end in pairs:
                start.record()
                call()
                end.record()
            torch.cuda.synchronize()
            times += [start.elapsed_time(end) * 1e3 for start, end in pairs]
    else:
        alone = torch.get_num_threads() == 1
        clock = time.thread_time if alone else time.perf_counter
        while len(times) < 5 or (time.perf_counter() - began < budget_s and len(times) < 200):
            now = clock()
            call()
            times.append((clock() - now) * 1e6)
    return statistics.median(times)


def problem_of(case: Case, target: str, folder: Path) -> Problem:
    """Write the module into a file and load it as a problem."""
    path = folder / f"{case.name}.py"
    path.write_text(module_text(case), encoding="utf-8")
    return replace(problems.load(str(path), target=target), precision=case.precision)


def largest(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest error over the rms of what is wanted; infinite where it is no number."""
    error = float((found.double() - wanted).abs().max() / wanted.pow(2).mean().sqrt())
    return error if math.isfinite(error) else math.inf


class Bench:
    """Runs cases on one target."""

    def __init__(self, target: str, folder: Path, machine: Machine, *, quick: bool) -> None:
        self.target, self.folder, self.machine, self.quick = target, folder, machine, quick
        self.where = targets.get(target)
        self.device = self.where.device
        # What schedules can ask for is only known of the GPU at hand.
        self.limits = Limits()
        if target == "cuda":
            found = torch.cuda.get_device_properties(0)
            self.limits = Limits(
                shared_bytes=int(getattr(found, "shared_memory_per_block_optin", 0)),
                capability=f"{found.major}.{found.minor}",
            )

    def knobs(self, case: Case) -> str:
        """A case's own knobs; threads on the CPU."""
        extra = f"threads={self.machine.threads}" if self.target == "cpu" else ""
        return ", ".join(part for part in (case.knobs, extra) if part)

    def compile_ahead(self, cases: Sequence[Case]) -> None:
        """Compile what nvcc compiles, which takes long; light_build finds it again."""
        environment = self.where.worker_environment((self.folder / "builds").resolve())
        for name in ("TORCH_EXTENSIONS_DIR", "TORCH_CUDA_ARCH_LIST", "NVCC_PREPEND_FLAGS"):
            if name in environment:
                os.environ[name] = environment[name]
        paths = []
        for case in cases:
            problem = problem_of(case, self.target, self.folder)
            program = parse(program_text(case, self.target, self.knobs(case)))
            try:
                writer.check(problem, program, self.limits)
            except ProgramError:
                continue  # told by its row
            path = self.folder / f"{case.name}_candidate.py"
            path.write_text(writer.write_program(problem, program), encoding="utf-8")
            paths.append(path)
        compiled(paths)
        light_build.install()

    def row(self, case: Case) -> Row:
        """Do everything with one case."""
        problem = problem_of(case, self.target, self.folder)
        knobs = self.knobs(case)
        program = parse(program_text(case, self.target, knobs))
        try:
            writer.check(problem, program, self.limits)
        except ProgramError as error:
            return Row(name=case.name, state="refused", schedule=knobs, note=error.reason)
        source = writer.write_program(problem, program)
        path = self.folder / f"{case.name}_candidate.py"
        path.write_text(source, encoding="utf-8")
        language = "cpp" if self.target == "cpu" else "cuda"
        candidate = Candidate(source=source, language=language)
        build = self.where.build(candidate)
        if build is not None and not build.ok:
            return Row(name=case.name, state="not built", schedule=knobs, note=build.log[-1500:])
        mine = loaded(source, path).ModelNew()
        theirs = loaded(problem.source, self.folder / f"{case.name}_module.py")
        torch.manual_seed(7)
        inputs = [tensor.to(self.device) for tensor in theirs.get_inputs()]
        model = theirs.Model()
        with torch.no_grad():
            wanted = model(*(tensor.double() for tensor in inputs))
            got, own = mine(*inputs), model(*inputs)
            if self.target == "cuda":
                torch.cuda.synchronize()
            off, torch_off = largest(got, wanted), largest(own, wanted)
            state = "right"
            floor = FLOOR[case.dtype] if case.precision == "strict" else 1e-2
            if got.shape != own.shape or got.dtype != own.dtype:
                state = f"wrong: {tuple(got.shape)} {got.dtype}"
            elif off > max(TOLERANCE * torch_off, floor):
                state = "wrong"
                self._where_wrong(got, wanted)
            del wanted, got, own
            budget = 0.2 if self.quick else 1.0
            us = microseconds(lambda: mine(*inputs), self.device, budget)
            torch_us = microseconds(lambda: model(*inputs), self.device, budget)
            bare_us = math.nan
            if case.k:
                x, w = inputs[:2]
                left = x if case.layout[0] == "N" else x.transpose(-1, -2)
                right = w if case.layout[1] == "N" else w.transpose(-1, -2)
                bare_us = microseconds(lambda: torch.matmul(left, right), self.device, budget)
        flops = 2 * case.batch * case.m * case.n * case.k
        verdict = ""
        if case.judged and not self.quick:
            verdict = self._judged(problem, candidate)
        return Row(
            name=case.name,
            state=state,
            error=off,
            torch_error=torch_off,
            us=us,
            torch_us=torch_us,
            bare_us=bare_us,
            teraflops=flops / us / 1e6,
            verdict=verdict,
            schedule=knobs,
            note="" if build is None else str(build.log)[-300:].strip(),
        )

    def _where_wrong(self, got: torch.Tensor, wanted: torch.Tensor) -> None:
        """Print which elements are wrong: enough to find an index by."""
        error = (got.double() - wanted).abs() / wanted.pow(2).mean().sqrt()
        bad = torch.nan_to_num(error, nan=math.inf) > 0.05
        places = bad.nonzero()
        print(f"  {len(places)} of {bad.numel()} elements are wrong; the first and last of them:")
        for place in [*places[:12].tolist(), *places[-4:].tolist()]:
            at = tuple(place)
            print(f"    {at}: {float(got[at]):.6g}, expected {float(wanted[at]):.6g}")
        for axis in range(bad.dim()):
            others = tuple(a for a in range(bad.dim()) if a != axis)
            along = bad.any(dim=others) if others else bad
            wrong = along.nonzero().flatten().tolist()
            print(f"    along axis {axis}: {len(wrong)} of {len(along)} places, {wrong[:40]}")

    def _judged(self, problem: Problem, candidate: Candidate) -> str:
        try:
            with Judge(problem, self.where, settings=QUICK) as judge:
                if judge.audit.refused:
                    return f"problem refused: {judge.audit.refused}"
                judge.baseline()
                with judge.judging(candidate, self.where.build(candidate)) as (found, _):
                    if found.outcome is Outcome.ACCEPTED:
                        return "accepted"
                    return f"{found.outcome.value}: {found.message[:200]}"
        except Exception as error:  # the table goes on, and says what happened
            traceback.print_exc()
            return f"judge failed: {type(error).__name__}: {str(error)[:200]}"

    def sweep(self, case: Case, most: int) -> None:
        """Time many schedules of one product and print them in order."""
        problem = problem_of(case, self.target, self.folder)
        found: list[tuple[float, str]] = []
        inputs = None
        for number, knobs in enumerate(itertools.islice(self._schedules(case), most)):
            try:
                program = parse(program_text(case, self.target, knobs))
                source = writer.write_program(problem, program)
                path = self.folder / f"{case.name}_sweep{number}.py"
                mine = loaded(source, path).ModelNew()
                if inputs is None:
                    inputs = [
                        tensor.to(self.device)
                        for tensor in loaded(problem.source, self.folder / "m.py").get_inputs()
                    ]
                given = inputs
                with torch.no_grad():
                    us = microseconds(lambda m=mine, g=given: m(*g), self.device, 0.1)  # type: ignore[misc]
                found.append((us, knobs))
            except Exception as error:  # one schedule
                print(f"  {knobs}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        flops = 2 * case.batch * case.m * case.n * case.k
        print(f"\n{case.name}: {len(found)} schedules, fastest first")
        for us, knobs in sorted(found)[:15]:
            print(f"  {us:10.1f} us  {flops / us / 1e6:7.1f} TFLOP/s  {knobs}", flush=True)

    def _schedules(self, case: Case) -> Iterator[str]:
        """Legal schedules, the likely ones first."""
        values = KNOBS["cuda gemm"]
        work = lower(parse(program_text(case, self.target, ""))).works
        base = {"math": "tf32"} if case.precision != "strict" else {}
        deep = (16, 32, 64) if case.dtype != "float32" or base else (8, 16, 32)
        spaces = itertools.product(
            ((2, 4), (2, 2), (4, 2), (1, 4)), (128, 256, 64), (128, 256, 64), deep, (3, 4, 2, 5)
        )
        for (warps_m, warps_n), tile_m, tile_n, tile_k, stages in spaces:
            knobs = base | {
                "tile_m": tile_m,
                "tile_n": tile_n,
                "tile_k": tile_k,
                "warps_m": warps_m,
                "warps_n": warps_n,
                "stages": stages,
            }
            if any(value not in values[name] for name, value in knobs.items()):
                continue
            limits = replace(self.limits, tf32=bool(base))
            if not legal(from_knobs("cuda gemm", knobs), work, limits):
                yield ", ".join(f"{name}={value!r}" for name, value in knobs.items())


def table(rows: list[Row]) -> str:
    """Return one table for people."""
    lines = [
        f"{'case':<20} {'state':<9} {'error':>8} {'torch':>8} {'us':>10} {'torch us':>10} "
        f"{'bare us':>10} {'x torch':>8} {'x bare':>7} {'TFLOP/s':>8}  judge"
    ]
    lines += [
        f"{row.name:<20} {row.state[:9]:<9} {row.error:8.1e} {row.torch_error:8.1e} {row.us:10.1f} "
        f"{row.torch_us:10.1f} {row.bare_us:10.1f} {row.torch_us / row.us:8.2f} "
        f"{row.bare_us / row.us:7.2f} {row.teraflops:8.2f}  {row.verdict}"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=Path("gemm-benchmark"))
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument(
        "--sweep", type=int, default=0, metavar="N", help="schedules to try of each"
    )
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: all")
    parser.add_argument("--quick", action="store_true", help="short timings, no judge")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    where = targets.get(args.target)
    state = where.availability()
    if not state.ok:
        print(f"target {args.target} cannot be used: {state.reason}; {state.remedy}")
        return 2
    machine = where.machine()
    print(f"{machine.device}, torch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    if args.threads:
        machine = replace(machine, threads=args.threads)
    if args.target == "cpu":
        torch.set_num_threads(machine.threads)
    if machine.threads == 1 and args.target == "cpu":
        print("times are the thread's own CPU time, which other processes disturb less")
    bench = Bench(args.target, args.out, machine, quick=args.quick)
    cases = [one for one in (CUDA if args.target == "cuda" else CPU) if args.only in one.name]
    if through := [one for one in cases if "'cutlass'" in one.knobs]:
        bench.compile_ahead(through)
    rows: list[Row] = []
    for case in cases:
        began = time.perf_counter()
        torch.backends.cuda.matmul.allow_tf32 = case.precision != "strict"
        try:
            rows.append(bench.row(case))
        except Exception as error:  # one case must not take the others with it
            traceback.print_exc()
            rows.append(
                Row(name=case.name, state="failed", note=f"{type(error).__name__}: {error}")
            )
        row = rows[-1]
        note = f"\n  {row.note}" if row.state != "right" and row.note else ""
        print(f"{row.name}: {row.state}, {time.perf_counter() - began:.1f} s{note}", flush=True)
        (args.out / f"{args.target}.json").write_text(
            json.dumps([asdict(one) for one in rows], indent=1), encoding="utf-8"
        )
        if args.target == "cuda":
            torch.cuda.empty_cache()
    print(table(rows), flush=True)
    if args.sweep and args.target == "cuda":
        for case in cases:
            if case.name in ("f32_linear_gelu", "bf16_linear_gelu", "tf32_linear_gelu"):
                bench.sweep(case, args.sweep)
    return 0 if all(row.state == "right" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
