"""`kernelpro program`: a problem as a program of the kernel language, and the other way round."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpro.cli.arguments import add_problem_options
from kernelpro.errors import KernelproError

if TYPE_CHECKING:
    from kernelpro.language.program import Program
    from kernelpro.records import Problem
    from kernelpro.targets import Target

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "program",
        help="show a problem as a program of the kernel language, or check one",
        description="Print the program that a search without a model starts from; or check a "
        "program of your own for a problem and write the candidate that it describes. Exit "
        "status 0: there is a program, and it fits; 2: it does not, said with its line and column.",
    )
    command.add_argument(
        "problem",
        nargs="?",
        help="a bundled problem's name, a .py file with class Model, or a folder of such files, of "
        "which each gets a line",
    )
    command.add_argument("file", nargs="?", type=Path, help="a program to check instead")
    add_problem_options(command)
    command.add_argument(
        "--emit", type=Path, metavar="FILE", help="write the candidate, a .py file, there"
    )
    command.add_argument(
        "--reference", action="store_true", help="print the language's page and stop"
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print or check."""
    from kernelpro import start, subjects
    from kernelpro.language import writer
    from kernelpro.language.limits import limits_of
    from kernelpro.language.parse import ProgramError, parse
    from kernelpro.language.program import text

    if args.reference:
        print(writer.reference(), end="")
        return 0
    if args.problem is None:
        raise KernelproError("expected a problem; `kernelpro program --help` tells more")
    target = start.usable(args.target)
    if Path(args.problem).is_dir():
        return _folder(args, target)
    problem = start.load(args.problem, target, dict(args.size) or None, "strict")
    machine = target.machine()
    try:
        if args.file is None:
            program = writer.start(problem, machine, limits_of(machine))
        else:
            program = parse(subjects.text_of(args.file))
        writer.check(problem, program, limits_of(machine))
        source = writer.write_program(problem, program)
    except ProgramError as error:
        name = args.file or args.problem
        place = f"{name}:{error.line}:{error.column}" if error.line else str(name)
        raise KernelproError(f"{place}: {error.reason}") from error
    print(text(program) if args.file is None else f"{args.file} is a program for {problem.name}")
    print(in_words(problem, program))
    if args.emit is not None:
        try:
            args.emit.write_text(source, encoding="utf-8")
        except OSError as error:
            raise KernelproError(f"{args.emit} cannot be written: {error}") from error
        print(f"wrote {args.emit}")
    return 0


def _folder(args: argparse.Namespace, target: "Target") -> int:
    """Print a line for each problem of a folder, and how many have a kernel."""
    from kernelpro import start
    from kernelpro.cli.folders import each
    from kernelpro.language import writer
    from kernelpro.language.schedule import from_knobs

    if args.file is not None or args.emit is not None:
        raise KernelproError("a program is for one problem; expected a .py file, found a folder")
    status = some = count = 0
    for place, problem in each(
        args.problem, lambda place: start.load(place, target, dict(args.size) or None, "strict")
    ):
        count += 1
        if isinstance(problem, KernelproError):
            status = 2
            print(f"# {place}: {problem}")
            continue
        reason = writer.prepare(problem).reason
        if reason:
            print(f"# {problem.name} on {problem.target}: {reason}")
            continue
        some += 1
        plain = from_knobs(problem.target, {})
        print(in_words(problem, writer.first_program(problem, plain)), flush=True)
    print(f"{some} of {count} problems have a kernel in their first program")
    return status


def in_words(problem: "Problem", program: "Program") -> str:
    """Say how many kernels there are, and what stays with torch."""
    from kernelpro.language.program import Library, Stage

    kernels = len(program.schedules)
    left = [stage.op for stage in program.stages if isinstance(stage, Library)]
    left += [
        f"{len(stage.body)} values"
        for stage in program.stages
        if isinstance(stage, Stage) and stage.kind == "torch"
    ]
    rest = f"left to torch: {', '.join(left)}" if left else "nothing is left to torch"
    noun = "kernel" if kernels == 1 else "kernels"
    return f"# {problem.name} on {problem.target}: {kernels} {noun}; {rest}"
