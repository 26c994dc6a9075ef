"""Steps as a pandas table, and where the time of a search went."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kernelpro.records import Outcome, Step

if TYPE_CHECKING:
    import pandas as pd

PHASES = (
    "select",
    "propose",
    "gate",
    "build",
    "start",
    "load",
    "judge",
    "time",
    "profile",
    "diagnose",
)

COLUMNS = (
    "index",
    "parent",
    "depth",
    "id",
    "author",
    "language",
    "outcome",
    "speedup",
    "median_us",
    "baseline_us",
    "reward",
    "finding",
    "asked",
    "message",
    "clock_s",
)


def steps_table(steps: Iterable[Step]) -> "pd.DataFrame":
    """Return one row for each step.

    Columns: those in `COLUMNS`, then one `PHASE_s` of wall seconds for each phase that occurs.
    `finding` is the first diagnosis' bottleneck; `asked` whether its proposer asked for the
    parent's profile. Numbers that were not measured are missing values; `parent` is a nullable
    integer.
    """
    import pandas as pd

    steps = list(steps)
    depths: dict[int, int] = {}
    rows: list[dict[str, Any]] = []
    for step in steps:
        depths[step.index] = 0 if step.parent is None else depths[step.parent] + 1
        rows.append(_row(step, depths[step.index]))
    phases = _phases(steps)
    table = pd.DataFrame(rows, columns=[*COLUMNS, *(f"{phase}_s" for phase in phases)])
    numbers = ["speedup", "median_us", "baseline_us", "reward", "clock_s"]
    types = dict.fromkeys([*numbers, *(f"{phase}_s" for phase in phases)], "float64")
    return table.astype({"index": "int64", "parent": "Int64", "depth": "int64", **types})


def phase_medians(steps: Iterable[Step]) -> dict[str, float]:
    """Return the median wall seconds of each phase over the candidates that went through it.

    The baseline, and candidates that a gate refused or that repeated an earlier one, are left out.
    """
    import pandas as pd

    measured = [
        step
        for step in steps
        if step.index and step.evaluation.outcome not in (Outcome.REFUSED, Outcome.DUPLICATE)
    ]
    return {
        phase: float(
            pd.Series([s.phases_s[phase] for s in measured if phase in s.phases_s]).median()
        )
        for phase in _phases(measured)
    }


def _row(step: Step, depth: int) -> dict[str, Any]:
    timing = step.evaluation.timing
    return {
        "index": step.index,
        "parent": step.parent,
        "depth": depth,
        "id": step.candidate.id,
        "author": step.candidate.author,
        "language": step.candidate.language,
        "outcome": step.evaluation.outcome.value,
        "speedup": timing.speedup if timing else None,
        "median_us": timing.median_us if timing else None,
        "baseline_us": timing.baseline_us if timing else None,
        "reward": step.reward,
        "finding": step.diagnoses[0].bottleneck if step.diagnoses else "",
        "asked": step.asked,
        "message": step.evaluation.message,
        "clock_s": step.clock_s,
        **{f"{phase}_s": seconds for phase, seconds in step.phases_s.items()},
    }


def _phases(steps: Iterable[Step]) -> list[str]:
    """Names of the phases that occur: the known ones in their order, then others by name."""
    names = {name for step in steps for name in step.phases_s}
    return [p for p in PHASES if p in names] + sorted(names - set(PHASES))
