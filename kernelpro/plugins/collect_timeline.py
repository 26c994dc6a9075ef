"""Collector for both targets: what one call runs, for how long, and what is lost in between."""

from collections.abc import Mapping
from typing import Any

from kernelpro import Evaluation, Metric, Profile, Session, hookimpl
from kernelpro.profiling.remote import absent, ask

FAMILIES = ("system.", "launch__", "device__")
"""Metrics that begin so come from the timeline."""


@hookimpl
def collect_metrics(evaluation: Evaluation, names: frozenset[str], session: Session) -> Profile:
    """Trace one call when any of the names is asked for."""
    asked = sorted(name for name in names if name.startswith(FAMILIES))
    if not asked:
        return Profile()
    profile, why = ask(
        session,
        "kernelpro.profiling.timeline.trace:collect",
        {},
        lambda seen: read(seen, evaluation, session.target),
    )
    if profile is None:
        return Profile(metrics=absent(asked, why))
    missing = [name for name in asked if not _found(profile, name)]
    why = "the trace of this call does not show it"
    return Profile(
        metrics={**absent(missing, why), **profile.metrics},
        launches=profile.launches,
        kernels=profile.kernels,
    )


def read(seen: Mapping[str, Any], evaluation: Evaluation, target: str) -> Profile:
    """Turn what `trace.collect` returned into metrics, launches and kernels."""
    from kernelpro.profiling.timeline import facts, kineto  # they import pandas

    timeline = kineto.table(seen["events"], seen["devices"])
    timing = evaluation.timing
    profile = facts.facts(
        timeline,
        call_us=timing.median_us if timing is not None and timing.median_us > 0 else None,
        calls=timing.runs if timing is not None else 1,
    )
    dropped = int(seen["dropped"])
    metrics = {**profile.metrics, **_operators(seen)}
    if target == "cpu":
        metrics |= _on_cpu(metrics, evaluation)
    elif not profile.kernels:
        why = "the trace has no kernel of the GPU"
        metrics = {**absent(("system.launches", "system.gap_share"), why), **_operators(seen)}
    if dropped:
        metrics["system.dropped_events"] = Metric(
            value=float(dropped), note="the trace was longer: its facts are of its first part"
        )
    return Profile(metrics=metrics, launches=profile.launches, kernels=profile.kernels)


def _found(profile: Profile, name: str) -> bool:
    return name in profile or any(name in kernel.metrics for kernel in profile.kernels)


def _operators(seen: Mapping[str, Any]) -> dict[str, Metric]:
    count = "ATen operators that touch memory"
    return {
        "system.operators": Metric(value=float(seen["operators"]), note=count),
        "system.operator_bytes": Metric(
            value=float(seen["operator_bytes"]),
            unit="bytes",
            how="derived",
            note=f"operands of the {count}, each once; not of a candidate's own kernels",
        ),
        "system.allocations": Metric(value=float(seen["allocations"]), note="ATen allocations"),
        "system.fresh_bytes": Metric(
            value=float(seen["fresh_bytes"]),
            unit="bytes",
            note="memory that ATen operators allocate for their results in one call",
        ),
    }


def _on_cpu(metrics: Mapping[str, Metric], evaluation: Evaluation) -> dict[str, Metric]:
    own = evaluation.build is not None and bool(evaluation.build.binary)
    count = metrics["system.operators"].value or 0.0
    found = {
        "system.launches": Metric(
            value=count + own,
            how="derived",
            note="ATen operators" + (" and the candidate's own library as one" if own else ""),
        )
    }
    if own:
        found |= absent(("system.gap_share",), "own CPU kernels run outside of operators")
    return found
