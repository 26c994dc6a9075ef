"""Detectors, system level: what the device waits for on the host: gaps, waits, allocations."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.readings import fraction
from kernelpro.profiling.thresholds import cut

GAPS = "system.gap_share"


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of this module."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="system",
    needs=("system.long_gaps", "system.long_gap_share"),
    group="host",
    threshold="gaps > 5 us and > 10 % of a step (own; Nsight Systems' GPU starvation rule)",
)
def gpu_gaps(evidence: Evidence) -> Diagnosis | None:
    """The device stands still for long stretches within a step."""
    count, share = evidence.profile["system.long_gaps"], evidence.profile["system.long_gap_share"]
    if count <= 0 or share <= 0:
        return None
    return Diagnosis(
        bottleneck=(
            f"{count:.3g} gaps a step of more than {cut('gpu_gaps.us'):g} us and "
            f"{cut('gpu_gaps.step'):.0%} of it: {share:.0%} of the time"
        ),
        where=evidence.profile.where("system.long_gaps"),
        why="Nothing was launched early enough: the host was busy or waiting under each gap.",
        gain=fraction(share),
        confidence=0.5,
        actions=(
            Action(
                name="launch_ahead",
                instruction="Take what the host does under the longest gap out of the call, or do "
                "it before the launches.",
            ),
        ),
        guard="A profiler makes host work longer; the judge's time is the measure.",
    )


@detector(
    level="system",
    needs=("system.idle_chunks", "system.idle_chunk_share"),
    group="host",
    threshold="parts of the window in which the device is busy < 50 % (Nsight Systems)",
)
def low_time_utilisation(evidence: Evidence) -> Diagnosis | None:
    """The device is idle for most of some part of a step."""
    profile = evidence.profile
    parts, share = profile["system.idle_chunks"], profile["system.idle_chunk_share"]
    if parts <= 0 or share <= cut("low_time_utilisation.gain"):
        return None
    return Diagnosis(
        bottleneck=(
            f"in {parts:.0%} of the window the GPU is busy less than "
            f"{cut('low_time_utilisation.busy'):.0%} of the time"
        ),
        where=profile.where("system.long_gaps") or profile.where("system.idle_chunks"),
        why="Too little work is launched there to keep the device going.",
        gain=fraction(share),
        confidence=0.4,
        actions=(
            Action(name="fuse", instruction="Launch fewer, longer kernels there."),
            Action(name="launch_ahead", instruction="Let the host run ahead of the device."),
        ),
        guard="A finding about where time goes, not about why.",
    )


@detector(
    level="system",
    needs=("system.host_gap_us", "system.mean_kernel_us", GAPS),
    group="host",
    threshold="host time between launches > kernel time, device idle > 20 % (own)",
)
def host_overhead(evidence: Evidence) -> Diagnosis | None:
    """The host spends longer between two launches than a kernel runs."""
    profile = evidence.profile
    host, kernel = profile["system.host_gap_us"], profile["system.mean_kernel_us"]
    gap = profile[GAPS]
    if host <= kernel or gap <= cut("host_overhead.gap"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{host:.1f} us of host time between launches, {kernel:.1f} us for a kernel; the GPU "
            f"is idle {gap:.0%} (cut {cut('host_overhead.gap'):.0%})"
        ),
        where=profile.where("system.host_gap_us"),
        why="Python and operator dispatch between launches decide the pace.",
        gain=fraction(gap),
        confidence=0.5,
        actions=(
            Action(name="fuse", instruction="Replace several operators by one kernel."),
            Action(
                name="thin_forward",
                instruction="Do checks, views and set-up once in __init__, not in each forward.",
            ),
            Action(name="cuda_graph", instruction="Replay a captured graph of the launches."),
        ),
        guard="Not when the device's own work is the longer part.",
    )


@detector(
    level="system",
    needs=("system.sync_calls", "system.sync_share", "system.sync_gap_share"),
    group="host",
    threshold="> 1 blocking call a step, or > 5 % of its time (own; Nsight Systems' cuda_api_sync)",
)
def sync_api_in_loop(evidence: Evidence) -> Diagnosis | None:
    """The host waits for the device in the middle of a step."""
    profile = evidence.profile
    calls, blocked = profile["system.sync_calls"], profile["system.sync_share"]
    idle = profile["system.sync_gap_share"]
    many, long = cut("sync_api_in_loop.calls"), cut("sync_api_in_loop.share")
    if calls <= 0 or (calls <= many and blocked <= long) or idle <= 0:
        return None
    return Diagnosis(
        bottleneck=(
            f"{calls:.3g} waits a step (cut {many:.0f}) that block {blocked:.0%} of it "
            f"(cut {long:.0%}) before more is launched"
        ),
        where=profile.where("system.sync_calls"),
        why="After a wait the host starts from nothing, and the device idles until it launches.",
        gain=fraction(idle),
        confidence=0.8,
        actions=(
            Action(
                name="no_sync",
                instruction="Remove .item(), .cpu(), print and synchronize; keep the value on the "
                "device and let a kernel read it.",
            ),
            Action(name="events", instruction="Order streams with events instead of waiting."),
        ),
        guard="The last wait, before the result is read, must stay.",
    )


@detector(
    level="system",
    needs=("system.alloc_calls", "system.alloc_share", GAPS),
    group="host",
    threshold="any allocation or release by the driver inside a step (own)",
)
def alloc_in_loop(evidence: Evidence) -> Diagnosis | None:
    """Device memory is allocated or released by the driver inside the step."""
    profile = evidence.profile
    calls = profile["system.alloc_calls"]
    if calls <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{calls:.3g} allocations or releases a step (cut: none), "
        f"{profile['system.alloc_share']:.1%} of its time",
        where=profile.where("system.alloc_calls"),
        why="cudaMalloc takes tens to hundreds of microseconds, and cudaFree waits for the device.",
        gain=fraction(min(profile["system.alloc_share"], profile[GAPS])),
        confidence=0.7,
        actions=(
            Action(
                name="preallocate",
                instruction="Allocate scratch memory once, or take it from torch.empty, which "
                "keeps freed blocks; raw CUDA code can use cudaMallocAsync.",
            ),
        ),
        guard="Not when only a first call allocates: warm up and look again.",
    )
