"""What a comparison on recorded spaces showed: a table, and a plot without any plotting package."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kernelpro.serial import decode, encode
from kernelpro.spaces.compare import OURS, RUN_S, THEIRS, Comparison, Entry
from kernelpro.spaces.statistics import Estimate
from kernelpro.spaces.table import SpaceError

RULE = (
    "A point counts when it is first evaluated, valid or not; asking again costs nothing, on both "
    "sides. A run that never came so near counts as the whole budget (share of the runs that did "
    "in brackets)."
)
WITHIN = 1.5
"""How much worse than the best strategy of Kernel Tuner the default policy may be on a space."""


def table(comparisons: Sequence[Comparison]) -> str:
    """Write each space's entries as a table, and below them the default policy's record."""
    lines = [RULE, ""]
    for found in comparisons:
        lines += [_heading(found), *_entries(found), ""]
    lines += summary(comparisons)
    return "\n".join(lines)


def summary(comparisons: Sequence[Comparison]) -> list[str]:
    """Tell in some lines on how many spaces the default policy keeps up with Kernel Tuner."""
    judged = [(c, c.verdict) for c in comparisons if c.verdict is not None]
    if not judged:
        return []
    lines = [
        "mcts against the best strategy of Kernel Tuner on each space, found after the fact:",
        f"  {'space':34} {'rival':24} {'evaluations to 99 %, ours / its':>40}",
    ]
    for found, verdict in judged:
        lines.append(
            f"  {found.space:34} {verdict.rival:24} {_interval(verdict.ratio, '5.2f'):>40}"
        )
    no_more = sum(verdict.ratio.mean <= 1.0 for _, verdict in judged)
    worst = max(verdict.ratio.mean for _, verdict in judged)
    within = "always" if worst <= WITHIN else "not always"
    lines.append(
        f"  no more evaluations on {no_more} of {len(judged)} spaces; worst ratio {worst:.2f}: "
        f"{within} within {WITHIN:g}"
    )
    return lines


def as_json(comparisons: Sequence[Comparison]) -> str:
    """Give everything as JSON, the runs of each seed included."""
    return json.dumps(encode(list(comparisons)), separators=(",", ":")) + "\n"


def read_json(path: Path) -> list[Comparison]:
    """Read what `as_json` gave.

    Raises:
        SpaceError: the file cannot be read, or holds something else.
    """
    try:
        return list(decode(_Everything, {"comparisons": json.loads(path.read_bytes())}).comparisons)
    except OSError as error:
        raise SpaceError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise SpaceError(f"{path} holds no comparison of `bench spaces --json`: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Everything:
    comparisons: tuple[Comparison, ...]


def _heading(found: Comparison) -> str:
    return (
        f"{found.space}: {found.points} points, best {found.best_us:.1f} us, start "
        f"{found.start_us / found.best_us:.2f} x best, eager "
        f"{found.baseline_us / found.best_us:.2f} x best, {found.near} points within 1 %; "
        f"{found.seeds} seeds of {found.budget} evaluations; a single round was "
        f"{found.noise:.1%} off"
    )


def _entries(found: Comparison) -> list[str]:
    head = f"  {'':27}{'to 95 %':>28}{'to 99 %':>36}{'median':>8}{'area under the curve':>24}"
    lines = [head]
    for entry in found.entries:
        name = entry.name if entry.side == OURS else f"KT {entry.name}"
        cut = f"  {entry.cut} runs cut at {RUN_S:g} s" if entry.cut else ""
        lines.append(
            f"  {name:27}"
            f"{_interval(entry.to_95.evaluations, '5.1f'):>28}"
            f"{_interval(entry.to_99.evaluations, '5.1f'):>27} [{entry.to_99.reached:4.0%}] "
            f"{entry.to_99.median:8.1f}"
            f"{_interval(entry.area, '6.3f'):>24}{cut}"
        )
    return lines


def _interval(value: Estimate, form: str) -> str:
    low, high = (format(end, form).strip() for end in (value.low, value.high))
    return f"{value.mean:{form}} ({low}..{high})"


# --- the plot ---------------------------------------------------------------------------------

WIDTH, HEIGHT, COLUMNS = 420, 250, 2
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 30, 34
LEAST = 0.6
"""Lowest share of the best speed that is drawn."""
OWN_COLOURS = ("#0b5fa5", "#3a9d5d", "#7a52a3", "#b8860b", "#2aa1a1", "#9aa0a6")
THEIR_COLOURS = ("#c0392b", "#e67e22", "#8d6e63")
DRAWN = 3
"""So many of Kernel Tuner's strategies are drawn: those that come to 99 % first."""


def svg(comparisons: Sequence[Comparison]) -> str:
    """Draw, for each space, the mean share of the best speed after each evaluation."""
    rows = -(-len(comparisons) // COLUMNS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * WIDTH}" '
        f'height="{rows * HEIGHT}" font-family="sans-serif" font-size="10">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for place, found in enumerate(comparisons):
        row, column = divmod(place, COLUMNS)
        parts.append(f'<g transform="translate({column * WIDTH} {row * HEIGHT})">')
        parts += _panel(found)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(found: Comparison) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [
        f'<text x="{LEFT}" y="16" font-size="12">{escape(found.space)}: share of the best speed, '
        "mean over seeds</text>",
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="black"/>',
        f'<text x="{right}" y="{HEIGHT - 6}" text-anchor="end">evaluations</text>',
    ]
    for share in (0.6, 0.7, 0.8, 0.9, 0.95, 1.0):
        y = _y(share)
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#e0e0e0"/>'
            f'<text x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{share:g}</text>'
        )
    for part in range(5):
        count = round(found.budget * part / 4)
        x = _x(count, found.budget)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 12}" text-anchor="middle">{count}</text>')
    own = [entry for entry in found.entries if entry.side == OURS]
    theirs = [entry for entry in found.entries if entry.side == THEIRS][:DRAWN]
    drawn = [*zip(sorted(own, key=lambda e: e.name != "mcts"), OWN_COLOURS, strict=False)]
    drawn += zip(theirs, THEIR_COLOURS, strict=False)
    for number, (entry, colour) in enumerate(drawn):
        parts += _line(entry, colour, number, found.budget)
    return parts


def _line(entry: Entry, colour: str, number: int, budget: int) -> list[str]:
    points = " ".join(
        f"{_x(count, budget):.1f},{_y(share):.1f}"
        for count, share in enumerate(entry.curve, start=1)
    )
    dash = "" if entry.side == OURS else ' stroke-dasharray="5 3"'
    width = 2.2 if entry.name == "mcts" else 1.2
    name = entry.name if entry.side == OURS else f"KT {entry.name}"
    x, y = WIDTH - RIGHT - 118, HEIGHT - BOTTOM - 10 - 12 * number
    return [
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>',
        f'<path d="M{x} {y - 3}h16" stroke="{colour}" stroke-width="{width}"{dash}/>'
        f'<text x="{x + 20}" y="{y}">{escape(name)}</text>',
    ]


def _x(count: float, budget: int) -> float:
    return LEFT + (WIDTH - RIGHT - LEFT) * count / budget


def _y(share: float) -> float:
    inside = (max(share, LEAST) - LEAST) / (1.0 - LEAST)
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * inside
