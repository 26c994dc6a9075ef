"""What became of an answer, for whoever wrote it."""

from typing import Any

from kernelpro.models import parts
from kernelpro.models.evidence import failure
from kernelpro.records import Step
from kernelpro.report import duration
from kernelpro.serial import encode


def text(step: Step, best: Step | None, *, findings: bool = True) -> str:
    """In words: outcome, time, why it failed or what to do next.

    Args:
        step: what the answer became.
        best: the fastest accepted step so far.
        findings: whether the search tells findings unasked.
    """
    evaluation = step.evaluation
    timing = evaluation.timing
    words = str(evaluation.outcome).replace("_", " ")
    lines = [f"step {step.index}, made from node {step.parent}: {words}"]
    if timing is not None:
        lines.append(
            f"{timing.speedup:.2f}x {timing.baseline} (95 % interval {timing.speedup_low:.2f}-"
            f"{timing.speedup_high:.2f}), {duration(timing.median_us)} a call"
            + ("" if timing.faster else "; not shown to be faster")
        )
    if timing is None:
        lines += failure(step.candidate, evaluation).splitlines()[1:]
    elif evaluation.message:
        lines.append(evaluation.message)
    told = step.diagnoses[: parts.FINDINGS] if findings else ()
    lines += [parts.finding(found) for found in told]
    if best is not None and best.evaluation.timing is not None:
        lines.append(f"best so far: step {best.index}, {best.evaluation.timing.speedup:.2f}x")
    return "\n".join(lines)


def values(step: Step, best: Step | None, *, findings: bool = True) -> dict[str, Any]:
    """As plain values that json can write; arguments as of `text`."""
    evaluation = step.evaluation
    told = step.diagnoses[: parts.FINDINGS] if findings else ()
    return {
        "step": step.index,
        "parent": step.parent,
        "outcome": str(evaluation.outcome),
        "message": evaluation.message,
        "evidence": failure(step.candidate, evaluation) if evaluation.timing is None else "",
        "timing": encode(evaluation.timing),
        "faster": evaluation.timing is not None and evaluation.timing.faster,
        "reward": step.reward,
        "diagnoses": [encode(found) for found in told],
        "text": text(step, best, findings=findings),
        "best": None if best is None else best.index,
    }
