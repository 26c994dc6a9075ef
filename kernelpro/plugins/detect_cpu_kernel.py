"""Detectors of the CPU target, kernel level: roofs, traffic of main memory, caches, branches."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.cpu.bounds import room, where
from kernelpro.profiling.speed_of_light import output_bytes
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import BUSY, NEAR_ROOF

LINE_BYTES = 64
# Cycles that an event costs, by the vendors' optimisation manuals: a wrong guess of a branch 15 to
# 20, a walk of the page tables some 30.
MISPREDICTED_CYCLES = 16.0
WALK_CYCLES = 30.0


@hookimpl
def detectors() -> list[Detector]:
    """Give the kernel-level detectors of the CPU target."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="kernel",
    needs=("cpu.bandwidth_share",),
    targets=("cpu",),
    classes=("memory", "balanced"),
    group="memory",
    threshold="least bytes at >= 60 % of measured bandwidth (NVIDIA's SpeedOfLight cut)",
)
def bandwidth_bound(evidence: Evidence) -> Diagnosis | None:
    """The least bytes alone already use most of main memory's bandwidth."""
    share = evidence.profile["cpu.bandwidth_share"]
    if share < BUSY:
        return None
    return Diagnosis(
        bottleneck=f"main memory bandwidth: {share:.0%} of the measured peak (cut {BUSY:.0%})",
        why="The kernel moves little more than inputs and outputs, as fast as memory allows.",
        gain=0.05 if share >= NEAR_ROOF else 1.0 - share,
        confidence=0.7,
        actions=(
            Action(
                name="streaming_stores",
                instruction="Write outputs that are not read again with non-temporal stores, "
                "which spares reading their cache lines first.",
            ),
            Action(name="one_pass", instruction="Read each input once; join passes over it."),
            Action(name="prefetch", instruction="Prefetch the next rows' cache lines."),
        ),
        guard="Not when the outputs are read again soon: streaming stores evict them.",
    )


@detector(
    level="kernel",
    needs=("cpu.bandwidth_share", "cpu.flops_share", "cpu.sol_share"),
    targets=("cpu",),
    threshold="below 60 % of both peaks and half of the speed of light (own)",
)
def far_from_roof(evidence: Evidence) -> Diagnosis | None:
    """Neither memory nor arithmetic is busy, and the time is far above the bound."""
    profile = evidence.profile
    bytes_share, flops_share = profile["cpu.bandwidth_share"], profile["cpu.flops_share"]
    light = profile["cpu.sol_share"]
    if max(bytes_share, flops_share) >= BUSY or not 0 < light < cut("far_from_roof.light"):
        return None
    # Cache-resident problems have a bound that is low on purpose: see speed_of_light.
    reachable = max(bytes_share, light)
    return Diagnosis(
        bottleneck=(
            f"neither roof is near: bandwidth {bytes_share:.0%}, arithmetic {flops_share:.0%} of "
            f"measured peaks (cut {BUSY:.0%}), {1 / light:.1f} times the speed of light"
        ),
        why="Time goes into something else: waiting, extra passes, scalar code or idle threads.",
        gain=min(1.0 - reachable, 0.9),
        confidence=0.3,
        actions=(
            Action(name="more_threads", instruction="Split the outer loop over all threads."),
            Action(name="vectorize", instruction="Make the inner loop contiguous and vector wide."),
            Action(name="accumulators", instruction="Break chains with several accumulators."),
        ),
        guard="Weak evidence on its own; a finding about a loop or the system comes first.",
    )


@detector(
    level="kernel",
    needs=("cpu.asm.stores", "cpu.asm.streaming_stores", "cpu.bandwidth_share"),
    targets=("cpu",),
    classes=("memory", "balanced"),
    group="memory",
    threshold="ordinary stores of outputs beyond the last-level cache, least bytes at > 30 % of "
    "bandwidth (own)",
)
def ordinary_stores(evidence: Evidence) -> Diagnosis | None:
    """Outputs larger than the cache are written with stores that read each line first."""
    profile = evidence.profile
    written = output_bytes(evidence.problem)
    least, share = evidence.problem.min_bytes, profile["cpu.bandwidth_share"]
    if profile["cpu.asm.stores"] <= 0 or profile["cpu.asm.streaming_stores"] > 0:
        return None
    if least <= 0 or written <= max(evidence.machine.cache_bytes, LINE_BYTES):
        return None
    if share <= cut("ordinary_stores.bandwidth"):
        return None
    extra = written / (least + written)
    return Diagnosis(
        bottleneck=(
            f"{written / 1e6:.4g} MB of outputs are written with ordinary stores; their lines are "
            f"read first, {extra:.0%} of all traffic"
        ),
        where=where(evidence),
        why="A store to a line that is not in cache fetches the line; a streaming store does not.",
        # What memory is busy with, its part for these reads.
        gain=min(share / (1.0 - extra), 1.0) * extra,
        confidence=0.5,
        actions=(
            Action(
                name="streaming_stores",
                instruction="Write the output with non-temporal stores, whole lines, aligned.",
            ),
        ),
        guard="Not when the output is read again soon, or fits the last-level cache.",
    )


@detector(
    level="kernel",
    needs=("cpu.bandwidth_share",),
    wants=("cpu.perf.cache_misses", "cpu.callgrind.dram_bytes"),
    targets=("cpu",),
    group="memory",
    threshold="lines fetched for > 1.5 times the least bytes (own)",
)
def repeated_fetches(evidence: Evidence) -> Diagnosis | None:
    """Main memory moves clearly more bytes than inputs and outputs have."""
    profile, least = evidence.profile, evidence.problem.min_bytes
    if "cpu.perf.cache_misses" in profile:
        moved, source = profile["cpu.perf.cache_misses"] * LINE_BYTES, "measured cache misses"
    elif "cpu.callgrind.dram_bytes" in profile:
        moved, source = profile["cpu.callgrind.dram_bytes"], "callgrind's model of the cache"
    else:
        return None
    limit = cut("repeated_fetches.factor")
    if least <= evidence.machine.cache_bytes or least <= 0 or moved <= limit * least:
        return None
    factor = moved / least
    return Diagnosis(
        bottleneck=(
            f"{moved / 1e6:.4g} MB come from main memory, {factor:.1f} times the least "
            f"{least / 1e6:.4g} MB (cut {limit:g} times; {source})"
        ),
        why="The same data is fetched more than once, or intermediates go through memory.",
        gain=min(profile["cpu.bandwidth_share"] * factor, 1.0) * (1 - 1 / factor),
        confidence=0.6 if source.startswith("measured") else 0.5,
        actions=(
            Action(name="one_pass", instruction="Read each input once; join passes over it."),
            Action(name="fuse", instruction="Join loops so that intermediates stay in cache."),
            Action(name="stage_buffer", instruction="Work on tiles that fit the second cache."),
        ),
        guard="Lines that prefetching fetched in vain count too.",
    )


@detector(
    level="kernel",
    needs=("cpu.time_us",),
    wants=(
        "cpu.perf.branch_misses",
        "cpu.perf.cycles",
        "cpu.callgrind.mispredicted",
        "cpu.callgrind.instructions",
    ),
    targets=("cpu",),
    group="compute",
    threshold="wrong guesses at 16 cycles each for > 10 % of the cycles (own; vendors' manuals)",
)
def mispredicted_branches(evidence: Evidence) -> Diagnosis | None:
    """The processor guesses branches wrong, and throws away what it did meanwhile."""
    profile = evidence.profile
    if "cpu.perf.branch_misses" in profile and profile.get("cpu.perf.cycles", 0.0) > 0:
        missed, cycles = profile["cpu.perf.branch_misses"], profile["cpu.perf.cycles"]
        source = "measured"
    elif "cpu.callgrind.mispredicted" in profile:
        missed = profile["cpu.callgrind.mispredicted"]
        # No clock runs in callgrind: one instruction a cycle beside the wrong guesses.
        cycles = profile["cpu.callgrind.instructions"] + missed * MISPREDICTED_CYCLES
        source = "callgrind's model"
    else:
        return None
    share = min(missed * MISPREDICTED_CYCLES / cycles, 1.0) if cycles > 0 else 0.0
    limit = cut("mispredicted_branches.share")
    if share <= limit:
        return None
    return Diagnosis(
        bottleneck=(
            f"{missed:.3g} branches of a call are guessed wrong, about {share:.0%} of its cycles "
            f"(cut {limit:.0%}; {source})"
        ),
        where=where(evidence),
        why="A branch that depends on the data is guessed; a wrong guess costs some 16 cycles.",
        gain=0.8 * share,
        confidence=0.6 if source == "measured" else 0.4,
        actions=(
            Action(
                name="vectorize",
                instruction="Compute both sides and select: a ternary on vectors, min, max.",
            ),
            Action(name="sort_by_case", instruction="Handle the cases in separate loops."),
        ),
        guard="Not where one side is expensive and rare.",
    )


@detector(
    level="kernel",
    needs=("cpu.perf.dtlb_misses", "cpu.perf.cycles"),
    targets=("cpu",),
    group="memory",
    threshold="misses at 30 cycles each for > 10 % of the cycles (own; vendors' manuals)",
)
def page_table_walks(evidence: Evidence) -> Diagnosis | None:
    """The processor looks up the addresses of pages for much of the time."""
    missed, cycles = evidence.profile["cpu.perf.dtlb_misses"], evidence.profile["cpu.perf.cycles"]
    share = min(missed * WALK_CYCLES / cycles, 1.0) if cycles > 0 else 0.0
    limit = cut("page_table_walks.share")
    if share <= limit:
        return None
    return Diagnosis(
        bottleneck=(
            f"{missed:.3g} misses of the page cache in a call, about {share:.0%} of its cycles "
            f"(cut {limit:.0%})"
        ),
        where=where(evidence),
        why="Accesses jump over more pages of 4 kB than the processor remembers.",
        gain=0.5 * share * room(evidence),
        confidence=0.5,
        actions=(
            Action(name="stage_buffer", instruction="Work on tiles of few pages at a time."),
            Action(name="interchange", instruction="Let the inner loop follow memory's order."),
        ),
        guard="Huge pages help as well, but are the system's to give.",
    )
