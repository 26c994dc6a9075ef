"""Collector for both targets: what one call runs, for how long, and what is lost in between."""

from collections.abc import Mapping
from typing import Any

from kernelpro import Evaluation, Launch, Metric, Profile, Session, hookimpl
from kernelpro.profiling.remote import absent, ask

OPERATORS = ("system.operators", "system.operator_bytes", "system.allocations")
DEVICE = (
    "system.launches",
    "system.kernel_us",
    "system.mean_kernel_us",
    "system.gap_share",
    "system.library_share",
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "device__attribute_multiprocessor_count",
)
NAMES = (*OPERATORS, *DEVICE)


@hookimpl
def collect_metrics(evaluation: Evaluation, names: frozenset[str], session: Session) -> Profile:
    """Trace one call when any of the names is asked for."""
    if not names.intersection(NAMES):
        return Profile()
    profile, why = ask(
        session,
        "kernelpro.profiling.timeline:collect_launches",
        {},
        lambda seen: read(seen, evaluation, session.target),
    )
    return Profile(metrics=absent(NAMES, why)) if profile is None else profile


def read(seen: Mapping[str, Any], evaluation: Evaluation, target: str) -> Profile:
    """Turn what `timeline.collect_launches` returned into metrics and launches."""
    launches = tuple(
        Launch(
            name=item["name"],
            duration_us=item["duration_us"],
            grid=tuple(item["grid"]),
            block=tuple(item["block"]),
        )
        for item in seen["launches"]
    )
    count = "ATen operators that touch memory"
    metrics = {
        "system.operators": Metric(value=float(seen["operators"]), note=count),
        "system.operator_bytes": Metric(
            value=float(seen["operator_bytes"]),
            unit="bytes",
            how="derived",
            note=f"operands of the {count}, each once; not of a candidate's own kernels",
        ),
        "system.allocations": Metric(value=float(seen["allocations"]), note="ATen allocations"),
    }
    metrics |= _on_gpu(seen, evaluation) if target == "cuda" else _on_cpu(seen, evaluation)
    return Profile(metrics=metrics, launches=launches)


def _on_gpu(seen: Mapping[str, Any], evaluation: Evaluation) -> dict[str, Metric]:
    if not seen["on_device"]:
        return absent(DEVICE, "the trace has no kernel of the GPU")
    busy, count = seen["busy_us"], seen["count"]
    longest = max(seen["launches"], key=lambda item: float(item["duration_us"]))
    facts = f"Kineto, longest kernel: {longest['name'][:60]}"
    found = {
        "system.launches": Metric(value=float(count), note="kernels, copies and fills (Kineto)"),
        "system.kernel_us": Metric(value=busy, unit="us", note="Kineto, union of device time"),
        "system.mean_kernel_us": Metric(value=busy / count, unit="us", how="derived"),
        "system.library_share": Metric(
            value=seen["library_us"] / busy if busy else 0.0,
            how="derived",
            note="share of device time in vendor libraries, by kernel name",
        ),
        "launch__grid_size": Metric(value=float(_product(longest["grid"])), note=facts),
        "launch__block_size": Metric(value=float(_product(longest["block"])), note=facts),
        "launch__registers_per_thread": Metric(value=float(longest["registers"]), note=facts),
        "device__attribute_multiprocessor_count": Metric(value=float(seen["multiprocessors"])),
    }
    if evaluation.timing is not None and evaluation.timing.median_us > 0:
        found["system.gap_share"] = Metric(
            value=max(0.0, 1.0 - busy / evaluation.timing.median_us),
            how="derived",
            note="1 - device time (Kineto) / the judge's time: waits for the host",
        )
    return found


def _on_cpu(seen: Mapping[str, Any], evaluation: Evaluation) -> dict[str, Metric]:
    own = evaluation.build is not None and bool(evaluation.build.binary)
    window = seen["window_us"]
    return {
        "system.launches": Metric(
            value=float(seen["operators"] + own),
            how="derived",
            note="ATen operators" + (" and the candidate's own library as one" if own else ""),
        ),
        "system.library_share": Metric(
            value=min(1.0, seen["library_us"] / window) if window else 0.0,
            how="derived",
            note="share of the call in matrix-product and convolution operators (Kineto)",
        ),
        "system.gap_share": (
            Metric(value=None, how="absent", note="own CPU kernels run outside of operators")
            if own or not window
            else Metric(
                value=max(0.0, 1.0 - seen["busy_us"] / window),
                how="derived",
                note="share of the call outside of operators, under Kineto, which adds to it",
            )
        ),
    }


def _product(sizes: list[int]) -> int:
    return sizes[0] * sizes[1] * sizes[2]
