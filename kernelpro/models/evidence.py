"""What a debug role is shown of a failure: shortened to what matters, never a whole log."""

import re

from kernelpro.models.sources import kernel_text
from kernelpro.records import Candidate, Check, Evaluation, Outcome

CHECKS = 4
"""Comparisons that are shown: the worst. Own choice."""
LINES = 2
"""Lines of source shown on either side of the one that an error names."""
MESSAGE_CHARACTERS = 800

# g++, clang++, nvcc: `<stdin>:12:5: error: ...`; NVRTC and EDG: `kernel.cu(12): error: ...`.
_ERROR = re.compile(
    r"^(?P<file>[^\s:(]+)[:(](?P<line>\d+)\)?(?::\d+)?:? *(?:fatal )?error:? (?P<what>.*)$"
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')


def failure(candidate: Candidate, evaluation: Evaluation) -> str:
    """The evidence of one failed candidate, in a few lines."""
    parts = [f"Outcome: {str(evaluation.outcome).replace('_', ' ')}."]
    log = (evaluation.build.log if evaluation.build is not None else "") or evaluation.message
    if evaluation.outcome is Outcome.COMPILE_ERROR:
        parts += _compiler(candidate, log)
    else:
        parts.append(_cut(evaluation.message))
        parts += _trace(candidate, evaluation.message)
    if evaluation.verdict is not None:
        wrong = [check for check in evaluation.verdict.checks if not check.ok]
        worst = sorted(wrong, key=lambda c: -c.max_error / max(c.max_limit, 1e-300))[:CHECKS]
        if worst:
            parts.append(f"{len(wrong)} comparisons failed; the worst:")
            parts += [f"- {_check(check)}" for check in worst]
    return "\n".join(part for part in parts if part)


def _compiler(candidate: Candidate, log: str) -> list[str]:
    for line in log.splitlines():
        if found := _ERROR.match(line.strip()):
            number = int(found["line"])
            text, before = kernel_text(candidate.source)
            parts = [f"First error: {found['what'].strip()[:MESSAGE_CHARACTERS]}"]
            if text and 0 < number <= len(text.splitlines()):
                parts.append(
                    f"at line {number} of the kernel's text (line {before + number} of the file):"
                )
                parts.append(_around(text, number))
            return parts
    return [_cut(log)]


def _trace(candidate: Candidate, message: str) -> list[str]:
    """The candidate's own line that a Python traceback names last, if it names one."""
    number = 0
    for line in message.splitlines():
        if (found := _FRAME.match(line)) and "candidate" in found["file"]:
            number = int(found["line"])
    count = len(candidate.source.splitlines())
    return [f"at line {number}:", _around(candidate.source, number)] if 0 < number <= count else []


def _around(text: str, number: int) -> str:
    lines = text.splitlines()
    first = max(1, number - LINES)
    return "\n".join(
        f"{'>' if n == number else ' '} {n:4} | {lines[n - 1]}"
        for n in range(first, min(len(lines), number + LINES) + 1)
    )


def _check(check: Check) -> str:
    return (
        f"inputs {check.inputs}, output {check.output}: {check.note or 'wrong'}; largest error "
        f"{check.max_error:.3g} (limit {check.max_limit:.3g}), rms {check.rms_error:.3g} "
        f"(limit {check.rms_limit:.3g})"
    )


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MESSAGE_CHARACTERS else text[: MESSAGE_CHARACTERS - 4] + " ..."
