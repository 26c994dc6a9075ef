"""Arguments that several commands share, and how their values are read."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelpro.judge.settings import JudgeSettings


def size(text: str) -> tuple[str, int]:
    """Read NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not value.lstrip("-").isdigit():
        raise argparse.ArgumentTypeError(f"expected NAME=INTEGER, but found {text!r}")
    return name, int(value)


def positive(text: str) -> int:
    """Read a whole number above zero."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, but found {text!r}")
    return int(text)


def amount(text: str) -> float:
    """Read a sum of money above zero, with or without a dollar sign."""
    try:
        value = float(text.removeprefix("$"))
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected dollars above 0, such as 2.50, found {text!r}")
    return value


def duration(text: str) -> float:
    """Read seconds, or minutes with an m, hours with an h: 90, 90s, 1.5m, 1h."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        value = float(number) * unit
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a time such as 90, 2m or 1h, found {text!r}")
    return value


def share(text: str) -> float:
    """Read a share: 2%, 0.02."""
    number, scale = (text[:-1], 0.01) if text.endswith("%") else (text, 1.0)
    try:
        value = float(number) * scale
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a share such as 2% or 0.02, found {text!r}")
    return value


def add_problem_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where and at what size a problem runs."""
    parser.add_argument(
        "--target",
        default="auto",
        choices=("auto", "cpu", "cuda"),
        help="what to make kernels for (default: a GPU if there is a usable one)",
    )
    parser.add_argument(
        "--size",
        type=size,
        action="append",
        default=[],
        metavar="NAME=N",
        help="replace a constant of the problem file; may be repeated",
    )


def add_without(parser: argparse.ArgumentParser) -> None:
    """Add the option that leaves plugins out."""
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PLUGIN",
        help="leave a plugin out; may be repeated",
    )


def add_feedback(parser: argparse.ArgumentParser) -> None:
    """Add the option that says what proposers are shown of a parent's profile."""
    parser.add_argument(
        "--feedback",
        default="findings",
        choices=("findings", "metrics", "asked", "none"),
        help="what proposers are shown of a profile: findings (default) with the metrics; for "
        "ablations the metrics alone, all of it once they have asked, or none",
    )


def add_lessons(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the option that names a lessons file."""
    parser.add_argument("--lessons", metavar="FILE", help=text)


def add_candidate_options(parser: argparse.ArgumentParser) -> None:
    """Add what names a candidate, its problem and how it is judged."""
    parser.add_argument(
        "candidate",
        type=Path,
        help="a .py file with class ModelNew, or a program (kernelpro program)",
    )
    parser.add_argument("--problem", required=True, help="a bundled problem's name or a .py file")
    add_judging_options(parser)


def add_judging_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where, at what size and how strictly candidates are judged."""
    add_problem_options(parser)
    add_without(parser)
    add_precision(parser)
    add_judge_options(parser)


def add_precision(parser: argparse.ArgumentParser) -> None:
    """Add the option that says how far results may be from the reference."""
    parser.add_argument(
        "--precision",
        default="strict",
        choices=("strict", "tf32", "bf16"),
        help="what float32 may be computed with: strict (default: nothing less), or TF32 or "
        "bfloat16 operands on both sides; the limits are printed with the result",
    )


def add_judge_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that change the judge's settings; `judge_settings` reads them."""
    parser.add_argument(
        "--baseline",
        metavar="KIND[,KIND]",
        help="what to time against: eager (default), compile, max-autotune (torch.compile's "
        "modes); of several the fastest, which the result names",
    )


def judge_settings(args: argparse.Namespace) -> "JudgeSettings":
    """The judge's settings from kernelpro.toml, the environment and these options."""
    from kernelpro.judge import baselines
    from kernelpro.judge.settings import JudgeSettings
    from kernelpro.settings import resolve

    settings = resolve("judge", JudgeSettings, {"baselines": args.baseline})
    baselines.asked(settings.baselines)
    return settings
