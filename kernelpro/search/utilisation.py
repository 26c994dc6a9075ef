"""How busy the parts of a search were: proposers, compilers, the device or each of several."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PROPOSERS, COMPILERS, DEVICE = "proposers", "compilers", "device"
PARTS = (PROPOSERS, COMPILERS, DEVICE)


class Utilisation:
    """Adds up, for each part, the wall time in which it did anything; safe to use from threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._active = dict.fromkeys(PARTS, 0)
        self._since = dict.fromkeys(PARTS, 0.0)
        self._spent_s = dict.fromkeys(PARTS, 0.0)

    @contextmanager
    def busy(self, part: str) -> Iterator[None]:
        """Count the time of the `with` for a part, known or new; several at once count once."""
        with self._lock:
            self._active.setdefault(part, 0)
            self._spent_s.setdefault(part, 0.0)
            self._active[part] += 1
            if self._active[part] == 1:
                self._since[part] = self._clock()
        try:
            yield
        finally:
            with self._lock:
                self._active[part] -= 1
                if self._active[part] == 0:
                    self._spent_s[part] += self._clock() - self._since[part]

    def shares(self) -> dict[str, float]:
        """For each part the share of the wall time so far in which it was busy, 0 to 1."""
        with self._lock:
            now = self._clock()
            spent = {
                part: self._spent_s[part] + (now - self._since[part] if self._active[part] else 0.0)
                for part in self._active
            }
            whole = now - self._began
        return {part: min(s / whole, 1.0) if whole > 0.0 else 0.0 for part, s in spent.items()}
