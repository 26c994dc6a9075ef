"""All that is recorded of one step, in words: what `kernelpro replay --step` prints."""

import difflib
from typing import TYPE_CHECKING

from kernelpro.cli import text
from kernelpro.language.seeds import in_words
from kernelpro.records import Compiled, Confirmation, Step, Verdict
from kernelpro.search.bench import Measured

if TYPE_CHECKING:
    from kernelpro.api import Result


def one_step(result: "Result", step: Step) -> str:
    """Tell one step: where it came from, source, verdict, times, findings, what was not measured.

    The source is given as what it changed in its parent's, where that is shorter.
    """
    parent = None if step.parent is None else result.tree[step.parent].step
    lines = [_origin(step, parent), *_source(step, parent), ""]
    found = Measured(
        evaluation=step.evaluation,
        profile=step.profile,
        classification=step.classification,
        diagnoses=step.diagnoses,
        phases_s=step.phases_s,
    )
    lines.append(
        text.measured(result.problem, result.machine, found, top=len(step.diagnoses), metrics=True)
    )
    if step.evaluation.verdict is None:
        lines.append("verdict: none: it was not judged")
    else:
        lines += _verdict(step.evaluation.verdict)
    if (build := step.evaluation.build) is not None:
        cached = ", from the cache" if build.cached else ""
        state = "built" if build.ok else "refused by the compiler"
        lines.append(
            f"build: {state}, {build.seconds:.2f} s{cached}, machine code {_or(build.machine_code)}"
        )
        lines += [f"    {line}" for line in build.log.splitlines()]
    lines += [line for each in step.evaluation.compiled for line in _compiled(each)]
    if step.evaluation.energy is None:
        lines.append("not measured: energy")
    lines.append(
        "wall time: "
        + (", ".join(f"{name} {s:.3f} s" for name, s in step.phases_s.items()) or "not recorded")
    )
    node = result.tree[step.index]
    lines.append(
        f"reward {step.reward:.4f}; its branch: {node.visits} steps, best reward {node.best:.4f}"
    )
    lines += [_confirmation(each) for each in result.confirmations if each.step == step.index]
    return "\n".join(lines)


def _origin(step: Step, parent: Step | None) -> str:
    candidate = step.candidate
    if parent is None:
        return f"step {step.index}, candidate {candidate.id}: the baseline"
    by = f" by {candidate.author}" if candidate.author else ""
    asked = f", as {candidate.inspired_by} asks" if candidate.inspired_by else ""
    asked += ", after asking for that one's profile" if step.asked else ""
    closed = (
        f"; found nothing left for {', '.join(map(str, step.exhausted))}" if step.exhausted else ""
    )
    return (
        f"step {step.index}, candidate {candidate.id}{by}, made from step {parent.index}{asked}"
        f"{closed}\n{candidate.rationale or 'no rationale was given'}"
    )


def _source(step: Step, parent: Step | None) -> list[str]:
    source = step.candidate.source.splitlines()
    if parent is not None:
        changed = list(
            difflib.unified_diff(
                parent.candidate.source.splitlines(),
                source,
                f"step {parent.index}",
                f"step {step.index}",
                lineterm="",
            )
        )
        if len(changed) < len(source):
            return changed or [f"the source is that of step {parent.index}"]
    return source


def _verdict(verdict: Verdict) -> list[str]:
    reasons = f": {', '.join(verdict.reasons)}" if verdict.reasons else ""
    lines = [f"verdict: {verdict.decision}{reasons}; {verdict.calls_compared} calls compared"]
    for check in verdict.checks:
        state = "agrees" if check.ok else "differs"
        note = f" ({check.note})" if check.note else ""
        lines.append(
            f"    {check.inputs}, output {check.output}: {state}: rms error "
            f"{check.rms_error:.2g} of {check.rms_limit:.2g}, largest {check.max_error:.2g} of "
            f"{check.max_limit:.2g}{note}"
        )
    lines += [f"    {name}: {words}" for name, words in verdict.evidence.items()]
    if verdict.isolation and verdict.isolation not in verdict.evidence.values():
        lines.append(f"    isolation: {verdict.isolation}")
    return lines


def _compiled(compiled: Compiled) -> list[str]:
    note = f": {compiled.note}" if compiled.note else ""
    noun = "kernel" if len(compiled.kernels) == 1 else "kernels"
    lines = [f"{compiled.baseline} made {len(compiled.kernels)} {noun} of it{note}"]
    return lines + [f"    {kernel.name}: {in_words(kernel)}" for kernel in compiled.kernels]


def _confirmation(confirmation: Confirmation) -> str:
    evaluation = confirmation.evaluation
    interval = ""
    if (timing := evaluation.timing) is not None:
        interval = f", 95 % interval {timing.speedup_low:.2f}-{timing.speedup_high:.2f}"
    return f"judged again from scratch: {text.outcome(evaluation).strip()}{interval}"


def _or(value: str) -> str:
    return value or "not recorded"
