"""`kernelpro bench`: does the search work? Recorded spaces, and ablations on real problems."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpro.cli.arguments import add_problem_options, positive

if TYPE_CHECKING:
    from kernelpro.spaces.table import Space

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "bench",
        help="compare search policies on recorded spaces, and ablate the search on real problems",
        description="Measure what the search is worth. `record` measures every schedule of a "
        "problem once; `spaces` compares all policies, and Kernel Tuner's strategies where it is "
        "installed, on such records; `ablations` searches real problems with one part changed at "
        "a time.",
    )
    kinds = command.add_subparsers(metavar="KIND", required=True)
    _register_record(kinds)
    _register_spaces(kinds)
    _register_ablations(kinds)


def _register_record(kinds: "Subparsers[argparse.ArgumentParser]") -> None:
    command = kinds.add_parser(
        "record",
        help="measure every schedule of a problem once",
        description="Build, check and time every combination of a problem's knob values that can "
        "run. What is measured is on disk at once: a killed recording goes on with the same "
        "command.",
    )
    command.add_argument("problem", help="a bundled problem's name or a .py file")
    add_problem_options(command)
    command.add_argument(
        "-o", "--output", type=Path, required=True, help="the table; its name ends in .gz"
    )
    command.add_argument(
        "--knob",
        type=_knob,
        action="append",
        default=[],
        metavar="NAME=V,V",
        help="values to combine instead of all that a knob can have; may be repeated",
    )
    command.add_argument(
        "--points", type=positive, default=5000, help="sample so many of more (default: 5000)"
    )
    command.add_argument(
        "--rounds",
        type=positive,
        default=9,
        help="measurements of each point, all others in between (default: 9)",
    )
    command.add_argument("--seed", type=int, default=0, help="of sample and order (default: 0)")
    command.set_defaults(run=record)


def _register_spaces(kinds: "Subparsers[argparse.ArgumentParser]") -> None:
    command = kinds.add_parser(
        "spaces",
        help="compare policies and Kernel Tuner's strategies on recorded spaces",
        description="Run every policy and every strategy of Kernel Tuner (in its simulation mode) "
        "on tables of `bench record`, with equal budgets of different points.",
    )
    command.add_argument(
        "files",
        nargs="*",
        type=Path,
        help="tables, or folders of them (default: results/spaces)",
    )
    command.add_argument("--seeds", type=positive, default=50, help="runs of each (default: 50)")
    command.add_argument(
        "--evaluations", type=positive, default=200, help="points of each run (default: 200)"
    )
    command.add_argument(
        "--policies", type=_words, help="of ours, separated by commas (default: all)"
    )
    command.add_argument(
        "--strategies",
        type=_words,
        help="of Kernel Tuner, separated by commas, or none (default: all)",
    )
    command.add_argument(
        "--rivals",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="take Kernel Tuner's runs from an earlier --json of the same tables, seeds and "
        "evaluations instead of making them again; may be repeated",
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the table there too")
    command.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    command.add_argument("--plot", type=Path, metavar="FILE", help="draw it as an SVG file")
    command.set_defaults(run=spaces)


def _register_ablations(kinds: "Subparsers[argparse.ArgumentParser]") -> None:
    command = kinds.add_parser(
        "ablations",
        help="search real problems with one part of the search changed at a time",
        description="Search each problem with findings, metrics or nothing shown, with each "
        "policy, with the stop at the speed of light on and off, and with and without lessons of "
        "the other problems; equal candidates and seeds, paired tests. A run that was cut short "
        "goes on with the same command.",
    )
    command.add_argument(
        "problems",
        nargs="*",
        default=["row_softmax", "rms_norm"],
        help="bundled names or .py files (default: row_softmax rms_norm)",
    )
    command.add_argument(
        "--target", default="auto", choices=("auto", "cpu", "cuda"), help="where to search"
    )
    command.add_argument(
        "--iterations", type=positive, default=20, help="candidates of a search (default: 20)"
    )
    command.add_argument(
        "--seeds", type=positive, default=3, help="searches of a problem and arm (default: 3)"
    )
    command.add_argument(
        "--factors", type=_words, help="of feedback, policy, sol, memory (default: all)"
    )
    command.add_argument(
        "--folder",
        type=Path,
        default=Path("runs", "ablations"),
        help="where memory files are kept (default: runs/ablations)",
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the table there too")
    command.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    command.add_argument("--plot", type=Path, metavar="FILE", help="draw it as an SVG file")
    command.set_defaults(run=ablations)


def record(args: argparse.Namespace) -> int:
    """Record a space and tell its outline."""
    from kernelpro import start
    from kernelpro.errors import KernelproError
    from kernelpro.spaces import harness
    from kernelpro.spaces import record as recording

    if args.output.suffix != ".gz":
        raise KernelproError(f"the table is compressed, so --output must end in .gz: {args.output}")
    target = start.usable(args.target)
    problem = start.load(args.problem, target, dict(args.size) or None, "strict")
    machine = target.machine()
    found = recording.record(
        problem,
        machine,
        harness.Harness,
        args.output,
        given=dict(args.knob),
        most=args.points,
        seed=args.seed,
        rounds=args.rounds,
        batch=harness.BATCH,
        pairs=harness.LEAST_PAIRS,
        versions=harness.versions(problem, machine.facts),
    )
    print(_outline(found))
    return 0


def spaces(args: argparse.Namespace) -> int:
    """Compare on recorded spaces and print the table."""
    from kernelpro.plugins.reward_speedup import reward
    from kernelpro.search.policy import POLICIES
    from kernelpro.spaces import report, table, tuner
    from kernelpro.spaces.compare import compare

    found = [table.read(path) for path in _files(args.files)]
    policies = _known("policy", args.policies, list(POLICIES))
    strategies: list[str] = []
    if args.strategies != ["none"]:
        if tuner.installed():
            strategies = _known("strategy of Kernel Tuner", args.strategies, tuner.strategies())
            if args.strategies is None:
                strategies = [name for name in strategies if name not in tuner.SLOW]
        else:
            print(tuner.MISSING)
    rivals = [each for path in args.rivals for each in report.read_json(path)]
    results = [
        compare(
            space,
            policies=policies,
            strategies=strategies,
            rivals=rivals,
            seeds=args.seeds,
            budget=args.evaluations,
            reward=reward,
            tell=_progress,
        )
        for space in found
    ]
    words = report.table(results) + "\n"
    print(words, end="")
    for path, text in (
        (args.output, words),
        (args.json, report.as_json(results)),
        (args.plot, report.svg(results)),
    ):
        _write(path, text)
    return 0


def ablations(args: argparse.Namespace) -> int:
    """Ablate the search and print the table."""
    from kernelpro import ablations as study
    from kernelpro.serial import encode

    runs = study.ablate(
        args.problems,
        args.folder,
        target=args.target,
        iterations=args.iterations,
        seeds=args.seeds,
        factors=args.factors or study.FACTORS,
        tell=_progress,
    )
    found = study.effects(runs)
    words = study.table(runs, found) + "\n"
    print(words, end="")
    as_json = json.dumps({"runs": encode(runs), "effects": encode(found)}, indent=1) + "\n"
    for path, text in (
        (args.output, words),
        (args.json, as_json),
        (args.plot, study.svg(found)),
    ):
        _write(path, text)
    return 0


def _knob(text: str) -> tuple[str, tuple[Any, ...]]:
    """Read NAME=V,V; whole numbers are numbers."""
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier() or not all(values.split(",")):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE,VALUE, but found {text!r}")
    return name, tuple(int(v) if v.isdigit() else v for v in values.split(","))


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _known(kind: str, asked: Sequence[str] | None, known: list[str]) -> list[str]:
    from kernelpro.errors import KernelproError

    for name in asked or ():
        if name not in known:
            raise KernelproError(f"there is no {kind} {name!r}; there are {', '.join(known)}")
    return list(asked or known)


def _files(given: Sequence[Path]) -> list[Path]:
    """The tables that are named, and those in the folders that are."""
    from kernelpro.errors import KernelproError
    from kernelpro.spaces.table import SUFFIX

    places = list(given) or [Path("results", "spaces")]
    found: list[Path] = []
    for place in places:
        inside = sorted(place.rglob(f"*{SUFFIX}")) if place.is_dir() else [place]
        if not inside or not inside[0].exists():
            raise KernelproError(
                f"there is no recorded space at {place}; make one with `kernelpro bench record`"
            )
        found += inside
    return found


def _outline(space: "Space") -> str:
    valid = [point for point in space.points.values() if point.valid]
    slowest = max(point.us for point in valid)
    return (
        f"{space.name}: {len(space.points)} of {space.header.legal} legal points, {len(valid)} "
        f"valid; best {space.best_us:.1f} us, slowest {slowest / space.best_us:.1f} x that; a "
        f"single round was typically {space.noise:.1%} off"
    )


def _progress(line: str) -> None:
    import sys

    print(line, file=sys.stderr, flush=True)


def _write(path: Path | None, text: str) -> None:
    from kernelpro.errors import KernelproError

    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise KernelproError(f"{path} cannot be written: {error.strerror}") from error
