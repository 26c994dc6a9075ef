"""Small real records, and small C++ libraries compiled on the spot, for the profiling tests."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpro import (
    Build,
    Candidate,
    Classification,
    Evaluation,
    Evidence,
    Machine,
    Metric,
    Outcome,
    Problem,
    Profile,
    TensorSpec,
    Timing,
)

needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") and shutil.which("objdump")),
    reason="g++ or objdump is not on PATH (apt install g++ binutils)",
)


def machine(target="cpu", **changes):
    values = {
        "target": target,
        "device": "a test device",
        "threads": 2 if target == "cpu" else 0,
        "bandwidth_bytes_per_s": 10e9,
        "flops_per_s": {"float32": 100e9, "bfloat16_tensor": 1000e9, "tf32_tensor": 500e9},
        "cache_bytes": 0,
        "launch_us": 5.0,
    }
    return Machine(**(values | changes))


def problem(flops=10_000_000, min_bytes=100_000_000, dtype="float32", **changes):
    values = {
        "name": "sample",
        "origin": "test",
        "source": "",
        "target": "cpu",
        "flops": flops,
        "min_bytes": min_bytes,
        "inputs": (TensorSpec(shape=(1000, 1000), dtype=dtype),),
        "outputs": (TensorSpec(shape=(1000, 1000), dtype=dtype),),
        "operators": {"aten::mul.Tensor": 1},
    }
    return Problem(**(values | changes))


def timing(median_us=1000.0, baseline_us=1000.0, threads=2):
    speedup = baseline_us / median_us
    return Timing(
        median_us=median_us,
        p20_us=median_us,
        p80_us=median_us,
        runs=10,
        baseline_us=baseline_us,
        baseline="eager",
        speedup=speedup,
        speedup_low=speedup,
        speedup_high=speedup,
        clock="test",
        threads=threads,
    )


def accepted(median_us=1000.0, baseline_us=1000.0, binary=""):
    return Evaluation(
        outcome=Outcome.ACCEPTED,
        timing=timing(median_us, baseline_us),
        build=Build(ok=True, binary=binary) if binary else None,
    )


def profile(values):
    return Profile(metrics={name: Metric(value=float(v)) for name, v in values.items()})


def evidence(values, *, target="cpu", of=None, on=None, evaluation=None, metrics=None, kernels=()):
    return Evidence(
        problem=of or problem(),
        candidate=Candidate(source="class ModelNew: pass"),
        machine=on or machine(target),
        evaluation=evaluation or accepted(),
        profile=replace(
            Profile(metrics=metrics) if metrics is not None else profile(values), kernels=kernels
        ),
        classification=Classification(theory="memory", measured="memory", dispatched="memory"),
    )


def library(folder: Path, body: str, *flags: str) -> Path:
    """Compile C++ to a shared library in folder; AVX2 code, whatever this machine has."""
    source, binary = folder / "kernel.cpp", folder / "kernel.so"
    source.write_text("#include <cmath>\n#include <cstddef>\n" + body)
    command = ["g++", "-std=c++17", "-O3", "-march=x86-64-v3", *flags, "-shared", "-fPIC"]
    subprocess.run([*command, str(source), "-o", str(binary)], check=True, timeout=60)
    return binary


def tensors(*shapes, dtype="float32"):
    return tuple(TensorSpec(shape=shape, dtype=dtype) for shape in shapes)
