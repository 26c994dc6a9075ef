"""Detector, system level: what launch records alone tell where no counters were read."""

from collections.abc import Iterator

from kernelpro import Action, Detector, Diagnosis, Evidence, Kernel, detector, hookimpl
from kernelpro.profiling.dispatch import most_of_the_time
from kernelpro.profiling.readings import fraction
from kernelpro.profiling.thresholds import cut

GAPS = "system.gap_share"
COUNTERS = ("sm__", "smsp__", "gpu__", "dram__", "l1tex__", "lts__")
UNITS = "device__attribute_multiprocessor_count"
WARP = 32


@hookimpl
def detectors() -> list[Detector]:
    """Give the detector of this module."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="system",
    needs=("system.top_kernel_share",),
    wants=(
        UNITS,
        "launch__grid_size",
        "launch__block_size",
        "launch__local_mem_per_thread",
        "system.theoretical_occupancy",
        GAPS,
    ),
    group="issue",
    threshold="grid < multiprocessors, block % 32, occupancy < 80 %: NVIDIA's rules, no counters",
)
def static_occupancy_trace(evidence: Evidence) -> Iterator[Diagnosis]:
    """A kernel's launch record alone shows that it cannot fill the device."""
    busy = 1.0 - evidence.profile.get(GAPS, 0.0)
    for kernel in most_of_the_time(evidence.profile.kernels):
        if not any(name.startswith(COUNTERS) for name in kernel.metrics):
            found = _unfilled(evidence, kernel, busy)
            if found is not None:
                yield found


def _unfilled(evidence: Evidence, kernel: Kernel, busy: float) -> Diagnosis | None:
    profile = evidence.profile.of(kernel)
    own = {name: metric.value for name, metric in kernel.metrics.items()}
    grid, block = own.get("launch__grid_size"), own.get("launch__block_size")
    units = profile.get(UNITS, 0.0)
    faults: list[tuple[float, str, Action]] = []
    if grid and units and grid < units:
        faults.append(
            (
                (units - grid) / units,
                f"{grid:.0f} blocks for {units:.0f} multiprocessors",
                Action(name="fewer_rows_per_block", instruction="Split the work over more blocks."),
            )
        )
    if block and block % WARP:
        warps = -(-block // WARP)
        faults.append(
            (
                (warps * WARP - block) / (warps * WARP),
                f"blocks of {block:.0f} threads, no multiple of {WARP}",
                Action(name="larger_block", instruction="Use a multiple of 32 threads."),
            )
        )
    occupancy = own.get("system.theoretical_occupancy")
    if occupancy is not None and occupancy < cut("static_occupancy_trace.occupancy"):
        least = cut("static_occupancy_trace.occupancy")
        limiter = profile.where("system.theoretical_occupancy").partition(";")[0]
        faults.append(
            (
                # Few warps may still keep the device busy: only part of this can be gained.
                0.5 * (1.0 - occupancy / 100.0),
                f"at most {occupancy:.0f} % of the warps fit (cut {least:.0f} %), {limiter}",
                Action(
                    name="more_blocks_per_sm",
                    instruction="Use fewer registers or less shared memory per block.",
                ),
            )
        )
    local = own.get("launch__local_mem_per_thread")
    if local:
        faults.append(
            (
                0.05,
                f"{local:.0f} B of local memory per thread",
                Action(
                    name="fewer_registers",
                    instruction="Shrink what a thread holds, and index arrays with constants.",
                ),
            )
        )
    if not faults:
        return None
    faults.sort(key=lambda fault: -fault[0])
    return Diagnosis(
        bottleneck="; ".join(words for _, words, _ in faults),
        where=f"{kernel.name}: {profile.where('launch__grid_size')}",
        why="Multiprocessors, lanes or warp slots stay empty whatever the code does.",
        gain=fraction(faults[0][0] * kernel.share * busy),
        confidence=0.3,
        actions=tuple(action for _, _, action in faults[:3]),
        guard="From the launch record alone: counters tell whether it matters.",
        kernel=kernel.name,
    )
