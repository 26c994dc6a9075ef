"""Check the cuts that are our own on this machine, and move those that do not fit it.

A cut must lie between what its metric is for a kernel with the fault and for the fixed one. Where
it does not, the geometric mean of the two takes its place, on this machine alone.
"""

import json
import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpro.errors import KernelproError
from kernelpro.profiling import thresholds
from kernelpro.profiling.cpu import pairs
from kernelpro.profiling.cpu.disassembly import ListingError
from kernelpro.profiling.cpu.pairs import Pair
from kernelpro.records import Machine, Metric

FORMAT = 1
STANDS_FOR_ZERO = 0.01  # of the other reading: a geometric mean with zero would be zero
LEAST_FACTOR = 1.1  # own: two readings closer than this are noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cut and what became of it.

    Attributes:
        threshold: its name.
        metric: what was compared.
        bad: reading of the kernel with the fault, or None when it could not be had.
        fixed: reading of the fixed kernel, or None.
        table: the table's cut.
        cut: the cut on this machine.
        verdict: `stays`, `moves`, `overlaps` or `not measured`.
    """

    threshold: str
    metric: str
    bad: float | None
    fixed: float | None
    table: float
    cut: float
    verdict: str


def calibrate_cpu(threads: int) -> list[Row]:
    """Measure every pair of the CPU target on this machine.

    Args:
        threads: threads that a kernel may use.

    Raises:
        KernelproError: the pairs cannot be compiled or disassembled here.
    """
    build = pairs.build()
    if not build.ok:
        raise KernelproError(f"the calibration kernels do not compile here: {build.log[:300]}")
    binary, rows = Path(build.binary), []
    seen: dict[tuple[str, int], dict[str, Metric]] = {}
    for pair in pairs.PAIRS:
        readings = []
        for side in pairs.SIDES:
            function = f"{side}_{pair.detector}"
            if (function, pair.elements) not in seen:
                seen[function, pair.elements] = _measure(binary, function, pair.elements, threads)
            readings.append(pairs.reading(pair, seen[function, pair.elements]))
        rows.append(decide(pair, readings[0], readings[1]))
    return rows


def _measure(binary: Path, function: str, elements: int, threads: int) -> dict[str, Metric]:
    if elements:
        return pairs.of_calls(binary, function, elements, threads)
    try:
        return pairs.of_code(binary, function)
    except ListingError as error:
        raise KernelproError(f"the calibration kernels cannot be disassembled: {error}") from None


def decide(pair: Pair, bad: float | None, fixed: float | None) -> Row:
    """What becomes of a cut, given the two readings.

    It stays where it separates them; it moves to their geometric mean where they are apart but it
    does not; it stays, with a word, where they overlap.
    """
    table = thresholds.TABLE[pair.threshold].value
    cut, verdict = table, "not measured"
    if bad is not None and fixed is not None:
        low, high = (bad, fixed) if pair.fires_below else (fixed, bad)
        if high <= max(low, 0.0) * LEAST_FACTOR:
            verdict = "overlaps"
        elif low < table <= high:
            verdict = "stays"
        else:
            cut = math.sqrt(max(low, STANDS_FOR_ZERO * high) * high)
            verdict = "moves"
    return Row(
        threshold=pair.threshold,
        metric=pair.metric,
        bad=bad,
        fixed=fixed,
        table=table,
        cut=cut,
        verdict=verdict,
    )


def unpaired(rows: Iterable[Row]) -> list[str]:
    """Names of the table's own cuts that no pair of kernels checks."""
    checked = {row.threshold for row in rows}
    return sorted(name for name, cut in thresholds.TABLE.items() if cut.own and name not in checked)


def write(rows: Sequence[Row], machine: Machine) -> Path:
    """Write the cuts that moved, and the machine's peaks, where `thresholds.cut` looks.

    Cuts of other families that are in the file stay there; those that were checked now and do not
    move are taken out. The file is replaced whole or not at all.

    Raises:
        KernelproError: it cannot be written; says why.
    """
    path = thresholds.calibrated_file()
    checked = {row.threshold for row in rows}
    cuts = {name: value for name, value in _cuts(path).items() if name not in checked}
    cuts |= {row.threshold: row.cut for row in rows if row.verdict == "moves"}
    content = {
        "format": FORMAT,
        "cuts": dict(sorted(cuts.items())),
        "machine": {
            "device": machine.device,
            "threads": machine.threads,
            "bandwidth_bytes_per_s": machine.bandwidth_bytes_per_s,
            "flops_per_s": dict(machine.flops_per_s),
            "cache_bytes": machine.cache_bytes,
        },
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=".thresholds", delete=False
        ) as file:
            json.dump(content, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    except OSError as error:
        raise KernelproError(
            f"{path} cannot be written ({error.strerror or error}); set KERNELPRO_CONFIG to a "
            "folder that can"
        ) from error
    return path


def _cuts(path: Path) -> dict[str, float]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["cuts"]
        return {str(name): float(value) for name, value in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
