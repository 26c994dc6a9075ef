"""What a report shows of one search, as plain values; nothing in it is estimated here.

Every number comes from the memory file or is a ratio of two that do. Where a value was not
measured, it is None, and the page says so.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelpro.ranking import credit
from kernelpro.records import Confirmation, Evaluation, Profile, Step
from kernelpro.report import summarize
from kernelpro.report_page.packing import Interned, Lines, clipped, deflated, packs, plain
from kernelpro.runs import Recorded

TITLE = 140
"""Characters of a rationale's first line in the list of steps."""


def search_facts(recorded: Recorded) -> dict[str, Any]:
    """Return all that a page shows of a search.

    Keys: what the page shows at once (`nodes`, a row a step; `credit`; `roofline`; ...), and
    `table` and `packs`, which it inflates when a step is opened.
    """
    problem = recorded.header.problem
    steps, best = recorded.steps, recorded.best
    summary = summarize(problem, steps, best, recorded.confirmations)
    words, lines, metrics = Interned(), Lines(), Interned()
    nodes = [_row(step, words) for step in steps]
    details = [_detail(step, lines, metrics) for step in steps]
    first = steps[0] if steps else None
    place = first.classification if first is not None else None
    baseline = first.evaluation.timing if first is not None else None
    header = plain(recorded.header)
    header["problem"].pop("source")
    found: dict[str, Any] = plain(
        {
            "file": recorded.file,
            "name": problem.name,
            "headline": summary.headline,
            "faster": summary.faster,
            "why": summary.why,
            "holds": summary.holds,
            "counts": summary.counts,
            "header": header,
            "best": None if best is None else best.index,
            "path": _path(steps, best),
            "baseline": baseline,
            "sol_us": place.sol_us if place is not None and place.sol_us > 0 else None,
            "sheet_us": place.sheet_us if place is not None and place.sheet_us > 0 else None,
            "bound": place.bound if place is not None else "",
            "confirmations": [_confirmation(c) for c in recorded.confirmations],
            "credit": _credit(steps),
            "roofline": _roofline(recorded),
            "energy": _energy(steps),
            "nodes": nodes,
            "words": words.values,
        }
    )
    found["table"] = deflated({"lines": lines.lines, "metrics": plain(metrics.values)})
    found["packs"] = packs(details)
    return found


def _row(step: Step, words: Interned) -> list[Any]:
    """A step as the tree shows it; `words` holds its texts. tree.js names the columns."""
    timing = step.evaluation.timing
    title = clipped(step.candidate.rationale.partition("\n")[0], TITLE)
    return [
        -1 if step.parent is None else step.parent,
        words.place(str(step.evaluation.outcome)),
        None if timing is None else timing.speedup,
        None if timing is None else timing.speedup_low,
        None if timing is None else timing.speedup_high,
        None if timing is None else timing.median_us,
        step.clock_s,
        words.place(title if step.index else "baseline"),
        words.place(clipped(step.candidate.author, TITLE)),
        words.place(clipped(step.candidate.inspired_by, TITLE)),
        [words.place(clipped(d.detector, TITLE)) for d in step.diagnoses],
    ]


def _detail(step: Step, lines: Lines, metrics: Interned) -> dict[str, Any]:
    """A step as its panel shows it; what is empty is left out."""
    found = {
        "source": lines.runs(step.candidate.source),
        "id": step.candidate.id,
        "language": step.candidate.language,
        "rationale": step.candidate.rationale,
        "asked": "the parent's profile" if step.asked else "",
        **_evaluation(step.evaluation),
        "class": step.classification,
        "findings": step.diagnoses,
        "metrics": _metrics(step.profile, metrics),
        "kernels": [
            {"name": k.name, "share": k.share, "launches": k.launches} for k in step.profile.kernels
        ],
        "calls": [_call(launch) for launch in step.profile.launches],
        "reward": step.reward,
        "phases": step.phases_s,
    }
    empty: tuple[Any, ...] = (None, "", (), [], {})
    return {key: plain(value) for key, value in found.items() if value not in empty}


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "message": evaluation.message,
        "verdict": evaluation.verdict,
        "timing": evaluation.timing,
        "energy": evaluation.energy,
        "build": evaluation.build,
    }


def _call(launch: Any) -> list[Any]:
    return [launch.name, launch.duration_us, list(launch.grid), list(launch.block)]


def _metrics(profile: Profile, metrics: Interned) -> list[list[Any]]:
    """Pairs of a place in the table of metrics and a value, of the candidate and its kernels."""
    rows = [
        [metrics.place((name, m.unit, m.how, m.note, "")), m.value]
        for name, m in profile.metrics.items()
    ]
    if len(profile.kernels) > 1:
        rows += [
            [metrics.place((name, m.unit, m.how, m.note, kernel.name)), m.value]
            for kernel in profile.kernels
            for name, m in kernel.metrics.items()
        ]
    return rows


def _path(steps: Sequence[Step], best: Step | None) -> list[int]:
    """Indices from the baseline to the winner."""
    path: list[int] = []
    step = best
    while step is not None:
        path.insert(0, step.index)
        step = None if step.parent is None else steps[step.parent]
    return path


def _confirmation(confirmation: Confirmation) -> dict[str, Any]:
    return {
        "step": confirmation.step,
        "outcome": str(confirmation.evaluation.outcome),
        **_evaluation(confirmation.evaluation),
    }


def _credit(steps: Sequence[Step]) -> list[dict[str, Any]]:
    found = sorted(credit(steps).items(), key=lambda kv: (-kv[1].hits, -kv[1].fires, kv[0]))
    return [
        {
            "name": name,
            "fires": c.fires,
            "tries": c.tries,
            "hits": c.hits,
            "gain": c.gain if c.hits else None,
        }
        for name, c in found
    ]


def _energy(steps: Sequence[Step]) -> list[list[Any]]:
    """Index, joules, watts and window of every step that was weighed."""
    return [
        [s.index, e.joules, e.mean_watts, e.window_s]
        for s in steps
        if (e := s.evaluation.energy) is not None
    ]


def _roofline(recorded: Recorded) -> dict[str, Any] | None:
    """Roofs and a point a timed step, or None where there is nothing to draw.

    A point's height is the problem's FLOPs over the measured time. Its place is FLOPs per byte:
    of the DRAM traffic that counters showed (`measured`), of the operands of the reference's
    operators (`derived`, the baseline alone), or else of the least bytes of a call (`least`).
    """
    problem, machine = recorded.header.problem, recorded.header.machine
    if problem.flops <= 0 or machine.bandwidth_bytes_per_s <= 0:
        return None
    points: list[tuple[int, float, float, str]] = []
    for step in recorded.steps:
        timing = step.evaluation.timing
        if timing is None or not timing.median_us > 0:
            continue
        moved, how = _traffic(step, problem.min_bytes)
        if moved > 0:
            rate = problem.flops / timing.median_us * 1e6
            points.append((step.index, problem.flops / moved, rate, how))
    points = [p for p in points if 0.0 < p[1] < math.inf and 0.0 < p[2] < math.inf]
    if not points:
        return None
    return {
        "bandwidth": machine.bandwidth_bytes_per_s,
        "peaks": _peaks(machine.flops_per_s),
        "dtype": problem.dtype,
        "points": points,
    }


def _peaks(flops_per_s: Mapping[str, float]) -> list[list[Any]]:
    return [[name, peak] for name, peak in flops_per_s.items() if peak > 0]


def _traffic(step: Step, least: int) -> tuple[float, str]:
    profile = step.profile
    read, written = (profile.get(f"dram__bytes_{way}.sum", 0.0) for way in ("read", "write"))
    if read + written > 0:
        return read + written, "measured"
    if step.index == 0 and profile.get("system.operator_bytes", 0.0) > 0:
        return profile["system.operator_bytes"], "derived"
    return float(least), "least"
