"""Collector for the CPU target: rates and shares of peak, the host's counters, the hot loop.

Rates divide the problem's own FLOPs and least bytes by the judge's time, so they are lower bounds
of what the hardware did.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelpro import Evaluation, Metric, Problem, Session, hookimpl
from kernelpro.profiling import disassembly, host, loops, peaks, roofline
from kernelpro.profiling.remote import absent, ask

RATES = (
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
)
LOOP = (
    "cpu.asm.instructions",
    "cpu.asm.elements",
    "cpu.asm.vector_share",
    "cpu.asm.vector_bytes",
    "cpu.asm.loads",
    "cpu.asm.stores",
    "cpu.asm.streaming_stores",
    "cpu.asm.fma_share",
    "cpu.asm.gathers",
    "cpu.asm.divisions",
    "cpu.asm.calls",
    "cpu.asm.vector_calls",
    "cpu.asm.spills",
    "cpu.asm.chain",
    "cpu.asm.accumulators",
    "cpu.asm.chain_cycles",
    "cpu.asm.throughput_cycles",
    "cpu.asm.scalar_remainder",
    "cpu.asm.parallel",
)
VECTOR = "cpu.vector_bytes"


@hookimpl
def collect_metrics(
    problem: Problem, evaluation: Evaluation, names: frozenset[str], session: Session
) -> Mapping[str, Metric]:
    """Measure those groups of CPU metrics of which at least one is asked for."""
    if session.target != "cpu":
        return {}
    found: dict[str, Metric] = {}
    if names.intersection(RATES):
        found |= rates(problem, evaluation)
    if names.intersection(RESOURCES):
        seen, why = ask(
            session,
            "kernelpro.profiling.host:collect_resources",
            {},
            lambda answer: resources(answer, evaluation),
        )
        found |= absent(RESOURCES, why) if seen is None else seen
    if names.intersection(LOOP):
        binary = evaluation.build.binary if evaluation.build else ""
        found |= hot_loop(Path(binary)) if binary else absent(LOOP, "no library was built ahead")
    if VECTOR in names:
        width = host.vector_bytes()
        found[VECTOR] = (
            Metric(value=float(width), unit="bytes", note="/proc/cpuinfo")
            if width
            else Metric(value=None, how="absent", note="/proc/cpuinfo names no vector unit")
        )
    return found


def rates(problem: Problem, evaluation: Evaluation) -> dict[str, Metric]:
    """Rates from the judge's time, and their shares of the machine's measured peaks."""
    timing = evaluation.timing
    if timing is None or timing.median_us <= 0:
        return absent(RATES, "the candidate was not timed")
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
        return found | absent(RATES[3:], "this machine's peaks were not measured")
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
    threads = evaluation.timing.threads if evaluation.timing else 0
    found["cpu.thread_share"] = (
        _derived(seen["threads_used"] / threads, "", f"{note}, of {threads} threads")
        if threads
        else Metric(value=None, how="absent", note="the number of threads is not known")
    )
    return found


def hot_loop(binary: Path) -> dict[str, Metric]:
    """What the likely hottest loop of a built library does each iteration, read off its code.

    Each metric's note says where the loop is.
    """
    try:
        bodies = disassembly.functions(disassembly.listing(binary))
    except disassembly.ListingError as error:
        return absent(LOOP, str(error))
    found = [loop for name, body in bodies.items() for loop in loops.innermost_loops(name, body)]
    loop = loops.hottest(found)
    if loop is None:
        return absent(LOOP, "no loop of the library does floating-point work")
    sums = {kind: loop.operations.get(kind, 0) for kind in ("fma", "mul", "add", "sub")}
    total = sum(sums.values())
    values = {
        "cpu.asm.instructions": len(loop.body),
        "cpu.asm.elements": loop.elements,
        "cpu.asm.vector_share": loop.vector_share,
        "cpu.asm.vector_bytes": loop.width,
        "cpu.asm.loads": sum(i.loads for i in loop.body),
        "cpu.asm.stores": sum(i.stores for i in loop.body),
        "cpu.asm.streaming_stores": sum(bool(re.match("v?movnt", i.mnemonic)) for i in loop.body),
        "cpu.asm.fma_share": sums["fma"] / total if total else 0.0,
        "cpu.asm.gathers": loop.gathers,
        "cpu.asm.divisions": loop.divisions,
        "cpu.asm.calls": len(loop.calls),
        "cpu.asm.vector_calls": len(loop.vector_calls),
        "cpu.asm.spills": loop.spills,
        "cpu.asm.chain": loop.chain,
        "cpu.asm.accumulators": loop.accumulators,
        "cpu.asm.chain_cycles": loop.chain * loops.FP_LATENCY,
        "cpu.asm.throughput_cycles": loop.throughput_cycles,
        "cpu.asm.scalar_remainder": loops.has_scalar_remainder(loop, found),
        "cpu.asm.parallel": any("._omp_fn." in name for name in bodies),
    }
    called = f", which calls {', '.join(sorted(set(loop.calls)))}" if loop.calls else ""
    return {
        name: Metric(value=float(value), how="static", note=loop.where + called)
        for name, value in values.items()
    }


def _derived(value: float, unit: str, note: str) -> Metric:
    return Metric(value=value, unit=unit, how="derived", note=note)
