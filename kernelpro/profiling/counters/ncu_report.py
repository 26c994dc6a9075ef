"""Read what Nsight Compute recorded in a .ncu-rep file, through NVIDIA's ncu-report package.

Without that package an installed ncu turns the file into text (`ncu_csv`). Neither a GPU nor a
driver is needed. Rules that ncu ran are kept as its own words, apart from what we find.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpro.errors import KernelproError
from kernelpro.profiling.counters import ncu_csv, report_file, source_counters
from kernelpro.profiling.counters.report_file import ReportError
from kernelpro.profiling.names import short
from kernelpro.records import Metric

PACKAGE = "ncu-report"
MESSAGE_CHARACTERS = 2000
SCRATCH = "derived_tempMetric"  # intermediate results of ncu's own rules


class ReaderMissing(KernelproError):
    """Nothing is installed that can read a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRule:
    """What one of ncu's own rules said when the report was recorded.

    Attributes:
        name: the rule's name.
        section: identifier of the section that it belongs to.
        message: its words, title first.
        speedup_pct: its estimate in percent; 0 where it gives none.
        speedup_kind: `global`: the kernel's time falls by so much; `local`: one unit gets so much
            more efficient, which says nothing about the kernel's time; or empty.
    """

    name: str
    section: str
    message: str
    speedup_pct: float = 0.0
    speedup_kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedKernel:
    """One result of a report.

    Attributes:
        name: short name, as everywhere else.
        full_name: demangled, with its parameters.
        symbol: mangled.
        metrics: every number, with ncu's unit; what was asked for but has no value is absent.
        rules: ncu's own findings.
        sass: the machine code as text, or empty where the report was recorded without counters by
            instruction.
    """

    name: str
    full_name: str
    symbol: str = ""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    rules: tuple[StoredRule, ...] = ()
    sass: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a .ncu-rep file holds.

    Attributes:
        path: the file.
        writer: version of the ncu that wrote it, or empty.
        device: the card's name, or empty.
        kernels: its results, in order.
        cubins: machine code of the modules that the kernels are of.
        note: what could not be read, or empty.
    """

    path: Path
    writer: str
    device: str
    kernels: tuple[RecordedKernel, ...]
    cubins: tuple[bytes, ...] = ()
    note: str = ""


def read(path: str | Path) -> Report:
    """Read a report.

    Raises:
        ReportError: it is missing, foreign, damaged, or holds no kernel.
        ReaderMissing: neither the package nor an ncu is installed.
    """
    path = Path(path)
    contents = report_file.scan(path)
    if not contents.results:
        raise ReportError(
            f"report {path} holds no kernel: nothing was profiled when it was recorded; check the "
            "kernel filter and the launch count that ncu was given"
        )
    try:
        import ncu_report
    except ImportError:
        return _through_ncu(path, contents)
    return _through_package(ncu_report, path, contents)


def _through_package(package: Any, path: Path, contents: report_file.Contents) -> Report:
    try:
        context = package.load_report(str(path))
        actions = [action for part in context for action in part]
    except (RuntimeError, ValueError, OSError, TypeError) as error:
        raise ReportError(f"report {path} cannot be read by {PACKAGE}: {error}") from None
    reader = str(context.get_version())
    if not actions:
        # It reads what it does not understand as nothing, without a word.
        raise ReportError(
            f"report {path} holds {contents.results} results, but {PACKAGE} {reader} reads none: "
            f"it was written by ncu {contents.writer or 'of an unknown version'}, and a reader "
            f"must not be older; upgrade {PACKAGE}"
        )
    note = ""
    if len(actions) < contents.results:
        note = f"{PACKAGE} {reader} reads {len(actions)} of {contents.results} results"
    kernels = tuple(_kernel(package, action) for action in actions)
    device = actions[0].metric_by_name(ncu_csv.DEVICE)
    return Report(
        path=path,
        writer=contents.writer,
        device=str(device.value()) if device is not None and device.has_value() else "",
        kernels=kernels,
        cubins=contents.cubins,
        note=note,
    )


def _kernel(package: Any, action: Any) -> RecordedKernel:
    full = str(action.name(action.NameBase_DEMANGLED) or action.name())
    symbol = str(action.name(action.NameBase_MANGLED) or "")
    return RecordedKernel(
        name=short(full),
        full_name=full,
        symbol=symbol,
        metrics={**_scalars(package, action), **source_counters.reduce(action)},
        rules=tuple(_rules(package, action)),
        sass=source_counters.listing(action, symbol or full),
    )


def _scalars(package: Any, action: Any) -> dict[str, Metric]:
    text = package.IMetric.ValueKind_STRING
    found: dict[str, Metric] = {}
    for name in action.metric_names():
        if name.startswith(SCRATCH):
            continue
        metric = action.metric_by_name(name)
        # One that has only instances would read as 0.
        if metric is None or not metric.has_value():
            found[name] = Metric(value=None, how="absent", note="recorded without a value")
        elif metric.kind() != text:
            value = float(metric.as_double())
            found[name] = (
                Metric(value=value, unit=str(metric.unit() or ""), note="ncu")
                if math.isfinite(value)
                else Metric(value=None, how="absent", note=f"recorded as {value}")
            )
    return found


def _rules(package: Any, action: Any) -> list[StoredRule]:
    kinds = {package.SpeedupType_LOCAL: "local", package.SpeedupType_GLOBAL: "global"}
    found = []
    for result in action.rule_results_as_dicts():
        message = result.get("rule_message") or {}
        words = [str(message.get(part) or "").strip() for part in ("title", "message")]
        if not any(words):
            continue
        estimate = result.get("speedup_estimation") or {}
        found.append(
            StoredRule(
                name=str(result.get("name") or result.get("rule_identifier") or ""),
                section=str(result.get("section_identifier") or ""),
                message=": ".join(word for word in words if word)[:MESSAGE_CHARACTERS],
                speedup_pct=float(estimate.get("speedup") or 0.0),
                speedup_kind=kinds.get(estimate.get("type"), "") if estimate else "",
            )
        )
    return found


def _through_ncu(
    path: Path,
    contents: report_file.Contents,
    export: Callable[[Path], str | None] = ncu_csv.export,
) -> Report:
    text = export(path)
    if text is None:
        raise ReaderMissing(
            f"reading {path} needs the package {PACKAGE} (pip install {PACKAGE}) or an ncu on PATH"
        )
    rows = ncu_csv.parse(text)
    if not rows:
        raise ReportError(
            f"report {path} holds {contents.results} results, but the installed ncu shows none; "
            f"it was written by ncu {contents.writer or 'of an unknown version'}"
        )
    kernels = tuple(
        RecordedKernel(name=short(row.name), full_name=row.name, metrics=row.metrics)
        for row in rows
    )
    return Report(
        path=path,
        writer=contents.writer,
        device=rows[0].device,
        kernels=kernels,
        cubins=contents.cubins,
        note=f"read through ncu as text, without its rules and counters by line; {PACKAGE} has "
        "them",
    )
