"""The parts that prompts are put together from: what a role may know, each as a short text."""

import random
from collections.abc import Sequence
from textwrap import shorten

from kernelpro.lessons import words
from kernelpro.models import lookups, roles
from kernelpro.models.evidence import failure
from kernelpro.models.sources import folded
from kernelpro.ranking import Credit, credit
from kernelpro.records import Attempt, Diagnosis, Outcome, Proposal, Step

FINDINGS = 5
"""Findings that a prompt has at most; raw metrics it never has."""

FAILURES = 8
"""Failures that are told so that they are not repeated: the latest. Own choice."""

MOST_LESSONS = 8
"""Lessons of earlier searches that a prompt has at most. Own choice."""

FAILED_TALK = "failed: "
"""How the rationale of a candidate begins that came of a failed talk; its message says the rest."""

LIKELY_GAIN = 1.1
"""Below this factor over the speed of light hardly anything is left. Own choice."""


def machine(proposal: Proposal) -> str:
    """What the kernel runs on, with measured peaks."""
    m = proposal.machine
    lines = [f"Machine: {m.device} (target {m.target})."]
    if m.threads:
        lines.append(f"Threads: {m.threads}.")
    if m.bandwidth_bytes_per_s:
        lines.append(f"Measured memory bandwidth: {m.bandwidth_bytes_per_s / 1e9:.1f} GB/s.")
    for path, peak in sorted(m.flops_per_s.items()):
        lines.append(f"Measured peak, {path}: {peak / 1e12:.3g} TFLOP/s.")
    if m.cache_bytes:
        lines.append(f"Last-level cache: {m.cache_bytes / 2**20:.3g} MiB.")
    if m.launch_us:
        lines.append(f"Least time of a launch or parallel region: {m.launch_us:.3g} us.")
    return "\n".join(lines)


def problem(proposal: Proposal) -> str:
    """The reference, its tensors and its least work."""
    p = proposal.problem
    sizes = ", ".join(f"{name}={value}" for name, value in p.sizes.items())
    lines = [
        f"Problem {p.name}" + (f", with {sizes}" if sizes else "") + ". The reference:",
        _fenced(p.source),
        *(f"input {t.name or n}: {t.dtype}{list(t.shape)}" for n, t in enumerate(p.inputs)),
        *(f"parameter {t.name or n}: {t.dtype}{list(t.shape)}" for n, t in enumerate(p.parameters)),
        *(f"output {n}: {t.dtype}{list(t.shape)}" for n, t in enumerate(p.outputs)),
        f"One call does {p.flops:,} floating-point operations and moves at least "
        f"{p.min_bytes:,} bytes. Precision: {p.precision}.",
    ]
    if p.workloads:
        mix = "; ".join(f"{w.name} (weight {w.weight:g})" for w in p.workloads)
        lines.append(
            f"It is called at several shapes: {mix}. Make it fast at the sizes above; at a shape "
            "that it is not made for it may raise, but must not be wrong."
        )
    return "\n".join(lines)


def parent(proposal: Proposal) -> str:
    """The source to change."""
    return _fenced(folded(proposal.parent.source))


def result(proposal: Proposal) -> str:
    """What became of the parent."""
    timing = proposal.evaluation.timing
    if timing is None:
        return f"It was not timed: {_outcome(proposal.evaluation.outcome)}."
    return (
        f"One call takes {timing.median_us:.4g} us: {timing.speedup:.2f} times as fast as "
        f"{timing.baseline} ({timing.speedup_low:.2f}-{timing.speedup_high:.2f})."
    )


def headroom(proposal: Proposal) -> str:
    """How far the parent is from the speed of light, and what stops further gain."""
    timing, light = proposal.evaluation.timing, proposal.sol_us
    own = _step(proposal)
    roofline = own.classification if own is not None else None
    lines = []
    if timing is not None and light > 0:
        ratio = timing.median_us / light
        word = "hardly anything is left" if ratio < LIKELY_GAIN else f"at most {ratio:.2f}x is left"
        bound = f", set by {roofline.bound}" if roofline is not None and roofline.bound else ""
        lines.append(f"Speed of light: {light:.4g} us a call{bound}; {word}.")
    if roofline is not None and roofline.text:
        lines.append(f"What stops further gain: {roofline.text}")
    return "\n".join(lines)


def findings(proposal: Proposal) -> str:
    """The parent's findings, the most promising first."""
    return "\n".join(finding(d) for d in proposal.diagnoses[:FINDINGS])


def worth(proposal: Proposal) -> str:
    """What acting on each finding has been worth in this search."""
    known = credit(proposal.steps)
    lines = [f"- {name}: {_worth(c)}" for name, c in sorted(known.items()) if c.tries]
    return "\n".join(lines)


def lessons(proposal: Proposal) -> str:
    """What earlier searches of like problems saw, with counts: as answers to findings first."""
    found = {d.detector for d in proposal.diagnoses}
    told = sorted(
        (one for one in proposal.lessons if one.strategy and one.tries),
        key=lambda one: (one.finding not in found, not one.finding, -one.worth, one.strategy),
    )
    return "\n".join(f"- {words.line(one)}" for one in told[:MOST_LESSONS])


def discoveries(proposal: Proposal) -> str:
    """Files that were read before an accepted, faster candidate, which the next one may need."""
    return "\n".join(
        f"- {path} (node {node}, {speedup:.2f}x)"
        for path, (node, speedup) in lookups.discoveries(proposal.steps).items()
    )


def best(proposal: Proposal) -> str:
    """The best so far, in a line."""
    done = [
        s
        for s in proposal.steps
        if s.index and s.evaluation.outcome is Outcome.ACCEPTED and s.evaluation.timing is not None
    ]
    if not done:
        return "No candidate has been accepted yet."
    top = max(done, key=lambda s: (s.evaluation.timing.speedup, -s.index))  # type: ignore[union-attr]
    same = " (this is the one to change)" if top.index == proposal.node else ""
    return f"The best so far is {_line(top)}{same}"


def failed(proposal: Proposal) -> str:
    """What has failed in this search, the latest last, so that it is not repeated."""
    seen: dict[str, str] = {}
    for step in proposal.steps[1:]:
        if step.evaluation.timing is None and step.index != proposal.node:
            what = step.candidate.rationale
            outcome, message = _outcome(step.evaluation.outcome), _short(step.evaluation.message)
            title = "" if what.startswith(FAILED_TALK) else f"{_title(what)}: "
            seen[f"{title or message}{outcome}"] = f"- {title}{outcome}: {message}"
    return "\n".join(list(seen.values())[-FAILURES:])


def siblings(proposal: Proposal) -> str:
    """What was already tried from this parent."""
    return "\n".join(_attempt(attempt) for attempt in proposal.attempts)


def others(shown: Sequence[Step]) -> str:
    """The other nodes of the window, a line each."""
    return "\n".join(f"- {_line(step)}" for step in shown)


def other_sources(shown: Sequence[Step]) -> str:
    """Their sources; the root's is the reference, which the prompt has anyway."""
    return "\n".join(
        f"Node {step.index}:\n{_fenced(folded(step.candidate.source))}"
        for step in shown
        if step.index
    )


def failure_evidence(proposal: Proposal) -> str:
    """Why the parent failed."""
    return failure(proposal.parent, proposal.evaluation)


def directions(proposal: Proposal) -> list[str]:
    """Where children of this parent may go, each another way; the untried first.

    First an action of each finding that no sibling acted on, then the target's list of directions
    in an order that the step's seed shuffles. Siblings differ by this, since not every model takes
    a temperature.
    """
    acted = {
        s.candidate.inspired_by for s in proposal.steps if s.parent == proposal.node and s.index
    }
    ways = [
        f"Act on finding {d.detector}: {d.actions[0].instruction}"
        for d in sorted(proposal.diagnoses[:FINDINGS], key=lambda d: d.detector in acted)
        if d.actions
    ]
    fresh = len([d for d in proposal.diagnoses[:FINDINGS] if d.actions and d.detector not in acted])
    listed = [
        line.strip()
        for line in roles.template(f"directions.{proposal.problem.target}.txt").splitlines()
        if line.strip()
    ]
    random.Random(proposal.seed).shuffle(listed)
    return ways[:fresh] + listed + ways[fresh:]


def _step(proposal: Proposal) -> Step | None:
    inside = 0 <= proposal.node < len(proposal.steps)
    return proposal.steps[proposal.node] if inside else None


def finding(diagnosis: Diagnosis) -> str:
    """A finding in a few lines: what, where, what to do."""
    lines = [
        f"- {diagnosis.detector}: {diagnosis.bottleneck}. {diagnosis.why}"
        f" Could save about {diagnosis.gain:.0%} of the time."
    ]
    if place := " ".join(p for p in (diagnosis.kernel, diagnosis.where) if p):
        lines.append(f"  Where: {place}")
    lines += [f"  To do: {action.instruction}" for action in diagnosis.actions]
    if diagnosis.guard:
        lines.append(f"  But: {diagnosis.guard}")
    return "\n".join(lines)


def _worth(credit: Credit) -> str:
    gain = f", {credit.gain:.2f}x over the parent where it did" if credit.hits else ""
    return f"acted on {credit.tries} times, helped {credit.hits} times{gain}"


def _line(step: Step) -> str:
    timing = step.evaluation.timing
    state = (
        f"{timing.speedup:.2f}x ({timing.median_us:.4g} us)"
        if timing is not None
        else f"{_outcome(step.evaluation.outcome)}: {_short(step.evaluation.message)}"
    )
    made = "" if step.parent is None else f", made from node {step.parent}"
    return f"node {step.index}{made}: {_title(step.candidate.rationale)}: {state}"


def _attempt(attempt: Attempt) -> str:
    gain = f", {attempt.speedup:.2f}x" if attempt.speedup is not None else ""
    return f"- {_title(attempt.rationale)}: {_outcome(attempt.outcome)}{gain}"


def _outcome(outcome: Outcome) -> str:
    return str(outcome).replace("_", " ")


def _title(text: str) -> str:
    return shorten(text.partition("\n")[0], 120, placeholder=" ...") or "no title"


def _short(text: str) -> str:
    return shorten(text, 160, placeholder=" ...")


def _fenced(text: str) -> str:
    return f"```\n{text.rstrip()}\n```"
