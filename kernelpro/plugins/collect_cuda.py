"""Collector for the CUDA target: NVIDIA's hardware counters, read in the candidate's process."""

from collections.abc import Mapping
from typing import Any

from kernelpro import Metric, Session, hookimpl
from kernelpro.profiling import cupti
from kernelpro.profiling.remote import absent, ask

# Names that look like counters but are facts of the launch or the device; see collect_timeline.
FACTS = ("launch__", "device__", "derived__")


@hookimpl
def collect_metrics(names: frozenset[str], session: Session) -> Mapping[str, Metric]:
    """Read all counters asked for in one session of the range profiler."""
    counters = sorted(n for n in names if "__" in n and not n.startswith(FACTS))
    if session.target != "cuda" or not counters:
        return {}
    asked = [cupti.DURATION, *(name for name in counters if name != cupti.DURATION)]
    found, why = ask(
        session,
        "kernelpro.profiling.cupti:collect",
        {"metrics": asked},
        lambda seen: read(seen, asked),
    )
    return absent(asked, why) if found is None else found


def read(seen: Mapping[str, Any], asked: list[str]) -> dict[str, Metric]:
    """Turn what `cupti.collect` returned into metrics, one for each name that was asked for."""
    values = cupti.aggregate(seen["ranges"])
    kernels = len(seen["ranges"])
    note = f"CUPTI, {kernels} kernel{'s' * (kernels != 1)}, {seen['passes']} passes"
    if seen["dropped"]:
        note += f"; {seen['dropped']} more kernels did not fit"
    found = {}
    for name in asked:
        if name in values:
            unit = "%" if ".pct" in name else "ns" if name == cupti.DURATION else ""
            found[name] = Metric(value=values[name], unit=unit, note=note)
        else:
            why = seen["reason"] or (
                f"{seen['chip']} has no such counter"
                if name in seen["rejected"]
                else "no kernel gave a value"
            )
            found[name] = Metric(value=None, how="absent", note=why)
    return found
