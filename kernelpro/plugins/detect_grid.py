"""Detectors of the CUDA target, kernel level: how grid and blocks fill the device."""

import math

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.counters.packs import DURATION
from kernelpro.profiling.issue_slots import LATENCY, stall, stalled
from kernelpro.profiling.occupancy import (
    BLOCK,
    FACTS,
    GRID,
    MULTIPROCESSORS,
    REGISTERS,
    WARP,
    occupancy,
    waves,
)
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.thresholds import cut

BARRIERS = "launch__barrier_count"
WAVES = "launch__waves_per_multiprocessor"
UNITS = {"multiprocessors": "sm", "L2 slices": "lts", "DRAM channels": "dram"}
SAMPLES = "smsp__pcsamp_sample_count"
INTERVAL = "smsp__pcsamp_interval_cycles"
CYCLES = "gpc__cycles_elapsed.max"


def _counters(unit: str) -> tuple[str, ...]:
    active = tuple(f"{unit}__cycles_active.{rollup}" for rollup in ("avg", "max", "sum"))
    return (*active, f"{unit}__cycles_elapsed.sum")


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of grid and block."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="kernel",
    needs=(GRID, MULTIPROCESSORS),
    wants=(BARRIERS,),
    group="launch",
    threshold="fewer blocks than multiprocessors, or than twice as many with barriers (NVIDIA's "
    "LaunchStatistics rule)",
)
def small_grid(evidence: Evidence) -> Diagnosis | None:
    """The kernel has fewer blocks than the device has multiprocessors."""
    profile = evidence.profile
    grid, units = reading(profile, GRID), reading(profile, MULTIPROCESSORS)
    idle = grid < units
    if grid <= 0 or not (idle or (grid < 2 * units and reading(profile, BARRIERS) > 0)):
        return None
    return Diagnosis(
        bottleneck=f"{grid:.0f} blocks for {units:.0f} multiprocessors",
        where=profile.where(GRID),
        why="Multiprocessors without a block do nothing."
        if idle
        else "With one block on a multiprocessor, nothing runs while it waits at a barrier.",
        gain=(units - grid) / units if idle else 0.1,
        confidence=0.8 if idle else 0.3,
        actions=(
            Action(name="fewer_rows_per_block", instruction="Give each block less work."),
            Action(name="smaller_block", instruction="Use smaller blocks, and more of them."),
            Action(name="split_rows", instruction="Split each row over blocks, then join."),
        ),
        guard="Not when the problem is too small to fill the device however it is split.",
    )


@detector(
    level="kernel",
    needs=(GRID, MULTIPROCESSORS, BLOCK, REGISTERS),
    wants=(WAVES, *FACTS),
    group="launch",
    threshold="a partial wave after so few that it costs >= 20 % (NVIDIA's LaunchStatistics rule)",
)
def tail_effect(evidence: Evidence) -> Diagnosis | None:
    """The last wave of blocks fills only part of the device."""
    count = waves(evidence.profile)
    whole = math.floor(count)
    partial = count - whole
    if whole < 1 or partial < 1e-6 or 1 / (1 + whole) < (limit := cut("tail_effect.share")):
        return None
    return Diagnosis(
        bottleneck=f"{count:.2f} waves of blocks: the last is {partial:.0%} full and takes up to "
        f"{1 / (1 + whole):.0%} of the time (cut {limit:.0%})",
        why="A wave takes as long with few blocks as with many.",
        gain=(1.0 - partial) / (whole + 1),
        confidence=0.6,
        actions=(
            Action(
                name="whole_waves",
                instruction="A grid that is a multiple of multiprocessors times blocks on each.",
            ),
            Action(name="work_queue", instruction="Persistent blocks or stream-K: no last wave."),
            Action(name="smaller_block", instruction="Smaller blocks: a shorter last wave."),
        ),
        guard="Not when blocks differ much in length: then there is no common wave.",
    )


@detector(
    level="kernel",
    needs=(BLOCK,),
    wants=(stall("barrier"), LATENCY),
    group="launch",
    threshold="no multiple of 32 (NVIDIA's LaunchStatistics rule); < 64, or 1024 that wait at "
    "barriers (own)",
)
def block_shape(evidence: Evidence) -> Diagnosis | None:
    """The number of threads in a block does not suit the hardware."""
    profile = evidence.profile
    block, waiting = reading(profile, BLOCK), stalled(profile, "barrier")
    if block <= 0:
        return None
    rest, warps = block % WARP, math.ceil(block / WARP)
    if rest:
        gain, confidence = (1 - rest / WARP) / warps, 0.9
        why = f"The last of {warps} warps has {rest:.0f} threads and takes as long as a full one."
    elif block < cut("block_shape.small"):
        gain, confidence = 0.1, 0.3
        why = "At most 32 blocks fit on a multiprocessor, so such small ones leave half of it free."
    elif block >= cut("block_shape.large") and waiting > cut("block_shape.barrier"):
        gain, confidence = 0.5 * waiting, 0.3
        why = f"Warps wait for each other for {waiting:.0%} of their time, and 32 are many."
    else:
        return None
    large = block >= cut("block_shape.large")
    return Diagnosis(
        bottleneck=f"blocks of {block:.0f} threads",
        why=why,
        gain=gain,
        confidence=confidence,
        actions=(
            Action(
                name="smaller_block" if large else "larger_block",
                instruction="Use a multiple of 32; 128 to 256 is a good start.",
            ),
        ),
        guard="Not when the block's size is the tile of a matrix instruction.",
    )


@detector(
    level="kernel",
    needs=_counters("sm"),
    wants=(*_counters("lts"), *_counters("dram"), GRID, MULTIPROCESSORS),
    group="launch",
    threshold="worth >= 5 % of the time (NVIDIA's WorkloadImbalance rule)",
)
def unit_imbalance(evidence: Evidence) -> Diagnosis | None:
    """One of several equal units is busy for much longer than the average one."""
    profile = evidence.profile
    gains: dict[str, float] = {}
    for name, unit in UNITS.items():
        average, longest, active, elapsed = (reading(profile, c) for c in _counters(unit))
        uneven = fraction(1.0 - ratio(average, longest)) if longest > 0 else 0.0
        gains[name] = uneven * fraction(ratio(active, elapsed))
    if 0 < reading(profile, GRID) < reading(profile, MULTIPROCESSORS):
        del gains["multiprocessors"]  # those without a block: small_grid says so
    worst = max(gains, key=lambda name: gains[name])
    if gains[worst] < (limit := cut("unit_imbalance.gain")):
        return None
    average, longest, *_ = (reading(profile, c) for c in _counters(UNITS[worst]))
    on_chip = worst == "multiprocessors"
    return Diagnosis(
        bottleneck=f"{worst}: {average:.3g} busy cycles on average, {longest:.3g} on the busiest "
        f"(worth {gains[worst]:.0%}, cut {limit:.0%})",
        why="Blocks take different time, and the last one decides."
        if on_chip
        else "Addresses fall on few slices or channels: one hot word, or a power-of-two stride.",
        gain=gains[worst],
        confidence=0.7,
        actions=(
            Action(name="work_queue", instruction="Finer or dynamic split, longest work first."),
            Action(name="smaller_block", instruction="Smaller blocks even out."),
        )
        if on_chip
        else (Action(name="pad_rows", instruction="Pad rows so that strides are no power of 2."),),
        guard="Not when a tail or a small grid explains it.",
    )


@detector(
    level="kernel",
    needs=(GRID, MULTIPROCESSORS, BLOCK, REGISTERS, DURATION),
    wants=(WAVES, *FACTS),
    group="launch",
    threshold="a block lives < 2 us, > 8 waves (own)",
)
def cta_churn(evidence: Evidence) -> Diagnosis | None:
    """Blocks are so short that starting them takes a visible part of the time."""
    profile = evidence.profile
    fits, count = occupancy(profile), waves(profile)
    if fits is None or count <= (many := cut("cta_churn.waves")):
        return None
    at_once = fits.blocks * reading(profile, MULTIPROCESSORS)
    life_us = ratio(reading(profile, DURATION) / 1e3 * at_once, reading(profile, GRID))
    if not 0 < life_us < (limit := cut("cta_churn.us")):
        return None
    return Diagnosis(
        bottleneck=f"{count:.0f} waves (cut {many:g}) of blocks that live {life_us:.2f} us (cut "
        f"{limit:g} us)",
        why="Each block pays for its start, its index arithmetic and its drain.",
        gain=min(0.2, 0.1 / life_us),
        confidence=0.4,
        actions=(
            Action(name="more_rows_per_block", instruction="Give each block more rows."),
            Action(name="fewer_parts", instruction="Split each row over fewer blocks."),
            Action(name="unroll", instruction="A grid-stride loop over several elements."),
        ),
        guard="Not when many short blocks are what balances uneven work.",
    )


@detector(
    level="kernel",
    needs=(DURATION,),
    wants=(SAMPLES, INTERVAL, CYCLES),
    group="measurement",
    threshold="< 10 us (own), < 1000 samples or an interval > 10 % of the time (NVIDIA's "
    "PCSamplingData rule)",
)
def measurement_trust(evidence: Evidence) -> Diagnosis | None:
    """The kernel is too short for its counters or samples to be trusted."""
    profile = evidence.profile
    micros = reading(profile, DURATION) / 1e3
    samples, interval = profile.get(SAMPLES), reading(profile, INTERVAL)
    coarse = ratio(interval, reading(profile, CYCLES))
    doubts = []
    if 0 < micros < cut("measurement_trust.us"):
        doubts.append(f"{micros:.1f} us (cut {cut('measurement_trust.us'):g} us)")
    if samples is not None and 0 < samples < cut("measurement_trust.samples"):
        doubts.append(f"{samples:.0f} samples (cut {cut('measurement_trust.samples'):.0f})")
    if coarse > cut("measurement_trust.interval"):
        doubts.append(f"one sample each {coarse:.0%} of the time")
    if not doubts:
        return None
    return Diagnosis(
        bottleneck=f"little was measured: {', '.join(doubts)}",
        why="Start, drain and clock changes are a large part of a short measurement.",
        gain=0.0,
        confidence=0.9,
        actions=(
            Action(name="larger_problem", instruction="Profile it on a larger problem, or repeat."),
        ),
        guard="Trust the other findings of this kernel less.",
    )
