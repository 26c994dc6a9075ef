"""Products through CUTLASS: reasons, text, moves, and that nvcc compiles what is written."""

import ast
import importlib.util
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gemm
from kernelpro.code_search import settings as sources
from kernelpro.language.cutlass_tiles import starts, through_cutlass
from kernelpro.language.legal import legal, repaired
from kernelpro.language.limits import Limits, limits_of
from kernelpro.language.lower import lower
from kernelpro.language.moves import answers, neighbours
from kernelpro.language.parse import parse
from kernelpro.language.program import text
from kernelpro.language.schedule import KNOBS, from_knobs
from kernelpro.language.writer import check, write_program
from kernelpro.records import Machine

HOPPER = Limits(shared_bytes=232448, capability="9.0", cutlass=True)
AMPERE = Limits(shared_bytes=166912, capability="8.0", cutlass=True)
MULTISTAGE = {"scheduler": "multistage", "swizzle": 1, "warps_m": 2, "tile_k": 32}


def works(dtype="bfloat16", n=256, k=4096, layout="NT", batch=1):
    case = gemm.Case(
        name="c", m=256, n=n, k=k, batch=batch, dtype=dtype, layout=layout, after="none"
    )
    return lower(parse(gemm.program_text(case, "cuda", ""))).works


def schedule(**knobs):
    return from_knobs("cuda gemm", {"instruction": "cutlass", "tile_k": 64, **knobs})


@pytest.mark.parametrize(
    ("knobs", "work", "limits", "words"),
    [
        ({}, works(), replace(HOPPER, cutlass=False), "pip install 'kernelpro[cutlass]'"),
        ({}, works(), AMPERE, "is of compute capability 9.0, but the GPU has 8.0"),
        ({}, works("float32"), HOPPER, "runs on tensor cores"),
        ({}, works(k=100), HOPPER, "have 100 elements of 2 bytes, which do not divide"),
        ({"math": "tf32", "tile_k": 32}, works("float32"), HOPPER, "precision policy tf32"),
        (
            {"math": "tf32"},
            works("float32", layout="TN"),
            replace(HOPPER, tf32=True),
            "math 'tf32' of matmul(transpose(x), w) needs tile_k=32, not 64",
        ),
        ({"tile_m": 64}, works(), HOPPER, "'cooperative' needs tile_m of 128 at least, not 64"),
        ({"warps_n": 1}, works(), HOPPER, "needs warps_m=4, warps_n=2 and min_blocks=1"),
        ({"tile_k": 8}, works(), HOPPER, "tile_k=8 is 16 bytes of an operand"),
        ({"tile_m": 256, "tile_n": 256}, works(), HOPPER, "leaves 256 results to a thread"),
        ({"tile_n": 256, "stages": 7}, works(), HOPPER, "7 stages take 345088 bytes of shared"),
        ({"scheduler": "pingpong", "tile_n": 256}, works(), HOPPER, "256 results to a thread"),
        ({"scheduler": "pingpong", "split_k": 2}, works(), HOPPER, "computes whole tiles"),
        ({"scheduler": "stream_k", "split_k": 2}, works(), HOPPER, "divides the depth by itself"),
        ({"cluster_m": 4, "cluster_n": 4}, works(), HOPPER, "a cluster of 16 blocks exceeds 8"),
        ({"swizzle": 16}, works(), HOPPER, "swizzle must be 8 at most"),
        ({"split_k": 16}, works(k=512), HOPPER, "has no 16 parts of 64"),
        ({**MULTISTAGE, "swizzle": 8}, works(), AMPERE, "needs cluster_m=1"),
        (MULTISTAGE, works("float32"), replace(AMPERE, tf32=True), "runs on tensor cores"),
        (MULTISTAGE, works(), replace(AMPERE, capability="7.5"), "of compute capability 8.0 and"),
        ({**MULTISTAGE, "tile_m": 32, "warps_m": 4}, works(), AMPERE, "16 x 16 at least"),
        ({**MULTISTAGE, "tile_n": 256, "warps_n": 1}, works(), AMPERE, "registers per thread"),
        (
            {**MULTISTAGE, "tile_m": 32, "tile_k": 16, "warps_n": 4},
            works(),
            AMPERE,
            "256 threads exceed the 64 copies of 16 bytes in the left operand's tile",
        ),
        ({**MULTISTAGE, "stages": 7, "tile_k": 64}, works(), AMPERE, "7 stages take 229376 bytes"),
    ],
)
def test_a_product_that_cutlass_cannot_compute_is_refused_with_the_reason(
    knobs, work, limits, words
):
    assert words in legal(schedule(**knobs), work, limits)


@pytest.mark.parametrize(
    "knobs", [{"scheduler": "pingpong"}, {"cluster_m": 2}, {"cluster_n": 4}], ids=str
)
def test_knobs_of_cutlass_belong_to_it_alone(knobs):
    why = legal(from_knobs("cuda gemm", knobs), works(), HOPPER)
    assert "is for instruction 'cutlass', but the kernel has 'mma'" in why
    assert legal(from_knobs("cuda gemm", knobs | {"instruction": "wgmma"}), works(), HOPPER)


def test_whether_cutlass_is_there_is_a_fact_of_the_machine():
    machine = Machine(target="cuda", device="", facts={"capability": "9.0"})
    assert limits_of(machine).cutlass is False
    known = replace(machine, facts={**machine.facts, "cutlass": "CUTLASS 4.2.0"})
    assert limits_of(known).cutlass is True
    assert Limits().cutlass is None
    assert not legal(schedule(), works(), Limits())  # a program may be checked elsewhere


@pytest.mark.parametrize("scheduler", KNOBS["cuda gemm"]["scheduler"])
@pytest.mark.parametrize(
    "knob", sorted(set(KNOBS["cuda gemm"]) - {"instruction", "math", "scheduler"})
)
def test_whatever_the_other_knobs_are_they_follow_the_scheduler(scheduler, knob):
    limits = AMPERE if scheduler == "multistage" else HOPPER
    for layout in ("NT", "TN"):
        (work,) = works(layout=layout)
        for value in KNOBS["cuda gemm"][knob]:
            given = {knob: value, "instruction": "cutlass", "scheduler": scheduler}
            made = repaired(from_knobs("cuda gemm", given), work)
            assert through_cutlass(made)
            assert not legal(made, [work], limits), (made, legal(made, [work], limits))


PROGRAM = """@cuda
def case(x: bfloat16[256, 4096], w: bfloat16[256, 4096]):
    with gemm(256, 256, 4096, tile_k=64, instruction='cutlass', scheduler='stream_k', cluster_m=2):
        h = matmul(x, transpose(w))
    return h
"""


def test_a_program_for_cutlass_prints_as_it_was_read():
    program = parse(PROGRAM)
    assert text(program) == PROGRAM
    assert parse(text(program)) == program


def moved(instruction="wgmma", limits=HOPPER):
    case = gemm.Case(name="c", m=4096, n=4096, k=4096, dtype="bfloat16")
    knobs = "tile_k=64, warps_n=1" if instruction == "wgmma" else "tile_k=32"
    program = parse(gemm.program_text(case, "cuda", f"{knobs}, instruction={instruction!r}"))
    found = lower(program).works
    near, asked = neighbours(program, found, limits), answers("cutlass", program, found, limits)
    return found, near, asked


def test_the_search_proposes_cutlass_where_it_is_installed():
    found, near, asked = moved()
    strategies = [move.strategy for move in asked]
    assert strategies == ["cutlass cooperative", "cutlass pingpong", "instruction cutlass"]
    large, small, _ = (move.program.schedules[0] for move in asked)
    assert (large.tile_m, large.tile_n, large.cluster_m, large.stages) == (128, 256, 2, 4)
    assert (small.tile_m, small.tile_n, small.scheduler, small.stages) == (128, 128, "pingpong", 7)
    for move in asked:
        assert not legal(move.program.schedules[0], found, HOPPER)
        assert move.change == "instruction wgmma -> cutlass"
    assert {"cutlass cooperative", "cutlass pingpong"} <= {move.strategy for move in near}


@pytest.mark.parametrize("known", [False, None])
def test_the_search_never_proposes_cutlass_without_it(known):
    for instruction in ("mma", "wgmma"):
        _, near, asked = moved(instruction, replace(HOPPER, cutlass=known))
        assert not any(through_cutlass(move.program.schedules[0]) for move in (*near, *asked))


def test_below_capability_9_cutlass_begins_with_several_stages():
    (work,) = works()
    assert work.tiled is not None
    ((begun, _),) = starts(work.tiled, "8.6", 101376, tf32=False)
    assert begun.scheduler == "multistage"
    assert not legal(begun, [work], Limits(shared_bytes=101376, capability="8.6", cutlass=True))
    assert not starts(work.tiled, "7.5", 65536, tf32=False)
    assert not starts(work.tiled, "", 0, tf32=False)


def test_its_neighbours_differ_in_one_knob_and_are_legal():
    case = gemm.Case(name="c", m=4096, n=4096, k=4096, dtype="bfloat16")
    knobs = "instruction='cutlass', tile_k=64, tile_n=256, stages=4, cluster_m=2"
    program = parse(gemm.program_text(case, "cuda", knobs))
    found = lower(program).works
    strategies = set()
    for move in neighbours(program, found, HOPPER):
        assert not legal(move.program.schedules[0], found, HOPPER)
        strategies.add(move.strategy)
    assert {"cluster_m up", "cluster_m down", "cluster_n up", "scheduler pingpong"} <= strategies
    assert "instruction wgmma" in strategies


def literals(source):
    """The constants of a candidate's file."""
    return {
        ast.unparse(item.targets[0]): ast.literal_eval(item.value)
        for item in ast.parse(source).body
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]).isupper()
    }


def test_a_candidate_carries_the_sources_and_needs_cupy_only_for_other_kernels(make_problem):
    problem = make_problem(
        "return torch.softmax(torch.relu(x0 @ x1.T), -1)",
        "torch.randn(256, 512).half(); torch.randn(128, 512).half()",
        target="cuda",
    )
    program = """@cuda
def case(x: float16[256, 512], w: float16[128, 512]):
    with gemm(256, 128, 512, tile_k=64, instruction='cutlass', split_k=2):
        h = matmul(x, transpose(w))
        y = relu(h)
    with rowwise(256, 128, threads=128):
        e = exp(y - amax(y))
        z = e / sum(e)
    return z
"""
    source = write_program(problem, parse(program))
    found = literals(source)
    assert 'extern "C" __global__' in found["CUDA_SOURCE"]
    assert "region1" in found["CUDA_SOURCE"]
    assert "region0" not in found["CUDA_SOURCE"]
    assert "DecompositionMode" not in found["CUDA_SOURCE"]
    assert "-gencode=arch=compute_90a,code=sm_90a" in found["CUTLASS_FLAGS"]
    assert "_workspace('region0', " in source
    assert "import cupy" in source
    alone = program.replace("    with rowwise(256, 128, threads=128):\n", "").replace(
        "        e = exp(y - amax(y))\n        z = e / sum(e)\n    return z", "    return y"
    )
    only = make_problem(
        "return torch.relu(x0 @ x1.T)",
        "torch.randn(256, 512).half(); torch.randn(128, 512).half()",
        target="cuda",
    )
    source = write_program(only, parse(alone))
    assert "cupy" not in source
    assert "CUDA_SOURCE" not in literals(source)


# --- nvcc ---------------------------------------------------------------------------------------


def headers():
    """The folder of CUTLASS's headers: of a named checkout, or of the installed package."""
    named = os.environ.get("CUTLASS_PATH")
    root = Path(named) if named else sources.installed()
    folder = root / "include" if root is not None else None
    return folder if folder is not None and (folder / "cutlass" / "cutlass.h").is_file() else None


needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None or headers() is None,
    reason="needs nvcc on PATH (the CUDA toolkit, no GPU) and CUTLASS's headers: pip install "
    "nvidia-cutlass or set CUTLASS_PATH, then `pytest tests/language/test_cutlass.py`",
)


@needs_nvcc
@pytest.mark.parametrize(
    "case",
    [
        gemm.Case(
            name="sm_90a",
            m=200,
            n=264,
            k=512,
            batch=3,
            dtype="float16",
            layout="TN",
            after="residual",
            knobs="instruction='cutlass', scheduler='stream_k', tile_k=64, cluster_m=2",
        ),
        gemm.Case(
            name="sm_80",
            m=200,
            n=261,
            k=72,
            dtype="bfloat16",
            knobs="instruction='cutlass', scheduler='multistage', swizzle=1, warps_m=2, tile_k=32",
        ),
    ],
    ids=lambda case: case.name,
)
def test_nvcc_compiles_what_is_written_without_spilling(case, tmp_path):
    problem = gemm.problem_of(case, "cuda", tmp_path)
    program = parse(gemm.program_text(case, "cuda", case.knobs))
    check(problem, program)
    found = literals(write_program(problem, program))
    (tmp_path / "kernel.cu").write_text(found["CUTLASS_SOURCE"])
    flags = [*found["CUTLASS_FLAGS"]]
    if case.name == "sm_80":
        flags.append("-arch=sm_80")
    done = subprocess.run(
        ["nvcc", "-std=c++17", f"-I{headers()}", *flags, "-Xptxas", "-v", "-cubin", "kernel.cu"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Function properties for region0" in done.stderr
    assert " 0 bytes spill stores, 0 bytes spill loads" in done.stderr


def test_a_candidate_without_headers_says_what_to_install(make_problem, monkeypatch, tmp_path):
    problem = make_problem(
        "return x0 @ x1.T",
        "torch.randn(256, 4096).bfloat16(); torch.randn(256, 4096).bfloat16()",
        target="cuda",
    )
    source = write_program(problem, parse(PROGRAM))
    begin = source.index("def _cutlass_folders")
    names: dict[str, Any] = {"os": os, "importlib": importlib}
    exec(source[begin : source.index("def _build")], names)
    folders = names["_cutlass_folders"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("NVCC_PREPEND_FLAGS", raising=False)
    monkeypatch.delenv("CUTLASS_PATH", raising=False)
    with pytest.raises(ImportError, match="pip install nvidia-cutlass, or set CUTLASS_PATH"):
        folders()
    header = tmp_path / "include" / "cutlass" / "cutlass.h"
    header.parent.mkdir(parents=True)
    header.write_text("")
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    assert folders() == [str(tmp_path / "include")]
    monkeypatch.delenv("CUTLASS_PATH")
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", f"-I{tmp_path}/include --expt-relaxed-constexpr")
    assert folders() == []
