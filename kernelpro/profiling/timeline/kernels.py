"""Kernels of a timeline: share of the device's time, launch facts, and how they fill the device."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernelpro.profiling.names import short
from kernelpro.profiling.occupancy import LIMITS, Occupancy
from kernelpro.profiling.timeline.events import Device, shares_of_block
from kernelpro.profiling.timeline.occupancy import occupancy
from kernelpro.profiling.timeline.rows import Rows
from kernelpro.profiling.timeline.scope import Scope, derived
from kernelpro.records import Kernel, Metric

GRID, BLOCK = ("grid_x", "grid_y", "grid_z"), ("block_x", "block_y", "block_z")
FACTS = {
    "registers": ("launch__registers_per_thread", "register/thread"),
    "static_shared_bytes": ("launch__shared_mem_per_block_static", "bytes"),
    "dynamic_shared_bytes": ("launch__shared_mem_per_block_dynamic", "bytes"),
    "shared_bytes": ("launch__shared_mem_per_block", "bytes"),
    "local_bytes": ("launch__local_mem_per_thread", "bytes"),
    "occupancy": ("system.estimated_occupancy", "%"),
}
COVER = 0.8  # as the dispatcher examines kernels


def kernels(scope: Scope) -> tuple[Kernel, ...]:
    """The kernels by name, the longest first; facts are of the longest launch of each."""
    rows = scope.kernels
    total = scope.ops.total_us
    if not len(rows) or total <= 0:
        return ()
    places: dict[str, list[int]] = {}
    for place, name in enumerate(rows["name"].tolist()):
        places.setdefault(name, []).append(place)
    joined: dict[str, list[int]] = {}
    for name, chosen in places.items():
        joined.setdefault(short(name), []).extend(chosen)
    made = []
    for name, chosen in joined.items():
        group = rows.where(np.array(chosen))
        made.append(
            Kernel(
                name=name,
                share=group.total_us / total,
                launches=max(1, round(len(group) / scope.steps)),
                metrics=_facts(scope, group),
            )
        )
    return tuple(sorted(made, key=lambda kernel: (-kernel.share, kernel.name)))


def summary(scope: Scope, found: Sequence[Kernel]) -> dict[str, Metric]:
    """What the kernels together show: the largest, those that leave the device empty."""
    metrics = device_facts(scope.device)
    if not found:
        return metrics
    covered, count = 0.0, 0
    for kernel in found:
        if covered >= COVER:
            break
        covered, count = covered + kernel.share, count + 1
    top = found[0]
    metrics["system.top_kernel_share"] = derived(
        top.share, note=f"{top.name}; {count} kernels cover {covered:.0%} of the device time"
    )
    metrics |= _serial(scope)
    return metrics


def device_facts(device: Device) -> dict[str, Metric]:
    """What is known of the device, under NVIDIA's names."""
    known = {
        "device__attribute_multiprocessor_count": device.multiprocessors,
        "device__attribute_max_threads_per_multiprocessor": device.threads,
        "device__attribute_max_registers_per_multiprocessor": device.registers,
        "device__attribute_max_shared_memory_per_multiprocessor": device.shared_bytes,
        "device__attribute_compute_capability_major": device.capability[0],
    }
    found = {
        name: Metric(value=float(value), note=device.name) for name, value in known.items() if value
    }
    if device.capability[0]:
        found["device__attribute_compute_capability_minor"] = Metric(
            value=float(device.capability[1]), note=device.name
        )
    return found


def _facts(scope: Scope, group: Rows) -> dict[str, Metric]:
    place = int(group.lengths.argmax())
    row = {name: group[name][place] for name in (*GRID, *BLOCK, *FACTS)}
    grid, block = (shares_of_block([row[c] for c in columns]) for columns in (GRID, BLOCK))
    note = (
        f"launch record; grid {_shape(row, GRID)}, block {_shape(row, BLOCK)}, "
        f"{len(group) / scope.steps:.4g} a step"
    )
    found = {
        "system.kernel_time_us": Metric(
            value=float(group.lengths.mean()), unit="us", note="mean of its launches"
        )
    }
    if grid and block:
        found["launch__grid_size"] = Metric(value=float(grid), note=note)
        found["launch__block_size"] = Metric(value=float(block), note=note)
        found["launch__thread_count"] = derived(float(grid * block), "thread", note)
    for column, (name, unit) in FACTS.items():
        if not np.isnan(row[column]):
            found[name] = Metric(value=float(row[column]), unit=unit, note=note)
    limits = fill(scope.device, row)
    if limits is not None:
        text = f"from the launch record and the device's limits; {note}"
        for limit, blocks in limits.limits.items():
            found[LIMITS[limit]] = derived(blocks, "block", text)
        found["system.theoretical_occupancy"] = derived(
            100.0 * limits.share, "%", f"limited by {limits.limiter}; {note}"
        )
        if scope.device.multiprocessors and limits.blocks:
            found["launch__waves_per_multiprocessor"] = derived(
                grid / (scope.device.multiprocessors * limits.blocks), note=text
            )
    return found


def fill(device: Device, row: Mapping[str, Any]) -> Occupancy | None:
    """How many blocks of a launch fit on a multiprocessor; None where that is not known."""
    return occupancy(
        device,
        threads=shares_of_block([row[c] for c in BLOCK]),
        registers=float(row["registers"]),
        shared_bytes=float(row["shared_bytes"]),
    )


def _shape(row: Mapping[str, Any], columns: tuple[str, ...]) -> str:
    return "x".join(str(int(row[c])) for c in columns)


def _serial(scope: Scope) -> dict[str, Metric]:
    """Equal launches in a row that each leave most of the device empty."""
    rows = scope.kernels
    units = scope.device.multiprocessors
    if not units:
        return {}
    lengths = rows.lengths
    shape = ("registers", "shared_bytes", *BLOCK, *GRID, "name", "stream")
    shapes = rows.tuples(*shape)
    saved, small, worst, where = 0.0, 0.0, 0.0, "no equal launches in a row"
    first = 0
    room: dict[str, float] = {}
    while first < len(shapes):
        row, last = shapes[first], first + 1
        while last < len(shapes) and shapes[last][2:] == row[2:]:
            last += 1
        grid = shares_of_block(row[5:8])
        key = str(row)
        if key not in room:
            limits = fill(scope.device, dict(zip(shape, row, strict=True)))
            room[key] = units * (limits.blocks if limits is not None and limits.blocks else 1)
        if 0 < grid < room[key]:
            us = float(lengths[first:last].sum())
            small += us
            gain = us * (1.0 - 1.0 / min(last - first, max(room[key] // grid, 1)))
            saved += gain
            if gain > worst:
                worst = gain
                where = f"{last - first} launches of {short(row[8])} in a row, {grid} blocks each"
        first = last
    total = float(lengths.sum())
    return {
        "system.small_grid_share": derived(
            small / total if total > 0 else 0.0,
            note=f"share of kernel time in launches of less than one wave; {where}",
        ),
        "system.serial_share": derived(scope.share(saved), note=where),
    }
