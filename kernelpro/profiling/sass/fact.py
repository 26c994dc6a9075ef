"""Make metrics of what is read off machine code: a number, and where it was found."""

from collections.abc import Sequence

from kernelpro.profiling.sass.instruction import Instruction
from kernelpro.records import Metric


def fact(value: float, note: str = "", unit: str = "") -> Metric:
    """A static metric; the note says where."""
    return Metric(value=float(value), unit=unit, how="static", note=note)


def counted(found: Sequence[Instruction], first: Instruction | None = None) -> Metric:
    """How many instructions were found, and where the first or most important one is."""
    shown = first or (found[0] if found else None)
    return fact(len(found), shown.where if shown else "")
