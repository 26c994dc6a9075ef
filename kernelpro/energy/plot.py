"""Power over time as a picture: plain SVG, or a page of HTML around it."""

import html
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from kernelpro.energy import windows
from kernelpro.energy.comparison import Comparison
from kernelpro.energy.trace import SIDES, Trace
from kernelpro.errors import KernelproError

WIDTH, HEIGHT = 960, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 48, 44
COLOURS = {"A": "#4477aa", "B": "#ee7733", "idle": "#bbbbbb", "dropped": "#cc3311"}
POINTS = 900  # about one for each pixel of the width


def write(path: Path, trace: Trace, comparison: Comparison) -> None:
    """Write a picture; a name that ends in .html gets the verdict and the notes around it.

    Raises:
        KernelproError: the name ends in neither .svg nor .html, or the file cannot be written.
    """
    check_name(path)
    content = svg(trace)
    if path.suffix == ".html":
        content = _page(content, trace, comparison)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise KernelproError(
            f"cannot write the plot {path}: {error.strerror or error}; name another file"
        ) from error


def check_name(path: Path) -> None:
    """See that a picture can be written to a file of that name.

    Raises:
        KernelproError: the name ends in neither .svg nor .html.
    """
    if path.suffix not in (".svg", ".html"):
        raise KernelproError(
            f"a plot is written to a file that ends in .svg or .html, but {path.name} was given; "
            "name it so"
        )


def power(trace: Trace) -> list[tuple[float, float]]:
    """Times and watts between neighbouring steps of the counter; drops where it was set back."""
    found = []
    points = windows.steps(trace.readings)
    stride = max(1, math.ceil(len(points) / POINTS))
    points = points[::stride]
    for (begin, before), (end, after) in itertools.pairwise(points):
        if end > begin and after > before:
            found.append(((begin + end) / 2, (after - before) / (end - begin)))
    return found


def svg(trace: Trace) -> str:
    """The picture: power as a line, windows and idle phases as bands behind it."""
    line = power(trace)
    times = [t for t, _ in line] or [0.0]
    end = max([*times, *(w.end_s for w in trace.windows), *(p.end_s for p in trace.phases), 1e-9])
    peak = _round_up(max([w for _, w in line], default=1.0))

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / end

    def y(watts: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(watts / peak, 1.0)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" role="img">',
        f"<title>{html.escape(_title(trace))}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{html.escape(_title(trace))}</text>',
    ]
    for phase in trace.phases:
        if phase.name.startswith("idle"):
            parts.append(_band(x(phase.begin_s), x(phase.end_s), COLOURS["idle"], phase.name))
    for weighed in windows.weigh(trace):
        window = weighed.window
        colour = COLOURS["dropped" if weighed.fault else window.side]
        words = f"{window.side}: {weighed.fault or f'{weighed.watts:.1f} W'}"
        parts.append(_band(x(window.begin_s), x(window.end_s), colour, words))
    for n in range(6):
        watts, seconds = peak * n / 5, end * n / 5
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(watts):.1f}" y2="{y(watts):.1f}" '
            'stroke="#dddddd"/>'
            f'<text x="{LEFT - 6}" y="{y(watts) + 4:.1f}" text-anchor="end">{watts:g}</text>'
            f'<text x="{x(seconds):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{seconds:.3g}</text>"
        )
    path = " ".join(f"{x(t):.1f},{y(w):.1f}" for t, w in line)
    parts.append(f'<polyline points="{path}" fill="none" stroke="black" stroke-width="1.2"/>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">seconds</text>')
    parts.append(f'<text x="12" y="{TOP - 8}">watts</text>')
    parts += _legend(trace)
    return "\n".join([*parts, "</svg>\n"])


def _title(trace: Trace) -> str:
    header = trace.header
    return f"Power of {header.device} during {header.problem} ({header.meter})"


def _band(left: float, right: float, colour: str, words: str) -> str:
    return (
        f'<rect x="{left:.1f}" y="{TOP}" width="{max(right - left, 0.5):.1f}" '
        f'height="{HEIGHT - TOP - BOTTOM}" fill="{colour}" fill-opacity="0.25">'
        f"<title>{html.escape(words)}</title></rect>"
    )


def _legend(trace: Trace) -> list[str]:
    labels = [f"{side}: {s.label}" for side, s in zip(SIDES, trace.header.sides, strict=True)]
    rows: Sequence[tuple[str, str]] = [*zip(SIDES, labels, strict=True), ("idle", "idle")]
    if any(weighed.fault for weighed in windows.weigh(trace)):
        rows = [*rows, ("dropped", "dropped")]
    width = (WIDTH - LEFT - RIGHT) / len(rows)
    return [
        f'<rect x="{LEFT + n * width:.1f}" y="26" width="10" height="10" fill="{COLOURS[key]}"/>'
        f'<text x="{LEFT + 14 + n * width:.1f}" y="36">{html.escape(words[-40:])}</text>'
        for n, (key, words) in enumerate(rows)
    ]


def _round_up(watts: float) -> float:
    """The next value that divides well into five parts."""
    power_of_ten = 10.0 ** math.floor(math.log10(max(watts, 1e-9)))
    return next(
        m * power_of_ten
        for m in (1.0, 1.5, 2.0, 2.5, 3, 4, 5, 6, 8, 10)
        if m * power_of_ten >= watts
    )


def _page(picture: str, trace: Trace, comparison: Comparison) -> str:
    rows = "".join(f"<li>{html.escape(note)}</li>" for note in comparison.notes)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(_title(trace))}</title></head>\n<body>\n"
        f"<p>{html.escape(comparison.sentence)}</p>\n{picture}<ul>{rows}</ul>\n</body></html>\n"
    )
