"""Detectors: what warps wait for between two instructions, by NVIDIA's stall reasons.

One rule for all reasons, as in NVIDIA's CPIStall: a reason counts when it takes a good part of a
warp's time while the schedulers have slots to spare, and all share those idle slots as their bound.
A stall is a symptom: where the evidence shows its cause, it says so and is trusted less.
"""

from dataclasses import dataclass

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling import causes
from kernelpro.profiling.issue_slots import ELIGIBLE, ISSUE, LATENCY, room, stall, stalled
from kernelpro.profiling.readings import fraction, reading
from kernelpro.profiling.thresholds import cut

HOTTEST = "source.hottest_share"  # share of samples at one instruction; note: where, for what
HOTTEST_REASON = "source.hottest_reason_share"
CONFIDENCE, SYMPTOM = 0.5, 0.25  # of a stall alone, and of one whose cause is seen


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of stalls."""
    return [*(_detector(rule) for rule in RULES), stall_hotspots, too_many_warps]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One stall reason.

    Attributes:
        name: the detector's.
        reason: NVIDIA's name in the counters.
        classes: roofline classes that dispatch it; empty for all.
        what: completes "x % of a warp's time between instructions is ...".
        why: the mechanism.
        guard: when not to act on it.
        actions: what helps.
        sampled: NVIDIA's name in samples, where that differs.
    """

    name: str
    reason: str
    classes: tuple[str, ...]
    what: str
    why: str
    guard: str
    actions: tuple[Action, ...]
    sampled: str = ""


def _detector(rule: Rule) -> Detector:
    return Detector(
        name=rule.name,
        level="kernel",
        needs=(stall(rule.reason), LATENCY, ISSUE),
        diagnose=lambda evidence: _stalled(rule, evidence),
        targets=("cuda",),
        classes=rule.classes,
        threshold="stall > 30 % of latency, issue < 0.8 (NVIDIA's CPIStall rule)",
        wants=(*causes.STALL_CAUSES.get(rule.reason, ()), _sampled(rule)),
        group="issue",
        summary=f"Warps spend their time {rule.what}.",
    )


def _sampled(rule: Rule) -> str:
    """Share of samples with this reason; its note names the instructions that have most."""
    return f"source.stall.{rule.sampled or rule.reason}"


def _stalled(rule: Rule, evidence: Evidence) -> Diagnosis | None:
    profile = evidence.profile
    share, issue = stalled(profile, rule.reason), reading(profile, ISSUE)
    if not share > cut("stall_share") or not issue < cut("issuing"):
        return None
    cause = causes.of_stall(rule.reason, profile)
    return Diagnosis(
        bottleneck=(
            f"{share:.0%} of a warp's time between instructions is {rule.what} (cut "
            f"{cut('stall_share'):.0%}); {issue:.2f} issues a cycle (cut {cut('issuing')})"
        ),
        where=profile.where(_sampled(rule)),
        why=f"{rule.why} Here a consequence of {cause}." if cause else rule.why,
        gain=min(share, room(profile)),
        confidence=SYMPTOM if cause else CONFIDENCE,
        actions=rule.actions,
        guard=rule.guard,
    )


_UNROLL = Action(name="unroll", instruction="Issue several independent ones before the first use.")
_WIDER = Action(name="vectorize", instruction="Load and store 16 bytes a thread at a time.")
_MORE_WARPS = Action(name="more_blocks_per_sm", instruction="Fit more blocks on a multiprocessor.")
_LESS_UNROLLING = Action(
    name="less_unrolling", instruction="Unroll less (#pragma unroll 1 or 2) and inline less."
)

RULES = (
    Rule(
        name="stall_global_latency",
        reason="long_scoreboard",
        classes=("latency", "memory", "balanced"),
        what="waiting for global or local loads",
        why="Too few loads are in flight to cover memory's latency.",
        guard="Not when DRAM is already near its peak: then the wait is for bandwidth.",
        actions=(_WIDER, _UNROLL, _MORE_WARPS),
    ),
    Rule(
        name="stall_mio_latency",
        reason="short_scoreboard",
        classes=("latency", "compute", "balanced"),
        what="waiting for shared memory or special functions",
        why="Results of shared memory and of the special function unit take 20 to 30 cycles.",
        guard="Not when the values cannot be kept in registers.",
        actions=(
            Action(
                name="stage_registers",
                instruction="Keep values that are used again in registers; shuffle within a warp.",
            ),
            _UNROLL,
            Action(name="fast_math", instruction="Use __expf, __frcp_rn, rsqrtf and the like."),
        ),
    ),
    Rule(
        name="stall_mio_queue",
        reason="mio_throttle",
        classes=("latency", "compute", "balanced"),
        what="waiting for room in the queue to shared memory and special functions",
        why="Shared memory, special functions and dynamic branches share one short queue.",
        guard="Not when each of these instructions is wide and needed.",
        actions=(
            Action(name="vectorize", instruction="Use fewer, wider shared accesses (float4)."),
            Action(
                name="stage_registers",
                instruction="Exchange values by warp shuffles instead of shared memory.",
            ),
            Action(name="polynomial", instruction="Move special functions to FMA polynomials."),
        ),
    ),
    Rule(
        name="stall_lsu_queue",
        reason="lg_throttle",
        classes=("memory", "latency", "balanced"),
        what="waiting for room in the load and store queue",
        why="Memory instructions are issued faster than the load-store unit takes them.",
        guard="Not for rows whose length is no multiple of the vector.",
        actions=(
            _WIDER,
            Action(name="fewer_rows_per_block", instruction="Hold fewer values, so none spill."),
            Action(name="interleave", instruction="Place arithmetic between the loads."),
        ),
    ),
    Rule(
        name="stall_barrier",
        reason="barrier",
        classes=(),
        what="waiting at block barriers",
        why="Warps of a block reach a barrier at different times and idle until the last one does.",
        guard="Not when the barrier protects data that another warp wrote.",
        actions=(
            Action(name="smaller_block", instruction="Use smaller blocks: fewer warps to wait."),
            Action(name="more_rows_per_block", instruction="Give each warp a row of its own."),
            Action(name="stage_registers", instruction="Reduce by shuffles within a warp."),
        ),
    ),
    Rule(
        name="stall_math_pipe",
        reason="math_pipe_throttle",
        classes=("compute", "balanced"),
        what="waiting for a busy arithmetic pipe",
        why="One pipe is asked for more than it can take while others idle.",
        guard="Not when that pipe is near its peak with work that the problem needs.",
        actions=(
            Action(name="balance_pipes", instruction="Mix integer and float work; fuse into FMA."),
            Action(name="cheaper_arithmetic", instruction="Replace divisions and wide types."),
        ),
    ),
    Rule(
        name="stall_fixed_latency",
        reason="wait",
        classes=("compute", "latency", "balanced"),
        what="waiting for the fixed latency of its own last instruction",
        why="Each instruction needs the one before: a chain of dependent operations.",
        guard="Changes the order of summation; float32 sums stay within tolerance, often better.",
        actions=(
            Action(name="accumulators", instruction="Use 4 or more independent accumulators."),
            Action(name="unroll", instruction="Give each thread several independent elements."),
            _MORE_WARPS,
        ),
    ),
    Rule(
        name="stall_memory_fence",
        reason="membar",
        classes=("latency",),
        what="waiting at memory fences",
        why="A fence waits until all earlier stores are visible, at device scope in L2.",
        guard="Not when other blocks read what was written without another ordering.",
        actions=(
            Action(name="narrow_fence", instruction="Drop __threadfence or use block scope."),
            Action(name="release_acquire", instruction="Use release/acquire atomics instead."),
        ),
    ),
    Rule(
        name="stall_store_drain",
        reason="drain",
        classes=("latency", "memory", "balanced"),
        what="waiting for stores at the end of the kernel",
        why="A warp cannot end before its stores have left; slow stores keep its slot occupied.",
        guard="Not when each warp's stores are wide and contiguous already.",
        actions=(
            _WIDER,
            Action(name="more_rows_per_block", instruction="Overlap: loop over tiles in a block."),
            Action(name="streaming_stores", instruction="Write outputs with __stcs."),
        ),
    ),
    Rule(
        name="stall_ifetch",
        reason="no_instruction",
        sampled="no_instructions",
        classes=("latency",),
        what="waiting for instructions to be fetched",
        why="The code is larger than the instruction cache, or the kernel ends before it is warm.",
        guard="Not when unrolling is what keeps memory busy.",
        actions=(
            _LESS_UNROLLING,
            Action(name="more_rows_per_block", instruction="Do more work per warp and launch."),
        ),
    ),
    Rule(
        name="stall_constant_cache",
        reason="imc_miss",
        classes=("latency",),
        what="waiting for constants",
        why="Constants miss their cache, or the threads of a warp index them differently.",
        guard="A first touch in a very short kernel cannot be avoided.",
        actions=(
            Action(
                name="read_only_loads",
                instruction="Read tables through __ldg or shared memory, not __constant__.",
            ),
            Action(name="uniform_index", instruction="Index constants equally in a warp."),
        ),
    ),
    Rule(
        name="stall_branch",
        reason="branch_resolving",
        classes=("latency",),
        what="waiting for branches to be resolved",
        why="Short blocks between jumps leave nothing to issue until the target is known.",
        guard="Not when the branch skips much work for whole warps.",
        actions=(
            _UNROLL,
            Action(name="predicate", instruction="Use select or min/max instead of short ifs."),
            Action(name="sort_by_branch", instruction="Sort work so that warps agree."),
        ),
    ),
    Rule(
        name="stall_wgmma_wait",
        reason="gmma",
        classes=("compute", "latency", "balanced"),
        what="waiting for warp group matrix instructions",
        why="wgmma is waited for at each step, or its groups run one after the other.",
        guard="Not when the matrix unit is near its peak already.",
        actions=(
            Action(name="wgmma_in_flight", instruction="Keep one group in flight: wait_group 1."),
            Action(
                name="warp_specialisation",
                instruction="One producer warp for copies, two consumer warp groups.",
            ),
        ),
        sampled="warpgroup_arrive",
    ),
    Rule(
        name="stall_sleep",
        reason="sleeping",
        classes=("latency",),
        what="sleeping in nanosleep",
        why="A spin loop backs off for longer than what it waits for takes.",
        guard="Not when the waiting warp would take slots from those that work.",
        actions=(
            Action(name="shorter_sleep", instruction="Sleep for less, or use mbarrier.try_wait."),
        ),
    ),
)


@detector(
    level="kernel",
    needs=(HOTTEST, ISSUE),
    wants=(HOTTEST_REASON,),
    group="issue",
    threshold="one instruction has > 10 % of the samples (own), > 30 % of it for one reason "
    "(NVIDIA's CPIStall rule)",
)
def stall_hotspots(evidence: Evidence) -> Diagnosis | None:
    """One instruction takes a good part of all samples."""
    profile = evidence.profile
    share = fraction(reading(profile, HOTTEST))
    reason = reading(profile, HOTTEST_REASON, default=1.0)
    if not share > cut("stall_hotspots.share") or not reason > cut("stall_hotspots.reason"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{share:.0%} of the samples are at one instruction (cut "
            f"{cut('stall_hotspots.share'):.0%})"
        ),
        where=profile.where(HOTTEST),
        why="Warps wait there for a value that an earlier instruction makes.",
        gain=min(share, room(profile)),
        confidence=SYMPTOM,
        actions=(
            Action(name="prefetch", instruction="Issue what makes that value earlier."),
            _UNROLL,
        ),
        guard="Blame the instruction that makes the awaited value, not the one that waits.",
    )


@detector(
    level="kernel",
    needs=(stall("not_selected"), LATENCY, ELIGIBLE),
    classes=("compute", "balanced"),
    group="issue",
    threshold="not selected > 30 % of latency and > 2 eligible warps (own)",
)
def too_many_warps(evidence: Evidence) -> Diagnosis | None:
    """More warps are ready than the schedulers can pick from."""
    profile = evidence.profile
    share, ready = stalled(profile, "not_selected"), reading(profile, ELIGIBLE)
    if not share > cut("stall_share") or not ready > cut("too_many_warps.eligible"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{ready:.1f} warps are ready in each cycle (cut {cut('too_many_warps.eligible'):g}) "
            f"and wait {share:.0%} of their time to be picked"
        ),
        why="No gain by itself: latency is hidden already, so warps can be traded for registers.",
        gain=0.0,
        confidence=CONFIDENCE,
        actions=(
            Action(name="more_rows_per_block", instruction="Give each thread a larger tile."),
            Action(name="fewer_blocks_per_sm", instruction="Allow more registers a thread."),
        ),
        guard="Only when the larger tile reuses data.",
    )
