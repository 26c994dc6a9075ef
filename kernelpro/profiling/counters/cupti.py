"""Hardware counters of an NVIDIA GPU, read inside the process that launches the kernels.

CUPTI's range profiler through ctypes: each launch is one range, and CUPTI replays it for as many
passes as the metrics need. Before that it saves all memory that the launch could change; where many
gigabytes are held the whole call is made again for each pass instead. Uses the libcupti that comes
with torch, or the CUDA toolkit's. It needs the permission that Nsight Compute needs; without it
every value is absent with that reason. It knows no metric by name, so what a chip lacks is
reported, not fatal.
"""

import contextlib
import ctypes
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kernelpro.profiling.counters import launches, libcupti
from kernelpro.profiling.counters.libcupti import Cupti, CuptiError, at, names_array
from kernelpro.profiling.counters.metric_set import Chip, MetricSet
from kernelpro.profiling.counters.packs import DURATION

MAX_RANGES = 256  # launches of one call that fit the counter image; more are counted as dropped
# own: at some 5 to 20 ms each on an H100, this many keep a collection within its deadline
MAX_REPLAYS = 1500
AUTO_RANGE, KERNEL_REPLAY, USER_REPLAY = 1, 2, 3
# own: calls on 13 GB took 25 to 48 s on an H200 when each kernel was replayed; that saving memory
# is why was not established, nor were they timed since
LARGE_BYTES = 4 << 30


class RangeProfiler:
    """Counters of each kernel launch in one CUDA context.

    Setting up costs more than measuring, so one object serves a process for all its calls, and
    remembers the sets of metrics that it made ready. Between sessions nothing is counted.

    Attributes:
        chip: the chip, with its name as CUPTI spells it, such as `GH100`.
    """

    def __init__(self, cupti: Cupti, context: int, device: int) -> None:
        """Attach to a context.

        Raises:
            CuptiError: no permission, or a chip that CUPTI does not know.
        """
        self._cupti, self._context = cupti, context
        cupti("cuptiProfilerInitialize", libcupti.INITIALIZE())
        named = libcupti.CHIP(device=device)
        cupti("cuptiDeviceGetChipName", named)
        size = libcupti.AVAILABILITY(context=context)
        cupti("cuptiProfilerGetCounterAvailability", size)
        free = ctypes.create_string_buffer(size.size)
        cupti(
            "cuptiProfilerGetCounterAvailability",
            libcupti.AVAILABILITY(context=context, size=size.size, image=at(free)),
        )
        self.chip = Chip(cupti, named.name.decode(), free)
        self._sets: dict[tuple[str, ...], MetricSet] = {}

    def prepare(self, metrics: Sequence[str]) -> MetricSet:
        """Make metrics ready, or find the set that was made before.

        Raises:
            CuptiError: CUPTI refuses.
        """
        key = tuple(metrics)
        if key not in self._sets:
            self._sets[key] = self.chip.prepare(metrics)
        return self._sets[key]

    @contextmanager
    def session(self) -> Iterator["Counting"]:
        """Have the GPU ready to count; outside of this kernels run as always.

        Raises:
            CuptiError: CUPTI refuses; for missing permission with what to do.
        """
        enabled = libcupti.ENABLE(context=self._context)
        self._cupti("cuptiRangeProfilerEnable", enabled)
        try:
            yield Counting(self._cupti, enabled.profiler)
        finally:
            self._cupti("cuptiRangeProfilerDisable", libcupti.PROFILER(profiler=enabled.profiler))


class Counting:
    """A range profiler that is enabled."""

    def __init__(self, cupti: Cupti, profiler: int) -> None:
        self._cupti, self._profiler = cupti, profiler

    def measure(
        self,
        call: Callable[[], object],
        metrics: MetricSet,
        ranges: int = MAX_RANGES,
        *,
        whole: bool = False,
    ) -> tuple[list[dict[str, float]], int]:
        """Run call once, replaying each kernel that it launches for every pass.

        Args:
            call: launches kernels and waits for them.
            metrics: what to count.
            ranges: launches that there is room for.
            whole: make the call once for each pass instead; it must launch the same kernels each
                time, and no memory is saved and restored.

        Returns:
            One mapping of metric to value for each launch, in launch order, and the number of
            launches that did not fit.
        """
        if not metrics.accepted:
            return [], 0
        cupti, data = self._cupti, self._image(metrics, ranges)
        cupti(
            "cuptiRangeProfilerSetConfig",
            libcupti.SET_CONFIG(
                profiler=self._profiler,
                config_size=len(metrics.config),
                config=at(metrics.config),
                data_size=len(data),
                data=at(data),
                range_mode=AUTO_RANGE,
                replay_mode=USER_REPLAY if whole else KERNEL_REPLAY,
                max_ranges=ranges,
                nesting_levels=1,
                min_nesting_level=1,
            ),
        )
        for _ in range(metrics.passes if whole else 1):
            cupti("cuptiRangeProfilerStart", libcupti.PROFILER(profiler=self._profiler))
            stopped = libcupti.STOP(profiler=self._profiler)
            try:
                call()
            finally:
                cupti("cuptiRangeProfilerStop", stopped)
            if stopped.all_submitted:
                break
        decoded = libcupti.DECODE(profiler=self._profiler)
        cupti("cuptiRangeProfilerDecodeData", decoded)
        info = libcupti.DATA_INFO(image=at(data), size=len(data))
        cupti("cuptiRangeProfilerGetCounterDataInfo", info)
        values = [self._values(metrics, data, index) for index in range(info.ranges)]
        return values, int(decoded.dropped)

    def _image(self, metrics: MetricSet, ranges: int) -> Any:
        """An empty image of counter data."""
        names = names_array(metrics.accepted)
        size = libcupti.DATA_SIZE(
            profiler=self._profiler,
            names=at(names),
            count=len(metrics.accepted),
            max_ranges=ranges,
            max_nodes=ranges,
        )
        self._cupti("cuptiRangeProfilerGetCounterDataSize", size)
        data = ctypes.create_string_buffer(size.size)
        self._cupti(
            "cuptiRangeProfilerCounterDataImageInitialize",
            libcupti.DATA_INIT(profiler=self._profiler, size=len(data), image=at(data)),
        )
        return data

    def _values(self, metrics: MetricSet, data: Any, index: int) -> dict[str, float]:
        values = (ctypes.c_double * len(metrics.accepted))()
        names = names_array(metrics.accepted)
        self._cupti(
            "cuptiProfilerHostEvaluateToGpuValues",
            libcupti.EVALUATE(
                host=metrics.host,
                data=at(data),
                data_size=len(data),
                range_index=index,
                names=at(names),
                count=len(metrics.accepted),
                values=at(values),
            ),
        )
        # A ratio whose denominator never counted is NaN: there is nothing to report.
        pairs = zip(metrics.accepted, values, strict=True)
        return {name: value for name, value in pairs if math.isfinite(value)}


def collect(call: Callable[[], object], *, packs: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Count what one call does; made to run in the candidate's own process.

    The packs are collected together, in the fewest replays. Where a call launches so many kernels
    that this would take more than `MAX_REPLAYS`, they are collected one by one, in order, as many
    as fit.

    Returns:
        `ranges`: one mapping of metric to value for each launch, in launch order; `launches`: name
        and duration_us of each kernel of a trace of the same call; `rejected`: names that the chip
        does not have; `skipped`: names that would have taken too many replays; `passes`; `dropped`:
        launches that did not fit; `chip`; `reason`: empty, or why there are no counters;
        `seconds`, by phase: `set_up`, `trace`, `prepare`, `count`.
    """
    seen: dict[str, Any] = {
        "ranges": [],
        "launches": [],
        "rejected": [],
        "skipped": [],
        "passes": 0,
        "dropped": 0,
        "chip": "",
        "reason": "",
        "seconds": {},
    }
    clock = _Clock(seen["seconds"])
    call()  # loads modules and makes the context, outside of the profiled call
    try:
        clock.begin("set_up")
        profiler = _profiler()
        seen["chip"] = profiler.chip.name
        clock.begin("trace")
        with contextlib.suppress(RuntimeError):  # without a trace kernels are not told apart
            seen["launches"] = launches.trace(call)
        clock.begin("prepare")
        room = min(MAX_RANGES, len(seen["launches"]) + 8) if seen["launches"] else MAX_RANGES
        chosen = choose(profiler.prepare, packs, len(seen["launches"]))
        measured = {name for metrics in chosen for name in (*metrics.accepted, *metrics.rejected)}
        seen["skipped"] = sorted({name for pack in packs for name in pack} - measured)
        clock.begin("count")
        with profiler.session() as session:
            for metrics in chosen:
                ranges, dropped = _measure(session, call, metrics, room)
                seen["rejected"] += metrics.rejected
                seen["passes"] += metrics.passes
                seen["dropped"] = max(seen["dropped"], dropped)
                seen["ranges"] = merge(seen["ranges"], ranges)
    except CuptiError as error:
        seen |= {"ranges": [], "reason": str(error)}
    clock.begin("")
    return seen


def _measure(
    session: Counting, call: Callable[[], object], metrics: MetricSet, room: int
) -> tuple[list[dict[str, float]], int]:
    """Replay the whole call where much memory is held, unless CUPTI refuses to."""
    if _held_bytes() > LARGE_BYTES:
        with contextlib.suppress(CuptiError):
            return session.measure(call, metrics, room, whole=True)
    return session.measure(call, metrics, room)


def _held_bytes() -> int:
    """Bytes of the GPU that are in use, by whomever: a process can map what others hold."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(total - free)


class _Clock:
    """Notes the seconds of one phase after the other."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds, self._phase, self._began = seconds, "", 0.0

    def begin(self, phase: str) -> None:
        """End the phase before and begin another; an empty name is none."""
        now = time.perf_counter()
        if self._phase:
            self._seconds[self._phase] = now - self._began
        self._phase, self._began = phase, now


def choose(
    prepare: Callable[[Sequence[str]], MetricSet], packs: Sequence[Sequence[str]], kernels: int
) -> list[MetricSet]:
    """The sets to measure for a call of so many kernels: all in one, or the first that fit."""
    together = prepare([name for pack in packs for name in pack])
    if len(packs) < 2 or kernels * together.passes <= MAX_REPLAYS:
        return [together]
    chosen: list[MetricSet] = []
    passes = 0
    for place, pack in enumerate(packs):
        metrics = prepare([*pack, *([] if DURATION in pack else [DURATION])])
        if place and kernels * (passes + metrics.passes) > MAX_REPLAYS:
            break
        chosen.append(metrics)
        passes += metrics.passes
    return chosen


def merge(
    first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]]
) -> list[dict[str, float]]:
    """Values of the same launches from two sets; those of the first where both have one.

    Raises:
        CuptiError: the call launched another number of kernels the second time.
    """
    if not first:
        return [dict(values) for values in second]
    if len(first) != len(second):
        raise CuptiError(
            f"the candidate launches {len(first)} kernels in one call and {len(second)} in the "
            "next, so their counters cannot be joined"
        )
    return [{**b, **a} for a, b in zip(first, second, strict=True)]


_PROFILERS: dict[int, RangeProfiler] = {}


def _profiler() -> RangeProfiler:
    """The profiler of the current context, set up once in a process."""
    context, device = _current_context()
    if context not in _PROFILERS:
        _PROFILERS[context] = RangeProfiler(Cupti(), context, device)
    return _PROFILERS[context]


def _current_context() -> tuple[int, int]:
    """Handle of the calling thread's CUDA context, and its device's number."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CuptiError(f"the NVIDIA driver is missing: {error}") from None
    context, device = ctypes.c_void_p(), ctypes.c_int()
    if driver.cuCtxGetCurrent(ctypes.byref(context)) or not context.value:
        raise CuptiError("this thread has no CUDA context: the candidate ran nothing on the GPU")
    if status := driver.cuCtxGetDevice(ctypes.byref(device)):
        raise CuptiError(f"cuCtxGetDevice failed with status {status}")
    return context.value, device.value
