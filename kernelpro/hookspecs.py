"""The hooks that a kernelpro plugin may implement.

Implement only those you need, and name only the arguments you need; pluggy passes just those.
Every hook is described, with an example, in docs/plugin_hooks.md.
"""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pluggy import HookimplMarker, HookspecMarker

from kernelpro.records import (
    Candidate,
    Detector,
    Evaluation,
    Metric,
    Problem,
    Profile,
    Proposal,
    Step,
)

PROJECT = "kernelpro"

hookspec = HookspecMarker(PROJECT)
hookimpl = HookimplMarker(PROJECT)


class Session(Protocol):
    """The accepted candidate's own process, still alive, in which a collector may run code."""

    target: str

    def collect(self, function: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run `module:name` in the candidate's process and return the JSON object it returns.

        The function is called with `call`, which runs the candidate once on staged inputs and
        waits for it to end, and then with `arguments` as keywords.
        """
        ...


@hookspec
def detectors() -> Iterable[Detector]:
    """Give the bottleneck detectors of this plugin."""


@hookspec
def collect_metrics(
    problem: Problem,
    candidate: Candidate,
    evaluation: Evaluation,
    names: frozenset[str],
    session: Session,
) -> Mapping[str, Metric] | Profile:
    """Run a profiling tool on an accepted candidate and return those of names that it knows."""


@hookspec(firstresult=True)
def propose(proposal: Proposal) -> Candidate | None:
    """Write the next candidate, or None; the first plugin to return one wins."""


@hookspec(firstresult=True)
def reject(problem: Problem, candidate: Candidate) -> str | None:
    """Return a reason to throw a candidate out before it is built, or None."""


@hookspec(firstresult=True)
def reward(problem: Problem, evaluation: Evaluation, sol_us: float) -> float | None:
    """Score an evaluation; higher is better, 0 is no better than the baseline."""


@hookspec
def policies() -> Iterable[type]:
    """Give search policies: frozen dataclasses with a `name` and a method `select(tree)`."""


@hookspec
def step_finished(step: Step) -> None:
    """Watch the search: called once for each step, after it is on disk."""


@hookspec
def register_commands(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add subcommands to the kernelpro command line."""
