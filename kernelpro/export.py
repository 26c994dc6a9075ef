"""Write a candidate as a file that people ship, with its evidence as a comment at the top.

The code is byte for byte what was judged; only a comment is put before it.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from kernelpro.errors import KernelproError
from kernelpro.records import Confirmation, Machine, Problem, Step
from kernelpro.report import summarize


def text(
    problem: Problem,
    machine: Machine,
    steps: Sequence[Step],
    step: Step,
    confirmations: Sequence[Confirmation] = (),
) -> str:
    """Make the file's text: evidence as a comment, then the candidate's source unchanged."""
    summary = summarize(problem, steps, step, confirmations)
    lines = [summary.headline]
    if machine.device:
        lines.append(f"Measured on {machine.device}.")
    lines += [f"Why: {reason}" for reason in summary.why]
    lines += [f"What holds it back: {line}" for line in summary.holds]
    verdict = step.evaluation.verdict
    if verdict is not None and verdict.checks:
        worst = max(verdict.checks, key=lambda c: c.rms_error / max(c.rms_limit, 1e-300))
        lines.append(
            f"Judged {verdict.decision} on {verdict.calls_compared} compared calls under precision "
            f"policy {problem.precision!r}; worst error against float64: rms {worst.rms_error:.1e} "
            f"(limit {worst.rms_limit:.1e}) on inputs {worst.inputs!r}."
        )
    lines.append(f"Candidate {step.candidate.id}, step {step.index}, by {step.candidate.author}.")
    wrapped = [part for line in lines for part in textwrap.wrap(line, 96) or [""]]
    comment = "\n".join(f"# {part}".rstrip() for part in wrapped)
    return f"{comment}\n{step.candidate.source}"


def write(path: Path, content: str) -> None:
    """Write a file, or say in a sentence why not.

    Raises:
        KernelproError: the folder or file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise KernelproError(
            f"{path} cannot be written ({error.strerror}); give another path"
        ) from error
