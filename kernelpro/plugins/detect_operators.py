"""Detectors, system level, both targets: which operators and kernels a call is made of."""

from collections.abc import Iterator

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.readings import fraction
from kernelpro.profiling.speed_of_light import output_bytes
from kernelpro.profiling.thresholds import cut

BOTH = ("cpu", "cuda")
GAPS = "system.gap_share"


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of this module."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="system",
    needs=("system.operators", "system.operator_bytes"),
    wants=("system.library_share",),
    targets=BOTH,
    classes=("memory", "balanced", "latency"),
    group="fusion",
    threshold="two or more operators that move > 1.5 times the least bytes (own)",
)
def unfused_passes(evidence: Evidence) -> Diagnosis | None:
    """Several operators stream intermediates that one kernel would keep on chip."""
    operators = evidence.profile["system.operators"]
    moved, least = evidence.profile["system.operator_bytes"], evidence.problem.min_bytes
    amplified = cut("unfused_passes.factor")
    if operators < 2 or least <= 0 or moved <= amplified * least:
        return None
    factor = moved / least
    # What the library spends in matrix products is not saved by fusing what is around them.
    outside = 1.0 - evidence.profile.get("system.library_share", 0.0)
    return Diagnosis(
        bottleneck=(
            f"{operators:.0f} operators move {moved / 1e6:.4g} MB, {factor:.1f} times the least "
            f"{least / 1e6:.4g} MB (cut {amplified:g})"
        ),
        where=", ".join(evidence.problem.operators)[:120],
        why="Each operator reads its input from memory and writes its result back.",
        gain=fraction((1 - 1 / factor) * outside),
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


@detector(
    level="system",
    needs=("system.fresh_bytes", "system.operators"),
    wants=("system.operator_bytes", "system.library_share", "cpu.system_share"),
    targets=BOTH,
    group="fusion",
    threshold="results of operators hold > 2 times the outputs' bytes, and > 1 MiB (own)",
)
def temporary_tensors(evidence: Evidence) -> Diagnosis | None:
    """Operators allocate temporaries in each call that are larger than the result."""
    profile = evidence.profile
    fresh, needed = profile["system.fresh_bytes"], output_bytes(evidence.problem)
    least = cut("temporary_tensors.factor")
    extra = fresh - needed
    if needed <= 0 or fresh <= least * needed or extra <= cut("temporary_tensors.bytes"):
        return None
    moved = profile.get("system.operator_bytes", 0.0)
    # Writing a temporary and reading it again is what goes; on a CPU its page faults go too.
    share = max(
        min(2 * extra / moved, 1.0) if moved > 0 else 0.0, profile.get("cpu.system_share", 0.0)
    )
    return Diagnosis(
        bottleneck=(
            f"a call allocates {fresh / 1e6:.4g} MB for results, {fresh / needed:.1f} times its "
            f"outputs (cut {least:g})"
        ),
        where=f"{profile['system.operators']:.0f} operators: "
        + ", ".join(evidence.problem.operators)[:100],
        why="Memory that is fresh in each call leaves the caches, and its pages may be new.",
        gain=fraction(0.5 * share * (1.0 - profile.get("system.library_share", 0.0))),
        confidence=0.5,
        actions=(
            Action(name="fuse", instruction="Keep intermediates in registers or a small buffer."),
            Action(name="stage_buffer", instruction="Keep scratch memory and use it again."),
            Action(name="in_place", instruction="Write into a temporary that is not needed again."),
        ),
        guard="The output itself must stay a fresh tensor.",
    )


@detector(
    level="system",
    needs=("system.tiny_operators", "system.tiny_operator_share"),
    targets=("cpu",),
    group="fusion",
    threshold=">= 4 operators < 10 us with > 20 % of the call (own)",
)
def small_operators(evidence: Evidence) -> Diagnosis | None:
    """Many operators are so short that dispatching them takes much of the call."""
    profile = evidence.profile
    count, share = profile["system.tiny_operators"], profile["system.tiny_operator_share"]
    if count < cut("small_operators.count") or share <= cut("small_operators.share"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{count:.0f} operators are shorter than {cut('small_operators.us'):g} us (cut "
            f"{cut('small_operators.count'):.0f} of them) and take {share:.0%} of the call "
            f"(cut {cut('small_operators.share'):.0%})"
        ),
        where=profile.where("system.tiny_operators"),
        why="Each is dispatched, allocates its result and may wake threads, for little work.",
        gain=fraction(share * (1.0 - 1.0 / count)),
        confidence=0.6,
        actions=(
            Action(name="fuse", instruction="Compute them in one C++ kernel."),
            Action(name="fewer_threads", instruction="Do work this small on one thread."),
        ),
        guard="Not when one of them does nearly all of the work.",
    )


@detector(
    level="system",
    needs=("system.layout_share",),
    wants=(GAPS,),
    targets=BOTH,
    group="layout",
    threshold="> 10 % of the time in kernels that only copy, cast or fill (own)",
)
def copy_cast_fill_kernels(evidence: Evidence) -> Diagnosis | None:
    """Kernels or operators that only move, convert or fill memory take much of the time."""
    profile = evidence.profile
    share, least = profile["system.layout_share"], cut("copy_cast_fill_kernels.share")
    if share <= least:
        return None
    on_gpu = evidence.machine.target == "cuda"
    return Diagnosis(
        bottleneck=f"{share:.0%} of the {'device' if on_gpu else 'call'}'s time only copies, casts "
        f"or fills (cut {least:.0%})",
        where=profile.where("system.layout_share"),
        why="These passes compute nothing: the kernels around them could read what is there.",
        gain=fraction(share * (1.0 - profile.get(GAPS, 0.0)) if on_gpu else share),
        confidence=0.6,
        actions=(
            Action(
                name="fuse",
                instruction="Read the given strides and type in the kernel that uses the values.",
            ),
            Action(name="empty_output", instruction="Use empty, not zeros, for what is written."),
        ),
        guard="A layout that many later reads profit from may pay for itself.",
    )


@detector(
    level="system",
    needs=("system.library_share",),
    wants=(GAPS,),
    targets=BOTH,
    group="library",
    threshold="> 50 % of the time in vendor matrix libraries (own)",
)
def library_bound(evidence: Evidence) -> Diagnosis | None:
    """Most of the time is spent in a vendor's matrix product."""
    share, least = evidence.profile["system.library_share"], cut("library_bound.share")
    busy = 1.0 - evidence.profile.get(GAPS, 0.0)
    if share <= least:
        return None
    return Diagnosis(
        bottleneck=f"{share:.0%} of the time is in vendor matrix libraries (cut {least:.0%})",
        where=evidence.profile.where("system.library_share"),
        why="A library's matrix product is near its peak; only what is around it can be saved.",
        gain=fraction((1.0 - share) * (busy if evidence.machine.target == "cuda" else 1.0)),
        confidence=0.5,
        actions=(
            Action(name="fuse", instruction="Fuse what comes after the product into one kernel."),
        ),
        guard="Do not rewrite the product itself, unless its shape is one that libraries do badly.",
    )


@detector(
    level="system",
    needs=("system.top_kernel_share",),
    group="facts",
    threshold="one kernel with > 50 % of the device time (own); for information",
)
def dominant_kernel(evidence: Evidence) -> Diagnosis | None:
    """One kernel takes most of the device time: the others hardly matter."""
    profile = evidence.profile
    share, least = profile["system.top_kernel_share"], cut("dominant_kernel.share")
    if share <= least or len(profile.kernels) < 2:
        return None
    return Diagnosis(
        bottleneck=f"one kernel has {share:.0%} of the device time (cut {least:.0%})",
        where=profile.where("system.top_kernel_share"),
        why="Amdahl: no change elsewhere can save more than the rest.",
        gain=0.0,
        confidence=0.1,
        actions=(Action(name="focus", instruction="Work on this kernel first."),),
    )


@detector(
    level="system",
    needs=("system.library_share", "system.triton_share"),
    group="facts",
    threshold="any kernel of a vendor's library or of Triton; for information",
)
def library_kernels(evidence: Evidence) -> Iterator[Diagnosis]:
    """Part of the work is done by a vendor's library or by generated kernels."""
    profile = evidence.profile
    for name, what in (("library", "a vendor's library"), ("triton", "Triton")):
        share = profile[f"system.{name}_share"]
        if share > 0:
            yield Diagnosis(
                bottleneck=f"{share:.0%} of the device time is in kernels of {what}",
                where=profile.where(f"system.{name}_share"),
                why="They are well tuned for common shapes; keep or replace them on purpose.",
                gain=0.0,
                confidence=0.1,
                actions=(
                    Action(name="fuse", instruction="Fuse what is around them, or into them."),
                ),
                guard="Some tasks forbid them.",
            )
