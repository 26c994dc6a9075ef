"""Collector for the CPU target: rates and shares of peak, the host's counters, the hot loop.

Rates divide the problem's own FLOPs and least bytes by the judge's time, so they are lower bounds
of what the hardware did.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelpro import Evaluation, KernelproError, Metric, Problem, Session, hookimpl
from kernelpro.profiling import peaks, roofline
from kernelpro.profiling.cpu import callgrind, facts, host, instruction_mix, perf, rates, threads
from kernelpro.profiling.cpu.disassembly import ListingError
from kernelpro.profiling.remote import absent, ask

SHARES = (
    "cpu.time_us",
    "cpu.bytes_per_s",
    "cpu.flops_per_s",
    "cpu.bandwidth_share",
    "cpu.flops_share",
    "cpu.sol_share",
)
RESOURCES = (
    "cpu.page_faults",
    "cpu.major_faults",
    "cpu.waits",
    "cpu.preemptions",
    "cpu.system_share",
    "cpu.threads_used",
    "cpu.thread_share",
    "cpu.threads_active",
    "cpu.thread_imbalance",
)
EVENTS = tuple(f"cpu.perf.{name}" for name in perf.EVENTS)
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
    if deep or names.intersection((*RESOURCES, *EVENTS)):
        seen, why = ask(
            session,
            "kernelpro.profiling.cpu.host:collect_resources",
            {},
            lambda answer: resources(answer, evaluation),
        )
        found |= absent((*RESOURCES, *EVENTS), why) if seen is None else seen
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
    path, peak = roofline.arithmetic_peak(problem, machine)
    light = roofline.speed_of_light(problem, machine)
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


def resources(seen: Mapping[str, Any], evaluation: Evaluation) -> dict[str, Metric]:
    """Turn what `host.collect_resources` returned into metrics."""
    note = f"getrusage over {seen['calls']} calls"
    busy = seen["user_us"] + seen["system_us"]
    found = {
        "cpu.page_faults": Metric(value=seen["minor_faults"], note=note),
        "cpu.major_faults": Metric(value=seen["major_faults"], note=note),
        "cpu.waits": Metric(value=seen["waits"], note=note),
        "cpu.preemptions": Metric(value=seen["preemptions"], note=note),
        "cpu.threads_used": Metric(value=seen["threads_used"], note=f"{note}: busy over wall time"),
        "cpu.system_share": _derived(seen["system_us"] / busy if busy else 0.0, "", note),
    }
    spent = [float(value) for value in seen["threads_us"]]
    active = len(threads.taking_part(spent))
    per_thread = f"processor time of each thread over {seen['calls']} calls"
    found["cpu.threads_active"] = Metric(value=float(active), note=per_thread)
    found["cpu.thread_imbalance"] = _derived(
        threads.imbalance(spent),
        "",
        f"{per_thread}: 1 - mean / slowest; spinning at a barrier counts as work",
    )
    allowed = evaluation.timing.threads if evaluation.timing else 0
    found["cpu.thread_share"] = (
        _derived(seen["threads_used"] / allowed, "", f"{note}, of {allowed} threads")
        if allowed
        else Metric(value=None, how="absent", note="the number of threads is not known")
    )
    return found | events(seen)


def events(seen: Mapping[str, Any]) -> dict[str, Metric]:
    """What perf_event_open counted in a call, by event; absent, with the reason, where it did not.

    The note of an absent count of instructions says what counts them instead.
    """
    instead = {
        "instructions": "; callgrind counts them exactly, where valgrind is installed",
        "cache_misses": "; callgrind models them, where valgrind is installed",
        "branch_misses": "; callgrind models them, where valgrind is installed",
    }
    found = {}
    for event in perf.EVENTS:
        value = seen["events"].get(event)
        kind = "hardware" if perf.EVENTS[event][0] != perf.SOFTWARE else "software"
        found[f"cpu.perf.{event}"] = (
            Metric(value=float(value), note=f"perf_event_open, {kind}, over {seen['calls']} calls")
            if value is not None
            else Metric(
                value=None,
                how="absent",
                note=str(seen["refused"].get(event, "not counted")) + instead.get(event, ""),
            )
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
    try:
        answer = session.collect("kernelpro.profiling.cpu.callgrind:collect", arguments)
        return instruction_mix.metrics(library, callgrind.counts(answer))
    except KernelproError as error:
        return absent(instruction_mix.NAMES, str(error))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        return absent(instruction_mix.NAMES, str(error) or type(error).__name__)


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
