"""Packs what a page shows on demand: lines of sources once each, the rest deflated in packs.

The page's script undoes it with the browser's own DecompressionStream.
"""

import base64
import json
import math
import zlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, cast

PACK_STEPS = 64
"""Steps whose details share one pack: opening one inflates so many. Own choice."""

DIGITS = 6
"""Significant digits that a page keeps of a number; the memory file keeps all."""

MAX_TEXT = 20_000
"""Longest text that a page shows of a message or a log, in characters."""

MAX_LINES = 20_000
"""Lines of one source that a page keeps."""

MAX_LINE = 2_000
"""Characters of one source line that a page keeps."""


class Lines:
    """Lines of many sources, each distinct one kept once.

    A source becomes runs `[first, count, first, count, ...]` of places in `lines`; siblings that
    differ in a line share the runs around it.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._places: dict[str, int] = {}

    def runs(self, source: str) -> list[int]:
        """Return a source as runs of lines; what is over the limits is cut, and says so."""
        parts = source.split("\n")
        if len(parts) > MAX_LINES:
            parts = [*parts[:MAX_LINES], f"[{len(parts) - MAX_LINES} more lines are left out here]"]
        runs: list[int] = []
        for part in parts:
            place = self._place(part if len(part) <= MAX_LINE else clipped(part, MAX_LINE))
            if runs and runs[-2] + runs[-1] == place:
                runs[-1] += 1
            else:
                runs += [place, 1]
        return runs

    def _place(self, line: str) -> int:
        place = self._places.setdefault(line, len(self.lines))
        if place == len(self.lines):
            self.lines.append(line)
        return place


class Interned:
    """Values of which each distinct one is kept once; `place` says where."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[Any, int] = {}

    def place(self, value: Any) -> int:
        """Where a hashable value is kept."""
        place = self._places.setdefault(value, len(self.values))
        if place == len(self.values):
            self.values.append(value)
        return place


def clipped(text: str, most: int = MAX_TEXT) -> str:
    """Return a text, or its beginning and how much was left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]} [{len(text) - most} more characters are left out here]"


def plain(value: Any) -> Any:
    """Return records and plain values as JSON values that a page can read.

    Numbers are rounded to DIGITS, those that JSON does not know become None, and texts are clipped.
    """
    kind = type(value)
    if kind is float:
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if kind is str:
        return value if len(value) <= MAX_TEXT else clipped(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if abs(value) < 2**53 else plain(float_of(value))
    if isinstance(value, Enum):
        return str(value)
    if is_dataclass(value):
        return {name: plain(getattr(value, name)) for name in _names(cast(Hashable, kind))}
    if isinstance(value, Mapping):
        return {clipped(str(key), 200): plain(item) for key, item in value.items()}
    return [plain(item) for item in value]


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cast(Any, kind)))


def float_of(value: int) -> float:
    """Return an integer as a float; infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def deflated(value: Any) -> str:
    """Return plain values as JSON, deflated (RFC 1951, no header), in base64."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(packer.compress(text.encode()) + packer.flush()).decode()


def packs(details: Iterable[Any]) -> list[str]:
    """Return the details of steps, in order, in packs of PACK_STEPS."""
    rows = list(details)
    return [deflated(rows[start : start + PACK_STEPS]) for start in range(0, len(rows), PACK_STEPS)]
