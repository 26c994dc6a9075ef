"""Reads a meter in a thread of its own while candidates run, and keeps what a trace needs."""

import threading
from types import TracebackType

from kernelpro.energy.meter import Meter, Reading

POLLS_A_STEP = 8  # a step is then placed within an eighth of itself
SLOWEST_STEP_S = 0.04  # a counter that is new more often than this is read at fixed times,
FIXED_S = 0.05  # these: looking at it for each step would load the very processor it measures
KEEP_S = 0.5  # a reading with nothing new is kept so often, to show that the meter was read


class Recorder:
    """A thread that reads a meter; use as a context manager.

    Attributes:
        readings: what was kept, in order of time.
        error: what ended the reading before its time, or None.
    """

    def __init__(self, meter: Meter, resolution_s: float, period_s: float | None = None) -> None:
        """Choose how often to read.

        Args:
            meter: what is read.
            resolution_s: time between two values of its counter.
            period_s: time between two readings; default by the resolution.
        """
        self.readings: list[Reading] = []
        self.error: BaseException | None = None
        self._period_s = period_s or period(resolution_s)
        self._meter = meter
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Recorder":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None and error is None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._period_s):
                reading = self._meter.read()
                if not self.readings or _is_news(self.readings[-1], reading):
                    self.readings.append(reading)
        except BaseException as error:
            self.error = error


def period(resolution_s: float) -> float:
    """Seconds between two readings of a counter with a new value every resolution_s seconds."""
    return FIXED_S if resolution_s < SLOWEST_STEP_S else resolution_s / POLLS_A_STEP


def _is_news(last: Reading, now: Reading) -> bool:
    return (
        now.joules is None
        or now.joules != last.joules
        or now.time_s - last.time_s >= KEEP_S
        or (now.throttle, now.others) != (last.throttle, last.others)
    )
