"""Detectors, instruction level: global and generic memory, as the machine code accesses it."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.sass.estimate import by_stalls, shown, wanted
from kernelpro.profiling.thresholds import cut

_LOAD = ("long_scoreboard", "lg_throttle")


@hookimpl
def detectors() -> list[Detector]:
    """Give this family's detectors."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="instruction",
    needs=(
        "sass.narrow_share", "sass.global_accesses", "sass.narrow_adjacent",
        "sass.narrow_contiguous",
    ),
    wants=wanted(*_LOAD),
    classes=("memory", "latency"),
    group="memory",
    threshold="> 75 % of the hot loop's accesses of 4 B a lane or less, next to each other (own)",
)  # fmt: skip
def access_width(evidence: Evidence) -> Diagnosis | None:
    """Global accesses are narrow although their addresses lie next to each other."""
    profile = evidence.profile
    share, count = profile["sass.narrow_share"], profile["sass.global_accesses"]
    adjacent, contiguous = profile["sass.narrow_adjacent"], profile["sass.narrow_contiguous"]
    joinable = adjacent >= cut("access_width.adjacent") * count or (
        contiguous >= cut("access_width.contiguous") * count
    )
    if count < 2 or share <= cut("access_width.share") or not joinable:
        return None
    guess = by_stalls(profile, 0.15 * share, *_LOAD)
    if guess is None:
        return None
    how = (
        f"{adjacent:.0f} of a thread's own next to each other"
        if adjacent
        else f"{contiguous:.0f} next to the neighbouring lane's"
    )
    return Diagnosis(
        bottleneck=(
            f"{share:.0%} of {count:.0f} global accesses in the hot loop move 4 B a lane or less "
            f"(cut {cut('access_width.share'):.0%}), {how}{guess.words}"
        ),
        where=shown(profile, "sass.narrow_adjacent", "sass.narrow_contiguous"),
        why="One 16-byte access moves as much as four of 4 bytes for one slot of the load queue.",
        gain=0.75 * guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="vectorize", instruction="Load and store float4, 16-byte aligned."),
            Action(name="unroll", instruction="Give each thread several neighbouring elements."),
        ),
        guard="Not for rows whose length or start is no multiple of the vector.",
    )


@detector(
    level="instruction",
    needs=("sass.readonly_missed", "sass.readonly_missed_share"),
    wants=wanted("long_scoreboard"),
    classes=("memory", "latency"),
    group="memory",
    threshold="> 50 % of the hot loop's loads from pointers that are never stored to (GPUscout)",
)
def readonly_path(evidence: Evidence) -> Diagnosis | None:
    """Nothing is stored to the pointers that are loaded from, but the compiler cannot know it."""
    profile = evidence.profile
    share = profile["sass.readonly_missed_share"]
    if share <= cut("readonly_path.share"):
        return None
    guess = by_stalls(profile, 0.05, "long_scoreboard")
    if guess is None:
        return None
    return Diagnosis(
        bottleneck=(
            f"{share:.0%} of the hot loop's loads ({profile['sass.readonly_missed']:.0f}) are from "
            f"pointers that are never stored to, but not marked so "
            f"(cut {cut('readonly_path.share'):.0%}){guess.words}"
        ),
        where=shown(profile, "sass.readonly_missed"),
        why="Any store may alias the load, so it is neither hoisted, joined nor batched.",
        gain=min(guess.gain, 0.1),
        confidence=guess.confidence,
        actions=(
            Action(
                name="read_only_loads",
                instruction="Mark them const __restrict__, or use __ldg.",
            ),
        ),
        guard="Only where input and output really never overlap.",
    )


@detector(
    level="instruction",
    needs=("sass.loads_in_flight", "sass.bytes_in_flight", "sass.hot_loop_bytes"),
    wants=wanted("long_scoreboard"),
    classes=("latency", "memory"),
    group="issue",
    threshold="< 4 loads in flight before the first wait (own), load stall > 30 % where measured",
)
def load_batching(evidence: Evidence) -> Diagnosis | None:
    """The hot loop waits for its loads one or a few at a time."""
    profile = evidence.profile
    flying, moved = profile["sass.loads_in_flight"], profile["sass.bytes_in_flight"]
    if flying >= cut("load_batching.loads") or moved >= cut("load_batching.bytes"):
        return None
    guess = by_stalls(profile, 0.1, "long_scoreboard")
    measured = guess is not None and bool(guess.words)
    if guess is None or not (profile["sass.hot_loop_bytes"] or measured):
        return None
    if measured and guess.gain < cut("stall_share") * 0.5:
        return None
    return Diagnosis(
        bottleneck=(
            f"{flying:.0f} loads ({moved:.0f} B a lane) are in flight before the first wait "
            f"(cut {cut('load_batching.loads'):.0f}){guess.words}"
        ),
        where=shown(profile, "sass.loads_in_flight"),
        why="A warp waits a whole memory latency for each small batch of loads.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="unroll", instruction="Unroll; issue all loads before the first use."),
            Action(name="vectorize", instruction="Load 16 bytes a lane at a time."),
            Action(name="more_blocks_per_sm", instruction="Let more warps wait side by side."),
        ),
        guard="Not when memory is already near its peak: then the wait is for bandwidth.",
    )


@detector(
    level="instruction",
    needs=("sass.atomics_in_loop", "sass.atomics_unused", "sass.cas_loops"),
    wants=wanted(*_LOAD),
    classes=("memory", "latency", "balanced"),
    group="memory",
    threshold="a compare-and-swap loop, a result that is not used, or global atomics in a loop",
)
def atomic_form(evidence: Evidence) -> Diagnosis | None:
    """Global atomics in a costly form: retried, with an unused result, or in a loop."""
    profile = evidence.profile
    retried, unused = profile["sass.cas_loops"], profile["sass.atomics_unused"]
    looped = profile["sass.atomics_in_loop"]
    if retried:
        what, place = f"{retried:.0f} loops of compare-and-swap", "sass.cas_loops"
        why = "Each retry is a round trip to L2, and lanes that collide take turns."
        action = Action(
            name="native_atomic",
            instruction="Use atomicAdd of the type (float, double, half2) instead of atomicCAS.",
        )
        guess = 0.25
    elif unused:
        what, place = f"{unused:.0f} atomics whose result is never read", "sass.atomics_unused"
        why = "An atomic with a result waits for L2; one without is sent and forgotten."
        action = Action(name="drop_result", instruction="Do not keep what atomicAdd returns.")
        guess = 0.05
    elif looped:
        what, place = f"{looped:.0f} global atomics in a loop", "sass.atomics_in_loop"
        why = "Atomics on one address are done one after another in L2."
        action = Action(
            name="warp_aggregate",
            instruction="Join the warp's values by shuffles, one atomic a warp.",
        )
        guess = 0.15
    else:
        return None
    estimate = by_stalls(profile, guess, *_LOAD)
    if estimate is None:
        return None
    return Diagnosis(
        bottleneck=f"{what} (cut 0){estimate.words}",
        where=shown(profile, place),
        why=why,
        gain=estimate.gain,
        confidence=estimate.confidence,
        actions=(
            action,
            Action(name="stage_shared", instruction="Count in shared memory, then add once."),
            Action(name="two_pass", instruction="Write partial sums, add them in a second pass."),
        ),
        guard="Not when the addresses are spread and there is little else to do.",
    )


@detector(
    level="instruction",
    needs=("sass.generic", "sass.hot_loop_instructions"),
    wants=wanted(*_LOAD),
    classes=("latency", "memory"),
    group="memory",
    threshold="any access of unknown address space in the hot loop (own)",
)
def generic_addressing(evidence: Evidence) -> Diagnosis | None:
    """The compiler does not know whether a pointer is to global, shared or local memory."""
    profile = evidence.profile
    count = profile["sass.generic"]
    if count <= cut("generic_addressing.count"):
        return None
    guess = by_stalls(
        profile, 0.5 * count / max(profile["sass.hot_loop_instructions"], 1.0), *_LOAD
    )
    if guess is None:
        return None
    return Diagnosis(
        bottleneck=f"{count:.0f} generic loads or stores in the hot loop (cut 0){guess.words}",
        where=shown(profile, "sass.generic"),
        why="The hardware finds the space of each address first, and no ordering can be relaxed.",
        gain=min(guess.gain, 0.1),
        confidence=guess.confidence,
        actions=(
            Action(
                name="plain_pointers",
                instruction="Keep pointers to shared and global memory apart; no arrays of both.",
            ),
        ),
        guard="Not when the space really is chosen at run time.",
    )
