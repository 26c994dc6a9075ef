"""One task for an outside agent: all that a model would be told, as Markdown or as plain values."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpro.agents.asks import Ask
from kernelpro.lessons import words
from kernelpro.models import parts, places, prompt
from kernelpro.models.anchors import BEGIN, END, Grounded
from kernelpro.models.settings import ModelSettings
from kernelpro.models.sources import folded
from kernelpro.models.windows import window
from kernelpro.records import Problem, Proposal, Step
from kernelpro.serial import encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What an agent is asked for: the next candidate from one node of a search.

    Attributes:
        ask: its id and node.
        memory: the search's memory file.
        proposal: all that may be known.
        form: `single`: make it faster; or `debug`: the parent failed, mend it.
        direction: where this child is to go, so that siblings differ.
        anchored: the parent's source with the place marked that the best finding points at, or
            None where it points at none.
        finding: the detector of that finding, or empty.
        prompt: the same as a model is told it.
    """

    ask: Ask
    memory: Path
    proposal: Proposal
    form: str
    direction: str
    anchored: Grounded | None
    finding: str
    prompt: prompt.Prompt


def make(ask: Ask, memory: Path, proposal: Proposal, settings: ModelSettings) -> Task:
    """Put a task together.

    Raises:
        ModelError: it is longer than a prompt may be with all left out that may be.
    """
    form = prompt.first_role(proposal, "single")
    ways = parts.directions(proposal)
    direction = ways[ask.choice.under_way.count(ask.node) % len(ways)] if ways else ""
    built = prompt.build(form, proposal, settings, direction=direction)
    place = places.suggested(folded(proposal.parent.source), proposal.diagnoses)
    return Task(
        ask=ask,
        memory=memory,
        proposal=proposal,
        form=form,
        direction="" if form == "debug" else direction,
        anchored=place[0] if place else None,
        finding=place[1] if place else "",
        prompt=built,
    )


def command(task: Task) -> str:
    """What to type when the answer is written."""
    return f"python -m kernelpro tell {task.ask.id} answer.py --memory {task.memory}"


def asking(task: Task) -> str:
    """What to type for what is held back of the parent's profile; empty where nothing is."""
    if task.proposal.held_back is None:
        return ""
    return f"python -m kernelpro ask {task.memory} --profile {task.ask.id}"


def markdown(task: Task) -> str:
    """The task as Markdown."""
    proposal = task.proposal
    verb = "repair" if task.form == "debug" else "make faster"
    lines = [
        f"# Task {task.ask.id}: {verb} node {task.ask.node} of {proposal.problem.name}",
        "",
        "Write the whole file to `answer.py`, then:",
        "",
        f"    {command(task)}",
        "",
        "`--note TEXT` says in a line what was changed, `--finding NAME` which finding it acts on; "
        "both are told to whoever comes next.",
        "",
        *_held_back(task),
        *task.prompt.shared,
        "",
        "## The parent",
        "",
        *("\n\n".join(task.prompt.own).splitlines()),
    ]
    if task.anchored is not None:
        why = f", since {task.finding} points there" if task.finding else ""
        lines += [
            "",
            "## Where to change it first",
            "",
            f"Between `{BEGIN}` and `{END}`{why}. You may change more where that is needed.",
            "",
            *_excerpt(task.anchored),
        ]
    if proposal.lessons:
        lines += ["", "## What earlier searches saw", "", words.told(proposal.lessons)]
    return "\n".join(lines).rstrip() + "\n"


def values(task: Task) -> dict[str, Any]:
    """The task as plain values that json can write."""
    proposal = task.proposal
    evaluation = proposal.evaluation
    shown = window(
        "debug" if task.form == "debug" else "plan", proposal.steps, task.ask.node, proposal.seed
    )
    return {
        "id": task.ask.id,
        "memory": str(task.memory),
        "kind": "repair" if task.form == "debug" else "improve",
        "problem": _problem(proposal.problem),
        "machine": encode(proposal.machine),
        "sol_us": proposal.sol_us,
        "parent": {
            "node": task.ask.node,
            "source": folded(proposal.parent.source),
            "outcome": str(evaluation.outcome),
            "message": evaluation.message,
            "timing": encode(evaluation.timing),
            "evidence": parts.failure_evidence(proposal) if task.form == "debug" else "",
        },
        "direction": task.direction,
        "diagnoses": [encode(found) for found in proposal.diagnoses[: parts.FINDINGS]],
        "anchors": {
            "begin": BEGIN,
            "end": END,
            "finding": task.finding,
            "source": task.anchored.text if task.anchored is not None else "",
        },
        "window": [_neighbour(step) for step in shown],
        "attempts": [encode(attempt) for attempt in proposal.attempts],
        "lessons": [encode(lesson) for lesson in proposal.lessons],
        "rules": "\n\n".join(task.prompt.shared),
        "answer_with": command(task),
        "ask_profile_with": asking(task),
    }


def _held_back(task: Task) -> list[str]:
    if task.proposal.held_back is None:
        return []
    return [
        "What the profiler saw of the parent is told when you ask for it, and the step will say "
        f"that you did: by the tool `diagnose` with step {task.ask.node}, or by",
        "",
        f"    {asking(task)}",
        "",
    ]


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        field.name: encode(getattr(problem, field.name))
        for field in dataclasses.fields(problem)
        if field.name not in ("origin", "flops_note")
    }


def _neighbour(step: Step) -> dict[str, Any]:
    timing = step.evaluation.timing
    return {
        "node": step.index,
        "parent": step.parent,
        "outcome": str(step.evaluation.outcome),
        "speedup": timing.speedup if timing is not None else None,
        "rationale": step.candidate.rationale,
        "source": folded(step.candidate.source),
    }


def _excerpt(ground: Grounded) -> list[str]:
    """The anchored lines with a few around them, as a fenced block."""
    lines = ground.text.splitlines()
    first = next(n for n, line in enumerate(lines) if BEGIN in line)
    last = next(n for n, line in enumerate(lines) if END in line)
    return ["```", *lines[max(0, first - 2) : last + 3], "```"]
