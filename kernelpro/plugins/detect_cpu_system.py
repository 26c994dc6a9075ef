"""Detectors of the CPU target, system level: fresh memory and the allocator in the timed call."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.thresholds import cut

REUSE = Action(
    name="stage_buffer",
    instruction="Keep scratch memory in the module and use it again in each call.",
)


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of memory from the system on the CPU target."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="system",
    needs=("cpu.page_faults", "cpu.system_share"),
    targets=("cpu",),
    group="host",
    threshold="> 64 first touches a call, > 10 % of processor time in the system (own)",
)
def page_faults(evidence: Evidence) -> Diagnosis | None:
    """Memory that is fresh in every call costs a fault for each page."""
    faults, share = evidence.profile["cpu.page_faults"], evidence.profile["cpu.system_share"]
    least, limit = cut("page_faults.count"), cut("page_faults.system")
    if faults < least or share <= limit:
        return None
    return Diagnosis(
        bottleneck=(
            f"{faults:.0f} page faults a call (cut {least:.0f}), {share:.0%} of processor time in "
            f"the operating system (cut {limit:.0%})"
        ),
        why="Temporaries come from fresh pages, which the system maps and clears at first touch.",
        gain=min(share, 0.9),
        confidence=0.6,
        actions=(
            Action(
                name="fuse", instruction="Drop temporaries by fusing the operators around them."
            ),
            REUSE,
        ),
        guard="The output itself must stay a fresh tensor; its faults cannot be saved.",
    )


@detector(
    level="system",
    needs=("cpu.asm.allocations", "cpu.page_faults"),
    wants=("cpu.system_share",),
    targets=("cpu",),
    group="host",
    threshold="any call of the allocator in the library, >= 64 page faults a call (own)",
)
def kernel_allocates(evidence: Evidence) -> Diagnosis | None:
    """The library itself asks for memory in each call, and gets fresh pages."""
    calls, faults = evidence.profile["cpu.asm.allocations"], evidence.profile["cpu.page_faults"]
    limit = cut("page_faults.count")
    if calls <= 0 or faults < limit:
        return None
    return Diagnosis(
        bottleneck=(
            f"{calls:.0f} calls of malloc, new or the like in the library's functions, and "
            f"{faults:.0f} page faults a call (cut {limit:.0f})"
        ),
        why="Large blocks go back to the system and come anew, page by page, in every call.",
        gain=min(max(evidence.profile.get("cpu.system_share", 0.1), 0.05), 0.9),
        confidence=0.5,
        actions=(
            REUSE,
            Action(
                name="static_buffer",
                instruction="Use a static thread_local buffer that grows when it must.",
            ),
        ),
        guard="Not for blocks of a few kB, which the allocator keeps.",
    )
