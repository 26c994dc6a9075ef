"""Detectors, instruction level: costly arithmetic, as the machine code shows it."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.issue_slots import ISSUE, stalled
from kernelpro.profiling.pipes import FP64
from kernelpro.profiling.readings import first_reading, fraction, reading
from kernelpro.profiling.sass.estimate import (
    BACKED,
    STATIC,
    by_issue,
    shown,
    static,
    wanted,
)
from kernelpro.profiling.thresholds import cut


@hookimpl
def detectors() -> list[Detector]:
    """Give this family's detectors."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="instruction",
    needs=("sass.fp64", "sass.fp64_in_loop", "sass.hot_loop_instructions"),
    wants=("sass.fp64_memory", FP64),
    group="compute",
    threshold="any double-precision instruction, but for sinf's slow path (exact)",
)
def fp64_instructions(evidence: Evidence) -> Diagnosis | None:
    """A kernel of a problem without doubles computes in double precision."""
    profile = evidence.profile
    count, looped = profile["sass.fp64"], profile["sass.fp64_in_loop"]
    types = {spec.dtype for spec in (*evidence.problem.inputs, *evidence.problem.outputs)}
    if count <= cut("fp64_instructions.count") or "float64" in types:
        return None
    if not types and reading(profile, "sass.fp64_memory"):
        return None  # of a recorded file nothing is known; doubles in memory say that it wants them
    busy = first_reading(profile, FP64)
    if busy is not None:
        guess, confidence = fraction(busy / 100) * 0.9, BACKED
        words = f"; the double-precision unit is busy {busy:.0f} % of the time"
    else:
        guess = static(4.0 * count / max(profile["sass.hot_loop_instructions"], 1.0)).gain
        confidence, words = STATIC, ""
    return Diagnosis(
        bottleneck=(
            f"{count:.0f} double-precision instructions, {looped:.0f} in a loop (cut 0){words}"
        ),
        where=shown(profile, "sass.fp64_in_loop", "sass.fp64"),
        why="A literal without f, or a function of double, turns float arithmetic into double.",
        gain=guess,
        confidence=confidence,
        actions=(Action(name="float_literals", instruction="Write 0.5f, and sqrtf, expf, fmaxf."),),
        guard="Not where a sum is kept in double on purpose, for accuracy.",
    )


@detector(
    level="instruction",
    needs=(
        "sass.mufu_per_ffma", "sass.mufu", "sass.slowpath_calls", "sass.range_reductions",
        "sass.hot_loop_instructions",
    ),
    wants=wanted("short_scoreboard", "mio_throttle"),
    classes=("compute", "latency", "balanced"),
    group="compute",
    threshold="any slow path of a math function in the hot loop (GPA), or > 0.1 MUFU for each "
    "float operation with a stall on them",
)  # fmt: skip
def slow_math(evidence: Evidence) -> Diagnosis | None:
    """Accurate division, square root or trigonometry, or many special functions."""
    profile = evidence.profile
    calls, reductions = profile["sass.slowpath_calls"], profile["sass.range_reductions"]
    share = profile["sass.mufu_per_ffma"]
    waits = stalled(profile, "short_scoreboard") + stalled(profile, "mio_throttle")
    crowded = share > cut("slow_math.per_ffma") and waits > cut("stall_share")
    if not (calls or reductions or crowded):
        return None
    cost = 8 * calls + 12 * reductions + 2 * profile["sass.mufu"]
    guess = by_issue(
        profile, min(0.5 * cost / max(profile["sass.hot_loop_instructions"], 1.0), 0.5)
    )
    what = [
        f"{calls:.0f} divisions or square roots with a slow path" if calls else "",
        f"{reductions:.0f} sines, cosines or tangents with range reduction" if reductions else "",
        f"{share:.2f} special functions for each float operation" if crowded else "",
    ]
    return Diagnosis(
        bottleneck=f"{', '.join(x for x in what if x)} in the hot loop (cut 0){guess.words}",
        where=shown(profile, "sass.slowpath_calls", "sass.range_reductions", "sass.mufu_per_ffma"),
        why="The accurate functions take ten and more instructions around one special function.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(
                name="fast_math",
                instruction="Use __expf, __sinf, __fdividef, rsqrtf, or -use_fast_math.",
            ),
            Action(name="hoist_reciprocal", instruction="Divide once, multiply in the loop."),
        ),
        guard="Only where the tolerance allows it; reduce large arguments of sine by hand first.",
    )


@detector(
    level="instruction",
    needs=("sass.int_divisions", "sass.int_divisions_64", "sass.hot_loop_instructions"),
    wants=(ISSUE,),
    classes=("compute", "latency", "balanced"),
    group="compute",
    threshold="any integer division by a variable in the hot loop (GPA's strength reduction)",
)
def int_div_mod(evidence: Evidence) -> Diagnosis | None:
    """Integers are divided, or a remainder is taken, by a number not known to the compiler."""
    profile = evidence.profile
    short, wide = profile["sass.int_divisions"], profile["sass.int_divisions_64"]
    slots = cut("int_div_mod.slots") * short + cut("int_div_mod.slots_64") * wide
    total = profile["sass.hot_loop_instructions"] + cut("int_div_mod.slots_64") * wide
    if slots <= 0:
        return None
    guess = by_issue(profile, min(0.8 * slots / max(total, 1.0), 0.8))
    return Diagnosis(
        bottleneck=(
            f"{short:.0f} integer divisions of 32 bits and {wide:.0f} of 64 in the hot loop, about "
            f"{slots:.0f} of its {total:.0f} issue slots (cut 0){guess.words}"
        ),
        where=shown(profile, "sass.int_divisions_64", "sass.int_divisions"),
        why="There is no integer divider: a division is 20 to 30 instructions, or over 100.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(
                name="strength_reduction",
                instruction="Use a 2-D grid or a running index; shift and mask for powers of two.",
            ),
            Action(
                name="fast_division",
                instruction="Multiply by a reciprocal that the host has computed (mul-hi, shift).",
            ),
            Action(name="short_index", instruction="Count in 32 bits where the size allows it."),
        ),
        guard="Not for a division that runs once in a long kernel.",
    )


@detector(
    level="instruction",
    needs=("sass.conversion_share",),
    wants=(ISSUE,),
    classes=("compute", "balanced"),
    group="compute",
    threshold="> 15 % of the hot loop's instructions convert types (own; GPUscout)",
)
def type_conversions(evidence: Evidence) -> Diagnosis | None:
    """A large part of the hot loop converts between types."""
    profile = evidence.profile
    share = profile["sass.conversion_share"]
    if share <= cut("type_conversions.share"):
        return None
    guess = by_issue(profile, share)
    return Diagnosis(
        bottleneck=(
            f"{share:.0%} of the hot loop's instructions convert types "
            f"(cut {cut('type_conversions.share'):.0%}){guess.words}"
        ),
        where=shown(profile, "sass.conversion_share"),
        why="Conversions run at a quarter of the arithmetic rate, or less.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="packed_conversions", instruction="Convert pairs: __float22half2_rn."),
            Action(name="hoist", instruction="Convert once, before the loop; count in float."),
        ),
        guard="Not when memory is the limit: a shorter type in memory is worth its conversion.",
    )


@detector(
    level="instruction",
    needs=("sass.half_math", "sass.half_scalar_share", "sass.accesses_2_bytes"),
    wants=(ISSUE,),
    classes=("memory", "compute", "balanced"),
    group="compute",
    threshold="> 50 % of half-precision arithmetic on one value instead of two (own)",
)
def scalar_half(evidence: Evidence) -> Diagnosis | None:
    """Half-precision values are loaded and computed one at a time."""
    profile = evidence.profile
    share, accesses = profile["sass.half_scalar_share"], profile["sass.accesses_2_bytes"]
    if not profile["sass.half_math"] or share <= cut("scalar_half.share"):
        return None
    guess = by_issue(profile, 0.25 if accesses else 0.15)
    return Diagnosis(
        bottleneck=(
            f"{share:.0%} of half-precision arithmetic uses one half of a register "
            f"(cut {cut('scalar_half.share'):.0%}), {accesses:.0f} accesses move 2 B a lane"
            f"{guess.words}"
        ),
        where=shown(profile, "sass.half_scalar_share"),
        why="One instruction computes two half values, and one access moves eight.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="half2", instruction="Use __half2 and __hfma2."),
            Action(name="vectorize", instruction="Load 8 half values, 16 bytes, at a time."),
        ),
        guard="Not for odd row lengths without a remainder loop.",
    )
