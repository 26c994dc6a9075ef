"""Say in plain words what a search found: why the best is faster and what still holds it back.

Works on steps alone, so it tells the same of a running search and of a memory file.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelpro.records import Confirmation, Diagnosis, Outcome, Problem, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A finished or running search in a few lines.

    Attributes:
        headline: one sentence: how much faster, or that nothing faster was found.
        faster: True when the best was confirmed faster than the baseline.
        why: why it is faster, one reason a line.
        holds: what still holds it back, one finding a line.
        counts: outcomes and how often each came, and before how many candidates their proposer
            asked for the profile.
    """

    headline: str
    faster: bool
    why: tuple[str, ...]
    holds: tuple[str, ...]
    counts: str


def summarize(
    problem: Problem,
    steps: Sequence[Step],
    best: Step | None,
    confirmations: Sequence[Confirmation] = (),
) -> Summary:
    """Tell a search's result from its steps.

    Args:
        problem: what was searched.
        steps: all of them, the baseline first.
        best: the step to report as the winner, or None.
        confirmations: winners judged again from scratch; only a confirmed number is a headline.
    """
    counts = ", ".join(
        f"{number} {str(outcome).replace('_', ' ')}"
        for outcome, number in Counter(s.evaluation.outcome for s in steps[1:]).most_common()
    )
    if asked := sum(step.asked for step in steps):
        counts += f"; {asked} made after asking for the parent's profile"
    if not steps or best is None or best.evaluation.timing is None:
        return Summary(
            headline=f"{problem.name}: no kernel faster than the baseline was found.",
            faster=False,
            why=(),
            holds=_holds(steps[0]) if steps else (),
            counts=counts,
        )
    confirmed = next((c for c in reversed(confirmations) if c.step == best.index), None)
    timing = best.evaluation.timing
    if confirmed is not None and confirmed.evaluation.timing is not None:
        timing = confirmed.evaluation.timing
    words = "judged again from scratch" if confirmed else "as measured in the search"
    faster = timing.faster and (
        confirmed is None or confirmed.evaluation.outcome is Outcome.ACCEPTED
    )
    claim = (
        f"{timing.speedup:.2f}x faster than {timing.baseline}"
        if faster
        else f"not shown to be faster than {timing.baseline} ({timing.speedup:.2f}x)"
    )
    headline = (
        f"{problem.name}: {claim} (95 % interval {timing.speedup_low:.2f}-{timing.speedup_high:.2f}"
        f", {words}): {duration(timing.baseline_us)} -> {duration(timing.median_us)} a call"
        + (f", {timing.threads} threads on both sides" if timing.threads else "")
        + f"; step {best.index} of {len(steps) - 1}."
    )
    return Summary(
        headline=headline,
        faster=faster,
        why=(*_why(steps, best), *_at_shapes(best, confirmed)),
        holds=_holds(best),
        counts=counts,
    )


def _why(steps: Sequence[Step], best: Step) -> tuple[str, ...]:
    """Tell what was done on the way from the baseline to the best, and what that changed."""
    root = steps[0]
    reasons: list[str] = []
    step = best
    while step.parent is not None:
        if step.candidate.rationale:
            reasons.insert(0, step.candidate.rationale)
        step = steps[step.parent]
    before, after = root.profile, best.profile
    if "system.launches" in before and "system.launches" in after:
        a, b = before["system.launches"], after["system.launches"]
        if b < a:
            reasons.append(f"{a:.0f} kernels or operators a call became {b:.0f}.")
    if "system.operator_bytes" in before and "system.operator_bytes" in after:
        a, b = before["system.operator_bytes"], after["system.operator_bytes"]
        if 0 < b < a:
            reasons.append(
                f"Memory traffic of its operators fell from {volume(a)} to {volume(b)} a call."
            )
    cured = {d.detector: d for d in root.diagnoses}
    for d in best.diagnoses:
        cured.pop(d.detector, None)
    reasons += [f"No longer seen: {d.bottleneck}" for d in list(cured.values())[:3]]
    if (words := joules(best)) is not None:
        reasons.append(words)
    return tuple(reasons)


def joules(step: Step) -> str | None:
    """Tell a step's energy beside the baseline's, or None where it was not weighed."""
    energy = step.evaluation.energy
    if energy is None or not energy.baseline_joules > 0:
        return None
    return (
        f"Energy: {energy.joules:.3g} J a call at {energy.mean_watts:.0f} W, "
        f"{energy.joules / energy.baseline_joules:.2f} times the baseline's "
        f"{energy.baseline_joules:.3g} J (one window of {energy.window_s:.0f} s each; "
        "`kernelpro energy` compares with an interval)."
    )


def _at_shapes(best: Step, confirmed: Confirmation | None) -> Iterator[str]:
    """Of a workload mix what each shape has of it, judged again where that was done."""
    for shape in (confirmed.evaluation if confirmed else best.evaluation).shapes:
        if (timing := shape.timing) is not None:
            yield (
                f"At {shape.name} (weight {shape.weight:g}): {duration(timing.baseline_us)} -> "
                f"{duration(timing.median_us)}, {timing.speedup:.2f}x "
                f"({timing.speedup_low:.2f}-{timing.speedup_high:.2f})."
            )


def _holds(step: Step) -> tuple[str, ...]:
    lines = []
    if step.classification is not None:
        lines.append(step.classification.text)
        timing, sol = step.evaluation.timing, step.classification.sol_us
        if timing is not None and 0 < timing.median_us < sol:
            lines.append(
                f"{duration(timing.median_us)} is less than the computed floor ({duration(sol)}): "
                "the machine was slower when its peaks were measured."
            )
        elif timing is not None and sol > 0:
            lines.append(
                f"{duration(timing.median_us)} is {timing.median_us / sol:.1f} times the speed of "
                f"light ({duration(sol)}, set by {step.classification.bound})."
            )
    lines += [sentence(d) for d in step.diagnoses[:3]]
    return tuple(line for line in lines if line)


def sentence(diagnosis: Diagnosis) -> str:
    """Tell a finding in one line: what, where, why, gain."""
    places = [p for p in (diagnosis.kernel, diagnosis.where) if p]
    where = f" ({': '.join(places)})" if places else ""
    return (
        f"[{diagnosis.detector}] {diagnosis.bottleneck}{where}. {diagnosis.why} "
        f"Up to {diagnosis.gain:.0%} of the time."
    )


def duration(us: float) -> str:
    """Print a time with a unit that suits it."""
    if us < 1000:
        return f"{us:.3g} us"
    return f"{us / 1000:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"


def volume(count: float) -> str:
    """Print a number of bytes with a unit that suits it."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
