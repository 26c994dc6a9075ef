"""A set of metrics made ready for a chip: which of them it has, and in how many replays.

CUPTI's host API: needs neither a GPU nor a driver, but for the counters that a chip has free.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelpro.profiling.counters import libcupti
from kernelpro.profiling.counters.libcupti import Cupti, CuptiError, at, names_array

KINDS = range(3)  # counters, ratios, throughputs


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSet:
    """Metrics that a chip can collect together.

    Attributes:
        host: CUPTI's object that turns counter data into values.
        accepted: names that the chip has.
        rejected: names that it does not have.
        config: what the profiler is configured with; empty when nothing was accepted.
        passes: how often a kernel is replayed for them.
    """

    host: int
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    config: Any
    passes: int


class Chip:
    """One chip as CUPTI's host API knows it.

    Attributes:
        name: as CUPTI spells it, such as `GH100`.
    """

    def __init__(self, cupti: Cupti, name: str, availability: Any = None) -> None:
        """Remember which chip; availability is CUPTI's image of the counters that are free."""
        self.name = name
        self._cupti = cupti
        self._availability = availability
        self._base: frozenset[str] | None = None

    def base_metrics(self) -> frozenset[str]:
        """All names without their rollup and sub-metric: `dram__bytes` for `dram__bytes.sum`.

        Raises:
            CuptiError: CUPTI does not know the chip.
        """
        if self._base is None:
            host = self._open()
            found: set[str] = set()
            for kind in KINDS:
                listed = libcupti.BASE_METRICS(host=host, kind=kind)
                self._cupti("cuptiProfilerHostGetBaseMetrics", listed)
                found.update(listed.names[i].decode() for i in range(listed.count))
            self._close(host)
            self._base = frozenset(found)
        return self._base

    def prepare(self, metrics: Sequence[str]) -> MetricSet:
        """Make a set of those metrics that the chip has.

        All names are added together, which a chip that knows them all accepts. A host object
        refuses everything after a name that it does not know, and needs more passes for metrics
        added one by one than for the same ones added together (28 instead of 11, measured); so if
        they are refused, the bad ones are found by halves and the good ones added afresh.

        Raises:
            CuptiError: CUPTI does not know the chip, or refuses together what it accepts in parts.
        """
        names = list(dict.fromkeys(metrics))
        accepted = self._accepted(names)
        rejected = tuple(name for name in names if name not in set(accepted))
        host = self._open()
        if not accepted:
            return MetricSet(host=host, accepted=(), rejected=rejected, config=b"", passes=0)
        if self._add(host, accepted):
            raise CuptiError("CUPTI refused metrics together that it had accepted in parts")
        size = libcupti.CONFIG_SIZE(host=host)
        self._cupti("cuptiProfilerHostGetConfigImageSize", size)
        config = ctypes.create_string_buffer(size.size)
        image = libcupti.CONFIG(host=host, size=len(config), image=at(config))
        self._cupti("cuptiProfilerHostGetConfigImage", image)
        passes = libcupti.PASSES(size=len(config), image=at(config))
        self._cupti("cuptiProfilerHostGetNumOfPasses", passes)
        return MetricSet(
            host=host,
            accepted=tuple(accepted),
            rejected=rejected,
            config=config,
            passes=int(passes.passes),
        )

    def close(self, metric_set: MetricSet) -> None:
        """Release a set."""
        self._close(metric_set.host)

    def _accepted(self, names: list[str]) -> list[str]:
        if not names or self._fits(names):
            return names
        known = [name for name in names if self._is_based(name)]
        return self._good(known) if len(known) == len(names) else self._accepted(known)

    def _is_based(self, name: str) -> bool:
        """Whether a name begins with a base metric; a few of those have a dot in them."""
        parts = name.split(".")
        return any(".".join(parts[:n]) in self.base_metrics() for n in range(1, len(parts)))

    def _good(self, names: list[str]) -> list[str]:
        """The names that are accepted, found by halves; not all of them are."""
        if len(names) == 1:
            return []
        half = len(names) // 2
        good: list[str] = []
        for part in (names[:half], names[half:]):
            good += part if self._fits(part) else self._good(part)
        return good

    def _fits(self, names: Sequence[str]) -> bool:
        host = self._open()
        try:
            return not self._add(host, names)
        finally:
            self._close(host)

    def _add(self, host: int, metrics: Sequence[str]) -> int:
        names = names_array(metrics)
        return self._cupti.status(
            "cuptiProfilerHostConfigAddMetrics",
            libcupti.ADD(host=host, names=at(names), count=len(metrics)),
        )

    def _open(self) -> int:
        image = at(self._availability) if self._availability is not None else None
        opened = libcupti.HOST(kind=0, chip=self.name.encode(), availability=image)
        status = self._cupti.status("cuptiProfilerHostInitialize", opened)
        if status == libcupti.INVALID_CHIP_NAME:
            raise CuptiError(f"CUPTI of {self._cupti.path} knows no chip {self.name!r}")
        self._cupti.check("cuptiProfilerHostInitialize", status)
        return int(opened.host)

    def _close(self, host: int) -> None:
        self._cupti("cuptiProfilerHostDeinitialize", libcupti.HOST_ONLY(host=host))
