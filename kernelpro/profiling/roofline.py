"""The roofline: which resource holds a kernel back, in theory and as measured.

Works on records alone. It knows nothing of how the numbers were collected, and it never says more
than they show: without a time or counters there is no measured class. How fast the problem could be
is in speed_of_light.py.
"""

from dataclasses import dataclass, replace

from kernelpro.profiling import pipes
from kernelpro.profiling.readings import fraction, reading
from kernelpro.profiling.speed_of_light import (
    SpeedOfLight,
    arithmetic_peak,
    on_datasheet,
    speed_of_light,
)
from kernelpro.profiling.throughput import (
    CUDA_COMPUTE,
    CUDA_LEVELS,
    CUDA_MEMORY,
    CUDA_UNITS,
    class_of,
    cuda_shares,
    device_share,
    level,
    measured_class,
)
from kernelpro.records import Classification, Evaluation, Machine, Problem, Profile

# By target, what is collected beside the detectors' needs: what classify reads and, on a CPU, the
# shares of its peaks, which bound gains and are shown with every profile.
# On a GPU the parts, not the two compound throughputs: they take 2 replays of each kernel, not 9
# (CUPTI's count for an H100). Where a profile has the compound, that decides.
NEEDS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu.bandwidth_share", "cpu.flops_share", "system.operator_bytes"),
    "cuda": (*CUDA_UNITS, *CUDA_LEVELS.values()),
}

BALANCED_BAND = 0.2  # own: theory is balanced within +-20 % of the ridge
LATENCY_FACTOR = 2.0  # own: theory is latency when the work takes less than twice the launch floor
FAR_FROM_RIDGE = 2.0  # own: theory is sure of itself at twice or half the ridge
DEVICE_BUSY = 0.8  # own: with the device idle for a fifth of a call, the system comes first
MOST = 0.5  # own: a class of several kernels holds for the candidate with half of their time
MATRIX_WORK = 0.05  # own: below 5 % a matrix unit's counter shows idioms, not products
NEAR_CUT = 0.05  # own: a class that five points would change is less sure

CLASSES = ("compute", "memory", "latency", "balanced")


def classify(
    problem: Problem, machine: Machine, evaluation: Evaluation, profile: Profile
) -> Classification:
    """Place a candidate on the roofline twice: from the problem alone, and from what was measured.

    The theory's class says whose detectors run, also when the measurement disagrees. Measured
    classes use the cuts of NVIDIA's SpeedOfLight rule, on the GPU's throughput counters or, on a
    CPU, on achieved bytes and FLOPs per second as shares of the measured peaks. `system` is
    measured where the device waits for the host; `mixed` where no class has half of the kernels'
    time.
    """
    light = speed_of_light(problem, machine)
    sheet, sheet_us = on_datasheet(problem, machine)
    theory = _theory(light, machine)
    if machine.target == "cuda":
        seen = _seen_on_device(profile, matrix=light.path.endswith("_tensor"))
    else:
        seen = _seen_on_host(problem, machine, evaluation, profile)
    agree = seen.name == theory or (seen.name, theory) == ("system", "latency")
    sure = _theory_confidence(light, machine, theory)
    return Classification(
        theory=theory,
        measured=seen.name,
        dispatched=theory,
        level=seen.level,
        confidence="high" if agree else "low",
        theory_confidence=sure,
        measured_confidence=seen.confidence,
        sol_us=light.sol_us,
        sheet_us=sheet_us,
        bound=light.bound,
        intensity=light.intensity,
        ridge=light.ridge,
        text=" ".join(
            part
            for part in (
                _tell_theory(light, machine, theory, sure),
                _tell_seen(seen),
                ""
                if agree or seen.name == "unknown"
                else f"The two disagree; the detectors for {theory} kernels ran.",
                _tell_roofs(machine, light, sheet, sheet_us),
            )
            if part
        ),
    )


def classify_recorded(profile: Profile) -> Classification:
    """Place a recorded profile, of which no problem is known, by its counters alone.

    Without a class of a kernel (no counters, or the system comes first) all detectors run.
    """
    seen = _seen_on_device(profile, matrix=False)
    return Classification(
        theory="unknown",
        measured=seen.name,
        dispatched=seen.name if seen.name in CLASSES else "mixed",
        level=seen.level,
        confidence="low",
        measured_confidence=seen.confidence,
        text="No class in theory: which problem this is, is not known. " + _tell_seen(seen),
    )


# --- theory -----------------------------------------------------------------------------------


def _theory(light: SpeedOfLight, machine: Machine) -> str:
    if light.ridge <= 0:
        return "balanced"
    if machine.launch_us > 0 and light.work_us < LATENCY_FACTOR * machine.launch_us:
        return "latency"
    if light.intensity < (1 - BALANCED_BAND) * light.ridge:
        return "memory"
    return "compute" if light.intensity > (1 + BALANCED_BAND) * light.ridge else "balanced"


def _theory_confidence(light: SpeedOfLight, machine: Machine, theory: str) -> str:
    if light.ridge <= 0:
        return ""
    if theory == "latency":
        return "high" if light.work_us < machine.launch_us else "medium"
    if theory == "balanced":
        return "low"
    far = light.intensity * FAR_FROM_RIDGE <= light.ridge or (
        light.intensity >= FAR_FROM_RIDGE * light.ridge
    )
    return "high" if far else "medium"


# --- measurement ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a measurement shows.

    Attributes:
        name: the class, `system`, `mixed` or `unknown`.
        confidence: `high`, `medium`, `low`, or empty for an unknown class.
        shares: busy shares of arithmetic and memory, 0..1.
        level: busiest memory level.
        note: more in words, whole sentences.
    """

    name: str = "unknown"
    confidence: str = ""
    shares: tuple[float, float] | None = None
    level: str = ""
    note: str = ""


def _seen_on_device(profile: Profile, *, matrix: bool) -> _Seen:
    """Class of a call on a GPU.

    Args:
        profile: with the counters of each kernel, or of the whole.
        matrix: whether the problem's arithmetic belongs on matrix units.
    """
    if len(profile.kernels) > 1:
        seen = _of_kernels(profile)
    else:
        seen = _of_kernel(profile.of(profile.kernels[0]) if profile.kernels else profile, matrix)
    busy = device_share(profile)
    if busy >= DEVICE_BUSY:
        return seen
    inner = f", then at its kernels ({seen.name})" if seen.name != "unknown" else ""
    return replace(
        seen,
        name="system",
        confidence="medium",
        note=(
            f"The device works for {busy:.0%} of a call (cut {DEVICE_BUSY:.0%}): look at launches "
            f"and gaps first{inner}. {seen.note}"
        ).strip(),
    )


def _of_kernel(profile: Profile, matrix: bool) -> _Seen:
    shares = cuda_shares(profile)
    if shares is None:
        return _Seen()
    note = ""
    if matrix and (percent := pipes.matrix_percent(profile)) is not None:
        # Their own unit is what such products are to be measured by; but for idle units, that
        # says nothing of what the kernel is busy with.
        if percent / 100 >= MATRIX_WORK:
            shares = percent / 100, shares[1]
            note = "Arithmetic is that of the matrix units."
        else:
            note = f"The matrix units, to which this arithmetic belongs, are at {percent:.0f} %."
    name = class_of(*shares)
    moved = [
        class_of(fraction(shares[0] + c), fraction(shares[1] + m))
        for c in (-NEAR_CUT, NEAR_CUT)
        for m in (-NEAR_CUT, NEAR_CUT)
    ]
    compound = CUDA_COMPUTE in profile and CUDA_MEMORY in profile
    # Parts are lower bounds: what they call latency may be busy with a part not asked for.
    sure = "high" if compound else "low" if name == "latency" else "medium"
    if any(other != name for other in moved) and sure == "high":
        sure = "medium"
    return _Seen(name=name, confidence=sure, shares=shares, level=level(profile), note=note)


def _of_kernels(profile: Profile) -> _Seen:
    """Class of a call with several kernels: the one that has most of their time, else mixed."""
    time: dict[str, float] = {}
    for kernel in profile.kernels:
        name = measured_class(profile.of(kernel))
        time[name] = time.get(name, 0.0) + fraction(kernel.share)
    known = {name: share for name, share in time.items() if name != "unknown"}
    if not known:
        return _Seen()
    name, share = max(known.items(), key=lambda item: item[1])
    total = sum(time.values())
    told = ", ".join(f"{n} {s / total:.0%}" for n, s in sorted(known.items()) if total > 0)
    return _Seen(
        name=name if share > MOST * total else "mixed",
        confidence="medium" if share > MOST * total else "low",
        shares=cuda_shares(profile),
        level=level(profile),
        note=f"Of the time of its {len(profile.kernels)} kernels: {told}.",
    )


def _seen_on_host(
    problem: Problem, machine: Machine, evaluation: Evaluation, profile: Profile
) -> _Seen:
    _, peak = arithmetic_peak(problem, machine)
    if evaluation.timing is None or peak <= 0 or machine.bandwidth_bytes_per_s <= 0:
        return _Seen()
    seconds = evaluation.timing.median_us / 1e6
    if not seconds > 0:
        return _Seen()
    moved = max(problem.min_bytes, reading(profile, "system.operator_bytes"))
    shares = problem.flops / seconds / peak, moved / seconds / machine.bandwidth_bytes_per_s
    return _Seen(name=class_of(*shares), confidence="medium", shares=shares)


# --- words ------------------------------------------------------------------------------------


def _tell_theory(light: SpeedOfLight, machine: Machine, theory: str, sure: str) -> str:
    if light.ridge <= 0:
        first = "In theory not classified: this machine's peaks were not measured."
    elif theory == "latency":
        first = (
            f"In theory latency bound (confidence {sure}): bytes and arithmetic need "
            f"{light.work_us:.3g} us, {machine.device or 'the device'} needs "
            f"{machine.launch_us:.3g} us to start anything."
        )
    else:
        first = (
            f"In theory {_words(theory)} (confidence {sure}): {light.intensity:.3g} FLOP per least "
            f"byte, and this machine turns at {light.ridge:.3g} ({light.path})."
        )
    return f"{first} {light.note[0].upper()}{light.note[1:]}." if light.note else first


def _tell_seen(seen: _Seen) -> str:
    if seen.name == "unknown":
        return "Not classified by measurement: counters or a time are missing."
    told = f"Measured {_words(seen.name)} (confidence {seen.confidence})"
    if seen.shares:
        compute, memory = seen.shares
        where = f", busiest level {seen.level}" if seen.level else ""
        told += f": arithmetic at {compute:.0%} and memory at {memory:.0%} of peak{where}"
    return f"{told}. {seen.note}".strip()


def _tell_roofs(machine: Machine, light: SpeedOfLight, sheet: str, sheet_us: float) -> str:
    if machine.target != "cuda" or light.ridge <= 0:
        return ""
    if not sheet:
        return f"No datasheet of {machine.device or 'this device'} is known: measured roofs only."
    return (
        f"No call is faster than {light.sol_us:.3g} us by measured peaks, nor than "
        f"{sheet_us:.3g} us by the {sheet}'s datasheet."
    )


def _words(name: str) -> str:
    if name == "system":
        return "bound by what surrounds its kernels"
    return name if name in ("balanced", "mixed") else f"{name} bound"
