"""Read timelines of Nsight Systems from its SQLite export.

The schema differs between versions and tables exist only where something was recorded, so every
table and column is looked up by its name and may be missing. Times in the file are nanoseconds.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpro.profiling.timeline import calls
from kernelpro.profiling.timeline import events as ev
from kernelpro.profiling.timeline.events import Device, Timeline, TimelineError

if TYPE_CHECKING:
    import pandas as pd

HEADER = b"SQLite format 3\0"
PROCESS = 1 << 40  # more than the correlations of one process
RANGES = (59, 60)  # eventType of NVTX push/pop and start/end ranges

# The documented numbers of copyKind; those of managed memory's migrations are larger.
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
MIGRATIONS = {11: "HtoD", 12: "DtoH", 13: "DtoD"}
# Numbers of srcKind and dstKind, as ENUM_CUDA_MEM_KIND lists them, and as CUPTI's header does.
MEMORY = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device"}
MEMORY_OF_CUPTI = {1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed"}

# Column of the event table -> the names that versions gave it.
_COMMON = {"device": ("deviceId",), "stream": ("streamId",), "correlation": ("correlationId",)}
_TIMES = {"start_us": ("start", "timestamp"), "end_us": ("end",)}
_KERNEL = {
    **_COMMON,
    **{f"grid_{axis}": (f"grid{axis.upper()}",) for axis in "xyz"},
    **{f"block_{axis}": (f"block{axis.upper()}",) for axis in "xyz"},
    "registers": ("registersPerThread",),
    "static_shared_bytes": ("staticSharedMemory",),
    "dynamic_shared_bytes": ("dynamicSharedMemory",),
    "local_bytes": ("localMemoryPerThread",),
    "graph": ("graphNodeId",),
    "name": ("demangledName", "shortName", "mangledName", "name"),
}
_CALL = {
    "thread": ("globalTid", "threadId"),
    "correlation": ("correlationId",),
    "name": ("nameId", "name"),
}
_TABLES: tuple[tuple[str, str, dict[str, tuple[str, ...]]], ...] = (
    (ev.KERNEL, "CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL),
    (ev.KERNEL, "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", _KERNEL),
    (ev.MEMCPY, "CUPTI_ACTIVITY_KIND_MEMCPY", {**_COMMON, "bytes": ("bytes",)}),
    (ev.MEMSET, "CUPTI_ACTIVITY_KIND_MEMSET", {**_COMMON, "bytes": ("bytes",)}),
    (ev.GRAPH, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", {**_COMMON, "graph": ("graphId",)}),
    (ev.RUNTIME, "CUPTI_ACTIVITY_KIND_RUNTIME", _CALL),
    (ev.DRIVER, "CUPTI_ACTIVITY_KIND_DRIVER", _CALL),
    (ev.SYNC, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", {"correlation": ("correlationId",)}),
    (ev.ANNOTATION, "NVTX_EVENTS", {"thread": ("globalTid",), "name": ("text",)}),
    (ev.OVERHEAD, "PROFILER_OVERHEAD", {"thread": ("globalTid",), "name": ("nameId", "name")}),
    (ev.FAULT, "CUDA_UM_CPU_PAGE_FAULT_EVENTS", {"thread": ("globalTid",)}),
    (ev.FAULT, "CUDA_UM_GPU_PAGE_FAULT_EVENTS", {"device": ("deviceId",)}),
)


def read(path: str | Path) -> Timeline:
    """Read the SQLite file that `nsys export --type sqlite` or `nsys stats` writes.

    Raises:
        TimelineError: the file cannot be read, is no such export, or holds no events.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(len(HEADER))
    except OSError as error:
        raise TimelineError(f"{path} cannot be read: {error}") from error
    if head != HEADER:
        found = "it is empty" if not head else "it is no SQLite database"
        raise TimelineError(f"{path} is no export of Nsight Systems: {found}")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            timeline = _read(database)
    except sqlite3.Error as error:
        raise TimelineError(
            f"{path} cannot be read as an export of Nsight Systems: {error}; export it again"
        ) from error
    if timeline is None:
        raise TimelineError(f"{path} is an SQLite database, but no export of Nsight Systems")
    if timeline.events.empty:
        raise TimelineError(
            f"{path} is an export of Nsight Systems without events; record with "
            "`nsys profile --trace cuda,nvtx`"
        )
    return timeline


def _read(database: sqlite3.Connection) -> Timeline | None:
    import pandas as pd

    database.text_factory = lambda data: data.decode("utf-8", "replace")
    tables = {str(row[0]) for row in database.execute("SELECT name FROM sqlite_master")}
    known = [entry for entry in _TABLES if entry[1] in tables]
    if not known and not tables & {"StringIds", "TARGET_INFO_GPU", "META_DATA_EXPORT"}:
        return None
    strings = _strings(database) if "StringIds" in tables else {}
    memory = _memory_kinds(database) if "ENUM_CUDA_MEM_KIND" in tables else {}
    parts = []
    for kind, name, columns in known:
        found = _load(database, name)
        if len(found) and any(column in found for column in _TIMES["start_us"]):
            parts.append(_part(kind, found, columns, strings, memory))
    parts = [part for part in parts if not part.empty]
    joined = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    _tell_processes_apart(joined)
    return Timeline(
        events=ev.frame({str(name): joined[name].tolist() for name in joined}),
        devices=_devices(database, tables),
        source="Nsight Systems",
    )


def _tell_processes_apart(columns: "pd.DataFrame") -> None:
    """Make correlations unique: each process counts its own from 1."""
    import pandas as pd

    if "process" in columns and "correlation" in columns:
        process = pd.factorize(columns["process"])[0]
        columns["correlation"] += (process.clip(min=0)) * PROCESS


def _load(database: sqlite3.Connection, table: str) -> "pd.DataFrame":
    import pandas as pd

    cursor = database.execute(f'SELECT * FROM "{table}"')
    names = [str(column[0]) for column in cursor.description]
    return pd.DataFrame(cursor.fetchall(), columns=names, dtype=object)


def _strings(database: sqlite3.Connection) -> dict[Any, str]:
    found = _load(database, "StringIds")
    if not {"id", "value"} <= set(found):
        return {}
    return {key: str(value) for key, value in zip(found["id"], found["value"], strict=True)}


def _memory_kinds(database: sqlite3.Connection) -> dict[int, str]:
    """Kinds of memory by number, as the file itself lists them."""
    found = _load(database, "ENUM_CUDA_MEM_KIND")
    label = next((name for name in ("label", "name") if name in found), None)
    if label is None or "id" not in found:
        return {}
    kinds = {}
    for key, value in zip(found["id"], found[label], strict=True):
        words = str(value).lower()
        # "device static" and "managed static" count as device and managed.
        for kind in ("pageable", "pinned", "device", "array", "managed"):
            if kind in words and isinstance(key, int):
                kinds[key] = kind
    return kinds


def _part(
    kind: str,
    found: "pd.DataFrame",
    columns: dict[str, tuple[str, ...]],
    strings: dict[Any, str],
    memory: dict[int, str],
) -> "pd.DataFrame":
    """Rows of one of the file's tables as columns of the event table."""
    import pandas as pd

    part = pd.DataFrame(index=found.index)
    for ours, names in {**_TIMES, **columns}.items():
        column = next((name for name in names if name in found), None)
        if column is None:
            continue
        if ours == "name":
            part[ours] = [strings.get(v, "" if v is None else str(v)) for v in found[column]]
        else:
            part[ours] = _numbers(found[column])
    for name in ("start_us", "end_us"):
        if name in part:
            # In whole nanoseconds first: sums of large floats lose them.
            part[name] = part[name] / 1000.0
    owner = next((name for name in ("globalPid", "globalTid") if name in found), None)
    if owner is not None:
        # The low 24 bits of both are the thread, 0 for a whole process.
        part["process"] = _numbers(found[owner]).fillna(0) // (1 << 24)
    part["kind"] = kind
    if "correlation" in part:
        part["correlation"] = part["correlation"].where(part["correlation"] != 0)
    if kind == ev.KERNEL:
        shared = [n for n in ("static_shared_bytes", "dynamic_shared_bytes") if n in part]
        if shared:
            part["shared_bytes"] = part[shared].sum(axis=1, min_count=1)
        if "graph" in part:
            part["graph"] = part["graph"].where(part["graph"] != 0)
    elif kind == ev.MEMSET:
        part["name"] = "memset"
    elif kind == ev.GRAPH:
        part["name"] = "CUDA graph"
    elif kind == ev.MEMCPY:
        _copies(part, found, memory)
    elif kind in (ev.RUNTIME, ev.DRIVER):
        part["name"] = [calls.bare(name) for name in part.get("name", [""] * len(part))]
        driver = [bool(re.match(r"cu[A-Z]", name)) for name in part["name"]]
        part["kind"] = [ev.DRIVER if is_driver else ev.RUNTIME for is_driver in driver]
    elif kind == ev.ANNOTATION:
        part = _ranges(part, found, strings)
    elif kind == ev.FAULT:
        part["name"] = "page fault"
    return part


def _numbers(values: "pd.Series[Any]") -> "pd.Series[float]":
    """A column's values as floats; what no clock or counter can have given is NaN."""
    import pandas as pd

    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    return numbers.where(numbers.abs() < 2.0**62)


def _copies(part: "pd.DataFrame", found: "pd.DataFrame", memory: dict[int, str]) -> None:
    """Name copies by direction, tell migrations from them, and name the kinds of memory."""
    numbers = {
        name: (
            _numbers(found[name]).fillna(-1).astype("int64").tolist()
            if name in found
            else [-1] * len(found)
        )
        for name in ("copyKind", "srcKind", "dstKind")
    }
    part["kind"] = [ev.MIGRATION if n in MIGRATIONS else ev.MEMCPY for n in numbers["copyKind"]]
    part["name"] = [
        COPIES.get(n) or MIGRATIONS.get(n) or f"copy of kind {n}" for n in numbers["copyKind"]
    ]
    if not memory:
        # Files without the enumeration use either numbering; the device's own number tells which.
        onto_device = {
            dst
            for copy, dst in zip(numbers["copyKind"], numbers["dstKind"], strict=True)
            if copy in (1, 8)
        } | {
            src
            for copy, src in zip(numbers["copyKind"], numbers["srcKind"], strict=True)
            if copy in (2, 8)
        }
        memory = MEMORY_OF_CUPTI if 3 in onto_device and 2 not in onto_device else MEMORY
    part["src_kind"] = [memory.get(n, "") for n in numbers["srcKind"]]
    part["dst_kind"] = [memory.get(n, "") for n in numbers["dstKind"]]


def _ranges(part: "pd.DataFrame", found: "pd.DataFrame", strings: dict[Any, str]) -> "pd.DataFrame":
    """NVTX ranges with their texts; marks and rows without an end are left out."""
    texts = list(part["name"]) if "name" in part else [""] * len(part)
    if "textId" in found:
        texts = [
            text or strings.get(key, "") for text, key in zip(texts, found["textId"], strict=True)
        ]
    part["name"] = texts
    if "end_us" not in part:
        return part[:0]
    keep = part["end_us"] > part["start_us"]
    if "eventType" in found:
        keep &= found["eventType"].isin(RANGES)
    return part[keep]


def _devices(database: sqlite3.Connection, tables: set[str]) -> tuple[Device, ...]:
    """Devices by CUDA's number; of versions that do not list that, by the card's."""
    if "TARGET_INFO_GPU" not in tables:
        return ()
    cards = {}
    for row in _load(database, "TARGET_INFO_GPU").to_dict("records"):
        cards[row.get("id")] = row
    numbers = {key: key for key in cards}
    if "TARGET_INFO_CUDA_DEVICE" in tables:
        listed = _load(database, "TARGET_INFO_CUDA_DEVICE").to_dict("records")
        numbers = {row.get("cudaId"): row.get("gpuId") for row in listed} or numbers
    devices = []
    for number, card in numbers.items():
        facts = cards.get(card)
        if isinstance(number, int) and facts is not None:
            devices.append(
                Device(
                    number=number,
                    name=str(facts.get("name") or ""),
                    multiprocessors=_whole(facts.get("smCount")),
                    threads=32 * _whole(facts.get("maxWarpsPerSm")),
                    registers=_whole(facts.get("maxRegistersPerSm")),
                    shared_bytes=_whole(facts.get("maxShmemPerSm")),
                    capability=(
                        _whole(facts.get("computeMajor") or facts.get("smMajor")),
                        _whole(facts.get("computeMinor") or facts.get("smMinor")),
                    ),
                )
            )
    return tuple(devices)


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**62 else 0
