"""Detectors, instruction level: copies and matrix instructions that could overlap and do not."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.readings import reading
from kernelpro.profiling.sass.estimate import by_stalls, shown, wanted
from kernelpro.profiling.thresholds import cut


@hookimpl
def detectors() -> list[Detector]:
    """Give this family's detectors."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="instruction",
    needs=("sass.staged_copies", "sass.async_copies"),
    wants=("sass.target_sm", *wanted("long_scoreboard", "barrier")),
    classes=("latency", "memory", "compute"),
    group="issue",
    threshold="any copy through registers into shared memory in a loop with barriers (exact)",
)
def no_async_copy(evidence: Evidence) -> Diagnosis | None:
    """Tiles go to shared memory through registers, so that nothing overlaps with the load."""
    profile = evidence.profile
    staged = profile["sass.staged_copies"]
    if staged <= cut("no_async_copy.count") or profile["sass.async_copies"]:
        return None
    if reading(profile, "sass.target_sm", 80.0) < 80.0:
        return None  # cp.async came with sm_80
    guess = by_stalls(profile, 0.15, "long_scoreboard", "barrier")
    if guess is None:
        return None
    return Diagnosis(
        bottleneck=(
            f"{staged:.0f} copies from global to shared memory go through registers, none is "
            f"asynchronous{guess.words}"
        ),
        where=shown(profile, "sass.staged_copies"),
        why="Each iteration waits for its own tile before the barrier.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(
                name="prefetch",
                instruction="Copy the next tile with cp.async (or TMA) while this one is used.",
            ),
            Action(name="stage_registers", instruction="Load the next tile before computing."),
        ),
        guard="Not for one or two tiles, nor when the value is changed on the way.",
    )


@detector(
    level="instruction",
    needs=(
        "sass.async_copies_in_loop", "sass.async_drained", "sass.async_waits",
        "sass.wgmma_drained", "sass.hgmma",
    ),
    wants=wanted("long_scoreboard", "gmma", "barrier"),
    classes=("compute", "latency", "balanced"),
    group="issue",
    threshold="each iteration waits until no copy or matrix instruction is left (exact)",
)  # fmt: skip
def pipeline_depth(evidence: Evidence) -> Diagnosis | None:
    """A pipeline of copies or matrix instructions is emptied in each iteration."""
    profile = evidence.profile
    drained, waits = profile["sass.async_drained"], profile["sass.async_waits"]
    if profile["sass.async_copies_in_loop"] and drained and drained == waits:
        what, place, reasons = "asynchronous copies", "sass.async_drained", ("long_scoreboard",)
        action = Action(
            name="prefetch",
            instruction="Keep one or two stages in flight: wait for all but the newest group.",
        )
    elif profile["sass.hgmma"] and profile["sass.wgmma_drained"]:
        what, place, reasons = "matrix instructions", "sass.wgmma_drained", ("gmma",)
        action = Action(
            name="prefetch",
            instruction="wgmma.wait_group 1: start the next product before the last has ended.",
        )
    else:
        return None
    guess = by_stalls(profile, 0.2, *reasons, "barrier")
    if guess is None:
        return None
    return Diagnosis(
        bottleneck=f"each iteration waits until none of its {what} is left{guess.words}",
        where=shown(profile, place),
        why="Nothing is in flight while the loop computes, so that latency is paid every time.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            action,
            Action(name="stage_buffer", instruction="Use one more buffer of shared memory."),
        ),
        guard="Not when shared memory has no room for another stage.",
    )


@detector(
    level="instruction",
    needs=("sass.hgmma_anywhere", "compiler.wgmma_serialised"),
    wants=wanted("gmma"),
    classes=("compute", "balanced"),
    group="issue",
    threshold="the assembler says that wgmma is serialised: C7510 to C7513 (exact)",
)
def wgmma_serialised(evidence: Evidence) -> Diagnosis | None:
    """The assembler makes warpgroup matrix instructions wait for each other."""
    profile = evidence.profile
    if not profile["sass.hgmma_anywhere"] or not profile["compiler.wgmma_serialised"]:
        return None
    guess = by_stalls(profile, 0.3, "gmma")
    if guess is None:
        return None
    return Diagnosis(
        bottleneck=(
            f"{profile['compiler.wgmma_serialised']:.0f} warnings of the assembler that wgmma is "
            f"serialised (cut 0){guess.words}"
        ),
        where=shown(profile, "compiler.wgmma_serialised"),
        why="Each matrix instruction is waited for before the next one starts.",
        gain=guess.gain,
        confidence=0.6 if guess.words else 0.5,
        actions=(
            Action(
                name="untouched_accumulators",
                instruction="Do not read or write accumulators between the issue and the wait.",
            ),
            Action(name="fewer_rows_per_block", instruction="Leave registers for the pipeline."),
            Action(name="uniform_flow", instruction="No calls or divergent branches in between."),
        ),
        guard="Read the assembler's reason: registers, calls and branches need different fixes.",
    )
