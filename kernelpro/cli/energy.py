"""`kernelpro energy`: the energy of two candidates at matched speed."""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpro.cli.arguments import (
    add_judge_options,
    add_precision,
    add_problem_options,
    add_without,
    duration,
    judge_settings,
    positive,
    share,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.table import Table

    from kernelpro.energy.comparison import Comparison, Ratio, SideResult
    from kernelpro.energy.trace import Trace

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "energy",
        help="compare the energy of candidates at matched speed",
        description="Measure the energy of two candidates with the device's own counter (NVML on "
        "an NVIDIA GPU, RAPL on a CPU) in alternating windows, test whether their speeds match, "
        "and say which takes less. Exit status 0: there is a verdict; 1: too few windows could be "
        "trusted; 2: there is no meter, or the input cannot be used.",
    )
    command.add_argument(
        "subjects",
        nargs="*",
        metavar="A B",
        help="two of: a candidate file, FILE.jsonl#STEP of a search's memory, eager, compile; or "
        "one memory file, whose pairs of matched speed are compared",
    )
    command.add_argument("--problem", help="a bundled problem's name or a .py file")
    add_problem_options(command)
    add_without(command)
    add_precision(command)
    add_judge_options(command)
    command.add_argument(
        "--within",
        type=share,
        metavar="SHARE",
        help="speeds match when B's time is within this share of A's at 95 %% confidence "
        "(default: 2%%)",
    )
    command.add_argument(
        "--window", type=duration, metavar="T", help="length of a window (default: 10s)"
    )
    command.add_argument(
        "--windows", type=positive, metavar="N", help="windows of each side (default: 8)"
    )
    command.add_argument(
        "--pairs",
        type=positive,
        default=3,
        metavar="N",
        help="pairs of a memory file that are compared at most (default: 3)",
    )
    command.add_argument(
        "--shared", action="store_true", help="measure although others use the device; it is told"
    )
    command.add_argument(
        "--graph",
        action="store_true",
        help="capture a call in a CUDA graph and replay it, so that the host's launches, which "
        "decide the pace of kernels of a few microseconds, do not count",
    )
    command.add_argument(
        "--trace",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="compute recorded traces' verdicts again; of several at different clocks also how "
        "time and joules follow the clock",
    )
    command.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="where to keep the trace (default: a new file under runs/)",
    )
    command.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="plot power over time: .svg or .html"
    )
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, or read a trace; print table and verdict."""
    from kernelpro.energy import clocks, plot, trace
    from kernelpro.energy.comparison import Comparison, Verdict, compare

    kept: list[Path] = []
    if args.output is not None:
        plot.check_name(args.output)
    if args.record is not None and args.trace is None:
        trace.claim(args.record)

    def keep(made: "Trace") -> None:
        path = _numbered(args.record or _new_path(made), len(kept))
        trace.write(path, made)
        kept.append(path)
        _note(args, f"trace: {path}")

    found: list[Comparison] = []
    recorded = map(trace.read, _alone(args)) if args.trace is not None else None
    for each in recorded or _measured(args, keep):
        if args.within is not None:
            each.header = replace(each.header, within=args.within)
        comparison = compare(each)
        if args.output is not None:
            plot.write(_numbered(args.output, len(found)), each, comparison)
        found.append(comparison)
        if not args.json:
            show(comparison)
    if not args.json:
        for sweep in clocks.sweeps(found):
            print("\n".join(clocks.in_words(sweep)))
    else:
        print(json.dumps([_plain(c, kept[n : n + 1]) for n, c in enumerate(found)], indent=1))
    good = bool(found) and all(c.verdict is not Verdict.UNDECIDED for c in found)
    return 0 if good else 1


def show(comparison: "Comparison") -> None:
    """Print one comparison: table, ratios, verdict, notes."""
    from rich.console import Console

    header = comparison.header
    console = Console(highlight=False)
    console.print(
        f"{header.problem} on {header.device}, {header.meter}: a new value every "
        f"{header.resolution_s:.3g} s; windows of {header.window_s:.3g} s",
        soft_wrap=True,
        markup=False,
    )
    console.print(table(comparison))
    for line in lines(comparison):
        console.print(line, soft_wrap=True, markup=False)


def table(comparison: "Comparison") -> "Table":
    """A row for each side."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for name in ("", "candidate", "time", "J/call", "less idle", "W", "windows", "MHz", "C"):
        made.add_column(name, justify="left" if name in ("", "candidate") else "right")
    for name, side in zip("AB", comparison.sides, strict=True):
        made.add_row(name, *map(escape, _cells(side)))
    return made


def lines(comparison: "Comparison") -> list[str]:
    """Ratios, verdict and notes as lines of text."""
    found = []
    for name, ratio, level in (
        ("time", comparison.time, 90),
        ("joules", comparison.energy, 95),
        ("joules less idle", comparison.net_energy, 95),
        ("joules x seconds", comparison.delay_product, 95),
    ):
        if ratio is not None:
            found.append(f"B / A, {name:17} {_words(ratio)}, {level} % interval")
    idle = [w for w in (comparison.idle_before_w, comparison.idle_after_w) if w is not None]
    if idle:
        found.append("idle power: " + " and ".join(f"{w:.1f} W" for w in idle))
    found.append(comparison.sentence)
    found += [f"{name}: {words}" for name, words in comparison.header.protocol.items()]
    return [*found, *(f"note: {note}" for note in comparison.notes)]


def _measured(args: argparse.Namespace, keep: "Callable[[Trace], None]") -> "Iterable[Trace]":
    from kernelpro import energy_runs
    from kernelpro.errors import KernelproError

    settings = energy_runs.energy_settings(
        within=args.within,
        window_s=args.window,
        windows=args.windows,
        shared=args.shared or None,
        graph=args.graph or None,
    )
    common: dict[str, Any] = {
        "settings": settings,
        "judge": judge_settings(args),
        "block": args.without,
        "tell": lambda line: _note(args, f"... {line}"),
        "keep": keep,
    }
    if len(args.subjects) == 1:
        if args.problem is not None:
            raise KernelproError("a memory file holds its own problem; leave --problem out")
        return energy_runs.weigh_memory(args.subjects[0], pairs=args.pairs, **common)
    if len(args.subjects) != 2:
        raise KernelproError(
            f"expected two candidates, or one memory file, or --trace FILE, but found "
            f"{len(args.subjects)} names; `kernelpro energy --help` shows how"
        )
    a, b = args.subjects
    return [
        energy_runs.weigh(
            a,
            b,
            args.problem,
            target=args.target,
            sizes=dict(args.size) or None,
            precision=args.precision,
            **common,
        )
    ]


def _alone(args: argparse.Namespace) -> list[Path]:
    from kernelpro.errors import KernelproError

    if args.subjects or args.problem:
        raise KernelproError(
            "--trace computes a recorded verdict again; leave out candidates and --problem"
        )
    paths: list[Path] = args.trace
    return paths


def _cells(side: "SideResult") -> list[str]:
    from kernelpro.report import duration as in_words

    def known(value: float | None) -> str:
        return "-" if value is None else f"{value:.0f}"

    dropped = f" ({len(side.dropped)} dropped)" if side.dropped else ""
    if not side.windows:
        return [side.label, "-", "-", "-", "-", f"0{dropped}", "-", "-"]
    return [
        side.label,
        in_words(side.call_us),
        f"{side.joules:.4g}",
        "-" if side.net_joules is None else f"{side.net_joules:.4g}",
        f"{side.watts:.1f}",
        f"{side.windows}{dropped}",
        known(side.clock_mhz),
        known(side.temperature_c),
    ]


def _words(ratio: "Ratio") -> str:
    return f"{ratio.value:.4f} ({ratio.low:.4f}-{ratio.high:.4f})"


def _plain(comparison: "Comparison", kept: list[Path]) -> dict[str, Any]:
    from kernelpro.serial import encode

    found: dict[str, Any] = encode(comparison)
    return {**found, "trace": str(kept[0]) if kept else None}


def _new_path(trace: "Trace") -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"energy-{trace.header.problem}-{trace.header.target}-{stamp}.jsonl"


def _numbered(path: Path, number: int) -> Path:
    """The path itself for the first comparison, and with a number for the others."""
    return path if number == 0 else path.with_name(f"{path.stem}-{number + 1}{path.suffix}")


def _note(args: argparse.Namespace, line: str) -> None:
    """Tell about progress, where JSON is printed beside it."""
    print(line, flush=True, file=sys.stderr if args.json else sys.stdout)
