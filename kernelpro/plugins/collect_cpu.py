"""Collector for the CPU target: rates and shares of peak, the host's counters, the hot loop.

Rates divide the problem's own FLOPs and least bytes by the judge's time, so they are lower bounds
of what the hardware did.
"""

from collections.abc import Mapping
from pathlib import Path

from kernelpro import Evaluation, Metric, Problem, Session, hookimpl
from kernelpro.profiling import peaks
from kernelpro.profiling.cpu import callgrind, facts, host, instruction_mix, rates, resources
from kernelpro.profiling.cpu.disassembly import ListingError
from kernelpro.profiling.remote import absent, ask
from kernelpro.profiling.speed_of_light import arithmetic_peak, speed_of_light

SHARES = (
    "cpu.time_us",
    "cpu.bytes_per_s",
    "cpu.flops_per_s",
    "cpu.bandwidth_share",
    "cpu.flops_share",
    "cpu.sol_share",
)
PROCESSOR = ("cpu.vector_bytes", "cpu.fused")
CODE = (*facts.NAMES, *rates.NAMES)
DEEP = frozenset({callgrind.TIER})
"""Names to add to those asked for where seconds do not matter: exact counts by callgrind."""


@hookimpl
def collect_metrics(
    problem: Problem, evaluation: Evaluation, names: frozenset[str], session: Session
) -> Mapping[str, Metric]:
    """Measure those groups of CPU metrics of which at least one is asked for."""
    if session.target != "cpu":
        return {}
    found: dict[str, Metric] = {}
    deep = not names.isdisjoint(DEEP)
    if names.intersection(SHARES):
        found |= shares(problem, evaluation)
    if deep or names.intersection(resources.NAMES):
        allowed = evaluation.timing.threads if evaluation.timing else 0
        seen, why = ask(
            session,
            "kernelpro.profiling.cpu.host:collect_resources",
            {},
            lambda answer: resources.metrics(answer, allowed),
        )
        found |= absent(resources.NAMES, why) if seen is None else seen
    if deep or names.intersection(CODE):
        binary = evaluation.build.binary if evaluation.build else ""
        found |= code(session, binary, deep=deep)
    if names.intersection(PROCESSOR):
        found |= processor()
    return found


def shares(problem: Problem, evaluation: Evaluation) -> dict[str, Metric]:
    """Rates from the judge's time, and their shares of the machine's measured peaks."""
    timing = evaluation.timing
    if timing is None or timing.median_us <= 0:
        return absent(SHARES, "the candidate was not timed")
    seconds = timing.median_us / 1e6
    moved, done = problem.min_bytes / seconds, problem.flops / seconds
    note = "over the judge's median time"
    found = {
        "cpu.time_us": Metric(value=timing.median_us, unit="us", note=timing.clock),
        "cpu.bytes_per_s": _derived(moved, "bytes/s", f"least bytes {note}"),
        "cpu.flops_per_s": _derived(done, "FLOP/s", f"FLOPs of the reference {note}"),
    }
    machine = peaks.machine("cpu")
    if machine is None:
        return found | absent(SHARES[3:], "this machine's peaks were not measured")
    path, peak = arithmetic_peak(problem, machine)
    light = speed_of_light(problem, machine)
    for name, value, limit, what in (
        ("cpu.bandwidth_share", moved, machine.bandwidth_bytes_per_s, "measured bandwidth"),
        ("cpu.flops_share", done, peak, f"measured {path} peak"),
        ("cpu.sol_share", light.sol_us, timing.median_us, "time"),
    ):
        found[name] = (
            _derived(value / limit, "", f"share of {what}")
            if limit > 0
            else Metric(value=None, how="absent", note=f"{what} is not known")
        )
    return found


def code(session: Session, binary: str, *, deep: bool) -> dict[str, Metric]:
    """Facts of a built library's hot loop, its rates and, when deep, what a call executes."""
    wanted = (*CODE, *instruction_mix.NAMES) if deep else CODE
    if not binary:
        return absent(wanted, "no library was built ahead")
    try:
        library = facts.read(Path(binary))
    except ListingError as error:
        return absent(wanted, str(error))
    found = facts.hot_loop(library) | rates.metrics(library.hottest, slow=deep)
    if deep:
        found |= executed(session, binary, library)
    return found


def executed(session: Session, binary: str, library: facts.Library) -> dict[str, Metric]:
    """What one call executes by callgrind, run below the candidate's process."""
    machine = peaks.machine("cpu")
    arguments = {"library": binary, "cache_bytes": machine.cache_bytes if machine else 0}
    found, why = ask(
        session,
        "kernelpro.profiling.cpu.callgrind:collect",
        arguments,
        lambda answer: instruction_mix.metrics(library, callgrind.counts(answer)),
    )
    return absent(instruction_mix.NAMES, why) if found is None else found


def processor() -> dict[str, Metric]:
    """What this machine's processor can do in one instruction."""
    width, note = host.vector_bytes(), "/proc/cpuinfo"
    if not width:
        return absent(PROCESSOR, "/proc/cpuinfo names no vector unit")
    return {
        "cpu.vector_bytes": Metric(value=float(width), unit="bytes", note=note),
        "cpu.fused": Metric(value=float(host.fused()), note=f"{note}: multiplies and adds at once"),
    }


def _derived(value: float, unit: str, note: str) -> Metric:
    return Metric(value=value, unit=unit, how="derived", note=note)
