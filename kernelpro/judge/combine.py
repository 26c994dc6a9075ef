"""Makes one evaluation of those of a workload mix's shapes.

The time is that of the mean call, weighted as the service calls. The ratio is the baseline's mean
over the candidate's, where a shape's candidate time is its baseline's over the ratio of interleaved
calls. Each end of the interval takes that end of all shapes' intervals at once, which is wider than
chance would have it: a mix is called faster rather too seldom.
"""

from collections.abc import Sequence
from dataclasses import replace

from kernelpro.problems.workloads import weighted
from kernelpro.records import AtShape, Evaluation, Outcome, Timing, Verdict, Workload

GOOD = (Outcome.ACCEPTED, Outcome.FLAGGED)
DECISIONS = {
    Outcome.ACCEPTED: "accept",
    Outcome.FLAGGED: "flag",
    Outcome.UNJUDGED: "unjudged",
}


def combine(
    parts: Sequence[tuple[Workload, Evaluation]], base_us: Sequence[float], *, partial: bool
) -> Evaluation:
    """Join what became of a candidate at each shape.

    Args:
        parts: the shapes that were judged; all of them unless one failed.
        base_us: time of the baseline at each, which counts for both sides where it raises.
        partial: whether it may raise at some shapes, where the reference then stands in.
    """
    shapes = tuple(
        AtShape(
            name=workload.name,
            weight=workload.weight,
            outcome=part.outcome,
            message=part.message,
            timing=part.timing if part.outcome in GOOD else None,
        )
        for workload, part in parts
    )
    outcome, message = _outcome(shapes, partial)
    good = outcome in GOOD
    phases: dict[str, float] = {}
    for _, part in parts:
        for name, seconds in part.phases_s.items():
            phases[name] = phases.get(name, 0.0) + seconds
    stood = [part for part in parts if not good or part[1].outcome in GOOD]
    return Evaluation(
        outcome=outcome,
        message=message,
        build=parts[0][1].build,
        verdict=_verdict(outcome, stood, shapes),
        timing=_timing(shapes, base_us) if good else None,
        phases_s=phases,
        shapes=shapes,
        compiled=tuple(each for _, part in parts for each in part.compiled),
    )


def line(shape: AtShape) -> str:
    """What became of a candidate at one shape, in a line."""
    if shape.timing is None:
        return f"weight {shape.weight:g}: {str(shape.outcome).replace('_', ' ')}"
    t = shape.timing
    return (
        f"weight {shape.weight:g}: {t.median_us:.4g} us a call, {t.speedup:.2f}x {t.baseline} "
        f"({t.speedup_low:.2f}-{t.speedup_high:.2f})"
        + ("" if shape.outcome is Outcome.ACCEPTED else f", {shape.outcome}")
    )


def _outcome(shapes: Sequence[AtShape], partial: bool) -> tuple[Outcome, str]:
    """The first failure decides; a shape at which it raises may be the reference's."""
    raised = [shape for shape in shapes if shape.outcome is Outcome.RUNTIME_ERROR]
    right = [shape for shape in shapes if shape.outcome in GOOD]
    failed = [shape for shape in shapes if shape.outcome not in GOOD and shape not in raised]
    if raised and (not partial or not right):
        failed += raised
    if failed:
        return failed[0].outcome, f"at {failed[0].name}: {failed[0].message}"
    flagged = [shape for shape in right if shape.outcome is Outcome.FLAGGED]
    if flagged:
        return Outcome.FLAGGED, f"at {flagged[0].name}: {flagged[0].message}"
    words = "; ".join(f"at {shape.name}: {shape.message}" for shape in right)
    if raised:
        names = ", ".join(shape.name for shape in raised)
        words += f"; it raises at {names}, where the reference stands in"
    return Outcome.ACCEPTED, words


def _verdict(
    outcome: Outcome, parts: Sequence[tuple[Workload, Evaluation]], shapes: Sequence[AtShape]
) -> Verdict | None:
    found = [(workload, part.verdict) for workload, part in parts if part.verdict is not None]
    if not found:
        return None
    decision = DECISIONS.get(outcome, "reject")
    if decision == "accept" and any(verdict.decision != "accept" for _, verdict in found):
        decision = "flag"  # the reference of a problem that is refused for headlines
    return Verdict(
        decision=decision,
        reasons=tuple(dict.fromkeys(reason for _, verdict in found for reason in verdict.reasons)),
        checks=tuple(
            replace(check, inputs=f"{workload.name}: {check.inputs}")
            for workload, verdict in found
            for check in verdict.checks
        ),
        calls_compared=sum(verdict.calls_compared for _, verdict in found),
        isolation=found[0][1].isolation,
        evidence={
            **found[0][1].evidence,
            **{f"at {shape.name}": line(shape) for shape in shapes},
        },
    )


def _timing(shapes: Sequence[AtShape], base_us: Sequence[float]) -> Timing | None:
    """The mean call; where a shape has no time, the reference's counts for both sides."""
    weights = [shape.weight for shape in shapes]
    times = [shape.timing for shape in shapes]
    known = [timing for timing in times if timing is not None]
    if not known:
        return None
    base = [t.baseline_us if t else us for t, us in zip(times, base_us, strict=True)]

    def mean(name: str) -> float:
        each = [getattr(t, name) if t else us for t, us in zip(times, base, strict=True)]
        return weighted(each, weights)

    def ratio(name: str) -> float:
        each = [us / getattr(t, name) if t else us for t, us in zip(times, base, strict=True)]
        return weighted(base, weights) / weighted(each, weights)

    names = list(dict.fromkeys(timing.baseline for timing in known))
    return Timing(
        median_us=mean("median_us"),
        p20_us=mean("p20_us"),
        p80_us=mean("p80_us"),
        runs=sum(timing.runs for timing in known),
        baseline_us=weighted(base, weights),
        baseline=names[0] if len(names) == 1 else "the fastest baseline at each shape",
        speedup=ratio("speedup"),
        speedup_low=ratio("speedup_low"),
        speedup_high=ratio("speedup_high"),
        clock=known[0].clock,
        threads=known[0].threads,
    )
