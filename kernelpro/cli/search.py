"""`kernelpro search`: find a faster kernel."""

import argparse
from pathlib import Path

from kernelpro.cli.arguments import (
    add_feedback,
    add_judge_options,
    add_lessons,
    add_precision,
    add_problem_options,
    add_without,
    amount,
    duration,
    judge_settings,
    positive,
    share,
)

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "search",
        help="search for a faster kernel",
        description="Search for a faster kernel for a PyTorch module. Exit status 0: a faster "
        "kernel was found and written beside the memory file; 1: none was found.",
    )
    command.add_argument(
        "problem",
        nargs="?",
        help="a bundled problem's name, or a .py file in KernelBench's format",
    )
    add_problem_options(command)
    add_without(command)
    add_precision(command)
    add_judge_options(command)
    command.add_argument(
        "--iterations", type=positive, metavar="N", help="candidates to try (default: no limit)"
    )
    command.add_argument(
        "--time",
        type=duration,
        metavar="T",
        help="time for trying candidates, such as 90, 2m, 1h (default: 2m without --iterations)",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of random choices (default: 0)")
    command.add_argument(
        "--policy",
        default="mcts",
        help="how to choose what to try next: mcts (default), epsilon_greedy, greedy, best_of_n, "
        "map_elites, random",
    )
    add_feedback(command)
    add_lessons(
        command,
        "FILE, `on` (your own file) or `off`: tell proposers what earlier searches of like "
        "problems saw, and add what this one sees (default: off)",
    )
    command.add_argument(
        "--proposer",
        metavar="WHO",
        help="who writes candidates: language (default: needs no model), model:anthropic/NAME, "
        "model:openai/NAME, tape:FILE (answers of an earlier search); see docs/models.md",
    )
    command.add_argument(
        "--max-cost", type=amount, metavar="USD", help="what models may cost (default: no limit)"
    )
    command.add_argument(
        "--max-tokens", type=positive, metavar="N", help="tokens that models may use, in and out"
    )
    command.add_argument(
        "--memory",
        type=Path,
        metavar="FILE",
        help="memory file (default: a new one in runs/); of a suite the folder with its files, "
        "which go on if they are there (default: runs/suite-NAME)",
    )
    command.add_argument(
        "--suite",
        metavar="DIR",
        help="search all problems of a folder (or `bundled`) under one budget: trials go where "
        "headroom, share of the run time and recent yield promise most",
    )
    command.add_argument(
        "--resume", action="store_true", help="go on with the search in the memory file"
    )
    command.add_argument(
        "--jobs",
        type=positive,
        metavar="N",
        help="candidates under way at once: proposers and compilers go on while the device "
        "measures one (default: 1)",
    )
    command.add_argument(
        "--devices",
        metavar="N[,N]",
        help="judge on several devices at once, each with a judge of its own: GPUs by number or "
        "UUID (0,1), with --target cpu processors (0-3,4-7)",
    )
    command.add_argument(
        "--executor",
        metavar="WHERE",
        help="local (default), or ray or ray:HOST:PORT: judge on the nodes of a Ray cluster",
    )
    command.add_argument(
        "--objective",
        choices=("speed", "energy", "edp"),
        help="speed (default); energy: of the candidates within a band of the fastest the one that "
        "takes the fewest joules; edp: least joules times seconds (both need an energy meter)",
    )
    command.add_argument(
        "--within",
        type=share,
        metavar="SHARE",
        help="band of equal speed for --objective energy and edp, such as 2%% (default: 2%%)",
    )
    output = command.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print events as JSON lines")
    output.add_argument("--quiet", action="store_true", help="print the result only")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search, show progress, and print what was found."""
    from kernelpro import api
    from kernelpro.cli import progress

    if args.suite is not None:
        return _suite(args)
    with progress.view(json=args.json, quiet=args.quiet) as view:
        result = api.search(
            args.problem,
            target=args.target,
            iterations=args.iterations,
            seconds=args.time,
            seed=args.seed,
            memory_file=args.memory,
            resume=args.resume,
            sizes=dict(args.size) or None,
            precision=args.precision,
            judge=judge_settings(args),
            policy=args.policy,
            feedback=args.feedback,
            block=args.without,
            jobs=args.jobs,
            devices=args.devices,
            executor=args.executor,
            objective=args.objective,
            within=args.within,
            lessons=args.lessons,
            proposer=args.proposer,
            max_cost=args.max_cost,
            max_tokens=args.max_tokens,
            observer=view,
        )
        view.finished(result)
    return 0 if result.best is not None else 1


def _suite(args: argparse.Namespace) -> int:
    """Search a suite and print how each problem stands."""
    from kernelpro import suite
    from kernelpro.cli.standings import Lines, table
    from kernelpro.errors import KernelproError

    given = [
        name
        for name, value in (
            ("a problem", args.problem),
            ("--resume", args.resume),
            ("--size", args.size),
            ("--without", args.without),
            ("--json", args.json),
            ("--jobs", args.jobs),
            ("--devices", args.devices),
            ("--executor", args.executor),
            ("--objective", args.objective),
            ("--within", args.within),
        )
        if value
    ]
    if given:
        raise KernelproError(f"--suite cannot be combined with {', '.join(given)}; leave it out")
    result = suite.search(
        args.suite,
        args.memory or Path("runs", f"suite-{Path(args.suite).name}"),
        Lines(quiet=args.quiet),
        target=args.target,
        iterations=args.iterations,
        seconds=args.time if args.time or args.iterations else suite.DEFAULT_SECONDS,
        precision=args.precision,
        judge=judge_settings(args),
        seed=args.seed,
        policy=args.policy,
        feedback=args.feedback,
        lessons=args.lessons,
        proposer=args.proposer,
        max_cost=args.max_cost,
        max_tokens=args.max_tokens,
    )
    print(table(result))
    return 0 if any(found.best is not None for found in result.results) else 1
