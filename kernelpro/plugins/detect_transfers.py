"""Detectors, system level: copies and fills: across the bus, blocking, pageable, migrating."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.readings import fraction
from kernelpro.profiling.thresholds import cut

KEEP = Action(
    name="keep_on_device", instruction="Keep tensors and constants on the device between calls."
)
PIN = Action(
    name="pin_memory", instruction="Use pinned host memory (pin_memory, cudaHostAlloc), once."
)


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of this module."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="system",
    needs=("system.sync_copy_calls", "system.sync_copy_share"),
    group="transfer",
    threshold="any synchronous copy (Nsight Systems' cuda_memcpy_sync)",
)
def sync_memcpy(evidence: Evidence) -> Diagnosis | None:
    """A copy blocks the host until it is done."""
    calls, share = (
        evidence.profile["system.sync_copy_calls"],
        evidence.profile["system.sync_copy_share"],
    )
    if calls <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{calls:.3g} synchronous copies a step (cut: none), {share:.1%} of its time",
        where=evidence.profile.where("system.sync_copy_calls"),
        why="The host waits for all earlier work and for the copy, and launches nothing meanwhile.",
        gain=fraction(share),
        confidence=0.8,
        actions=(
            KEEP,
            Action(name="async_copy", instruction="Use cudaMemcpyAsync on pinned memory."),
        ),
        guard="Not when the host needs the values at once.",
    )


@detector(
    level="system",
    needs=("system.pageable_copies", "system.pageable_copy_share"),
    group="transfer",
    threshold="any asynchronous copy of pageable memory (Nsight Systems' cuda_memcpy_async)",
)
def pageable_async_copy(evidence: Evidence) -> Diagnosis | None:
    """A copy that is asynchronous by name blocks, as its host memory is pageable."""
    profile = evidence.profile
    copies, share = profile["system.pageable_copies"], profile["system.pageable_copy_share"]
    if copies <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{copies:.3g} copies of pageable memory a step (cut: none), "
        f"{share:.1%} of its time",
        where=profile.where("system.pageable_copies"),
        why="The driver first copies pageable memory to a buffer of its own while the host waits.",
        gain=fraction(share),
        confidence=0.8,
        actions=(PIN, KEEP),
        guard="Pinning itself is slow: do it once, not in each call.",
    )


@detector(
    level="system",
    needs=("system.sync_memset_calls", "system.sync_memset_share"),
    group="transfer",
    threshold="any synchronous fill (Nsight Systems' cuda_memset_sync)",
)
def sync_memset(evidence: Evidence) -> Diagnosis | None:
    """A fill is asked for with a call that blocks."""
    profile = evidence.profile
    calls, share = profile["system.sync_memset_calls"], profile["system.sync_memset_share"]
    if calls <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{calls:.3g} synchronous fills a step (cut: none), {share:.1%} of its time",
        where=profile.where("system.sync_memset_calls"),
        why="cudaMemset runs on the default stream and orders all others around it.",
        gain=fraction(share),
        confidence=0.8,
        actions=(
            Action(name="fuse", instruction="Let the kernel that uses the memory write it first."),
            Action(name="async_memset", instruction="Use cudaMemsetAsync on the work's stream."),
        ),
        guard="Memory that atomics add to must be zero before they start.",
    )


@detector(
    level="system",
    needs=("system.host_copy_share", "system.host_copy_bytes", "system.host_copies"),
    group="transfer",
    threshold="copies between host and device > 10 % of a step, nothing else running (own)",
)
def hd_traffic(evidence: Evidence) -> Diagnosis | None:
    """Much of a step goes into copies between host and device."""
    profile = evidence.profile
    share, least = profile["system.host_copy_share"], cut("hd_traffic.share")
    if share <= least:
        return None
    return Diagnosis(
        bottleneck=(
            f"copies between host and device take {share:.0%} of a step (cut {least:.0%}): "
            f"{profile['system.host_copies']:.3g} of {profile['system.host_copy_bytes']:.4g} B "
            "in all"
        ),
        where=profile.where("system.host_copies"),
        why="The bus is twenty times slower than the device's own memory.",
        gain=fraction(share),
        confidence=0.7,
        actions=(
            KEEP,
            Action(
                name="overlap_copy",
                instruction="Copy the next piece on a stream of its own while this one computes.",
            ),
            PIN,
        ),
        guard="Not when the data is new in each call and too large to overlap.",
    )


@detector(
    level="system",
    needs=("system.page_faults", "system.migration_share"),
    group="transfer",
    threshold="any migration or page fault of managed memory inside a step (own)",
)
def uvm_migration(evidence: Evidence) -> Diagnosis | None:
    """Pages of managed memory move between host and device during the step."""
    profile = evidence.profile
    faults, share = profile["system.page_faults"], profile["system.migration_share"]
    if faults <= 0 and share <= 0:
        return None
    return Diagnosis(
        bottleneck=f"managed memory migrates for {share:.1%} of a step, with {faults:.3g} page "
        "faults (cut: none)",
        where=profile.where("system.migration_share"),
        why="A kernel stops at each page that is not on the device until the driver has moved it.",
        gain=fraction(share),
        confidence=0.8,
        actions=(
            Action(name="prefetch_managed", instruction="cudaMemPrefetchAsync before the launch."),
            Action(
                name="device_memory", instruction="Use cudaMalloc memory for what kernels read."
            ),
        ),
        guard="Not for data that is larger than the device's memory.",
    )
