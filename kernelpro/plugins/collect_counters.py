"""Collector for the CUDA target: NVIDIA's hardware counters, read in the candidate's process."""

from collections.abc import Iterable, Mapping
from typing import Any

from kernelpro import Kernel, Metric, Profile, Session, hookimpl
from kernelpro.profiling.counters import launches, packs
from kernelpro.profiling.remote import absent, ask


@hookimpl
def collect_metrics(names: frozenset[str], session: Session) -> Profile:
    """Read all counters asked for in one session of the range profiler."""
    planned = packs.plan(names) if session.target == "cuda" else ()
    if not planned:
        return Profile()
    asked = [name for pack in planned for name in pack]
    found, why = ask(
        session,
        "kernelpro.profiling.counters.cupti:collect",
        {"packs": [list(pack) for pack in planned]},
        lambda seen: read(seen, asked),
    )
    return Profile(metrics=absent(asked, why)) if found is None else found


def read(seen: Mapping[str, Any], asked: Iterable[str]) -> Profile:
    """Turn what `cupti.collect` returned into metrics of the call and of each of its kernels."""
    asked, ranges = list(asked), seen["ranges"]
    count = len(ranges)
    note = f"CUPTI, {count} kernel{'s' * (count != 1)}, {seen['passes']} passes"
    if seen["dropped"]:
        note += f"; {seen['dropped']} more kernels did not fit"
    kernels, apart = launches.join(seen["launches"], ranges)
    if apart and ranges:
        note += f"; {apart}"

    def metrics(values: Mapping[str, float], note: str) -> dict[str, Metric]:
        return {
            name: Metric(value=float(values[name]), unit=packs.unit(name), note=note)
            if name in values
            else Metric(value=None, how="absent", note=_reason(name, seen))
            for name in asked
        }

    return Profile(
        metrics=metrics(launches.aggregate(ranges), note),
        kernels=tuple(
            Kernel(
                name=kernel.name,
                share=kernel.share,
                launches=kernel.launches,
                metrics=metrics(
                    kernel.values,
                    f"CUPTI, {kernel.launches} launch{'es' * (kernel.launches != 1)}, "
                    f"{seen['passes']} passes",
                ),
            )
            for kernel in kernels
        ),
    )


def _reason(name: str, seen: Mapping[str, Any]) -> str:
    """Why a counter has no value."""
    if seen["reason"]:
        return str(seen["reason"])
    if name in seen["rejected"]:
        return f"{seen['chip']} has no such counter"
    if name in seen["skipped"]:
        return (
            f"not counted: the call's {len(seen['launches'])} kernels would have to be replayed "
            "too often"
        )
    return "no kernel gave a value"
