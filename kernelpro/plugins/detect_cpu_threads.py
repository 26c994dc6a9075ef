"""Detectors of the CPU target, system level: how the call's work spreads over threads."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.cpu.bounds import where
from kernelpro.profiling.readings import fraction
from kernelpro.profiling.thresholds import cut

MORE_THREADS = Action(name="more_threads", instruction="Split the outer loop over all threads.")
SMALLER_GRAIN = Action(name="smaller_grain", instruction="Hand out smaller pieces of work.")
DYNAMIC = Action(name="dynamic_schedule", instruction="Let threads take pieces as they finish.")


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of threads on the CPU target."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="system",
    needs=("cpu.thread_share", "cpu.threads_used"),
    targets=("cpu",),
    group="threads",
    threshold="< 75 % of the threads' time used (own)",
)
def idle_threads(evidence: Evidence) -> Diagnosis | None:
    """The call keeps fewer threads busy than both sides may use."""
    share, used = evidence.profile["cpu.thread_share"], evidence.profile["cpu.threads_used"]
    limit = cut("idle_threads.share")
    if share >= limit or evidence.machine.threads < 2:
        return None
    return Diagnosis(
        bottleneck=(
            f"{used:.1f} of {evidence.machine.threads} threads are busy on average "
            f"({share:.0%}, cut {limit:.0%})"
        ),
        why="Part of the call runs on one thread, or the work is split unevenly.",
        gain=fraction(1.0 - share),
        confidence=0.6,
        actions=(MORE_THREADS, SMALLER_GRAIN, DYNAMIC),
        guard="Not below some 20 us of work: waking threads costs more. Threads that spin while "
        "they wait count as busy, so imbalance can be worse than this shows.",
    )


@detector(
    level="system",
    needs=("cpu.asm.parallel", "cpu.time_us"),
    wants=("cpu.thread_share",),
    targets=("cpu",),
    group="threads",
    threshold="no parallel region in the library, call > 50 us (own)",
)
def serial_code(evidence: Evidence) -> Diagnosis | None:
    """The library has no parallel region at all."""
    threads, time = evidence.machine.threads, evidence.profile["cpu.time_us"]
    limit = cut("serial_code.us")
    if evidence.profile["cpu.asm.parallel"] or threads < 2 or time <= limit:
        return None
    if evidence.profile.get("cpu.thread_share", 0.0) >= cut("idle_threads.share"):
        return None  # someone else, such as torch, spreads the work
    return Diagnosis(
        bottleneck=(
            f"the library starts no threads of its own, and a call takes {time:.0f} us (cut "
            f"{limit:.0f} us)"
        ),
        where=where(evidence),
        why=f"One of {threads} threads does all the work.",
        gain=(1.0 - 1.0 / threads) * 0.9,
        confidence=0.7,
        actions=(
            Action(
                name="more_threads",
                instruction="Put `#pragma omp parallel for` on the outer loop; build with "
                "-fopenmp.",
            ),
        ),
        guard="Not when one thread already saturates memory, or torch calls it from many.",
    )


@detector(
    level="system",
    needs=("cpu.thread_imbalance", "cpu.threads_active"),
    targets=("cpu",),
    group="threads",
    threshold="the slowest thread works > 20 % longer than the mean (own)",
)
def thread_imbalance(evidence: Evidence) -> Diagnosis | None:
    """Threads that take part do unequal shares of the work."""
    imbalance, active = (
        evidence.profile["cpu.thread_imbalance"],
        evidence.profile["cpu.threads_active"],
    )
    limit = cut("thread_imbalance.share")
    if imbalance <= limit or active < 2:
        return None
    return Diagnosis(
        bottleneck=(
            f"an even split over the {active:.0f} threads that work would save {imbalance:.0%} of "
            f"the slowest one's time (cut {limit:.0%})"
        ),
        why="Iterations differ in cost, or the grain leaves the last threads without work.",
        gain=fraction(imbalance),
        confidence=0.6,
        actions=(DYNAMIC, SMALLER_GRAIN),
        guard="Threads that spin while they wait count as busy: it can be worse than this shows.",
    )


@detector(
    level="system",
    needs=("cpu.threads_active",),
    wants=("cpu.preemptions", "cpu.perf.migrations"),
    targets=("cpu",),
    group="threads",
    threshold="twice as many threads at work as both sides may use (own)",
)
def too_many_threads(evidence: Evidence) -> Diagnosis | None:
    """More threads work than there are processors for them."""
    active, threads = evidence.profile["cpu.threads_active"], evidence.machine.threads
    # Torch's pool and the kernel's share the calling thread: together one less than twice as many.
    if threads < 1 or active < 2 * threads:
        return None
    switched = evidence.profile.get("cpu.preemptions", 0.0)
    moved = evidence.profile.get("cpu.perf.migrations", 0.0)
    return Diagnosis(
        bottleneck=(
            f"{active:.0f} threads work on {threads} processors; {switched:.1f} are interrupted "
            f"and {moved:.1f} moved in each call"
        ),
        why="Threads take turns on a processor and meet cold caches; barriers wait for the last.",
        gain=min(0.5, 1.0 - threads / active),
        confidence=0.6,
        actions=(
            Action(name="fewer_threads", instruction=f"Use {threads} threads: one a processor."),
        ),
        guard="Torch's own operators and the kernel may use two pools of threads in turn.",
    )


@detector(
    level="system",
    needs=("cpu.asm.parallel", "cpu.asm.fixed_stores", "cpu.asm.atomics"),
    targets=("cpu",),
    group="threads",
    threshold="a parallel region's hot loop writes one address each iteration (own; static)",
)
def false_sharing(evidence: Evidence) -> Diagnosis | None:
    """Threads may write to neighbouring places in one cache line, over and over."""
    profile = evidence.profile
    written = profile["cpu.asm.fixed_stores"] + profile["cpu.asm.atomics"]
    inside = "parallel region" in where(evidence)
    if not profile["cpu.asm.parallel"] or written <= 0 or not inside:
        return None
    return Diagnosis(
        bottleneck=(
            f"{written:.0f} places in memory are written in each iteration of a parallel region's "
            "hot loop"
        ),
        where=where(evidence),
        why="If the threads' places share a line of 64 B, it travels between cores at each write.",
        gain=0.5,
        confidence=0.3,
        actions=(
            Action(
                name="private_sums",
                instruction="Sum in a local variable of the thread and store it once, or pad each "
                "thread's slot to 64 B.",
            ),
        ),
        guard="Read off the code alone: the addresses of two threads were not compared.",
    )
