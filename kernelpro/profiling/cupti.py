"""Hardware counters of an NVIDIA GPU, read inside the process that launches the kernels.

CUPTI's range profiler through ctypes: each launch is one range, and CUPTI replays it for as many
passes as the metrics need. Uses the libcupti that comes with torch, or the CUDA toolkit's. It
needs the permission that Nsight Compute needs; without it every value is absent with that reason.
It knows no metric by name, so what a chip lacks is reported, not fatal.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelpro.profiling import libcupti
from kernelpro.profiling.libcupti import Cupti, CuptiError

DURATION = "gpu__time_duration.sum"
MAX_RANGES = 256  # launches of one call that fit the counter image; more are counted as dropped
AUTO_RANGE, KERNEL_REPLAY = 1, 2


class RangeProfiler:
    """Counters of each kernel launch in the current CUDA context of the calling thread.

    Attributes:
        chip: the chip's name as CUPTI spells it, such as `GH100`.
    """

    def __init__(self, cupti: Cupti) -> None:
        """Attach to the current context.

        Raises:
            CuptiError: no CUDA context, no permission, or a chip that CUPTI does not know.
        """
        self._cupti = cupti
        self._context, device = _current_context()
        cupti("cuptiProfilerInitialize", libcupti.INITIALIZE())
        chip = libcupti.CHIP(device=device)
        cupti("cuptiDeviceGetChipName", chip)
        self.chip: str = chip.name.decode()
        size = libcupti.AVAILABILITY(context=self._context)
        cupti("cuptiProfilerGetCounterAvailability", size)
        self._availability = ctypes.create_string_buffer(size.size)
        cupti(
            "cuptiProfilerGetCounterAvailability",
            libcupti.AVAILABILITY(
                context=self._context, size=size.size, image=_at(self._availability)
            ),
        )

    def measure(self, call: Callable[[], object], metrics: Sequence[str]) -> dict[str, Any]:
        """Run call once, replaying each kernel that it launches for every pass.

        Returns:
            `ranges`: one mapping of metric to value for each launch, in launch order; `rejected`:
            names that the chip does not have; `passes`; `dropped`: launches that did not fit.
        """
        cupti = self._cupti
        host, accepted, rejected = self._accept(metrics)
        try:
            if not accepted:
                return {"ranges": [], "rejected": rejected, "passes": 0, "dropped": 0}
            config = self._config(host)
            passes = libcupti.PASSES(size=len(config), image=_at(config))
            cupti("cuptiProfilerHostGetNumOfPasses", passes)
            data, dropped = self._replay(call, accepted, config)
            info = libcupti.DATA_INFO(image=_at(data), size=len(data))
            cupti("cuptiRangeProfilerGetCounterDataInfo", info)
            ranges = [self._values(host, data, i, accepted) for i in range(info.ranges)]
        finally:
            cupti("cuptiProfilerHostDeinitialize", libcupti.HOST_ONLY(host=host))
        return {
            "ranges": ranges,
            "rejected": rejected,
            "passes": int(passes.passes),
            "dropped": dropped,
        }

    def _accept(self, metrics: Sequence[str]) -> tuple[int, list[str], list[str]]:
        """Make a host object with those metrics that the chip has; the caller closes it.

        All names are added together, which a chip that knows them all accepts. A host object
        refuses everything after a name that it does not know, and needs more passes for metrics
        added one by one than for the same ones added together (measured on an H100: 28 instead of
        11); so if they are refused, names are tried one by one and the good ones added afresh.
        """
        names = list(dict.fromkeys(metrics))
        host = self._open()
        if not names or not self._add(host, names):
            return host, names, []
        accepted: list[str] = []
        rejected: list[str] = []
        host = self._reopen(host)
        for name in names:
            if self._add(host, [name]):
                rejected.append(name)
                host = self._reopen(host)
            else:
                accepted.append(name)
        host = self._reopen(host)
        if accepted and self._add(host, accepted):
            raise CuptiError("CUPTI refused metrics together that it had accepted one by one")
        return host, accepted, rejected

    def _reopen(self, host: int) -> int:
        self._cupti("cuptiProfilerHostDeinitialize", libcupti.HOST_ONLY(host=host))
        return self._open()

    def _open(self) -> int:
        opened = libcupti.HOST(
            kind=0, chip=self.chip.encode(), availability=_at(self._availability)
        )
        self._cupti("cuptiProfilerHostInitialize", opened)
        return int(opened.host)

    def _add(self, host: int, metrics: Sequence[str]) -> int:
        names = _names(metrics)
        return self._cupti.status(
            "cuptiProfilerHostConfigAddMetrics",
            libcupti.ADD(host=host, names=_at(names), count=len(metrics)),
        )

    def _config(self, host: int) -> Any:
        size = libcupti.CONFIG_SIZE(host=host)
        self._cupti("cuptiProfilerHostGetConfigImageSize", size)
        config = ctypes.create_string_buffer(size.size)
        self._cupti(
            "cuptiProfilerHostGetConfigImage",
            libcupti.CONFIG(host=host, size=len(config), image=_at(config)),
        )
        return config

    def _replay(
        self, call: Callable[[], object], metrics: Sequence[str], config: Any
    ) -> tuple[Any, int]:
        cupti, names = self._cupti, _names(metrics)
        enabled = libcupti.ENABLE(context=self._context)
        cupti("cuptiRangeProfilerEnable", enabled)
        profiler = enabled.profiler
        try:
            size = libcupti.DATA_SIZE(
                profiler=profiler,
                names=_at(names),
                count=len(metrics),
                max_ranges=MAX_RANGES,
                max_nodes=MAX_RANGES,
            )
            cupti("cuptiRangeProfilerGetCounterDataSize", size)
            data = ctypes.create_string_buffer(size.size)
            cupti(
                "cuptiRangeProfilerCounterDataImageInitialize",
                libcupti.DATA_INIT(profiler=profiler, size=len(data), image=_at(data)),
            )
            cupti(
                "cuptiRangeProfilerSetConfig",
                libcupti.SET_CONFIG(
                    profiler=profiler,
                    config_size=len(config),
                    config=_at(config),
                    data_size=len(data),
                    data=_at(data),
                    range_mode=AUTO_RANGE,
                    replay_mode=KERNEL_REPLAY,
                    max_ranges=MAX_RANGES,
                    nesting_levels=1,
                    min_nesting_level=1,
                ),
            )
            cupti("cuptiRangeProfilerStart", libcupti.PROFILER(profiler=profiler))
            try:
                call()
            finally:
                cupti("cuptiRangeProfilerStop", libcupti.STOP(profiler=profiler))
            decoded = libcupti.DECODE(profiler=profiler)
            cupti("cuptiRangeProfilerDecodeData", decoded)
        finally:
            cupti("cuptiRangeProfilerDisable", libcupti.PROFILER(profiler=profiler))
        return data, int(decoded.dropped)

    def _values(self, host: int, data: Any, index: int, metrics: Sequence[str]) -> dict[str, float]:
        values = (ctypes.c_double * len(metrics))()
        names = _names(metrics)
        self._cupti(
            "cuptiProfilerHostEvaluateToGpuValues",
            libcupti.EVALUATE(
                host=host,
                data=_at(data),
                data_size=len(data),
                range_index=index,
                names=_at(names),
                count=len(metrics),
                values=_at(values),
            ),
        )
        # A ratio whose denominator never counted is NaN: there is nothing to report.
        return {name: value for name, value in zip(metrics, values, strict=True) if value == value}


def collect(call: Callable[[], object], *, metrics: list[str]) -> dict[str, Any]:
    """Run call once under the range profiler; made to run in the candidate's own process.

    Returns:
        What `RangeProfiler.measure` returns, with `chip` and `reason`: empty, or why there are no
        counters (then `ranges` is empty).
    """
    nothing = {"ranges": [], "rejected": [], "passes": 0, "dropped": 0, "chip": ""}
    call()  # loads modules and makes the context, outside of the profiled call
    try:
        profiler = RangeProfiler(Cupti())
        return {**profiler.measure(call, metrics), "chip": profiler.chip, "reason": ""}
    except CuptiError as error:
        return {**nothing, "reason": str(error)}


def aggregate(ranges: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Join the values of several launches into one per metric.

    Counts (names that end in `.sum`) are added; all else, percentages, ratios and rates, is
    averaged with the launches' durations as weights, or evenly when there are none.
    """
    totals: dict[str, float] = {}
    weights: dict[str, float] = {}
    for values in ranges:
        weight = values.get(DURATION, 1.0)
        for name, value in values.items():
            factor = 1.0 if name.endswith(".sum") else weight
            totals[name] = totals.get(name, 0.0) + value * factor
            weights[name] = weights.get(name, 0.0) + factor
    return {
        name: total if name.endswith(".sum") else total / (weights[name] or 1.0)
        for name, total in totals.items()
    }


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


def _names(names: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(names))(*(name.encode() for name in names))


def _at(buffer: Any) -> int:
    return ctypes.addressof(buffer)
