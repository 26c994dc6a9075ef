"""Detectors, system level: what surrounds the kernels: passes, launches, memory, threads."""

from kernelpro import Action, Detector, Diagnosis, Evidence, hookimpl

AMPLIFIED = 1.5  # own: more than half again the least bytes
IDLE_DEVICE = 0.2  # own, with profiling practice: the device waits a fifth of the time
SHORT_KERNEL_US = 10.0  # own: a launch takes 2 to 5 us
FAULT_SHARE = 0.1  # own: a tenth of the processor time in the operating system
FAULTS = 64  # own: fewer faults a call (256 kB of fresh pages) do not matter
THREADS = 0.75  # own: a quarter of the threads' time unused
LIBRARY = 0.5  # own: half of the time in vendor libraries


@hookimpl
def detectors() -> list[Detector]:
    """Give the system-level detectors of both targets."""
    return [
        Detector(
            name="unfused_passes",
            level="system",
            needs=("system.operators", "system.operator_bytes"),
            diagnose=unfused_passes,
            classes=("memory", "balanced", "latency"),
            threshold="two or more operators that move > 1.5 times the least bytes (own)",
        ),
        Detector(
            name="launch_bound",
            level="system",
            needs=("system.launches", "system.mean_kernel_us", "system.gap_share"),
            diagnose=launch_bound,
            targets=("cuda",),
            threshold="device idle > 20 % and kernels < 10 us on average (own)",
        ),
        Detector(
            name="page_faults",
            level="system",
            needs=("cpu.page_faults", "cpu.system_share"),
            diagnose=page_faults,
            targets=("cpu",),
            threshold="> 64 first touches a call, > 10 % of processor time in the system (own)",
        ),
        Detector(
            name="idle_threads",
            level="system",
            needs=("cpu.thread_share", "cpu.threads_used"),
            diagnose=idle_threads,
            targets=("cpu",),
            threshold="< 75 % of the threads' time used (own)",
        ),
        Detector(
            name="library_bound",
            level="system",
            needs=("system.library_share",),
            diagnose=library_bound,
            threshold="> 50 % of the time in vendor matrix libraries (own)",
        ),
    ]


def unfused_passes(evidence: Evidence) -> Diagnosis | None:
    """Several operators stream intermediates that one kernel would keep on chip."""
    operators = evidence.profile["system.operators"]
    moved, least = evidence.profile["system.operator_bytes"], evidence.problem.min_bytes
    if operators < 2 or least <= 0 or moved <= AMPLIFIED * least:
        return None
    factor = moved / least
    # What the library spends in matrix products is not saved by fusing what is around them.
    outside = 1.0 - evidence.profile.get("system.library_share", 0.0)
    return Diagnosis(
        detector="unfused_passes",
        level="system",
        bottleneck=(
            f"{operators:.0f} operators move {moved / 1e6:.4g} MB, {factor:.1f} times the least "
            f"{least / 1e6:.4g} MB (cut {AMPLIFIED})"
        ),
        where=", ".join(evidence.problem.operators)[:120],
        why="Each operator reads its input from memory and writes its result back.",
        gain=max(0.0, (1 - 1 / factor) * outside),
        confidence=0.8,
        actions=(
            Action(name="fuse", instruction="Compute the whole chain in one kernel."),
            Action(name="one_pass", instruction="Read each input once and write each output once."),
            Action(
                name="stage_buffer",
                instruction="Where a row is needed twice, keep it in a small buffer in cache.",
            ),
        ),
        guard="Not across a matrix product that a library does better; fuse around it.",
    )


def launch_bound(evidence: Evidence) -> Diagnosis | None:
    """The device waits for the host between short kernels."""
    profile = evidence.profile
    gap, mean = profile["system.gap_share"], profile["system.mean_kernel_us"]
    if gap <= IDLE_DEVICE or mean >= SHORT_KERNEL_US:
        return None
    return Diagnosis(
        detector="launch_bound",
        level="system",
        bottleneck=(
            f"the GPU is idle {gap:.0%} of a call (cut {IDLE_DEVICE:.0%}) between "
            f"{profile['system.launches']:.0f} kernels of {mean:.1f} us (cut {SHORT_KERNEL_US:g})"
        ),
        why="The host needs longer to launch a kernel than the kernel runs.",
        gain=min(gap, 1.0),
        confidence=0.7,
        actions=(
            Action(name="fuse", instruction="Launch fewer, longer kernels."),
            Action(name="more_rows_per_block", instruction="Do all rows in one launch."),
        ),
        guard="Not when the call is a single kernel already: then its launch is the floor.",
    )


def page_faults(evidence: Evidence) -> Diagnosis | None:
    """Memory that is fresh in every call costs a fault for each page."""
    faults, share = evidence.profile["cpu.page_faults"], evidence.profile["cpu.system_share"]
    if faults < FAULTS or share <= FAULT_SHARE:
        return None
    return Diagnosis(
        detector="page_faults",
        level="system",
        bottleneck=(
            f"{faults:.0f} page faults a call (cut {FAULTS}), {share:.0%} of processor time in "
            f"the operating system (cut {FAULT_SHARE:.0%})"
        ),
        why="Temporaries come from fresh pages, which the system maps and clears at first touch.",
        gain=min(share, 0.9),
        confidence=0.6,
        actions=(
            Action(
                name="fuse", instruction="Drop temporaries by fusing the operators around them."
            ),
            Action(
                name="stage_buffer",
                instruction="Keep scratch memory in the module and use it again in each call.",
            ),
        ),
        guard="The output itself must stay a fresh tensor; its faults cannot be saved.",
    )


def idle_threads(evidence: Evidence) -> Diagnosis | None:
    """The call keeps fewer threads busy than both sides may use."""
    share, used = evidence.profile["cpu.thread_share"], evidence.profile["cpu.threads_used"]
    if share >= THREADS or evidence.machine.threads < 2:
        return None
    return Diagnosis(
        detector="idle_threads",
        level="system",
        bottleneck=(
            f"{used:.1f} of {evidence.machine.threads} threads are busy on average "
            f"({share:.0%}, cut {THREADS:.0%})"
        ),
        why="Part of the call runs on one thread, or the work is split unevenly.",
        gain=min(max(1.0 - share, 0.0), 1.0),
        confidence=0.6,
        actions=(
            Action(name="more_threads", instruction="Split the outer loop over all threads."),
            Action(name="smaller_grain", instruction="Hand out smaller pieces of work."),
            Action(name="dynamic_schedule", instruction="Let threads take pieces as they finish."),
        ),
        guard="Not below some 20 us of work: waking threads costs more. Threads that spin while "
        "they wait count as busy, so imbalance can be worse than this shows.",
    )


def library_bound(evidence: Evidence) -> Diagnosis | None:
    """Most of the time is spent in a vendor's matrix product."""
    share = evidence.profile["system.library_share"]
    if share <= LIBRARY:
        return None
    return Diagnosis(
        detector="library_bound",
        level="system",
        bottleneck=f"{share:.0%} of the time is in vendor matrix libraries (cut {LIBRARY:.0%})",
        why="A library's matrix product is near its peak; only what is around it can be saved.",
        gain=max(0.0, 1.0 - share),
        confidence=0.5,
        actions=(
            Action(name="fuse", instruction="Fuse what comes after the product into one kernel."),
        ),
        guard="Do not rewrite the product itself, unless its shape is one that libraries do badly.",
    )
