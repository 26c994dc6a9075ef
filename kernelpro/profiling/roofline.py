"""The roofline: how fast a problem could be at best, and which resource holds a kernel back.

Works on records alone. It knows nothing of how the numbers were collected, and it never says more
than they show: without a time there is no measured class.
"""

from dataclasses import dataclass

from kernelpro.records import Classification, Evaluation, Machine, Problem, Profile

CUDA_COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
CUDA_MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
CUDA_UNITS = (
    "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
)
CUDA_LEVELS = {
    "DRAM": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "L1": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
}

# What classify reads, by target; a collector should be asked for these beside the detectors' needs.
# On a GPU the parts, not the two compound throughputs: with them, what the built-in detectors need
# takes 5 replays of each kernel instead of 11 (CUPTI's count for an H100). The busiest part is a
# lower bound of the compound, so the cuts stay the same; where a profile has the compound, that
# decides.
NEEDS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu.bandwidth_share", "cpu.flops_share", "system.operator_bytes"),
    "cuda": (*CUDA_UNITS, *CUDA_LEVELS.values()),
}

# Operators that a GPU runs on its matrix units, by a part of their ATen name.
MATMUL = ("mm", "matmul", "linear", "conv", "dot_product_attention", "einsum")

BALANCED_BAND = 0.2  # own: theory is balanced within +-20 % of the ridge
LATENCY_FACTOR = 2.0  # own: theory is latency when the work takes less than twice the launch floor
BUSY = 0.6  # NVIDIA's SpeedOfLight rule: below 60 % of both peaks, neither is the limit
NEAR_ROOF = 0.8  # NVIDIA's SpeedOfLight rule: at 80 % of a peak there is little left
TIE = 0.1  # NVIDIA's SpeedOfLight rule: closer than 10 points is balanced

_ELEMENT_BYTES = {
    "float64": 8,
    "int64": 8,
    "complex64": 8,
    "complex128": 16,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
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
        path: name of the arithmetic peak that was used.
        work_us: what bytes and FLOPs alone would take with nothing held in a cache.
        note: what the byte term leaves out, in words, or empty.
    """

    sol_us: float
    bound: str
    intensity: float
    ridge: float
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
    candidates = problem.min_bytes if machine.target == "cpu" else _output_bytes(problem)
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
        path=path,
        work_us=max(flops_us, streamed_us),
        note=note,
    )


def arithmetic_peak(problem: Problem, machine: Machine) -> tuple[str, float]:
    """Name and FLOP/s of the fastest path that the problem's arithmetic may take.

    Matmul-like operators of half-precision problems run on a GPU's matrix units; float32 ones only
    where the precision policy allows TF32. Falls back to the float32 path, then to no peak (0).
    """
    dtype = problem.dtype
    names = [dtype, "float32"]
    if machine.target == "cuda" and is_matmul(problem):
        if dtype in ("float16", "bfloat16"):
            other = "bfloat16" if dtype == "float16" else "float16"
            names = [f"{dtype}_tensor", f"{other}_tensor", *names]
        elif dtype == "float32" and problem.precision != "strict":
            names = ["tf32_tensor", "tensorfloat32_tensor", "float32_tensor", *names]
    for name in names:
        if (peak := machine.flops_per_s.get(name, 0.0)) > 0:
            return name, peak
    return "", 0.0


def is_matmul(problem: Problem) -> bool:
    """Whether the reference calls an operator that is a matrix product at heart."""
    return any(part in _bare(name) for name in problem.operators for part in MATMUL)


def classify(
    problem: Problem, machine: Machine, evaluation: Evaluation, profile: Profile
) -> Classification:
    """Place a kernel on the roofline twice: from the problem alone, and from what was measured.

    The theory's class says whose detectors run, also when the measurement disagrees. Measured
    classes use the cuts of NVIDIA's SpeedOfLight rule, on the GPU's throughput counters or, on a
    CPU, on achieved bytes and FLOPs per second as shares of the measured peaks.
    """
    light = speed_of_light(problem, machine)
    theory = _theory(light, machine)
    shares = _shares(problem, machine, evaluation, profile)
    measured = _measured(*shares) if shares else "unknown"
    level = _level(profile) if machine.target == "cuda" else ""
    agree = measured == theory
    return Classification(
        theory=theory,
        measured=measured,
        dispatched=theory,
        level=level,
        confidence="high" if agree else "low",
        sol_us=light.sol_us,
        bound=light.bound,
        intensity=light.intensity,
        ridge=light.ridge,
        text=_tell(light, machine, theory, measured, shares, level),
    )


def device_share(profile: Profile) -> float:
    """Share of a call, 0..1, in which the device works: what a kernel's own gain is weighed by.

    1 where the gaps between kernels were not measured.
    """
    return 1.0 - min(max(profile.get("system.gap_share", 0.0), 0.0), 1.0)


def cuda_shares(profile: Profile) -> tuple[float, float] | None:
    """Busy shares of a GPU's arithmetic and memory, 0..1; None where there are no counters.

    From the compound throughputs, else from the busiest of their parts.
    """
    shares = []
    for compound, parts in ((CUDA_COMPUTE, CUDA_UNITS), (CUDA_MEMORY, CUDA_LEVELS.values())):
        seen = [profile[n] for n in parts if n in profile]
        if compound in profile:
            seen = [profile[compound]]
        if not seen:
            return None
        shares.append(max(seen) / 100)
    return shares[0], shares[1]


def measured_class(profile: Profile) -> str:
    """Class of a GPU kernel from its counters alone; `unknown` where there are none."""
    shares = cuda_shares(profile)
    return _measured(*shares) if shares else "unknown"


def _theory(light: SpeedOfLight, machine: Machine) -> str:
    if light.ridge <= 0:
        return "balanced"
    if machine.launch_us > 0 and light.work_us < LATENCY_FACTOR * machine.launch_us:
        return "latency"
    if light.intensity < (1 - BALANCED_BAND) * light.ridge:
        return "memory"
    return "compute" if light.intensity > (1 + BALANCED_BAND) * light.ridge else "balanced"


def _measured(compute: float, memory: float) -> str:
    """Class from the busy shares of arithmetic and memory, each 0..1."""
    if compute < BUSY and memory < BUSY:
        return "latency"
    if max(compute, memory) < NEAR_ROOF and abs(compute - memory) < TIE:
        return "balanced"
    return "compute" if compute > memory else "memory"


def _shares(
    problem: Problem, machine: Machine, evaluation: Evaluation, profile: Profile
) -> tuple[float, float] | None:
    """Busy shares of arithmetic and memory, 0..1, or None when they were not measured."""
    if machine.target == "cuda":
        return cuda_shares(profile)
    _, peak = arithmetic_peak(problem, machine)
    if evaluation.timing is None or peak <= 0 or machine.bandwidth_bytes_per_s <= 0:
        return None
    seconds = evaluation.timing.median_us / 1e6
    if seconds <= 0:
        return None
    moved = max(problem.min_bytes, profile.get("system.operator_bytes", 0.0))
    return problem.flops / seconds / peak, moved / seconds / machine.bandwidth_bytes_per_s


def _level(profile: Profile) -> str:
    found = {level: profile[name] for level, name in CUDA_LEVELS.items() if name in profile}
    return max(found, key=lambda level: found[level]) if found else ""


def _tell(
    light: SpeedOfLight,
    machine: Machine,
    theory: str,
    measured: str,
    shares: tuple[float, float] | None,
    level: str,
) -> str:
    if light.ridge <= 0:
        first = "In theory not classified: this machine's peaks were not measured."
    elif theory == "latency":
        first = (
            f"In theory latency bound: bytes and arithmetic need {light.work_us:.3g} us, "
            f"{machine.device or 'the device'} needs {machine.launch_us:.3g} us to start anything."
        )
    else:
        first = (
            f"In theory {_words(theory)}: {light.intensity:.3g} FLOP per least byte, and this "
            f"machine turns at {light.ridge:.3g} ({light.path})."
        )
    if light.note:
        first += f" {light.note[0].upper()}{light.note[1:]}."
    if shares is None:
        return f"{first} Not classified by measurement: counters or a time are missing."
    compute, memory = shares
    where = f", busiest level {level}" if level else ""
    second = (
        f"Measured {_words(measured)}: arithmetic at {compute:.0%} and memory at {memory:.0%} of "
        f"peak{where}."
    )
    if measured != theory:
        second += f" The two disagree; the detectors for {theory} kernels ran."
    return f"{first} {second}"


def _words(name: str) -> str:
    return "balanced" if name == "balanced" else f"{name} bound"


def _output_bytes(problem: Problem) -> int:
    total = 0
    for spec in problem.outputs:
        count = 1
        for size in spec.shape:
            count *= size
        total += count * element_bytes(spec.dtype)
    return total


def element_bytes(dtype: str) -> int:
    """Bytes of one element of a dtype given by torch's name; 4 for one that is not listed."""
    return _ELEMENT_BYTES.get(dtype, 4)


def _bare(operator: str) -> str:
    """`aten::addmm.out` and `aten.addmm.default` both to `addmm`."""
    name = operator.replace("::", ".").removeprefix("aten.")
    return name.split(".")[0]
