import gzip
import json
import sqlite3
import stat
from contextlib import closing

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelpro import KernelproError
from kernelpro.plugins import (
    detect_host,
    detect_launch_records,
    detect_launches,
    detect_operators,
    detect_transfers,
)
from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.profiling.timeline import events, files, kineto, nsys, nsys_report
from kernelpro.profiling.timeline.facts import facts
from tests.profiling.samples import evidence
from tests.profiling.timeline.recorded import Recording

MODULES = (detect_launch_records, detect_launches, detect_host, detect_transfers, detect_operators)


def eventful():
    """A recording with a little of everything, four steps of it."""

    def body(r):
        r.copy("HtoD", 30_000, 1 << 20).kernel("void f<float>(float*, int)", 3_000)
        r.kernel("direct_copy_kernel_cuda", 4_000).kernel("sm90_gemm", 60_000, registers=168)
        for _ in range(7):
            r.kernel("tiny", 2_000, grid=(4, 1, 1), shared=2048)
        r.wait().call("cudaMalloc", 40_000).fill(2_000, 512, call="cudaMemset")
        r.kernel("tail", 9_000, stream=13).copy("DtoH", 2_000, 64, call="cudaMemcpy", wait=True)
        r.overhead("Lazy Function Loading", r.clock, r.clock + 5_000)
        r.host(25_000)

    return Recording().steps(4, body)


def diagnosed(timeline):
    profile = facts(timeline)
    made = Dispatcher([(m.__name__, d) for m in MODULES for d in m.detectors()])
    found = made.diagnose(
        evidence({}, target="cuda", metrics=profile.metrics, kernels=profile.kernels)
    )
    assert made.complaints == []
    return profile, found


def test_the_same_timeline_gives_equal_findings_whoever_recorded_it(tmp_path):
    recording = eventful()
    paths = [
        recording.write_kineto(tmp_path / "t.json"),
        recording.write_nsys(tmp_path / "t.sqlite"),
    ]
    read = [files.read(path) for path in paths]
    (one, first), (two, second) = (diagnosed(timeline) for timeline in read)
    assert len(first) > 8
    assert first == second
    assert one.launches == two.launches
    assert [(k.name, k.share, k.launches) for k in one.kernels] == [
        (k.name, k.share, k.launches) for k in two.kernels
    ]
    values = {name: (m.value, m.unit) for name, m in one.metrics.items()}
    assert values == {name: (m.value, m.unit) for name, m in two.metrics.items()}
    columns = [c for c in events.COLUMNS if "shared" not in c and c not in ("thread", "graph")]
    for column in columns:
        a, b = (t.events[t.events["kind"] != "annotation"][column] for t in read)
        if column == "local_bytes":
            assert a.isna().all()
        elif column in events.WORDS:
            assert a.tolist() == b.tolist()
        else:
            np.testing.assert_allclose(a.to_numpy(float), b.to_numpy(float), atol=2e-3)


def test_columns_are_typed_and_missing_values_are_as_documented():
    table = eventful().timeline().events
    assert tuple(table.columns) == events.COLUMNS
    assert table["start_us"].iloc[0] == 0
    assert table["start_us"].is_monotonic_increasing
    assert set(table["kind"]) <= set(events.KINDS)
    calls = table[table["kind"] == "runtime"]
    assert set(calls["device"]) == {-1}
    assert set(calls["grid_x"]) == {0}
    assert calls["registers"].isna().all()
    copies = table[table["kind"] == "memcpy"]
    assert set(copies["src_kind"]) == {"pageable", "device"}


def test_a_gzipped_trace_is_read_and_so_is_a_bare_list(tmp_path):
    trace = eventful().trace()
    plain = files.read(eventful().write_kineto(tmp_path / "a.json"))
    zipped = tmp_path / "b.json.gz"
    zipped.write_bytes(gzip.compress(json.dumps(trace).encode()))
    assert files.read(zipped).events.equals(plain.events)
    bare = tmp_path / "c.json"
    bare.write_text(json.dumps(trace["traceEvents"]))
    assert files.read(bare).events.equals(plain.events)
    assert files.read(bare).devices == ()
    assert plain.device(0).multiprocessors == 132


def test_a_trace_of_old_torch_has_other_names_for_the_same(tmp_path):
    old = {"ph": "X", "ts": 5, "dur": 3, "tid": 1}
    trace = [
        old | {"cat": "Operator", "name": "aten::add"},
        old | {"cat": "Kernel", "name": "add", "args": {"device": 0, "stream": 7}},
        old | {"cat": "Memcpy", "name": "Memcpy DtoD (Device -> Device)", "args": {"bytes": 4}},
        old | {"cat": "Runtime", "name": "cudaLaunchKernel_ptsz"},
    ]
    table = kineto.table(trace).events
    assert sorted(table["kind"]) == ["cpu_op", "kernel", "memcpy", "runtime"]
    assert {"DtoD", "cudaLaunchKernel"} <= set(table["name"])


def old_export(path, *, kinds):
    """An export of an early version: few tables, few columns, no enumerations."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "create table StringIds(id integer, value text);"
            "insert into StringIds values (1, 'void f(int)'), (2, 'cudaMemcpyAsync_v3020');"
            "create table CUPTI_ACTIVITY_KIND_KERNEL(start integer, end integer,"
            " shortName integer);"
            "insert into CUPTI_ACTIVITY_KIND_KERNEL values (1000, 3000, 1), (5000, 9000, 7);"
            "create table CUPTI_ACTIVITY_KIND_RUNTIME(start integer, end integer, nameId integer,"
            " correlationId integer);"
            "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (3000, 4000, 2, 9);"
            "create table CUPTI_ACTIVITY_KIND_MEMCPY(start integer, end integer, bytes integer,"
            " copyKind integer, srcKind integer, dstKind integer, correlationId integer);"
        )
        db.execute(
            "insert into CUPTI_ACTIVITY_KIND_MEMCPY values (3500, 4500, 64, 1, ?, ?, 9)", kinds
        )
        db.commit()
    return path


@pytest.mark.parametrize("kinds", [(0, 2), (1, 3)])
def test_an_old_export_with_few_tables_is_read(tmp_path, kinds):
    # Without the enumeration, the device's own number tells which of two numberings is used.
    timeline = nsys.read(old_export(tmp_path / "old.sqlite", kinds=kinds))
    table = timeline.events
    assert table["name"].tolist() == ["void f(int)", "cudaMemcpyAsync", "HtoD", "7"]
    (copy,) = table[table["kind"] == "memcpy"].itertuples()
    assert (copy.src_kind, copy.dst_kind) == ("pageable", "device")
    assert timeline.devices == ()
    profile = facts(timeline)
    assert profile["system.pageable_copies"] == 1
    assert "launch__grid_size" not in profile.kernels[0].metrics


def test_managed_memory_graphs_and_several_processes_are_told_apart(tmp_path):
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "create table StringIds(id integer, value text);"
            "insert into StringIds values (1, 'k'), (2, 'cudaLaunchKernel_v7000'),"
            " (3, 'cuLaunchKernel');"
            "create table CUPTI_ACTIVITY_KIND_KERNEL(start integer, end integer, shortName integer,"
            " correlationId integer, globalPid integer, deviceId integer);"
            "insert into CUPTI_ACTIVITY_KIND_KERNEL values (2000, 9000, 1, 1, 16777216, 0),"
            " (2000, 3000, 1, 1, 33554432, 1);"
            "create table CUPTI_ACTIVITY_KIND_RUNTIME(start integer, end integer, nameId integer,"
            " correlationId integer, globalTid integer);"
            "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (0, 500, 2, 1, 16777217),"
            " (1500, 1700, 3, 1, 33554433);"
            "create table CUPTI_ACTIVITY_KIND_MEMCPY(start integer, end integer, bytes integer,"
            " copyKind integer, srcKind integer, dstKind integer, deviceId integer);"
            "insert into CUPTI_ACTIVITY_KIND_MEMCPY values (2500, 3500, 65536, 11, 4, 2, 0);"
            "create table CUDA_UM_GPU_PAGE_FAULT_EVENTS(start integer, deviceId integer);"
            "insert into CUDA_UM_GPU_PAGE_FAULT_EVENTS values (2400, 0);"
            "create table CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start integer, end integer,"
            " deviceId integer, graphId integer);"
            "insert into CUPTI_ACTIVITY_KIND_GRAPH_TRACE values (9500, 11500, 0, 5);"
            "create table NVTX_EVENTS(start integer, end integer, eventType integer, text text);"
            "insert into NVTX_EVENTS values (0, null, 34, 'mark'), (0, 20000, 59, 'all');"
        )
        db.commit()
    table = nsys.read(path).events
    kernels = table[table["kind"] == "kernel"]
    assert kernels["correlation"].nunique() == 2
    assert set(table[table["kind"] == "driver"]["name"]) == {"cuLaunchKernel"}
    assert table[table["kind"] == "annotation"]["name"].tolist() == ["all"]
    profile = facts(nsys.read(path))
    assert profile["system.migration_share"] > 0
    assert profile["system.page_faults"] == 1
    assert profile["system.graph_share"] == 0.5
    assert profile["system.kernel_us"] == pytest.approx(9.0)


BAD = {
    "missing.json": None,
    "empty.json": b"",
    "cut.json": b'{"traceEvents": [{"ph": "X", "ca',
    "words.json": b"hello",
    "zeros.json": b"{" + b"\0" * 4096,
    "number.json": b"[1, 2, 3]",
    "other.json": b'{"results": []}',
    "odd.json": b'{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": "soon"}]}',
    "without.json": b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}',
    "deep.json": b"[" * 100_000,
    "cut.json.gz": gzip.compress(b'{"traceEvents": []}' * 999)[:40],
    "zeros.json.gz": b"\x1f\x8b" + b"\0" * 4096,
    "missing.sqlite": None,
    "empty.sqlite": b"",
    "text.sqlite": b"CREATE TABLE",
    "cut.sqlite": b"SQLite format 3\0" + b"\x10\x00\x01\x01" + b"\0" * 200,
    "zeros.sqlite": b"SQLite format 3\0" + b"\0" * 9000,
    "missing.nsys-rep": None,
    "foreign.nsys-rep": b"QuadD",
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_timeline_gives_one_sentence(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / name
    if BAD[name] is not None:
        path.write_bytes(BAD[name])
    with pytest.raises(KernelproError) as caught:
        files.read(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("head", [b'{"traceEvents": [', b"SQLite format 3\0", b"\x1f\x8b", b""])
@pytest.mark.parametrize("ending", ["json", "sqlite"])
def test_a_sparse_file_of_4_gb_is_refused_without_reading_it(tmp_path, head, ending):
    path = tmp_path / f"sparse.{ending}"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(4 << 30)
    with pytest.raises(KernelproError) as caught:
        files.read(path)
    assert "\n" not in str(caught.value)


def test_a_database_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table people(name text)")
    with pytest.raises(KernelproError, match="no export of Nsight Systems"):
        nsys.read(path)
    empty = tmp_path / "none.sqlite"
    with closing(sqlite3.connect(empty)) as db:
        db.execute("create table StringIds(id integer, value text)")
    with pytest.raises(KernelproError, match="without events"):
        nsys.read(empty)


def test_a_truncated_export_is_refused(tmp_path):
    path = eventful().write_nsys(tmp_path / "t.sqlite")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    with pytest.raises(KernelproError):
        nsys.read(path)


def program(folder, text):
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_report_is_exported_by_an_installed_nsys(tmp_path):
    export = eventful().write_nsys(tmp_path / "export.sqlite")
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report")
    # Called as: nsys export --type sqlite --output TARGET REPORT
    works = program(tmp_path, f'cp {export} "$5"')
    assert nsys_report.read(report, works).events.equals(nsys.read(export).events)
    fails = program(tmp_path, "echo the report is newer than this version >&2; exit 3")
    with pytest.raises(KernelproError, match="newer than this version"):
        nsys_report.read(report, fails)


def test_a_report_without_nsys_says_how_to_export_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report")
    with pytest.raises(KernelproError, match=r"nsys export --type sqlite run\.nsys-rep"):
        files.read(report)


def sound(path):
    """The file is refused in one sentence, or its facts are numbers."""
    try:
        timeline = files.read(path)
    except KernelproError as error:
        words = str(error)
    else:
        words = ""
        for metric in facts(timeline).metrics.values():
            assert metric.value is not None
            assert np.isfinite(metric.value)
    assert "\n" not in words


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["kernel", "cuda_runtime", "Memcpy HtoD (Pageable -> Device)", "X"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
some_events = st.lists(
    st.fixed_dictionaries(
        {"ph": st.just("X"), "cat": st.sampled_from(sorted(kineto.CATEGORIES))},
        optional={
            "name": json_values,
            "ts": st.floats(0, 1e13) | json_values,
            "dur": st.floats(0, 1e6) | json_values,
            "tid": json_values,
            "args": st.dictionaries(st.sampled_from(kineto.ARGUMENTS), json_values) | json_values,
        },
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some_events)
def test_any_trace_is_read_or_refused_in_one_sentence(tmp_path_factory, listed):
    path = tmp_path_factory.mktemp("any") / "t.json"
    path.write_text(json.dumps({"traceEvents": listed}))
    sound(path)


cells = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=4)
)
tables = st.sampled_from([name for _, name, _ in nsys._TABLES])
columns = st.sampled_from(
    ["start", "end", "deviceId", "streamId", "correlationId", "nameId", "shortName", "gridX",
     "blockX", "copyKind", "srcKind", "bytes", "globalTid", "text", "textId", "eventType",
     "registersPerThread", "dynamicSharedMemory", "graphNodeId"]
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        tables,
        st.lists(columns, unique=True, min_size=1, max_size=6).flatmap(
            lambda names: st.tuples(
                st.just(names), st.lists(st.tuples(*[cells for _ in names]), max_size=3)
            )
        ),
        max_size=3,
    )
)
def test_any_database_is_read_or_refused_in_one_sentence(tmp_path_factory, listed):
    path = tmp_path_factory.mktemp("any") / "t.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table StringIds(id, value)")
        db.execute("insert into StringIds values (1, 'cudaLaunchKernel_v7000'), ('x', null)")
        for name, (header, rows) in listed.items():
            db.execute(f"create table {name}({', '.join(header)})")
            db.executemany(f"insert into {name} values ({','.join('?' * len(header))})", rows)
        db.commit()
    sound(path)
