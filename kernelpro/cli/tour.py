"""`kernelpro tour`: a recorded H100 search, stop by stop, for who sees kernelpro first."""

import argparse
import gzip
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelpro.records import Diagnosis, Step
    from kernelpro.runs import Recorded

Subparsers = argparse._SubParsersAction

RECORDING = Path(__file__).with_name("tour_cross_entropy.jsonl.gz")
"""results/h100/cross_entropy.jsonl, packed; the README beside that one tells how it was made."""

MEMORY, REPORT = "cross_entropy-cuda.jsonl", "report.html"
SOURCE_LINES = 24
WIDTH = 96


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop of the tour.

    Attributes:
        title: what is to be seen.
        lines: the text.
        command: what shows the same of a search of one's own.
    """

    title: str
    lines: list[str]
    command: str


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "tour",
        help="walk through a recorded search in two minutes; needs no GPU",
        description="Walk through a search that was recorded on an H100: the problem, how fast it "
        "could be, what was tried, a diagnosis and its advice, the winner with its verdict, and "
        "the report. Nothing is searched or measured; it takes two minutes and needs no GPU.",
    )
    command.add_argument(
        "--out",
        type=Path,
        default=Path("runs", "tour"),
        metavar="DIR",
        help="folder for the recording and its report (default: runs/tour)",
    )
    command.add_argument(
        "--no-pause",
        action="store_true",
        help="do not wait for Enter between stops; never done where output is no terminal",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show one stop after the other."""
    from kernelpro import runs

    recording = args.out / MEMORY
    _unpack(recording)
    (recorded,) = runs.read(recording)
    wait = not args.no_pause and sys.stdin.isatty() and sys.stdout.isatty()
    stops: list[Callable[[Recorded, Path], Stop]] = [
        _problem,
        _light,
        _tree,
        _diagnosis,
        _winner,
        _report,
    ]
    for number, make in enumerate(stops, start=1):
        stop = make(recorded, args.out)
        print(f"\n{number}/{len(stops)}  {stop.title}\n{'-' * WIDTH}")
        print("\n".join(_wrapped(stop.lines)))
        print(f"\n  of your own: {stop.command}", flush=True)
        if wait and number < len(stops):
            input("\n[Enter] ")
    return 0


def _unpack(recording: Path) -> None:
    from kernelpro.errors import KernelproError

    content = gzip.decompress(RECORDING.read_bytes())
    try:
        recording.parent.mkdir(parents=True, exist_ok=True)
        if recording.exists() and recording.read_bytes() != content:
            raise KernelproError(
                f"{recording} holds something else than the recording, such as a search that went "
                "on with it; give another folder with --out"
            )
        recording.write_bytes(content)
    except OSError as error:
        raise KernelproError(
            f"{recording} cannot be written ({error.strerror}); give another folder with --out"
        ) from error


def _problem(recorded: "Recorded", out: Path) -> Stop:
    problem, machine = recorded.header.problem, recorded.header.machine
    lines = [
        "A problem is a file with a PyTorch module and its inputs, in KernelBench's format:",
        "",
        *(f"    {line}" for line in problem.source.splitlines()),
        "",
        f"It was searched on an {machine.device}, with these sizes: "
        + ", ".join(f"{name} = {value}" for name, value in problem.sizes.items())
        + ". You see what was measured there; nothing runs here but this text.",
    ]
    return Stop("The problem", lines, "python -m kernelpro search model.py --time 5m")


def _light(recorded: "Recorded", out: Path) -> Stop:
    from kernelpro.profiling.speed_of_light import speed_of_light
    from kernelpro.report import duration, volume

    problem, machine = recorded.header.problem, recorded.header.machine
    light = speed_of_light(problem, machine)
    lines = [
        "Before anything is tried it is known how fast a call could be at best on that card, from "
        "the problem's least work and the card's measured peaks:",
        "",
        f"    {volume(problem.min_bytes)} to read and write at least, at "
        f"{machine.bandwidth_bytes_per_s / 1e12:.2f} TB/s: {duration(light.bytes_us)}",
        f"    {problem.flops / 1e9:.3g} GFLOP on the {light.path} path: {duration(light.flops_us)}",
        "",
        f"The larger is the speed of light, {duration(light.sol_us)}, set by {light.bound}. A "
        "candidate that claims to be faster is not believed.",
    ]
    if (timing := recorded.steps[0].evaluation.timing) is not None:
        lines.append(
            f"Eager torch takes {duration(timing.median_us)}: "
            f"{timing.median_us / light.sol_us:.1f} times as long."
        )
    return Stop("How fast could it be?", lines, "python -m kernelpro sol model.py")


def _tree(recorded: "Recorded", out: Path) -> Stop:
    from kernelpro.cli.text import step_line

    best = recorded.best
    path: set[int] = set()
    at = best.index if best is not None else None
    while at is not None:
        path.add(at)
        at = recorded.steps[at].parent
    lines = [
        f"{len(recorded.steps) - 1} candidates were made, each from an earlier one. The search "
        "grows a tree: it goes on where a branch has paid, and tries others too. (> is the "
        "winner's path.)",
        "",
    ]
    lines += [
        f"{'>' if step.index in path else ' '} {'  ' * depth}{step.index:<3} {step_line(step)}"
        for step, depth in _walk(recorded)
    ]
    return Stop("What was tried", lines, f"python -m kernelpro replay {out / MEMORY} --tree")


def _walk(recorded: "Recorded") -> "Iterator[tuple[Step, int]]":
    """Steps as a tree is read: each before its children, with its depth."""
    children: dict[int | None, list[Step]] = {}
    for step in recorded.steps:
        children.setdefault(step.parent, []).append(step)
    stack = [(step, 0) for step in reversed(children.get(None, []))]
    while stack:
        step, depth = stack.pop()
        yield step, depth
        stack += [(child, depth + 1) for child in reversed(children.get(step.index, []))]


def _diagnosis(recorded: "Recorded", out: Path) -> Stop:
    asked, found = _followed(recorded)
    parent = recorded.steps[asked.parent or 0]
    lines = [
        "Every accepted candidate is profiled, and detectors say in words what holds it back. Of "
        f"step {parent.index} one of them said:",
        "",
        f"    what: {found.bottleneck}",
        f"    why:  {found.why}",
        f"    gain: up to {found.gain:.0%} of the time, as it estimates",
        *(f"    try:  {action.instruction}" for action in found.actions),
        "",
        f"The proposer followed it. Step {asked.index} is: {asked.candidate.rationale}.",
    ]
    before, after = parent.evaluation.timing, asked.evaluation.timing
    if before is not None and after is not None:
        lines.append(
            f"Against eager it went from {before.speedup:.2f}x to {after.speedup:.2f}x, measured."
        )
    return Stop(
        "A diagnosis and its advice",
        lines,
        f"python -m kernelpro replay {out / MEMORY} --step {parent.index}",
    )


def _followed(recorded: "Recorded") -> "tuple[Step, Diagnosis]":
    """A step that acts on a finding of its parent, the winner if it does, and the finding."""
    for step in (*([recorded.best] if recorded.best else []), *recorded.steps[1:]):
        for found in recorded.steps[step.parent or 0].diagnoses:
            if step.candidate.rationale.startswith(f"{found.detector} asks"):
                return step, found
    raise AssertionError("the packaged recording has a step that acts on a finding")


def _winner(recorded: "Recorded", out: Path) -> Stop:
    from kernelpro.report import summarize

    best = recorded.best
    assert best is not None, "the packaged recording has a winner"
    summary = summarize(recorded.header.problem, recorded.steps, best, recorded.confirmations)
    source = best.candidate.source.splitlines()
    begin = next((n for n, line in enumerate(source) if "__global__" in line), 0)
    lines = [
        summary.headline,
        *(f"  why: {reason}" for reason in summary.why),
        "",
        f"Its source has {len(source)} lines; the kernel begins so:",
        "",
        *(f"    {line}" for line in source[begin : begin + SOURCE_LINES]),
        "    ...",
    ]
    again = next((c.evaluation for c in recorded.confirmations if c.step == best.index), None)
    verdict = (again or best.evaluation).verdict
    if verdict is not None:
        lines += [
            "",
            f"The judge's verdict, from scratch in fresh processes: {verdict.decision}; "
            f"{verdict.calls_compared} calls compared with a float64 reference. Errors relative to "
            "the output's root mean square, and their limits:",
            "",
            *(
                f"    {check.inputs:22} {check.rms_error:.1e} (at most {check.rms_limit:.0e})"
                for check in sorted(verdict.checks, key=lambda check: check.inputs)
            ),
        ]
    return Stop(
        "The winner, and why to believe it",
        lines,
        f"python -m kernelpro export {out / MEMORY} -o kernel.py",
    )


def _report(recorded: "Recorded", out: Path) -> Stop:
    from kernelpro import export
    from kernelpro.report_page.page import page

    text = page([recorded])
    export.write(out / REPORT, text)
    lines = [
        f"All of it is in one page that opens from disk: {out / REPORT} "
        f"({len(text.encode()) / 1000:.0f} kB). The recording beside it is a search's memory file; "
        "every command that takes one takes it.",
        "",
        "Next: `python -m kernelpro doctor` says what this machine can do, and "
        "`python -m kernelpro search row_softmax --time 1m` searches a problem that comes with "
        "kernelpro, on a GPU if there is one, else on the CPU.",
    ]
    return Stop("The report", lines, f"python -m kernelpro report {out / MEMORY}")


def _wrapped(lines: list[str]) -> Iterator[str]:
    """Fold lines of prose; what is indented or drawn stays as it is."""
    for line in lines:
        prose = line[:1] not in ("", " ", ">")
        yield from textwrap.wrap(line, WIDTH) if prose else [line]
