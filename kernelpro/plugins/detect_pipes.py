"""Detectors: which execution pipe is busy, and whether any is."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling import pipes
from kernelpro.profiling.instruction_mix import counters, share
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.speed_of_light import headroom
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import ISSUED

# Not asked for, as it takes 6 replays: read where a report has it, else the busiest pipe stands in.
THROUGHPUT = "sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed"
ISSUED_MOST = "sm__inst_issued.max.pct_of_peak_sustained_elapsed"
CHEAP = (pipes.ALU, pipes.FMA, pipes.FP64, pipes.TENSOR)


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of execution pipes."""
    return [pipe_over_utilised, pipes_idle, slow_pipe, sfu_bound]


@detector(
    level="kernel",
    needs=CHEAP,
    wants=(pipes.LSU, pipes.XU, pipes.ADU, pipes.CBU, pipes.UNIFORM),
    classes=("compute", "balanced"),
    group="compute",
    threshold="busiest pipe >= 60 %, >= 80 % is the bottleneck (NVIDIA's HighPipeUtilization rule)",
)
def pipe_over_utilised(evidence: Evidence) -> Diagnosis | None:
    """One execution pipe is busy while the others have room."""
    ranked = pipes.busiest(evidence.profile)
    if len(ranked) < 2 or not ranked[0][0] >= cut("pipe_over_utilised.busy"):
        return None
    (first, pipe), (second, next_pipe) = ranked[:2]
    # Nothing else does a matrix unit's work, so there is nothing to move.
    gain = 0.0 if pipe == pipes.TENSOR else 1 - second / first
    return Diagnosis(
        bottleneck=(
            f"the {pipes.PIPES[pipe]} pipe is at {first:.0f} % of peak (cut "
            f"{cut('pipe_over_utilised.busy'):g} %), next is {pipes.PIPES[next_pipe]} at "
            f"{second:.0f} %"
        ),
        why=(
            "This pipe is the bottleneck; the instructions of other pipes would come for free."
            if first >= cut("near_roof")
            else "This pipe is near its peak; work on other pipes would run beside it."
        ),
        gain=fraction(min(gain, headroom(evidence))),
        confidence=0.3,  # which instructions are to go is for the detectors of each kind to say
        actions=(
            Action(name="cheaper_arithmetic", instruction="Fuse into FMA; multiply, not divide."),
            Action(name="balance_pipes", instruction="Move work to a pipe that has room."),
        ),
        guard="Not when the problem itself needs these instructions.",
    )


@detector(
    level="kernel",
    needs=(pipes.ALU, pipes.FMA, pipes.TENSOR),
    classes=("latency",),
    group="compute",
    threshold="busiest pipe < 20 % (NVIDIA's HighPipeUtilization rule)",
)
def pipes_idle(evidence: Evidence) -> Diagnosis | None:
    """No execution pipe has much to do."""
    busy, pipe = max((reading(evidence.profile, name), name) for name in pipes_idle.needs)
    if not busy < cut("pipes_idle.busy"):
        return None
    return Diagnosis(
        bottleneck=(
            f"no pipe is busier than {pipes.PIPES[pipe]} at {busy:.0f} % (cut "
            f"{cut('pipes_idle.busy'):g} %)"
        ),
        why="No gain by itself: too little parallelism, or waiting; others say for what.",
        gain=0.0,
        confidence=0.3,
        guard="Normal for a kernel that only moves data.",
    )


@detector(
    level="kernel",
    needs=(ISSUED, ISSUED_MOST, *CHEAP),
    wants=(pipes.XU,),
    classes=("compute",),
    group="compute",
    threshold="throughput >= 80 %, issued < 20 %, most - average > 25 points (NVIDIA's "
    "SlowPipeLimiter rule)",
)
def slow_pipe(evidence: Evidence) -> Diagnosis | None:
    """Arithmetic is saturated although few instructions are issued."""
    profile = evidence.profile
    busiest = max((percent for percent, _ in pipes.busiest(profile)), default=0.0)
    busy = reading(profile, THROUGHPUT, default=busiest)
    average, most = reading(profile, ISSUED), reading(profile, ISSUED_MOST)
    if not busy >= cut("slow_pipe.throughput") or not average < cut("slow_pipe.issued"):
        return None
    if not most - average > cut("slow_pipe.lead"):
        return None
    return Diagnosis(
        bottleneck=(
            f"arithmetic at {busy:.0f} % (cut {cut('slow_pipe.throughput'):g} %) with only "
            f"{average:.0f} % of issue slots used (cut {cut('slow_pipe.issued'):g} %)"
        ),
        why="Instructions that take many cycles of their pipe: float64, divisions, functions.",
        gain=fraction(ratio(most - average, most) * busy / 100),
        confidence=0.5,
        actions=(
            Action(name="single_precision", instruction="Use float32 where tolerance allows."),
            Action(name="cheaper_arithmetic", instruction="Shifts and multiplies, not divisions."),
            Action(name="fast_math", instruction="Use __expf, __frcp_rn, rsqrtf and the like."),
        ),
        guard="Not when the problem asks for this precision.",
    )


@detector(
    level="kernel",
    needs=(pipes.XU, *CHEAP),
    wants=counters("conversion"),
    classes=("compute", "balanced"),
    group="compute",
    threshold="XU pipe > 60 % (NVIDIA's HighPipeUtilization rule)",
)
def sfu_bound(evidence: Evidence) -> Diagnosis | None:
    """The special function unit is the busiest pipe."""
    profile = evidence.profile
    ranked = pipes.busiest(profile)
    if len(ranked) < 2 or ranked[0][1] != pipes.XU or not ranked[0][0] > cut("sfu_bound.busy"):
        return None
    busy, second = ranked[0][0], ranked[1][0]
    # Conversions of float64 and integers run on this unit too; other detectors name them.
    converts = (share(profile, "conversion") or 0.0) > cut("conversion_overhead.share")
    double = reading(profile, pipes.FP64) > cut("fp64_in_fp32_kernel.busy")
    return Diagnosis(
        bottleneck=f"special function unit at {busy:.0f} % (cut {cut('sfu_bound.busy'):g} %)",
        why="exp, log, sin, 1/x, square roots and conversions run at a quarter of FMA's rate "
        "or less.",
        gain=fraction(1 - second / busy),
        confidence=0.3 if converts or double else 0.8,
        actions=(
            Action(name="fast_math", instruction="exp2f with a prescaled argument, rsqrtf."),
            Action(name="polynomial", instruction="Evaluate part of the elements by FMA."),
            Action(name="hoist_reciprocal", instruction="Take one reciprocal, then multiply."),
        ),
        guard="Check the approximation's error against the problem's tolerance.",
    )
