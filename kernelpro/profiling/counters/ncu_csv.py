"""The raw page of a report as text, as `ncu --import FILE --csv --page raw` prints it.

One row of names, one of units, and one for each kernel. Numbers may have thousands separators.
"""

import csv
import io
import math
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelpro.errors import KernelproError
from kernelpro.profiling.counters import ncu
from kernelpro.records import Metric

NAME = "Kernel Name"
DEVICE = "device__attribute_display_name"
DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kernel of the page.

    Attributes:
        name: as ncu prints it.
        device: the card's name, or empty.
        metrics: every column of numbers, with its unit; empty cells and NaN are absent.
    """

    name: str
    device: str
    metrics: Mapping[str, Metric]


def export(report: Path) -> str | None:
    """The raw page of a report, or None where no ncu is installed.

    Raises:
        NcuError: ncu cannot read it; with its words.
    """
    program = ncu.find()
    if program is None:
        return None
    command = [str(program), "--import", str(report), "--csv", "--page", "raw"]
    try:
        done = subprocess.run(
            [*command, "--print-units", "base"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ncu.NcuError(f"{program} cannot show {report}: {error}") from None
    if done.returncode:
        words = ncu.first_error(done.stdout + done.stderr) or f"exit status {done.returncode}"
        raise ncu.NcuError(f"{program} cannot show {report}: {words}")
    return done.stdout


def parse(text: str) -> tuple[Row, ...]:
    """Read the page; lines of ncu's own before it are skipped.

    Raises:
        KernelproError: it is no raw page.
    """
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if NAME in next(csv.reader([line]), [])), None)
    if start is None:
        raise KernelproError(
            f"ncu printed no raw page: no line names the column {NAME!r}; expected the output of "
            "`ncu --import FILE --csv --page raw`"
        )
    table = list(csv.reader(io.StringIO("\n".join(lines[start:]))))
    names, rest = table[0], table[1:]
    units: Mapping[str, str] = {}
    column = names.index(NAME)
    if rest and (len(rest[0]) <= column or not rest[0][column]):
        units, rest = dict(zip(names, rest[0], strict=False)), rest[1:]
    return tuple(_row(names, units, cells) for cells in rest if len(cells) > column)


def _row(names: list[str], units: Mapping[str, str], cells: list[str]) -> Row:
    values = dict(zip(names, cells, strict=False))
    metrics = {
        name: metric
        for name, cell in values.items()
        if _is_metric(name) and (metric := _metric(cell, units.get(name, ""))) is not None
    }
    return Row(name=values[NAME], device=values.get(DEVICE, ""), metrics=metrics)


def _is_metric(name: str) -> bool:
    """Columns of ncu's own are words such as `Process ID`; metrics have no space."""
    return " " not in name and ("_" in name or "." in name)


def _metric(cell: str, unit: str) -> Metric | None:
    """A cell as a number; None when it is a word, such as a name."""
    text = cell.strip().replace(",", "")
    if not text or text.lower() in ("n/a", "nan", "no data", "-nan"):
        return Metric(value=None, how="absent", note="recorded without a value")
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return Metric(value=None, how="absent", note=f"recorded as {text}")
    return Metric(value=value, unit=unit, note="ncu")
