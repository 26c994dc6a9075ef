"""Counters that Nsight Compute keeps per instruction, reduced to shares that say where in a note.

Takes an action of the ncu-report package. What a share is of, and its source:

- `source.uncoalesced_excess_share`: L2 sectors of global accesses beyond those that the same
  accesses need at best (ncu's UncoalescedGlobalAccess rule); `source.uncoalesced_excess_sectors`.
- `source.shared_excess_share`: the same for wavefronts of shared memory
  (UncoalescedSharedAccess); `source.shared_excess_wavefronts`.
- `source.idle_lane_share`: lanes of executed instructions that were masked or predicated off.
- `source.stall.<reason>`: share of the warp samples that were stalled for a reason;
  `source.hottest_share`: share of the samples at the instruction that has most;
  `source.hottest_reason_share`: share of those that its most frequent reason has.
- `source.opcode.<OPCODE>`: executions of an opcode, by warps.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from kernelpro.records import Metric

STALL = "smsp__pcsamp_warps_issue_stalled_"
STALL_GROUP = "group:smsp__pcsamp_warp_stall_reasons"
OPCODES = "sass__inst_executed_per_opcode"
LANES = 32
SHOWN = 3  # instructions that a note names
_HEX = re.compile(r"0x[0-9a-f]+")

# Name of the share, of the absolute number and its unit; the metric and what is ideal.
_EXCESS = (
    (
        "source.uncoalesced_excess_share",
        "source.uncoalesced_excess_sectors",
        "sectors",
        "memory_l2_theoretical_sectors_global",
        "memory_l2_theoretical_sectors_global_ideal",
    ),
    (
        "source.shared_excess_share",
        "source.shared_excess_wavefronts",
        "wavefronts",
        "memory_l1_wavefronts_shared",
        "memory_l1_wavefronts_shared_ideal",
    ),
)


def reduce(action: Any) -> dict[str, Metric]:
    """All reductions that the recorded counters allow; empty where nothing was recorded by line."""
    found: dict[str, Metric] = {}
    for share, absolute, unit, have, ideal in _EXCESS:
        found |= _excess(action, share, absolute, unit, have, ideal)
    return found | _idle_lanes(action) | _stalls(action) | _opcodes(action)


def listing(action: Any, symbol: str) -> str:
    """The machine code, one instruction a line with its offset, and the source lines; or nothing.

    In the layout of cuobjdump, with jump targets as offsets. Empty where the report was recorded
    without counters by instruction.
    """
    places = sorted(per_pc(action, "inst_executed"))
    if not places:
        return ""
    base, last = places[0], places[-1]
    lines, before = [f"\t\tFunction : {symbol}"], ("", 0)
    for pc in places:
        source = _source(action, pc)
        if source != before and source[0]:
            lines.append(f'\t//## File "{source[0]}", line {source[1]}')
        before = source
        text = " ".join(
            _relative(word, base, last) for word in str(action.sass_by_pc(pc) or "").split()
        )
        lines.append(f"        /*{pc - base:04x}*/                   {text} ;")
    return "\n".join(lines) + "\n"


def per_pc(action: Any, name: str) -> dict[int, float]:
    """Values of a metric by address of the instruction; empty where it has none."""
    metric = action.metric_by_name(name)
    if metric is None or not metric.has_correlation_ids():
        return {}
    ids = metric.correlation_ids()
    return {
        ids.as_uint64(place): float(metric.as_double(place))
        for place in range(metric.num_instances())
    }


def _excess(
    action: Any, share: str, absolute: str, unit: str, have: str, ideal: str
) -> dict[str, Metric]:
    real, best = per_pc(action, have), per_pc(action, ideal)
    whole = sum(real.values())
    if whole <= 0:
        return {}
    excess = {pc: max(0.0, value - best.get(pc, 0.0)) for pc, value in real.items()}
    total = sum(excess.values())
    note = _where(action, excess, whole)
    return {
        share: Metric(value=min(1.0, total / whole), how="derived", note=note),
        absolute: Metric(value=total, unit=unit, how="derived", note=note),
    }


def _idle_lanes(action: Any) -> dict[str, Metric]:
    warps, threads = per_pc(action, "inst_executed"), per_pc(action, "thread_inst_executed_true")
    whole = LANES * sum(warps.values())
    if whole <= 0 or not threads:
        return {}
    idle = {pc: max(0.0, LANES * n - threads.get(pc, 0.0)) for pc, n in warps.items()}
    note = _where(action, idle, whole)
    return {
        "source.idle_lane_share": Metric(
            value=min(1.0, sum(idle.values()) / whole), how="derived", note=note
        )
    }


def _stalls(action: Any) -> dict[str, Metric]:
    reasons = {
        name.removeprefix(STALL): samples
        for name in _stall_names(action)
        if (samples := per_pc(action, name))
    }
    totals = {reason: sum(samples.values()) for reason, samples in reasons.items()}
    whole = sum(totals.values())
    if whole <= 0:
        return {}
    found = {
        f"source.stall.{reason}": Metric(
            value=totals[reason] / whole, how="derived", note=_where(action, samples, whole)
        )
        for reason, samples in reasons.items()
    }
    by_place: dict[int, float] = {}
    for samples in reasons.values():
        for pc, count in samples.items():
            by_place[pc] = by_place.get(pc, 0.0) + count
    hottest = max(by_place, key=lambda pc: by_place[pc])
    main = max(reasons, key=lambda reason: reasons[reason].get(hottest, 0.0))
    part = reasons[main].get(hottest, 0.0) / by_place[hottest]
    note = (
        f"{_place(action, hottest)}; {main} is {part:.0%} of its {by_place[hottest]:.0f} samples, "
        f"of {whole:.0f} in all"
    )
    hot = {"source.hottest_share": by_place[hottest] / whole, "source.hottest_reason_share": part}
    for name, value in hot.items():
        found[name] = Metric(value=value, how="derived", note=note)
    return found


def _stall_names(action: Any) -> Iterable[str]:
    group = action.metric_by_name(STALL_GROUP)
    if group is not None and group.has_value():
        listed = [name for name in str(group.value()).split(",") if name.startswith(STALL)]
        if listed:
            return listed
    return (
        name
        for name in action.metric_names()
        if name.startswith(STALL) and not name.endswith("_not_issued")
    )


def _opcodes(action: Any) -> dict[str, Metric]:
    metric = action.metric_by_name(OPCODES)
    if metric is None or not metric.has_correlation_ids():
        return {}
    names = metric.correlation_ids()
    return {
        f"source.opcode.{names.as_string(place)}": Metric(
            value=float(metric.as_double(place)), unit="inst", note=OPCODES
        )
        for place in range(metric.num_instances())
    }


def _where(action: Any, values: Mapping[int, float], whole: float) -> str:
    """The instructions with the largest values: their place, text and share of the whole."""
    top = sorted((pc for pc in values if values[pc] > 0), key=lambda pc: (-values[pc], pc))
    return "; ".join(f"{_place(action, pc)} ({values[pc] / whole:.0%})" for pc in top[:SHOWN])


def _place(action: Any, pc: int) -> str:
    file, line = _source(action, pc)
    # Where a jump leads says nothing without the listing.
    words = str(action.sass_by_pc(pc) or "").split()
    text = " ".join(w for w in words if not (w.startswith("`(") or (len(w) > 10 and _HEX.match(w))))
    return f"{PurePath(file).name}:{line} {text}" if file else text


def _source(action: Any, pc: int) -> tuple[str, int]:
    info = action.source_info(pc)
    return (str(info.file_name()), int(info.line())) if info is not None else ("", 0)


def _relative(word: str, base: int, last: int) -> str:
    """An absolute jump target as an offset into the function; any other word as it is."""
    if _HEX.fullmatch(word) and base <= int(word, 16) <= last:
        return f"0x{int(word, 16) - base:x}"
    return word
