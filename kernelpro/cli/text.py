"""What commands print about searches and measurements; plain text and plain JSON values."""

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from kernelpro.ranking import shortlist
from kernelpro.records import Diagnosis, Evaluation, Machine, Problem, Profile, Step
from kernelpro.report import duration, sentence, volume
from kernelpro.search.bench import Measured
from kernelpro.search.budget import INTERRUPTED
from kernelpro.serial import encode

if TYPE_CHECKING:
    from kernelpro.api import Result  # loads torch


def tree(result: "Result") -> str:
    """Draw the tree of a search, a line a step, indented by depth; * marks the winner."""
    children: dict[int | None, list[Step]] = {}
    for step in result.steps:
        children.setdefault(step.parent, []).append(step)
    lines = []
    stack = [(step, 0) for step in reversed(children.get(None, []))]
    while stack:
        step, depth = stack.pop()
        mark = "*" if result.best is not None and step.index == result.best.index else " "
        lines.append(f"{mark}{'  ' * depth}{step.index:<4} {step_line(step)}")
        stack += [(child, depth + 1) for child in reversed(children.get(step.index, []))]
    return "\n".join(lines)


def step_line(step: Step) -> str:
    """Tell one step in a line."""
    if step.parent is None:
        timing = step.evaluation.timing
        return f"baseline {duration(timing.median_us)}" if timing else "baseline"
    what = shorten(step.candidate.rationale.partition("\n")[0], 110, placeholder=" ...")
    return f"{outcome(step.evaluation):24} {what}"


def outcome(evaluation: Evaluation) -> str:
    """Tell an outcome, with time and ratio when there is one."""
    if evaluation.timing is None:
        return str(evaluation.outcome).replace("_", " ")
    timing = evaluation.timing
    word = "" if evaluation.outcome == "accepted" else f" {evaluation.outcome}"
    weight = f" {evaluation.energy.joules:.3g} J" if evaluation.energy is not None else ""
    return f"{timing.speedup:5.2f}x {duration(timing.median_us):>8}{weight}{word}"


def heading(problem: Problem, machine: Machine, sol_us: float, bound: str) -> str:
    """Tell what is searched, on what, and the floor that no kernel can be under."""
    sizes = ", ".join(f"{name}={value}" for name, value in problem.sizes.items())
    peaks = f"{machine.bandwidth_bytes_per_s / 1e9:.0f} GB/s"
    if flops := machine.flops_per_s.get(problem.dtype):
        peaks += f", {flops / 1e12:.2f} TFLOP/s {problem.dtype}"
    threads = f", {machine.threads} threads" if machine.threads else ""
    return (
        f"{problem.name}{f' ({sizes})' if sizes else ''} on {machine.target}: {machine.device}"
        f"{threads}, measured {peaks}\n"
        f"least work of a call: {problem.flops / 1e6:.4g} MFLOP, {volume(problem.min_bytes)}; "
        f"speed of light {duration(sol_us)} (set by {bound})"
    )


def ending(result: "Result") -> str:
    """Tell how a search ended and what it found."""
    summary = result.summary
    lines = [summary.headline]
    lines += [f"  why: {reason}" for reason in summary.why]
    lines += [f"  what holds it back: {line}" for line in summary.holds]
    if summary.counts:
        lines.append(f"candidates: {summary.counts}")
    if result.reason:
        lines.append(f"ended: {result.reason}")
    lines.append(f"memory: {result.memory}")
    if result.reason == INTERRUPTED:
        lines.append(f"go on with: python -m kernelpro search --resume --memory {result.memory}")
    if result.kernel is not None:
        lines.append(f"kernel: {result.kernel}")
    lines += [f"note: {complaint}" for complaint in result.complaints]
    return "\n".join(lines)


def measured(
    problem: Problem, machine: Machine, found: Measured, *, top: int, metrics: bool
) -> str:
    """Tell a profile: verdict, place on the roofline, findings, and what was not measured.

    Args:
        problem: what was computed.
        machine: on what.
        found: all that was found out.
        top: how many findings to tell.
        metrics: whether to list every metric.
    """
    evaluation = found.evaluation
    lines = [f"{problem.name} on {machine.device}: {outcome(evaluation).strip()}"]
    if evaluation.message:
        lines.append(evaluation.message)
    if evaluation.timing is not None:
        t = evaluation.timing
        lines.append(
            f"time: {duration(t.median_us)} a call (20-80 %: {duration(t.p20_us)} to "
            f"{duration(t.p80_us)}, {t.runs} calls), {t.baseline} {duration(t.baseline_us)}; "
            f"ratio {t.speedup:.2f}, 95 % interval {t.speedup_low:.2f}-{t.speedup_high:.2f}; "
            f"clock: {t.clock}"
        )
    if found.classification is not None:
        c = found.classification
        lines.append(
            f"class: {c.dispatched} (theory {c.theory}, measured {c.measured}, confidence "
            f"{c.confidence}); speed of light {duration(c.sol_us)} by {c.bound}; "
            f"{c.intensity:.2g} FLOP/byte, ridge {c.ridge:.2g}"
        )
        lines.append(c.text)
    lines += profile_lines(found.profile, found.diagnoses, top=top, metrics=metrics)
    return "\n".join(line for line in lines if line)


def profile_lines(
    profile: Profile, diagnoses: Sequence[Diagnosis], *, top: int, metrics: bool
) -> list[str]:
    """Tell kernels, the best findings of each group, and what was not measured."""
    lines = []
    if len(profile.kernels) > 1:
        lines.append("kernels:")
        lines += [f"    {k.share:5.0%} {k.launches:4}x {k.name}" for k in profile.kernels[:top]]
    told = shortlist(diagnoses, top)
    for diagnosis in told:
        lines.append(f"- {sentence(diagnosis)}")
        lines += [f"    try: {action.instruction}" for action in diagnosis.actions]
        if diagnosis.guard:
            lines.append(f"    not when: {diagnosis.guard}")
    if not diagnoses:
        lines.append("no detector found anything")
    elif len(told) < len(diagnoses):
        rest = sorted({d.detector for d in diagnoses} - {d.detector for d in told})
        if rest:
            lines.append(f"also seen, of less weight: {', '.join(rest)}")
    if metrics and profile.metrics:
        lines.append("metrics:")
        for name, metric in sorted(profile.metrics.items()):
            if metric.value is not None:
                lines.append(f"    {name:56} {metric.value:12.5g} {metric.unit:6} {metric.how}")
    absent = {n: m.note for n, m in profile.metrics.items() if m.value is None}
    for note in sorted(set(absent.values())):
        names = sorted(n for n in absent if absent[n] == note)
        few = ", ".join(names if metrics else names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 and not metrics else ""
        lines.append(f"not measured: {few}{more}: {note or 'no reason given'}")
    return lines


def result_json(result: "Result") -> dict[str, Any]:
    """Give a search's result as plain JSON values."""
    summary = result.summary
    return {
        "problem": result.problem.name,
        "target": result.problem.target,
        "machine": encode(result.machine),
        "headline": summary.headline,
        "faster": summary.faster,
        "why": list(summary.why),
        "holds": list(summary.holds),
        "best": None if result.best is None else result.best.index,
        "confirmations": encode(result.confirmations),
        "reason": result.reason,
        "memory": str(result.memory),
        "kernel": None if result.kernel is None else str(result.kernel),
        "complaints": list(result.complaints),
        "tree": [
            {
                "index": node.step.index,
                "parent": node.step.parent,
                "candidate": node.step.candidate.id,
                "outcome": str(node.step.evaluation.outcome),
                "speedup": timing.speedup if (timing := node.step.evaluation.timing) else None,
                "reward": node.step.reward,
                "visits": node.visits,
                "mean": node.mean,
            }
            for node in result.tree
        ],
    }
