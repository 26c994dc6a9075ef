"""Read traces of torch's profiler (Kineto, Chrome's trace format), plain or gzipped."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelpro.profiling.timeline import calls
from kernelpro.profiling.timeline import events as ev
from kernelpro.profiling.timeline.events import Device, Timeline, TimelineError

LARGEST_BYTES = 1 << 30  # own: more takes tens of gigabytes to parse

# Categories of Kineto, and those of torch before 1.9.
CATEGORIES = {
    "kernel": ev.KERNEL,
    "gpu_memcpy": ev.MEMCPY,
    "memcpy": ev.MEMCPY,
    "gpu_memset": ev.MEMSET,
    "memset": ev.MEMSET,
    "cuda_runtime": ev.RUNTIME,
    "runtime": ev.RUNTIME,
    "cuda_driver": ev.DRIVER,
    "cuda_sync": ev.SYNC,
    "user_annotation": ev.ANNOTATION,
    "cpu_op": ev.CPU_OP,
    "operator": ev.CPU_OP,
    "python_function": ev.PYTHON,
    "overhead": ev.OVERHEAD,
}
ARGUMENTS = (
    "device",
    "stream",
    "correlation",
    "grid",
    "block",
    "registers per thread",
    "shared memory",
    "est. achieved occupancy %",
    "graph node id",
    "bytes",
)
DEVICE_KEYS = (
    "id",
    "name",
    "numSms",
    "maxThreadsPerMultiprocessor",
    "regsPerMultiprocessor",
    "sharedMemPerMultiprocessor",
    "computeMajor",
    "computeMinor",
)

_COPY = re.compile(r"(?:Memcpy )?(\w+) \((\w+) -> (\w+)\)")
_ON_DEVICE = frozenset(ev.ON_DEVICE)


def read(path: str | Path) -> Timeline:
    """Read a `.json` or `.json.gz` trace.

    Raises:
        TimelineError: the file cannot be read, is no trace, or holds no events.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as file:
            head = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
            if head[:1] not in (b"{", b"["):
                found = "is empty" if not head else "does not begin with { or ["
                raise TimelineError(f"{path} is no trace of torch's profiler: it {found}")
            file.seek(0)
            data = file.read(LARGEST_BYTES + 1) if size <= LARGEST_BYTES else b""
        if max(len(data), size) > LARGEST_BYTES:
            raise TimelineError(
                f"{path} holds more than {LARGEST_BYTES >> 20} MiB of trace; record fewer steps"
            )
        if b"\0" in data[:4096] or b"\0" in data[-4096:]:
            raise TimelineError(f"{path} is no trace of torch's profiler: it holds zero bytes")
        trace = json.loads(data)
    except (OSError, EOFError, zlib.error) as error:
        raise TimelineError(f"{path} cannot be read: {error}; record it again") from error
    except (ValueError, RecursionError) as error:
        raise TimelineError(
            f"{path} is no complete JSON, so no trace of torch's profiler: {error}"
        ) from error
    try:
        listed = trace["traceEvents"] if isinstance(trace, dict) else trace
        properties = trace.get("deviceProperties") if isinstance(trace, dict) else None
        timeline = table(listed, properties or ())
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise TimelineError(
            f"{path} is JSON, but no trace of torch's profiler: {type(error).__name__} {error}"
        ) from error
    if timeline.events.empty:
        raise TimelineError(f"{path} is a trace without events of a device, an API or an operator")
    return timeline


def table(
    events: Iterable[Mapping[str, Any]], devices: Iterable[Mapping[str, Any]] = ()
) -> Timeline:
    """Make a timeline of a trace's events (Chrome's trace format, times in microseconds).

    Args:
        events: the objects of `traceEvents`; those of no known category are left out.
        devices: the objects of `deviceProperties`.

    Raises:
        TypeError, ValueError, AttributeError: the events are no objects.
    """
    columns: dict[str, list[Any]] = {name: [] for name in ev.COLUMNS}
    for event in events:
        kind = CATEGORIES.get(str(event.get("cat")).lower())
        if kind is not None and event.get("ph") == "X":
            row = _row(kind, event)
            for name, values in columns.items():
                values.append(row.get(name))
    return Timeline(
        events=ev.frame(columns), devices=tuple(_device(d) for d in devices), source="Kineto"
    )


def compact(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `table` reads of an event, or None when it reads nothing of it."""
    if event.get("ph") != "X" or str(event.get("cat")).lower() not in CATEGORIES:
        return None
    kept = {key: event[key] for key in ("ph", "cat", "name", "ts", "dur", "tid") if key in event}
    kept["name"] = str(kept.get("name", ""))[:400]
    arguments = event.get("args")
    if isinstance(arguments, Mapping):
        kept["args"] = {key: arguments[key] for key in ARGUMENTS if key in arguments}
    return kept


def _row(kind: str, event: Mapping[str, Any]) -> dict[str, Any]:
    arguments = event.get("args")
    facts = arguments if isinstance(arguments, Mapping) else {}
    name = str(event.get("name", ""))
    start = float(event["ts"])
    row: dict[str, Any] = {
        "kind": kind,
        "name": name,
        "start_us": start,
        "end_us": start + float(event.get("dur") or 0),
        "correlation": facts.get("correlation") or None,
    }
    if kind in _ON_DEVICE:
        row["device"], row["stream"] = facts.get("device"), facts.get("stream")
        row["bytes"], row["graph"] = facts.get("bytes"), facts.get("graph node id") or None
    else:
        row["thread"] = event.get("tid")
        if kind in (ev.RUNTIME, ev.DRIVER):
            row["name"] = calls.bare(name)
    if kind == ev.KERNEL:
        row["registers"] = facts.get("registers per thread")
        row["shared_bytes"] = facts.get("shared memory")
        row["occupancy"] = facts.get("est. achieved occupancy %")
        for what in ("grid", "block"):
            shape = facts.get(what)
            if isinstance(shape, Sequence) and len(shape) == 3:
                for axis, size in zip("xyz", shape, strict=True):
                    row[f"{what}_{axis}"] = size
    elif kind == ev.MEMSET:
        row["name"] = "memset"
    elif kind == ev.MEMCPY and (match := _COPY.fullmatch(name)):
        row["name"] = match[1]
        row["src_kind"], row["dst_kind"] = match[2].lower(), match[3].lower()
    return row


def _device(facts: Mapping[str, Any]) -> Device:
    number, name, *sizes = (facts.get(key) for key in DEVICE_KEYS)
    units, threads, registers, shared, major, minor = (int(size or 0) for size in sizes)
    return Device(
        number=int(number or 0),
        name=str(name or ""),
        multiprocessors=units,
        threads=threads,
        registers=registers,
        shared_bytes=shared,
        capability=(major, minor),
    )
