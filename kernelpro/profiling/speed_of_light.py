"""Speed of light: how fast a problem could be at best, by measured peaks and by datasheets."""

import math
from dataclasses import dataclass, replace

from kernelpro.profiling.datasheets import datasheet
from kernelpro.profiling.readings import fraction
from kernelpro.records import Evidence, Machine, Problem

# Operators that a GPU runs on its matrix units, by a part of their ATen name.
MATMUL = ("mm", "matmul", "linear", "conv", "dot_product_attention", "einsum")

_ELEMENT_BYTES = {
    "float64": 8,
    "int64": 8,
    "complex64": 8,
    "complex128": 16,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
    "uint64": 8,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedOfLight:
    """The least time that one call can take on a machine.

    Attributes:
        sol_us: largest of the three terms; 0 when the machine's peaks were not measured.
        bound: the term that sets it: `bytes`, `flops`, `launches`; empty when sol_us is 0.
        intensity: FLOPs per least byte.
        ridge: FLOPs per byte at which the machine turns from memory to compute bound.
        bytes_us: the term of the bytes that must pass main memory.
        flops_us: the term of the arithmetic.
        launch_us: the term of starting one kernel.
        path: name of the arithmetic peak that was used.
        work_us: what bytes and FLOPs alone would take with nothing held in a cache.
        note: what the byte term leaves out, in words, or empty.
    """

    sol_us: float
    bound: str
    intensity: float
    ridge: float
    bytes_us: float = 0.0
    flops_us: float = 0.0
    launch_us: float = 0.0
    path: str = ""
    work_us: float = 0.0
    note: str = ""


def speed_of_light(problem: Problem, machine: Machine) -> SpeedOfLight:
    """Bound the time of one call from below.

    `max(flops / peak, bytes / bandwidth, launch)`, where bytes are the least that must pass main
    memory. That is `min_bytes` less what can stay in the last-level cache: on a CPU everything may
    stay there between calls; on a GPU, where the inputs are flushed before each call, only outputs
    that are not written back yet. The bound is therefore low rather than high: nothing honest is
    faster.
    """
    path, peak = arithmetic_peak(problem, machine)
    bandwidth = machine.bandwidth_bytes_per_s
    candidates = problem.min_bytes if machine.target == "cpu" else output_bytes(problem)
    cached = min(machine.cache_bytes, candidates, problem.min_bytes)
    note = ""
    if cached and machine.target == "cpu":
        whole = cached >= problem.min_bytes
        note = (
            f"{'all' if whole else 'part'} of the {problem.min_bytes / 1e6:.3g} MB that a call "
            f"touches can stay in the {machine.cache_bytes / 1e6:.3g} MB cache, so main memory "
            f"bounds only {(problem.min_bytes - cached) / 1e6:.3g} MB"
        )
    flops_us = problem.flops / peak * 1e6 if peak > 0 else 0.0
    bytes_us = (problem.min_bytes - cached) / bandwidth * 1e6 if bandwidth > 0 else 0.0
    streamed_us = problem.min_bytes / bandwidth * 1e6 if bandwidth > 0 else 0.0
    terms = {"bytes": bytes_us, "flops": flops_us, "launches": machine.launch_us}
    bound = max(terms, key=lambda term: terms[term])
    return SpeedOfLight(
        sol_us=terms[bound],
        bound=bound if terms[bound] > 0 else "",
        intensity=problem.flops / problem.min_bytes if problem.min_bytes else 0.0,
        ridge=peak / bandwidth if bandwidth > 0 else 0.0,
        bytes_us=bytes_us,
        flops_us=flops_us,
        launch_us=machine.launch_us,
        path=path,
        work_us=max(flops_us, streamed_us),
        note=note,
    )


def on_datasheet(problem: Problem, machine: Machine) -> tuple[str, float]:
    """Name of the device's datasheet, and the bound in us by its peaks instead of the measured.

    An empty name and 0 without a datasheet.
    """
    sheet = datasheet(machine.device) if machine.target == "cuda" else None
    if sheet is None:
        return "", 0.0
    light = speed_of_light(
        problem,
        replace(
            machine,
            bandwidth_bytes_per_s=sheet.bandwidth_bytes_per_s,
            flops_per_s=sheet.flops_per_s,
        ),
    )
    return sheet.name, light.sol_us


def headroom(evidence: Evidence) -> float:
    """Share of the time, 0..1, that lies above the speed of light: no gain can be larger.

    1 where it is not known, or where several kernels share the call's time.
    """
    timing, light_us = evidence.evaluation.timing, evidence.classification.sol_us
    if timing is None or not timing.median_us > 0 or len(evidence.profile.launches) > 1:
        return 1.0
    return fraction(1.0 - light_us / timing.median_us)


def arithmetic_peak(problem: Problem, machine: Machine) -> tuple[str, float]:
    """Name and FLOP/s of the fastest path that the problem's arithmetic may take.

    Matmul-like operators of half-precision problems run on a GPU's matrix units, and float32 ones
    where the precision policy allows TF32. Where it does not, they may be three TF32 products each,
    which keep float32's accuracy. Falls back to the float32 path, then to no peak (0).
    """
    dtype = problem.dtype
    names = [dtype, "float32"]
    if machine.target == "cuda" and is_matmul(problem):
        if not admits_matrix_units(problem):
            third = machine.flops_per_s.get("tf32_tensor", 0.0) / 3
            if dtype == "float32" and third > machine.flops_per_s.get("float32", 0.0):
                return "3xtf32_tensor", third
        elif dtype in ("float16", "bfloat16"):
            other = "bfloat16" if dtype == "float16" else "float16"
            names = [f"{dtype}_tensor", f"{other}_tensor", *names]
        else:
            names = ["tf32_tensor", "tensorfloat32_tensor", "float32_tensor", *names]
    for name in names:
        if (peak := machine.flops_per_s.get(name, 0.0)) > 0:
            return name, peak
    return "", 0.0


def is_matmul(problem: Problem) -> bool:
    """Whether the reference calls an operator that is a matrix product at heart."""
    return any(part in _bare(name) for name in problem.operators for part in MATMUL)


def admits_matrix_units(problem: Problem) -> bool:
    """Whether the problem's type and tolerance let matrix units do its products.

    Half precision always; float32 where the precision policy allows TF32.
    """
    if problem.dtype in ("float16", "bfloat16"):
        return True
    return problem.dtype == "float32" and problem.precision != "strict"


def element_bytes(dtype: str) -> int:
    """Bytes of one element of a dtype given by torch's name; 4 for one that is not known."""
    return 1 if dtype.startswith("float8") else _ELEMENT_BYTES.get(dtype, 4)


def output_bytes(problem: Problem) -> int:
    """Bytes of all outputs of one call."""
    return sum(math.prod(t.shape) * element_bytes(t.dtype) for t in problem.outputs)


def _bare(operator: str) -> str:
    """`aten::addmm.out` and `aten.addmm.default` both to `addmm`."""
    name = operator.replace("::", ".").removeprefix("aten.")
    return name.split(".")[0]
