"""What agents are shown of a search: its tree, its best, one step's findings and metrics."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelpro import runs
from kernelpro.agents.driven import step_of
from kernelpro.models import parts
from kernelpro.models.sources import folded
from kernelpro.records import Confirmation, Diagnosis, Profile, Step
from kernelpro.report import summarize
from kernelpro.search.tree import Tree
from kernelpro.serial import encode


def tree(path: Path, most: int) -> dict[str, Any]:
    """Every step in a line, the newest `most` of them where there are more."""
    found = runs.read(path)[0]
    grown = Tree(found.steps)
    nodes = [
        {
            "step": node.index,
            "parent": node.step.parent,
            "outcome": str(node.step.evaluation.outcome),
            "speedup": node.speedup,
            "rationale": node.step.candidate.rationale,
            "author": node.step.candidate.author,
            "visits": node.visits,
            "closed": node.closed,
        }
        for node in grown
    ]
    return {
        "problem": found.header.problem.name,
        "steps": len(nodes),
        "best": None if found.best is None else found.best.index,
        "headline": summarize(
            found.header.problem, found.steps, found.best, found.confirmations
        ).headline,
        "left_out": max(0, len(nodes) - most),
        "nodes": nodes[-most:],
    }


def best(path: Path) -> dict[str, Any]:
    """The winner as it stands: step, source, time, and whether it was judged again."""
    found = runs.read(path)[0]
    return of_winner(found, found.best, found.confirmations)


def of_winner(
    found: runs.Recorded, winner: Step | None, confirmations: Sequence[Confirmation]
) -> dict[str, Any]:
    """A winner, or that there is none."""
    summary = summarize(found.header.problem, found.steps, winner, confirmations)
    if winner is None:
        return {"step": None, "headline": summary.headline, "confirmed": False, "source": ""}
    return {
        "step": winner.index,
        "headline": summary.headline,
        "confirmed": any(c.step == winner.index for c in confirmations),
        "why": list(summary.why),
        "holds_back": list(summary.holds),
        "timing": encode(winner.evaluation.timing),
        "source": folded(winner.candidate.source),
    }


def diagnose(path: Path, step: int | None) -> dict[str, Any]:
    """What the detectors said of a step, the best one by default."""
    found = runs.read(path)[0]
    one = _chosen(path, found, step)
    return {"step": one.index, **diagnoses(one.diagnoses)}


def diagnoses(found: Sequence[Diagnosis]) -> dict[str, Any]:
    """Findings as plain values and in words."""
    return {
        "diagnoses": [encode(each) for each in found],
        "text": "\n".join(parts.finding(each) for each in found) or "nothing was found",
    }


def profile(path: Path, step: int | None) -> dict[str, Any]:
    """The metrics that a step keeps, and its place on the roofline."""
    found = runs.read(path)[0]
    one = _chosen(path, found, step)
    return {"step": one.index, "classification": encode(one.classification), **metrics(one.profile)}


def metrics(found: Profile) -> dict[str, Any]:
    """Metrics by name; what was not measured says why."""
    return {"metrics": {name: encode(metric) for name, metric in found.metrics.items()}}


def _chosen(path: Path, found: runs.Recorded, step: int | None) -> Step:
    if step is None:
        return found.best if found.best is not None else step_of(path, found.steps, 0)
    return step_of(path, found.steps, step)
