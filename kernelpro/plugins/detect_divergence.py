"""Detectors: threads of a warp that go different ways."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.causes import (
    ACTIVE_THREADS,
    PREDICATED_THREADS,
    THREADS,
    active_threads,
)
from kernelpro.profiling.instruction_mix import WARPS
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import ISSUED, cuda_shares

UNIFORM = "smsp__sass_average_branch_targets_threads_uniform.pct"
DIVERGENT = "smsp__sass_branch_targets_threads_divergent.sum"
BRANCHES = "smsp__inst_executed_op_branch.sum"


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of divergence."""
    return [thread_divergence, branch_divergence]


@detector(
    level="kernel",
    needs=(ACTIVE_THREADS, PREDICATED_THREADS, ISSUED),
    group="divergence",
    threshold="fewer than 24 of 32 threads at work (NVIDIA's ThreadDivergence rule)",
)
def thread_divergence(evidence: Evidence) -> Diagnosis | None:
    """Instructions work for few of a warp's 32 threads."""
    threads = active_threads(evidence.profile)
    if not 0 < threads < cut("thread_divergence.threads"):
        return None
    arithmetic, _ = cuda_shares(evidence.profile) or (
        reading(evidence.profile, ISSUED) / 100,
        0.0,
    )
    return Diagnosis(
        bottleneck=(
            f"{threads:.1f} of 32 threads do work in an average instruction (cut "
            f"{cut('thread_divergence.threads'):g})"
        ),
        why="A warp goes through every path that one of its threads takes; the others wait.",
        gain=fraction((1 - threads / THREADS) * arithmetic),
        confidence=0.9,
        actions=(
            Action(name="uniform_branches", instruction="Let all threads of a warp branch alike."),
            Action(name="compact_work", instruction="Collect active elements before the work."),
            Action(name="fit_block", instruction="Choose block and tile so that no warp is part."),
        ),
        guard="Not when the idle threads are only the last warp of a short row.",
    )


@detector(
    level="kernel",
    needs=(UNIFORM, DIVERGENT, BRANCHES, WARPS),
    classes=("latency", "compute", "balanced"),
    group="divergence",
    threshold="< 90 % of branches uniform and > 3 % branches (own; NVIDIA's SourceCounters)",
)
def branch_divergence(evidence: Evidence) -> Diagnosis | None:
    """Branches send the threads of a warp different ways."""
    profile = evidence.profile
    uniform = reading(profile, UNIFORM, default=100.0)
    branches = fraction(ratio(reading(profile, BRANCHES), reading(profile, WARPS)))
    # Of a kernel without branches the average over them reads 0.
    if not reading(profile, DIVERGENT) > 0 or not branches > cut("branch_divergence.branches"):
        return None
    if not uniform < cut("branch_divergence.uniform"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{uniform:.0f} % of branches are uniform (cut {cut('branch_divergence.uniform'):g} %)"
            f" and {branches:.0%} of instructions are branches"
        ),
        where=profile.where(DIVERGENT),
        why="Both sides of a divergent branch are executed, one after the other.",
        gain=fraction((1 - uniform / 100) * branches),
        confidence=0.6,
        actions=(
            Action(name="sort_by_branch", instruction="Sort or bucket elements by path."),
            Action(name="predicate", instruction="Use select or min/max instead of an if."),
            Action(name="hoist_branch", instruction="Move the branch out of the loop."),
        ),
        guard="Not when the paths are a few instructions long.",
    )
