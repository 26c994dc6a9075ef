"""The event table: one row for each thing that host or device did, whatever tool recorded it.

Columns of `Timeline.events` (a pandas DataFrame, sorted by start; every column is always there):

    kind                   what it is; see `KINDS`
    name                   demangled kernel, API function without its version, operator, or range;
                           copies are `HtoD`, `DtoH`, `DtoD`, `HtoH`, `PtoP`, fills are `memset`
    start_us, end_us       microseconds since the first event
    device, stream         the device's number and stream, -1 on the host
    thread                 the host's thread, -1 on a device
    correlation            joins a device's row with the API call that asked for it; -1 without
    grid_x..z, block_x..z  launch shape, 0 where it does not apply or is not known
    registers              per thread, NaN where not known
    static_shared_bytes,   shared memory of a block: Kineto knows only the sum of the two; NaN where
    dynamic_shared_bytes,  not known
    shared_bytes
    local_bytes            local memory of a thread (Nsight Systems only), NaN where not known
    occupancy              Kineto's estimate of active warps, %, NaN where there is none
    graph                  node in the CUDA graph that launched it, -1 without
    bytes                  of a copy, fill or migration, NaN elsewhere
    src_kind, dst_kind     `pageable`, `pinned`, `device`, `array`, `managed`, or empty
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelpro.errors import KernelproError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

KERNEL, MEMCPY, MEMSET, GRAPH, MIGRATION = "kernel", "memcpy", "memset", "graph", "migration"
RUNTIME, DRIVER, SYNC, FAULT = "runtime", "driver", "sync", "fault"
ANNOTATION, CPU_OP, PYTHON, OVERHEAD = "annotation", "cpu_op", "python", "overhead"

KINDS = {
    KERNEL: "a kernel on the device",
    MEMCPY: "a copy",
    MEMSET: "a fill",
    GRAPH: "a whole CUDA graph, where its nodes were not recorded",
    MIGRATION: "pages of managed memory on their way",
    FAULT: "a page fault of managed memory",
    RUNTIME: "a call of the CUDA runtime",
    DRIVER: "a call of the CUDA driver",
    SYNC: "a wait, as the device saw it",
    ANNOTATION: "a range that the program named (NVTX, record_function)",
    CPU_OP: "a framework's operator on the host",
    PYTHON: "a Python function",
    OVERHEAD: "the profiler's own work",
}
ON_DEVICE = (KERNEL, MEMCPY, MEMSET, GRAPH)
"""Kinds that keep a device busy."""

INTEGERS = {
    "device": -1,
    "stream": -1,
    "thread": -1,
    "correlation": -1,
    "grid_x": 0,
    "grid_y": 0,
    "grid_z": 0,
    "block_x": 0,
    "block_y": 0,
    "block_z": 0,
    "graph": -1,
}
NUMBERS = (
    "registers",
    "static_shared_bytes",
    "dynamic_shared_bytes",
    "shared_bytes",
    "local_bytes",
    "occupancy",
    "bytes",
)
WORDS = ("kind", "name", "src_kind", "dst_kind")
COLUMNS = ("kind", "name", "start_us", "end_us", *INTEGERS, *NUMBERS, "src_kind", "dst_kind")

_LARGEST = float(2**62)


class TimelineError(KernelproError):
    """A file is not a timeline that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a timeline says about a device; 0 where it says nothing.

    Attributes:
        number: as in the column `device`.
        name: the card's own name, or empty.
        multiprocessors: how many it has.
        threads: that fit on one multiprocessor.
        registers: of one multiprocessor, 32 bits each.
        shared_bytes: shared memory of one multiprocessor.
        capability: compute capability, such as (9, 0).
    """

    number: int = 0
    name: str = ""
    multiprocessors: int = 0
    threads: int = 0
    registers: int = 0
    shared_bytes: int = 0
    capability: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Everything that was recorded.

    Attributes:
        events: the event table; see this module's first lines.
        devices: the devices that it knows.
        source: which tool recorded it.
    """

    events: "pd.DataFrame"
    devices: tuple[Device, ...] = ()
    source: str = ""

    def device(self, number: int = 0) -> Device:
        """The device of that number, or one of which nothing is known."""
        return next((d for d in self.devices if d.number == number), Device(number=number))


def frame(columns: Mapping[str, Sequence[Any]]) -> "pd.DataFrame":
    """Make an event table of columns; those left out are filled, odd values become missing ones.

    `start_us` and `end_us` may begin anywhere: they are shifted so that the first event starts
    at 0, and rounded to a nanosecond. Rows without a start are left out; an end before the start
    becomes the start.
    """
    import numpy as np
    import pandas as pd

    given = {name: values for name, values in columns.items() if name in COLUMNS}
    length = max((len(values) for values in given.values()), default=0)
    out: dict[str, Any] = {}
    for name in COLUMNS:
        values = given.get(name)
        if name in WORDS:
            words = [""] * length if values is None else list(values)
            out[name] = np.array([_word(word) for word in words], dtype=object)
        elif values is None:
            out[name] = np.full(length, INTEGERS.get(name, math.nan))
        else:
            numbers = _numbers(values)
            numbers[~(np.abs(numbers) < _LARGEST)] = math.nan
            if name in INTEGERS:
                numbers = np.where(np.isnan(numbers), INTEGERS[name], numbers).astype(np.int64)
            out[name] = numbers
    table = pd.DataFrame(out, columns=list(COLUMNS))
    table = table[table["start_us"].notna()]
    order = np.lexsort((table["end_us"].to_numpy(), table["start_us"].to_numpy()))
    table = table.iloc[order].reset_index(drop=True)
    if len(table):
        first = float(table["start_us"].iloc[0])
        begin = (table["start_us"] - first).round(3)
        table["start_us"] = begin
        table["end_us"] = (table["end_us"] - first).round(3).fillna(begin).clip(lower=begin)
    return table


def shares_of_block(table: Sequence[Any]) -> int:
    """Product of a launch shape's three sizes, each at least 1; 0 where none is known."""
    if all(size <= 0 for size in table):
        return 0
    return math.prod(max(int(size), 1) for size in table)


def _word(value: Any) -> str:
    # A missing value of pandas is a float that does not equal itself.
    return "" if value is None or value != value else str(value)


def _numbers(values: Sequence[Any]) -> "NDArray[np.float64]":
    import numpy as np
    import pandas as pd

    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        series = pd.Series(list(values), dtype=object)
        return pd.to_numeric(series, errors="coerce").to_numpy(dtype=float, copy=True)
