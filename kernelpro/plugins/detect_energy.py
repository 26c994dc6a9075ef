"""Detectors of energy: what a call takes, what holds clocks down, and where joules go.

A finding's gain is a share of time. What saves joules alone has a gain of 0 and says its share of
the energy in words, so that it never outranks what makes a candidate faster.
"""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.thresholds import cut

DRAM_READ, DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
DRAM_PICOJOULES_PER_BIT = 4.0
"""Published for HBM2: 3.9 pJ a bit (O'Connor et al., Fine-Grained DRAM, MICRO 2017). Other
generations differ, so what follows from it is a hint and no measurement."""

FLOPS_PER_INSTRUCTION = 64.0
"""A warp's fused multiply-add: 32 lanes of two operations."""


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of this module."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="system",
    needs=("energy.joules", "energy.watts", "energy.steps"),
    wants=("energy.net_joules",),
    targets=("cpu", "cuda"),
    group="energy_per_run",
    threshold="told from 50 steps of the counter on (own)",
)
def energy_per_run(evidence: Evidence) -> Diagnosis | None:
    """The joules of a call, and the work that they buy."""
    profile, problem = evidence.profile, evidence.problem
    joules, watts = profile["energy.joules"], profile["energy.watts"]
    if profile["energy.steps"] < cut("energy_per_run.steps") or joules <= 0 or watts <= 0:
        return None
    net = profile.get("energy.net_joules")
    parts = [f"{joules:.3g} J a call at {watts:.0f} W"]
    if net is not None:
        parts.append(f"{net:.3g} J of them beyond idle power")
    if problem.flops:
        parts.append(f"{problem.flops / joules:.3g} FLOP/J")
    if problem.min_bytes:
        parts.append(f"{problem.min_bytes / joules:.3g} least bytes/J")
    if evidence.evaluation.timing is not None:
        seconds = evidence.evaluation.timing.median_us / 1e6
        parts.append(f"energy-delay product {joules * seconds:.3g} J s")
    return Diagnosis(
        bottleneck=", ".join(parts),
        where=profile.where("energy.joules"),
        why="Measured by the device's own counter over a window of calls.",
        gain=0.0,
        confidence=0.9,
        guard="Compare at equal clocks and temperature: `kernelpro energy A B` does.",
    )


@detector(
    level="system",
    needs=("energy.capped_share", "energy.watts", "energy.limit_watts"),
    group="power_cap",
    threshold="clocks held down by the power limit in > 10 % of the readings (own; NVML's reasons)",
)
def power_capped(evidence: Evidence) -> Diagnosis | None:
    """The card's power limit holds the clocks down."""
    profile = evidence.profile
    share, watts = profile["energy.capped_share"], profile["energy.watts"]
    limit = profile["energy.limit_watts"]
    if share <= cut("power_capped.share") or limit <= 0:
        return None
    return Diagnosis(
        bottleneck=f"the power limit of {limit:.0f} W held clocks down in {share:.0%} of the "
        f"readings (cut {cut('power_capped.share'):.0%}), at {watts:.0f} W",
        where=profile.where("energy.capped_share"),
        why="At the limit the clock is what power allows, so fewer joules a call are less time.",
        gain=0.0,
        confidence=0.6,
        actions=(
            Action(
                name="fewer_instructions",
                instruction="Spend fewer instructions on each useful FLOP: wider accesses, tensor "
                "cores, less address arithmetic.",
            ),
            Action(
                name="narrow_types",
                instruction="Use narrower types where the precision policy allows it.",
            ),
            Action(
                name="less_traffic",
                instruction="Move fewer bytes from DRAM and L2: fuse, tile, keep data on chip.",
            ),
        ),
        guard="Inputs full of zeros draw less power and flatter a timing.",
    )


@detector(
    level="system",
    needs=("energy.thermal_share",),
    wants=("energy.temperature_c",),
    targets=("cpu", "cuda"),
    group="thermal",
    threshold="any reading throttled for temperature (NVML's reasons, the CPU's throttle count)",
)
def thermal_throttle(evidence: Evidence) -> Diagnosis | None:
    """The chip was throttled for its temperature, so times and joules mean little."""
    share = evidence.profile["energy.thermal_share"]
    if share <= 0:
        return None
    warmth = evidence.profile.get("energy.temperature_c")
    at = f" at {warmth:.0f} C" if warmth is not None else ""
    return Diagnosis(
        bottleneck=f"throttled for its temperature in {share:.0%} of the readings (cut: none){at}",
        where=evidence.profile.where("energy.thermal_share"),
        why="Hot, the chip lowers its clocks: what was measured is the cooling.",
        gain=0.0,
        confidence=1.0,
        actions=(
            Action(name="cool_down", instruction="Let the device cool down, and measure again."),
        ),
        guard="No kernel mends this.",
    )


@detector(
    level="system",
    needs=("energy.net_joules", DRAM_READ, DRAM_WRITE),
    group="dram_energy",
    threshold="DRAM's bytes at 4 pJ a bit > 40 % of the energy beyond idle (own; MICRO 2017)",
)
def dram_energy(evidence: Evidence) -> Diagnosis | None:
    """A good part of the energy is likely to go into DRAM."""
    profile = evidence.profile
    moved = profile[DRAM_READ] + profile[DRAM_WRITE]
    joules = moved * 8 * DRAM_PICOJOULES_PER_BIT * 1e-12
    share = fraction(ratio(joules, profile["energy.net_joules"]))
    if share <= cut("dram_energy.share"):
        return None
    least = evidence.problem.min_bytes
    spare = fraction(1 - ratio(least, moved)) if least else 0.0
    return Diagnosis(
        bottleneck=f"{moved / 1e6:.3g} MB of DRAM traffic are about {share:.0%} of the energy "
        f"beyond idle at a published {DRAM_PICOJOULES_PER_BIT:g} pJ a bit "
        f"(cut {cut('dram_energy.share'):.0%}); {spare:.0%} of the bytes are above the least",
        where=profile.where(DRAM_READ),
        why="A bit from DRAM costs many times what computing with it costs.",
        gain=0.0,
        confidence=0.2,
        actions=(
            Action(name="fuse", instruction="Keep intermediate results on chip by fusing passes."),
            Action(
                name="narrow_types",
                instruction="Store narrower types where the precision policy allows it.",
            ),
        ),
        guard="From a published figure and not from a measurement of this memory.",
    )


@detector(
    level="system",
    needs=("energy.idle_watts", "energy.watts", "system.gap_share"),
    group="idle_energy",
    threshold="idle power in the gaps > 10 % of the energy (own)",
)
def idle_energy(evidence: Evidence) -> Diagnosis | None:
    """The device draws its idle power while it waits between kernels."""
    profile = evidence.profile
    gap = fraction(profile["system.gap_share"])
    share = fraction(ratio(profile["energy.idle_watts"] * gap, profile["energy.watts"]))
    if share <= cut("idle_energy.share"):
        return None
    return Diagnosis(
        bottleneck=f"idle {gap:.0%} of the time at {profile['energy.idle_watts']:.0f} W: "
        f"{share:.0%} of the energy (cut {cut('idle_energy.share'):.0%})",
        where=profile.where("system.gap_share"),
        why="An idle device still draws power: what ends sooner sleeps sooner.",
        gain=0.0,
        confidence=0.5,
        actions=(
            Action(name="fuse", instruction="Launch fewer, longer kernels."),
            Action(name="cuda_graph", instruction="Replay a captured graph of the launches."),
            Action(name="no_spinning", instruction="Do not let idle blocks spin on a flag."),
        ),
        guard="The findings about the host say what the time in the gaps goes to.",
    )


@detector(
    level="system",
    needs=("energy.net_joules", "smsp__inst_executed.sum"),
    classes=("compute",),
    group="instruction_energy",
    threshold="> 2 times the instructions that the FLOPs need as fused multiply-adds (own)",
)
def instruction_energy(evidence: Evidence) -> Diagnosis | None:
    """Many instructions are spent on each useful FLOP, and each takes energy."""
    profile, flops = evidence.profile, evidence.problem.flops
    executed = profile["smsp__inst_executed.sum"]
    times = ratio(executed, flops / FLOPS_PER_INSTRUCTION)
    if times <= cut("instruction_energy.factor") or profile["energy.net_joules"] <= 0:
        return None
    joules = ratio(profile["energy.net_joules"], flops) * 1e12
    return Diagnosis(
        bottleneck=f"{times:.1f} times the instructions that {flops:.3g} FLOPs need as fused "
        f"multiply-adds (cut {cut('instruction_energy.factor'):g}); {joules:.3g} pJ a FLOP",
        where=profile.where("smsp__inst_executed.sum"),
        why="Fetching and issuing an instruction takes more energy than the addition in it.",
        gain=0.0,
        confidence=0.3,
        actions=(
            Action(name="tensor_cores", instruction="Use tensor cores where the policy allows."),
            Action(
                name="wider",
                instruction="Use vector accesses and more results a thread, so that address "
                "arithmetic and loop control are shared.",
            ),
            Action(
                name="approximate",
                instruction="Where the tolerance allows it, use approximate division and "
                "transcendentals such as __fdividef and __expf.",
            ),
        ),
        guard="Not where the FLOPs counted leave out much of the work, as in a sort.",
    )


@detector(
    level="system",
    needs=("energy.time_per_clock", "energy.clock_saving"),
    wants=("energy.best_clock_mhz",),
    targets=("cpu", "cuda"),
    group="clock_sensitivity",
    threshold="time follows the clock by < 0.1 while a lower one saves > 2 % of the joules (own)",
)
def clock_sensitivity(evidence: Evidence) -> Diagnosis | None:
    """A lower clock would save joules and cost hardly any time."""
    profile = evidence.profile
    slope, saving = profile["energy.time_per_clock"], profile["energy.clock_saving"]
    flat = cut("clock_sensitivity.slope")
    if abs(slope) > flat or saving <= cut("clock_sensitivity.saving"):
        return None
    at = reading(profile, "energy.best_clock_mhz")
    return Diagnosis(
        bottleneck=f"time changes by {abs(slope):.2f} of the clock's change (cut {flat:g}), and "
        f"a lower clock saves {fraction(saving):.0%} of the joules"
        + (f" ({at:.0f} MHz)" if at else ""),
        where=profile.where("energy.time_per_clock"),
        why="Memory sets the pace, so a slower core waits less and draws less.",
        gain=0.0,
        confidence=0.6,
        actions=(
            Action(name="lower_clock", instruction="Run it at the lower clock, locked by root."),
        ),
        guard="Never change clocks on a machine that others use.",
    )
