"""Detectors, instruction level: which unit computes, and what else takes the issue slots."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.issue_slots import ISSUE
from kernelpro.profiling.pipes import FMA, TENSOR
from kernelpro.profiling.readings import first_reading, fraction, reading
from kernelpro.profiling.sass.estimate import BACKED, STATIC, by_issue, shown
from kernelpro.profiling.speed_of_light import is_matmul
from kernelpro.profiling.thresholds import cut

MAJOR = "device__attribute_compute_capability_major"


@hookimpl
def detectors() -> list[Detector]:
    """Give this family's detectors."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="instruction",
    needs=("sass.tensor_anywhere", "sass.hgmma_anywhere", "sass.ffma"),
    wants=("sass.hmma", "sass.target_sm", MAJOR, FMA, TENSOR),
    classes=("compute", "balanced"),
    group="compute",
    threshold="a matrix product with FFMA alone, or with mma.sync alone on sm_90 (exact)",
)
def mma_kind(evidence: Evidence) -> Diagnosis | None:
    """A matrix product does not use the fastest matrix instructions of its chip."""
    profile, problem = evidence.profile, evidence.problem
    if not is_matmul(problem):
        return None
    half = problem.dtype in ("float16", "bfloat16")
    chip = reading(profile, MAJOR) * 10 or reading(profile, "sass.target_sm")
    if not profile["sass.tensor_anywhere"]:
        if not profile["sass.ffma"] or not (half or problem.precision != "strict"):
            return None
        fma = reading(profile, FMA)
        return Diagnosis(
            bottleneck=(
                f"{profile['sass.ffma']:.0f} FFMA in the hot loop of a matrix product, and no "
                "matrix instruction"
            ),
            where=shown(profile, "sass.ffma"),
            why="Matrix units do 8 and more times as many operations a cycle.",
            gain=fraction(0.85 * fma / 100) if fma else 0.3,
            confidence=BACKED if fma else STATIC,
            actions=(
                Action(
                    name="tensor_cores",
                    instruction="Compute tiles with mma.sync or wmma in half or TF32.",
                ),
                Action(name="stage_shared", instruction="Hold both tiles in shared memory."),
            ),
            guard="Only where the tolerance admits the shorter type.",
        )
    if profile["sass.hgmma_anywhere"] or chip < 90 or chip >= 100:
        return None
    busy = first_reading(profile, TENSOR)
    if busy is not None and busy < cut("mma_kind.busy"):
        return None
    return Diagnosis(
        bottleneck="mma.sync (HMMA) only, on a chip that has warpgroup matrix instructions",
        where=shown(profile, "sass.hmma", "sass.tensor_anywhere"),
        why="mma.sync reads operands from registers and does not reach wgmma's rate on sm_90.",
        gain=0.3 if busy is not None else 0.15,
        confidence=STATIC,
        actions=(
            Action(
                name="wgmma",
                instruction="Use wgmma.mma_async from shared memory, filled by TMA, for sm_90a.",
            ),
        ),
        guard="A large change: only for products that are compute bound.",
    )


@detector(
    level="instruction",
    needs=("sass.address_per_math", "sass.math", "sass.hot_loop_bytes", "sass.tensor"),
    wants=(ISSUE,),
    classes=("compute", "latency"),
    group="compute",
    threshold="> 2 instructions on integers and addresses for each one of arithmetic (own)",
)
def address_overhead(evidence: Evidence) -> Diagnosis | None:
    """The hot loop computes addresses more than results."""
    profile = evidence.profile
    ratio, math = profile["sass.address_per_math"], profile["sass.math"]
    if (
        ratio <= cut("address_overhead.ratio")
        or not profile["sass.hot_loop_bytes"]
        or profile["sass.tensor"]
        or math < cut("address_overhead.math")
    ):
        return None
    guess = by_issue(profile, min(1.0 - 1.0 / ratio, 0.3))
    return Diagnosis(
        bottleneck=(
            f"{ratio:.1f} instructions on integers and addresses for each one of arithmetic "
            f"(cut {cut('address_overhead.ratio'):.0f}){guess.words}"
        ),
        where=shown(profile, "sass.address_per_math"),
        why="Indices are computed again in each iteration.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="unroll", instruction="Unroll more, so that offsets become constants."),
            Action(name="bump_pointer", instruction="Advance a pointer by a constant stride."),
            Action(name="short_index", instruction="Use 32-bit indices within a tile."),
        ),
        guard="Not for kernels of integers, where this is the work.",
    )


@detector(
    level="instruction",
    needs=(
        "sass.math_share",
        "sass.math",
        "sass.hot_loop_bytes",
        "sass.tensor",
        "sass.stall_cycles",
    ),
    wants=(ISSUE,),
    classes=("compute",),
    group="compute",
    threshold="arithmetic is < 40 % of the hot loop of a compute-bound kernel (own)",
)
def static_issue_cost(evidence: Evidence) -> Diagnosis | None:
    """Less than half of the hot loop's instructions are arithmetic."""
    profile = evidence.profile
    share, math = profile["sass.math_share"], profile["sass.math"]
    if share >= cut("static_issue_cost.math") or not profile["sass.hot_loop_bytes"] or not math:
        return None
    if profile["sass.tensor"]:
        return None  # a few matrix instructions do all the work
    guess = by_issue(profile, 0.5 * (1.0 - share))
    return Diagnosis(
        bottleneck=(
            f"arithmetic is {share:.0%} of the hot loop (cut {cut('static_issue_cost.math'):.0%}); "
            f"an iteration takes at least {profile['sass.stall_cycles']:.0f} cycles of one warp"
            f"{guess.words}"
        ),
        where=shown(profile, "sass.math_share"),
        why="Loads, addresses and control take most of the slots that arithmetic needs.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="unroll", instruction="Unroll to share addresses and control."),
            Action(name="register_tile", instruction="Compute more from each loaded value."),
            Action(name="vectorize", instruction="Load four values with one instruction."),
        ),
        guard="Compare the cycles of an iteration for each element before and after.",
    )
