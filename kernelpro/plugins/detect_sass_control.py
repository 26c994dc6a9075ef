"""Detectors, instruction level: barriers, divergence, fences, calls and the size of the code."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.causes import ACTIVE_THREADS, THREADS
from kernelpro.profiling.readings import first_reading, reading
from kernelpro.profiling.sass.estimate import by_stalls, shown, static, wanted
from kernelpro.profiling.thresholds import cut


@hookimpl
def detectors() -> list[Detector]:
    """Give this family's detectors."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="instruction",
    needs=("sass.barriers", "sass.barriers_per_iteration", "sass.math_per_barrier", "sass.tensor"),
    wants=wanted("barrier"),
    classes=("latency", "compute", "balanced"),
    group="issue",
    threshold="fewer than 32 arithmetic instructions for each block barrier (own)",
)
def barrier_density(evidence: Evidence) -> Diagnosis | None:
    """Little work is done between two block barriers."""
    profile = evidence.profile
    inside, total = profile["sass.barriers_per_iteration"], profile["sass.barriers"]
    between = profile["sass.math_per_barrier"]
    if profile["sass.tensor"] or between >= cut("barrier_density.math"):
        return None
    if inside < cut("barrier_density.iteration") and total < cut("barrier_density.total"):
        return None
    guess = by_stalls(profile, 0.1, "barrier")
    if guess is None:
        return None
    return Diagnosis(
        bottleneck=(
            f"{total:.0f} block barriers, {inside:.0f} in an iteration, with {between:.1f} "
            f"arithmetic instructions each (cut {cut('barrier_density.math'):.0f}){guess.words}"
        ),
        where=shown(profile, "sass.math_per_barrier"),
        why="At each barrier all warps of the block wait for the slowest.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(
                name="warp_shuffle",
                instruction="Reduce within a warp by __shfl_xor_sync; one barrier for the block.",
            ),
            Action(name="stage_buffer", instruction="Use two buffers: one barrier a tile."),
            Action(name="smaller_block", instruction="Use smaller blocks: fewer warps wait."),
        ),
        guard="Not when a barrier protects data that another warp writes or reads.",
    )


@detector(
    level="instruction",
    needs=(
        "sass.divergent_regions", "sass.predicated_share", "sass.hot_loop_instructions",
        "sass.indirect_branches",
    ),
    wants=(ACTIVE_THREADS,),
    classes=("latency", "compute", "balanced"),
    group="compute",
    threshold="> 2 regions that reconverge, or > 30 % predicated instructions, in the hot loop "
    "(own; GPUscout)",
)  # fmt: skip
def divergent_structure(evidence: Evidence) -> Diagnosis | None:
    """The hot loop branches by lane, or much of it runs under predicates."""
    profile = evidence.profile
    regions, guarded = profile["sass.divergent_regions"], profile["sass.predicated_share"]
    branchy = regions > cut("divergent_structure.regions") or profile["sass.indirect_branches"] > 0
    masked = guarded > cut("divergent_structure.predicated") and profile[
        "sass.hot_loop_instructions"
    ] >= cut("divergent_structure.least")
    if not (branchy or masked):
        return None
    threads = first_reading(profile, ACTIVE_THREADS)
    if threads is not None:
        lost = max(0.0, 1.0 - threads / THREADS)
        if lost < cut("divergent_structure.lost"):
            return None
        gain, confidence = lost, 0.6
        words = f"; {threads:.0f} of 32 lanes are active on average"
    else:
        estimate = static(min(0.05 * regions + 0.3 * guarded * masked, 0.3))
        gain, confidence, words = estimate.gain, estimate.confidence, ""
    return Diagnosis(
        bottleneck=(
            f"{regions:.0f} regions of the hot loop reconverge (cut "
            f"{cut('divergent_structure.regions'):.0f}), {guarded:.0%} of it is predicated "
            f"(cut {cut('divergent_structure.predicated'):.0%}){words}"
        ),
        where=shown(profile, "sass.divergent_regions", "sass.predicated_share"),
        why="Lanes that take different ways run one after the other.",
        gain=gain,
        confidence=confidence,
        actions=(
            Action(name="uniform_branch", instruction="Branch by warp or block, not by lane."),
            Action(name="select", instruction="Compute both short sides and select."),
            Action(name="sort_work", instruction="Sort or bin the work by kind first."),
        ),
        guard="Not when all lanes of a warp take the same way in fact.",
    )


@detector(
    level="instruction",
    needs=("sass.code_bytes", "sass.hot_loop_bytes"),
    wants=wanted("no_instruction"),
    classes=("latency", "compute"),
    group="issue",
    threshold="a hot loop > 16 KB or a kernel > 100 KB (own: instruction caches are undocumented)",
)
def code_footprint(evidence: Evidence) -> Diagnosis | None:
    """The code is too large for the instruction caches."""
    profile = evidence.profile
    loop, kernel = profile["sass.hot_loop_bytes"], profile["sass.code_bytes"]
    if loop <= cut("code_footprint.loop") and kernel <= cut("code_footprint.kernel"):
        return None
    guess = by_stalls(profile, 0.05, "no_instruction")
    if guess is None:
        return None
    return Diagnosis(
        bottleneck=(
            f"the hot loop has {loop / 1024:.0f} KB of code (cut "
            f"{cut('code_footprint.loop') / 1024:.0f}), the kernel {kernel / 1024:.0f} KB (cut "
            f"{cut('code_footprint.kernel') / 1024:.0f}){guess.words}"
        ),
        where=shown(profile, "sass.hot_loop_bytes"),
        why="Warps wait for instructions to be fetched again in each iteration.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="less_unrolling", instruction="Unroll less: #pragma unroll 4."),
            Action(name="split_kernel", instruction="Give rare cases a kernel of their own."),
        ),
        guard="Not when the loop runs once.",
    )


@detector(
    level="instruction",
    needs=("sass.fences_in_loop",),
    wants=("sass.cache_invalidations_in_loop", *wanted("membar")),
    classes=("latency", "memory", "balanced"),
    group="issue",
    threshold="any memory fence of device or system scope in a loop (own)",
)
def fences(evidence: Evidence) -> Diagnosis | None:
    """A loop waits for memory fences of the whole device or system."""
    profile = evidence.profile
    count = profile["sass.fences_in_loop"]
    if count <= cut("fences.count"):
        return None
    guess = by_stalls(profile, 0.15, "membar")
    if guess is None:
        return None
    dropped = reading(profile, "sass.cache_invalidations_in_loop")
    return Diagnosis(
        bottleneck=(
            f"{count:.0f} fences of device or system scope in a loop (cut 0)"
            + (f", {dropped:.0f} of L1's lines dropped" if dropped else "")
            + guess.words
        ),
        where=shown(profile, "sass.fences_in_loop"),
        why="Each fence waits until all earlier accesses are visible everywhere, and empties L1.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="narrow_scope", instruction="Use __threadfence_block, or a barrier."),
            Action(
                name="release_acquire",
                instruction="Use cuda::atomic_ref with release and acquire at one flag.",
            ),
        ),
        guard="Only where no other block reads what was written.",
    )


@detector(
    level="instruction",
    needs=("sass.calls_in_loop", "sass.hot_loop_instructions"),
    classes=("latency", "compute", "balanced"),
    group="issue",
    threshold="any call of a function that was not inlined, in a loop (GPA's inlining)",
)
def device_calls(evidence: Evidence) -> Diagnosis | None:
    """A loop calls functions that the compiler did not inline."""
    profile = evidence.profile
    count = profile["sass.calls_in_loop"]
    if count <= cut("device_calls.count"):
        return None
    guess = static(min(8.0 * count / max(profile["sass.hot_loop_instructions"], 1.0), 0.2))
    return Diagnosis(
        bottleneck=f"{count:.0f} calls of functions that were not inlined, in a loop (cut 0)",
        where=shown(profile, "sass.calls_in_loop"),
        why="A call fixes registers, may use the stack, and nothing is moved across it.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="inline", instruction="Mark the function __forceinline__."),
            Action(name="template", instruction="Use templates instead of function pointers."),
        ),
        guard="Not when the function is long and rarely called.",
    )
