"""Detector: atomics on global memory."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.causes import ATOMICS, atomic_share
from kernelpro.profiling.issue_slots import LATENCY, stall, stalled
from kernelpro.profiling.readings import fraction, reading
from kernelpro.profiling.thresholds import cut

# The average over L2's slices tells how many atomics there are, the maximum how many of them meet
# in one slice: atomics on a few addresses saturate one slice and leave the others idle.
UNIT = "lts__d_atomic_input_cycles_active.avg.pct_of_peak_sustained_elapsed"
HOTTEST = "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed"


@hookimpl
def detectors() -> list[Detector]:
    """Give the detector of global atomics."""
    return [global_atomics]


@detector(
    level="kernel",
    needs=(UNIT, ATOMICS[2]),
    wants=(HOTTEST, *ATOMICS[:2], stall("lg_throttle"), LATENCY),
    classes=("memory", "latency", "balanced"),
    group="atomics",
    threshold="> 10 % of L2's sectors or atomic unit > 60 % (own; GPUscout's analysis)",
)
def global_atomics(evidence: Evidence) -> Diagnosis | None:
    """Atomics on global memory meet in L2's atomic units."""
    profile = evidence.profile
    share = atomic_share(profile)
    average = reading(profile, UNIT)
    busy = max(average, reading(profile, HOTTEST))
    if not share > cut("global_atomics.share") and not busy > cut("global_atomics.busy"):
        return None
    few = "; few addresses take them all" if busy > 2 * average else ""
    return Diagnosis(
        bottleneck=(
            f"{share:.0%} of L2's sectors are atomics (cut {cut('global_atomics.share'):.0%}), the "
            f"busiest atomic unit is at {busy:.0f} % (cut {cut('global_atomics.busy'):g} %){few}"
        ),
        why="Atomics on one address are done one after the other in one slice of L2.",
        gain=fraction(max(busy / 100, stalled(profile, "lg_throttle"))),
        confidence=0.7,
        actions=(
            Action(
                name="warp_reduce",
                instruction="Reduce within the warp (shuffles, __reduce_add_sync) and the block "
                "(shared memory); one atomic a block.",
            ),
            Action(name="privatise", instruction="Give each block its own copy; join at the end."),
            Action(name="two_pass", instruction="Write partial results and sum them afterwards."),
        ),
        guard="Not when each address is touched a few times only and the unit is idle.",
    )
