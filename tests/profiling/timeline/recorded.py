"""Build one timeline and write it as torch's profiler and as Nsight Systems would."""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpro.profiling.timeline import kineto

COPY = {
    "HtoD": (1, "Pageable", "Device"),
    "DtoH": (2, "Device", "Pinned"),
    "DtoD": (8, "Device", "Device"),
}
MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2, "Array": 3, "Managed": 4}
H100 = {
    "id": 0,
    "name": "a test card",
    "numSms": 132,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 233472,
    "computeMajor": 9,
    "computeMinor": 0,
}
SCHEMA = """
create table StringIds(id integer primary key, value text);
create table ENUM_CUDA_MEM_KIND(id integer, name text, label text);
create table TARGET_INFO_GPU(id integer, name text, smCount integer, maxWarpsPerSm integer,
    maxRegistersPerSm integer, maxShmemPerSm integer, computeMajor integer, computeMinor integer);
create table TARGET_INFO_CUDA_DEVICE(gpuId integer, cudaId integer, pid integer);
create table CUPTI_ACTIVITY_KIND_KERNEL(start integer, end integer, deviceId integer,
    streamId integer, correlationId integer, globalPid integer, demangledName integer,
    shortName integer, registersPerThread integer, gridX integer, gridY integer, gridZ integer,
    blockX integer, blockY integer, blockZ integer, staticSharedMemory integer,
    dynamicSharedMemory integer, localMemoryPerThread integer, graphNodeId integer);
create table CUPTI_ACTIVITY_KIND_MEMCPY(start integer, end integer, deviceId integer,
    streamId integer, correlationId integer, globalPid integer, bytes integer, copyKind integer,
    srcKind integer, dstKind integer);
create table CUPTI_ACTIVITY_KIND_MEMSET(start integer, end integer, deviceId integer,
    streamId integer, correlationId integer, globalPid integer, bytes integer);
create table CUPTI_ACTIVITY_KIND_RUNTIME(start integer, end integer, globalTid integer,
    correlationId integer, nameId integer);
create table NVTX_EVENTS(start integer, end integer, eventType integer, text text, textId integer,
    globalTid integer);
create table PROFILER_OVERHEAD(start integer, end integer, globalTid integer, nameId integer);
"""


@dataclass
class Recording:
    """Events with times in nanoseconds, added by the methods."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    clock: int = 0
    device: int = 0
    correlation: int = 0

    def api(self, name, start, end):
        self.correlation += 1
        self.rows.append(("api", name, start, end, self.correlation, {}))
        return self.correlation

    def range(self, name, start, end):
        self.rows.append(("range", name, start, end, 0, {}))

    def overhead(self, name, start, end):
        self.rows.append(("overhead", name, start, end, 0, {}))

    def _run(self, kind, name, call, api_ns, run_ns, lag_ns, wait, facts):
        """The host's call now, and the work once the device is free."""
        correlation = self.api(call, self.clock, self.clock + api_ns)
        start = max(self.clock + lag_ns, self.device)
        self.rows.append((kind, name, start, start + run_ns, correlation, facts))
        self.device = start + run_ns
        self.clock += api_ns
        if wait:
            self.clock = self.device + 500
        return self

    def kernel(self, name, run_ns, *, api_ns=3000, lag_ns=2000, grid=(1024, 1, 1), **facts):
        facts = {"stream": 7, "block": (256, 1, 1), "registers": 32, "shared": 0} | facts
        call = facts.pop("call", "cudaLaunchKernel")
        facts["grid"] = grid
        return self._run("kernel", name, call, api_ns, run_ns, lag_ns, False, facts)

    def copy(self, direction, run_ns, size, *, call="cudaMemcpyAsync", wait=False, kinds=None):
        _, source, target = COPY[direction]
        source, target = kinds or (source, target)
        facts = {"stream": 7, "bytes": size, "source": source, "target": target}
        return self._run("copy", direction, call, 3000, run_ns, 2000, wait, facts)

    def fill(self, run_ns, size, *, call="cudaMemsetAsync"):
        return self._run("fill", "", call, 3000, run_ns, 2000, False, {"stream": 7, "bytes": size})

    def host(self, ns):
        self.clock += ns
        return self

    def call(self, name, ns):
        self.api(name, self.clock, self.clock + ns)
        return self.host(ns)

    def wait(self, name="cudaStreamSynchronize"):
        end = max(self.clock + 1000, self.device + 500)
        self.api(name, self.clock, end)
        self.clock = end
        return self

    def steps(self, count, body, name="ProfilerStep"):
        for i in range(count):
            start = self.clock
            body(self)
            self.range(f"{name}#{i}", start, self.clock)
        return self

    def trace(self):
        """The object that torch's profiler exports."""
        made = []
        for kind, name, start, end, correlation, facts in self.rows:
            arguments = {"correlation": correlation}
            cat = {"api": "cuda_runtime", "range": "user_annotation", "overhead": "overhead"}
            if kind == "kernel":
                arguments |= {
                    "device": 0,
                    "stream": facts["stream"],
                    "grid": list(facts["grid"]),
                    "block": list(facts["block"]),
                    "registers per thread": facts["registers"],
                    "shared memory": facts["shared"],
                    "graph node id": facts.get("graph", 0),
                }
            elif kind in ("copy", "fill"):
                arguments |= {"device": 0, "stream": facts["stream"], "bytes": facts["bytes"]}
            text = name
            if kind == "copy":
                text = f"Memcpy {name} ({facts['source']} -> {facts['target']})"
            elif kind == "fill":
                text = "Memset (Device)"
            made.append(
                {
                    "ph": "X",
                    "cat": {"kernel": "kernel", "copy": "gpu_memcpy", "fill": "gpu_memset", **cat}[
                        kind
                    ],
                    "name": text,
                    "ts": start / 1000,
                    "dur": (end - start) / 1000,
                    "tid": 1,
                    "args": arguments,
                }
            )
        return {"deviceProperties": [H100], "traceEvents": made}

    def timeline(self):
        trace = self.trace()
        return kineto.table(trace["traceEvents"], trace["deviceProperties"])

    def write_kineto(self, path: Path) -> Path:
        path.write_text(json.dumps(self.trace()), encoding="utf-8")
        return path

    def write_nsys(self, path: Path) -> Path:
        strings: dict[str, int] = {}

        def text(value):
            return strings.setdefault(value, len(strings) + 1)

        with closing(sqlite3.connect(path)) as db:
            db.executescript(SCHEMA)
            db.execute(
                "insert into TARGET_INFO_GPU "
                "values (3, 'a test card', 132, 64, 65536, 233472, 9, 0)"
            )
            db.execute("insert into TARGET_INFO_CUDA_DEVICE values (3, 0, 1)")
            for label, number in MEMORY.items():
                db.execute("insert into ENUM_CUDA_MEM_KIND values (?, ?, ?)", (number, "", label))
            for kind, name, start, end, correlation, facts in self.rows:
                where = (start, end, 0, facts.get("stream"), correlation, 1 << 24)
                if kind == "kernel":
                    insert(
                        db,
                        "CUPTI_ACTIVITY_KIND_KERNEL",
                        *where,
                        text(name),
                        text(name.split("(")[0]),
                        facts["registers"],
                        *facts["grid"],
                        *facts["block"],
                        facts["shared"],
                        0,
                        facts.get("local"),
                        facts.get("graph"),
                    )
                elif kind == "copy":
                    insert(
                        db,
                        "CUPTI_ACTIVITY_KIND_MEMCPY",
                        *where,
                        facts["bytes"],
                        COPY[name][0],
                        MEMORY[facts["source"]],
                        MEMORY[facts["target"]],
                    )
                elif kind == "fill":
                    insert(db, "CUPTI_ACTIVITY_KIND_MEMSET", *where, facts["bytes"])
                elif kind == "api":
                    place = text(f"{name}_v7000")
                    insert(
                        db,
                        "CUPTI_ACTIVITY_KIND_RUNTIME",
                        start,
                        end,
                        (1 << 24) + 5,
                        correlation,
                        place,
                    )
                elif kind == "range":
                    insert(db, "NVTX_EVENTS", start, end, 59, None, text(name), (1 << 24) + 5)
                else:
                    insert(db, "PROFILER_OVERHEAD", start, end, (1 << 24) + 5, text(name))
            db.executemany(
                "insert into StringIds values (?, ?)", [(n, s) for s, n in strings.items()]
            )
            db.commit()
        return path


def insert(db, table, *values):
    db.execute(f"insert into {table} values ({','.join('?' * len(values))})", values)
