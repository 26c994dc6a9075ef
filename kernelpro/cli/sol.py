"""`kernelpro sol`: how fast could a problem be at best on this machine, and what sets the bound."""

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from kernelpro.cli.arguments import add_precision, add_problem_options

if TYPE_CHECKING:
    from kernelpro.profiling.speed_of_light import SpeedOfLight
    from kernelpro.records import Machine, Problem

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "sol",
        help="how fast a problem could be at best on this machine",
        description="Bound a call's time from below by a problem's FLOPs, least bytes and launches "
        "and by this machine's measured peaks (and a GPU's datasheet). Exit status 0: each problem "
        "has a bound; 2: some cannot be read.",
    )
    command.add_argument(
        "problem", help="a bundled problem's name, a .py file, or a folder of such files"
    )
    add_problem_options(command)
    add_precision(command)
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Bound and print."""
    from kernelpro import start
    from kernelpro.cli.folders import each
    from kernelpro.errors import KernelproError
    from kernelpro.profiling.speed_of_light import on_datasheet, speed_of_light

    target = start.usable(args.target)
    machine = target.machine()
    rows: list[dict[str, object]] = []
    status = 0
    for place, problem in each(
        args.problem,
        lambda place: start.load(place, target, dict(args.size) or None, args.precision),
    ):
        if isinstance(problem, KernelproError):
            status = 2
            rows.append({"problem": place, "error": str(problem)})
            if not args.json:
                print(f"{place}: {problem}")
            continue
        light = speed_of_light(problem, machine)
        sheet, sheet_us = on_datasheet(problem, machine)
        rows.append(
            {"problem": problem.name, **asdict(light), "datasheet": sheet, "sheet_us": sheet_us}
        )
        if not args.json:
            print(in_words(problem, machine, light, sheet, sheet_us))
    if args.json:
        print(json.dumps(rows, indent=1))
    return status


def in_words(
    problem: "Problem", machine: "Machine", light: "SpeedOfLight", sheet: str, sheet_us: float
) -> str:
    """Write a bound with its terms and assumptions as lines of text."""
    from kernelpro.report import duration

    lines = [f"{problem.name} on {machine.device}: no call is faster than {duration(light.sol_us)}"]
    for name, term_us, what in (
        ("bytes", light.bytes_us, f"{problem.min_bytes:,} bytes to read and write at least"),
        ("flops", light.flops_us, f"{problem.flops:,} FLOPs on the {light.path} path"),
        ("launches", light.launch_us, "one kernel to start"),
    ):
        mark = "<- sets the bound" if name == light.bound else ""
        lines.append(f"    {name:9} {duration(term_us):>10}  {what} {mark}".rstrip())
    lines.append(f"    {light.intensity:.3g} FLOP a byte; the ridge is at {light.ridge:.3g}")
    if sheet:
        lines.append(f"    by the {sheet}'s datasheet: {duration(sheet_us)}")
    if light.note:
        lines.append(f"    {light.note}")
    if problem.flops_note:
        lines.append(f"    counted: {problem.flops_note}")
    return "\n".join(lines)
