"""Show a running search: a live view on a terminal, plain lines elsewhere, or JSON lines."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from textwrap import shorten
from typing import Any, Protocol

from kernelpro.api import Observer, Result
from kernelpro.cli import text
from kernelpro.profiling.speed_of_light import SpeedOfLight
from kernelpro.records import Machine, Outcome, Problem, Step
from kernelpro.report import duration
from kernelpro.search.budget import Budget
from kernelpro.search.tree import Tree
from kernelpro.search.utilisation import PARTS, Utilisation
from kernelpro.serial import encode

STAGES = {
    "load": "reading the problem and this machine's peaks (measured once, then cached)",
    "baseline": "running and profiling the reference",
    "search": "trying candidates; Ctrl-C ends the search with the best so far",
    "confirm": "judging the best again from scratch, with fresh seeds",
}


class View(Observer, Protocol):
    """An observer that also shows the result."""

    def finished(self, result: Result) -> None:
        """Show how the search ended."""


@contextlib.contextmanager
def view(*, json: bool, quiet: bool) -> Iterator[View]:
    """Choose how to show a search, and end the live view whatever happens."""
    if json:
        yield JsonLines()
    elif quiet:
        yield Quiet()
    elif sys.stdout.isatty():
        with Live() as live:
            yield live
    else:
        yield Lines()


class Quiet:
    """Shows the result only."""

    def begun(
        self, problem: Problem, machine: Machine, light: SpeedOfLight, budget: Budget
    ) -> None:
        """Show nothing."""

    def stage(self, name: str) -> None:
        """Show nothing."""

    def stepped(self, step: Step, tree: Tree, usage: Utilisation) -> None:
        """Show nothing."""

    def finished(self, result: Result) -> None:
        """Print how the search ended."""
        print(text.ending(result), flush=True)


class Lines(Quiet):
    """A line for each stage and step."""

    def __init__(self) -> None:
        self._usage: Utilisation | None = None

    def begun(
        self, problem: Problem, machine: Machine, light: SpeedOfLight, budget: Budget
    ) -> None:
        """Print the heading."""
        print(text.heading(problem, machine, light.sol_us, light.bound), flush=True)

    def stage(self, name: str) -> None:
        """Print what happens now."""
        print(f"... {STAGES[name]}", flush=True)

    def stepped(self, step: Step, tree: Tree, usage: Utilisation) -> None:
        """Print the step, its parent, its first finding and the best so far."""
        self._usage = usage
        parent = "" if step.parent is None else f" <- {step.parent}"
        finding = f"  [{step.diagnoses[0].detector}]" if step.diagnoses else ""
        best = tree.best()
        line = f"{step.clock_s:6.1f}s  {step.index:>3}{parent:7} {text.step_line(step)}{finding}"
        if best is not None and best.step.index == step.index:
            line += "  best so far"
        print(line, flush=True)
        if step.evaluation.outcome not in (Outcome.ACCEPTED, Outcome.DUPLICATE):
            message = step.evaluation.message.strip().splitlines()
            if message:
                print(f"{'':16}{shorten(message[-1], 160, placeholder=' ...')}", flush=True)

    def finished(self, result: Result) -> None:
        """Print how the search ended, and of several devices how busy each was."""
        shares = self._usage.shares() if self._usage is not None else {}
        if len(shares) > len(PARTS):
            print(f"... {_busy(shares)}", flush=True)
        super().finished(result)


class JsonLines(Quiet):
    """An event a line, for programs."""

    def begun(
        self, problem: Problem, machine: Machine, light: SpeedOfLight, budget: Budget
    ) -> None:
        """Print what is searched, on what."""
        self._print(
            "begun",
            problem=problem.name,
            target=problem.target,
            machine=encode(machine),
            sol_us=light.sol_us,
            bound=light.bound,
        )

    def stage(self, name: str) -> None:
        """Print what happens now."""
        self._print("stage", name=name)

    def stepped(self, step: Step, tree: Tree, usage: Utilisation) -> None:
        """Print the step without its source."""
        value = encode(step)
        del value["candidate"]["source"]
        self._print("step", id=step.candidate.id, step=value, usage=usage.shares())

    def finished(self, result: Result) -> None:
        """Print the result."""
        self._print("finished", result=text.result_json(result))

    def _print(self, event: str, **values: Any) -> None:
        print(json.dumps({"event": event, **values}), flush=True)


class Live(Quiet):
    """A view that redraws itself on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive
        from rich.spinner import Spinner

        self._stage, self._began = "load", time.monotonic()
        self._began_search = self._began
        self._sol_us = 0.0
        self._tree: Tree | None = None
        self._usage: Utilisation | None = None
        self._budget = Budget()
        self._recent: list[str] = []
        self._spinner = Spinner("dots")
        self._console = Console()
        self._live = RichLive(console=self._console, get_renderable=self._draw, transient=True)

    def __enter__(self) -> "Live":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begun(
        self, problem: Problem, machine: Machine, light: SpeedOfLight, budget: Budget
    ) -> None:
        """Put the heading above the live part."""
        self._sol_us, self._budget = light.sol_us, budget
        self._console.print(
            text.heading(problem, machine, light.sol_us, light.bound), markup=False, highlight=False
        )

    def stage(self, name: str) -> None:
        """Show what happens now."""
        self._stage = name
        if name == "baseline":
            self._began_search = time.monotonic()
        self._live.refresh()

    def stepped(self, step: Step, tree: Tree, usage: Utilisation) -> None:
        """Add the step."""
        self._tree, self._usage = tree, usage
        parent = "" if step.parent is None else f" <- {step.parent}"
        finding = f"  [{step.diagnoses[0].detector}]" if step.diagnoses else ""
        line = f"{step.clock_s:6.1f}s  {step.index:>3}{parent:7} {text.step_line(step)}{finding}"
        self._recent = [*self._recent, line][-12:]
        self._live.refresh()

    def finished(self, result: Result) -> None:
        """End the live part and print the result."""
        self._live.stop()
        self._console.print(text.ending(result), markup=False, highlight=False)

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        seconds = time.monotonic() - self._began
        lines: list[Any] = [Text(line) for line in self._recent]
        if self._tree is not None and (summary := self._best_line(self._tree)):
            lines.append(Text(summary, style="bold"))
        if self._usage is not None and self._stage == "search":
            lines.append(Text(self._pace_line(self._usage), style="dim"))
        self._spinner.update(text=Text(f"{STAGES[self._stage]} ({seconds:.0f} s)"))
        lines.append(self._spinner)
        return Group(*lines)

    def _pace_line(self, usage: Utilisation) -> str:
        """How busy each part is, and what is left of the budget."""
        words = _busy(usage.shares())
        done = len(self._tree) - 1 if self._tree is not None else 0
        spent_s = time.monotonic() - self._began_search
        if (seconds := self._budget.seconds_left(spent_s)) is not None:
            words += f"; {seconds:.0f} s left"
        if (candidates := self._budget.iterations_left(done)) is not None:
            words += f"; {candidates} candidates left"
        return words

    def _best_line(self, tree: Tree) -> str:
        counts = ", ".join(f"{n} {str(o).replace('_', ' ')}" for o, n in tree.outcomes().items())
        line = f"tree: {len(tree)} steps ({counts})"
        best = tree.best()
        timing = best.step.evaluation.timing if best is not None else None
        if best is not None and timing is not None:
            line = (
                f"best {timing.speedup:.2f}x at step {best.step.index}: "
                f"{duration(timing.median_us)} against {duration(timing.baseline_us)}, floor "
                f"{duration(self._sol_us)}; {line}"
            )
        return line


def _busy(shares: Mapping[str, float]) -> str:
    """How busy each part was."""
    return "busy: " + ", ".join(f"{part} {share:.0%}" for part, share in shares.items())
