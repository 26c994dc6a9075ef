"""Detectors, instruction level: registers, as the machine code and its compiler show them."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.causes import L2_SECTORS
from kernelpro.profiling.memory_traffic import LOCAL
from kernelpro.profiling.occupancy import BLOCK, FACTS, LIMITS, REGISTERS, occupancy
from kernelpro.profiling.readings import first_reading, fraction, reading
from kernelpro.profiling.sass.estimate import BACKED, STATIC, by_stalls, shown, static, wanted
from kernelpro.profiling.thresholds import cut

_WAITS = ("lg_throttle", "long_scoreboard")


@hookimpl
def detectors() -> list[Detector]:
    """Give this family's detectors."""
    return [v for v in globals().values() if isinstance(v, Detector)]


def _traffic(evidence: Evidence) -> float | None:
    """Local memory's sectors as a share of L2's, 0..1; None where it was not measured."""
    profile = evidence.profile
    if first_reading(profile, LOCAL[0]) is None or reading(profile, L2_SECTORS) <= 0:
        return None
    moved = sum(reading(profile, name) for name in LOCAL)
    return fraction(moved / reading(profile, L2_SECTORS))


@detector(
    level="instruction",
    needs=("sass.spills", "sass.spills_in_loop", "sass.hot_loop_instructions"),
    wants=(
        "sass.live_registers", "compiler.spill_store_bytes", *LOCAL, L2_SECTORS,
        *wanted(*_WAITS),
    ),
    group="memory",
    threshold="any spill in a loop is high, elsewhere low (exact: the compiler's own marks)",
)  # fmt: skip
def spill_instructions(evidence: Evidence) -> Diagnosis | None:
    """Registers are spilled to local memory and loaded again."""
    profile = evidence.profile
    spills, looped = profile["sass.spills"], profile["sass.spills_in_loop"]
    if spills <= cut("spill_instructions.count"):
        return None
    traffic = _traffic(evidence)
    share = looped / max(profile["sass.hot_loop_instructions"], 1.0)
    guess = by_stalls(profile, share, *_WAITS) if looped else static(0.02)
    if guess is None or traffic == 0.0:
        return None
    gain = guess.gain if traffic is None else max(min(traffic, 0.5), min(guess.gain, traffic))
    stored = reading(profile, "compiler.spill_store_bytes")
    told = f"; the compiler stores {stored:.0f} B a thread" if stored else ""
    peak = reading(profile, "sass.live_registers")
    return Diagnosis(
        bottleneck=(
            f"{spills:.0f} instructions spill or refill registers, {looped:.0f} of them in a loop "
            f"(cut 0){told}{guess.words}"
        ),
        where=shown(profile, "sass.spills_in_loop", "sass.spills"),
        why=(
            "More values are live than the thread may hold registers"
            + (f" ({peak:.0f} at the peak)" if peak else "")
            + ", so they go through L1 and L2."
        ),
        gain=fraction(gain),
        confidence=BACKED if traffic is not None or looped else STATIC,
        actions=(
            Action(name="fewer_rows_per_block", instruction="Hold fewer values per thread."),
            Action(
                name="fewer_blocks_per_sm",
                instruction="Raise the cap: relax __launch_bounds__ or maxrregcount.",
            ),
            Action(name="stage_shared", instruction="Keep the large tile in shared memory."),
        ),
        guard="A few spills outside of loops cost nothing; fewer warps may cost more than spills.",
    )


@detector(
    level="instruction",
    needs=("sass.dynamic_local", "sass.dynamic_local_in_loop", "sass.hot_loop_instructions"),
    wants=("sass.stack_bytes", *LOCAL, L2_SECTORS, *wanted(*_WAITS)),
    group="memory",
    threshold="any access of local memory through a computed address, but for sinf's slow path",
)
def dynamic_local_array(evidence: Evidence) -> Diagnosis | None:
    """An array of the thread is indexed by a variable and so lives in local memory."""
    profile = evidence.profile
    count, looped = profile["sass.dynamic_local"], profile["sass.dynamic_local_in_loop"]
    if count <= cut("dynamic_local_array.count"):
        return None
    traffic = _traffic(evidence)
    share = max(looped, 1.0) / max(profile["sass.hot_loop_instructions"], 1.0)
    guess = by_stalls(profile, share, *_WAITS) if looped else static(0.03)
    if guess is None or traffic == 0.0:
        return None
    stack = reading(profile, "sass.stack_bytes")
    frame = f", a frame of {stack:.0f} B" if stack else ""
    return Diagnosis(
        bottleneck=(
            f"{count:.0f} loads and stores of an array in local memory, {looped:.0f} in a loop"
            f"{frame} (cut 0){guess.words}"
        ),
        where=shown(profile, "sass.dynamic_local_in_loop", "sass.dynamic_local"),
        why="Registers cannot be indexed by a variable, so the compiler puts the array in memory.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="unroll", instruction="Unroll so that every index is a constant."),
            Action(name="stage_shared", instruction="Move the table to shared memory."),
            Action(
                name="select_chain",
                instruction="For up to 8 entries choose by compares and selects.",
            ),
        ),
        guard="Not for an array that is filled once and read rarely.",
    )


@detector(
    level="instruction",
    needs=("sass.live_registers", "sass.live_peak_share", "sass.live_typical", "sass.registers"),
    wants=(BLOCK, REGISTERS, *FACTS),
    classes=("latency", "compute", "balanced"),
    group="issue",
    threshold="a short peak of live registers that alone sets the allocation (own)",
)
def register_peak(evidence: Evidence) -> Diagnosis | None:
    """A short stretch of code needs many more registers than the rest."""
    profile = evidence.profile
    peak, typical = profile["sass.live_registers"], profile["sass.live_typical"]
    taken = profile["sass.registers"]
    if (
        taken < cut("register_peak.registers")
        or peak < cut("register_peak.share") * taken
        or profile["sass.live_peak_share"] > cut("register_peak.plateau")
        or typical > cut("register_peak.typical") * peak
    ):
        return None
    fits = occupancy(profile)
    if fits is not None and (fits.limiter != "registers" or fits.share >= 0.8):
        return None
    gain = 0.1 if fits is None else 0.5 * (1.0 - fits.share)
    return Diagnosis(
        bottleneck=(
            f"{peak:.0f} registers are live in {profile['sass.live_peak_share']:.0%} of the code "
            f"and {typical:.0f} typically; {taken:.0f} are taken for the whole run"
        ),
        where=shown(profile, "sass.live_registers"),
        why="Registers are given for the peak, and fewer warps fit because of it.",
        gain=static(gain).gain,
        confidence=STATIC,
        actions=(
            Action(name="recompute", instruction="Compute values again instead of keeping them."),
            Action(name="split_phases", instruction="Move the peak's loads behind its last uses."),
            Action(name="fewer_rows_per_block", instruction="Hold fewer values at the peak."),
        ),
        guard="Not when occupancy is not what limits the kernel.",
    )


@detector(
    level="instruction",
    needs=("sass.registers", BLOCK),
    wants=(REGISTERS, *FACTS, *wanted("long_scoreboard", "short_scoreboard", "wait")),
    classes=("latency",),
    group="issue",
    threshold="8 registers fewer let one more block fit (own; CUDA occupancy calculator's rules)",
)
def occupancy_cliff(evidence: Evidence) -> Diagnosis | None:
    """A few registers fewer would let one more block fit on each multiprocessor."""
    profile = evidence.profile
    taken = reading(profile, REGISTERS) or profile["sass.registers"]
    told = {name: value for name, value in profile.items() if name != LIMITS["registers"]}
    now = occupancy({**told, REGISTERS: taken})
    if now is None or now.limiter != "registers" or now.share >= cut("occupancy_cliff.share"):
        return None
    for fewer in range(1, int(cut("occupancy_cliff.registers")) + 1):
        then = occupancy({**told, REGISTERS: taken - fewer})
        if then is not None and then.blocks > now.blocks:
            gained = (then.warps - now.warps) / then.warps
            guess = by_stalls(profile, 0.5 * gained, "long_scoreboard", "short_scoreboard", "wait")
            if guess is None:
                return None
            return Diagnosis(
                bottleneck=(
                    f"{taken:.0f} registers let {now.blocks:.0f} blocks fit; {fewer} fewer let "
                    f"{then.blocks:.0f} fit ({now.share:.0%} to {then.share:.0%} of the warps)"
                ),
                where=shown(profile, "sass.live_registers"),
                why="Registers are handed out in steps, and the kernel lies just above one.",
                gain=min(guess.gain, gained),
                confidence=guess.confidence,
                actions=(
                    Action(
                        name="more_blocks_per_sm",
                        instruction=f"Ask for {then.blocks:.0f} blocks in __launch_bounds__.",
                    ),
                    Action(name="fewer_rows_per_block", instruction="Hold one value fewer."),
                ),
                guard="Not when the cut makes the compiler spill; compare times.",
            )
    return None


@detector(
    level="instruction",
    needs=("sass.register_bank_share", "sass.ffma"),
    classes=("compute",),
    group="compute",
    threshold="> 20 % of the hot loop's FFMA read three registers of one bank (own)",
)
def register_bank_reuse(evidence: Evidence) -> Diagnosis | None:
    """Many multiply-adds read all three operands from one register bank."""
    profile = evidence.profile
    share = profile["sass.register_bank_share"]
    if share <= cut("register_bank_reuse.share") or profile["sass.ffma"] < 8:
        return None
    return Diagnosis(
        bottleneck=(
            f"{share:.0%} of the hot loop's FFMA read three registers of one bank "
            f"(cut {cut('register_bank_reuse.share'):.0%})"
        ),
        where=shown(profile, "sass.register_bank_share"),
        why="There are two banks of registers; a third operand of one bank takes a cycle more.",
        gain=static(0.25 * share).gain,
        confidence=STATIC,
        actions=(Action(name="unroll", instruction="Change the tile's shape or the unrolling."),),
        guard="The compiler chooses registers: try this only when nothing else is left.",
    )
