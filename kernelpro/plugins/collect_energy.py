"""Collector for both targets: joules, watts and clocks while the candidate runs for some seconds.

It takes a quarter of a minute, so it runs only where that was asked for (`profile --deep`).
"""

from collections.abc import Mapping

from kernelpro import KernelproError, Metric, Session, hookimpl
from kernelpro.energy import clocks
from kernelpro.energy import meter as meters
from kernelpro.energy.sample import TIER, UNITS, sample
from kernelpro.profiling.remote import absent


@hookimpl
def collect_metrics(names: frozenset[str], session: Session) -> Mapping[str, Metric]:
    """Weigh the candidate with the target's own meter, if there is one."""
    if TIER not in names:
        return {}
    sweep = absent(clocks.NAMES, clocks.WHY_ABSENT)
    try:
        meter = meters.find(session.target)
    except KernelproError as error:
        return sweep | absent(UNITS, str(error))
    try:
        found, why = sample(
            meter,
            lambda seconds: session.collect("kernelpro.energy.sample:spin", {"seconds": seconds}),
        )
    except (KernelproError, LookupError, TypeError, ValueError) as error:
        return sweep | absent(UNITS, f"the candidate could not be weighed: {error}")
    finally:
        meter.close()
    note = f"{meter.name}, calls one after the other, each waited for"
    return {
        **sweep,
        **absent(UNITS, why or "the meter does not tell it"),
        **{n: Metric(value=v, unit=UNITS[n], note=note) for n, v in found.items()},
    }
