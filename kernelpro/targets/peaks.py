"""Remember what was measured about a machine, as one JSON file for each device and its versions."""

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelpro.errors import TargetError
from kernelpro.records import Machine
from kernelpro.settings import cache_folder
from kernelpro.targets.cache import Store

BUSY = "busy"  # fact of a machine that was measured while others used it
STALE_S = 600.0  # what was measured on a busy machine is believed for so long; own choice
FORMAT = 1  # raise it when the way of measuring changes: older files are then measured again


def remembered(target: str, identity: Mapping[str, str], measure: Callable[[], Machine]) -> Machine:
    """Return the machine measured under this identity before, or measure and remember it.

    A file that cannot be read or does not hold a machine is measured again and replaced. What was
    measured while others used the machine is too low, and is measured again after a while.

    Args:
        identity: device, threads, versions: all that the measurement depends on.
    """
    words = json.dumps([FORMAT, target, dict(identity)], sort_keys=True)
    store = Store(cache_folder() / "peaks")
    name = f"{target}-{hashlib.sha256(words.encode()).hexdigest()[:16]}.json"
    known = _read(store.path(name))
    if known is not None and not (BUSY in known.facts and _age_s(store.path(name)) > STALE_S):
        return known
    machine = measure()
    with contextlib.suppress(TargetError):  # a home that cannot be written: measured each time
        store.write(name, json.dumps(dataclasses.asdict(machine), indent=1).encode())
    return machine


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return math.inf


def _read(path: Path) -> Machine | None:
    try:
        return _machine(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _machine(value: Any) -> Machine:
    machine = Machine(**value)
    if not isinstance(machine.facts, dict) or not isinstance(machine.flops_per_s, dict):
        raise TypeError("facts and flops_per_s must be objects")
    numbers = [machine.bandwidth_bytes_per_s, machine.launch_us, *machine.flops_per_s.values()]
    if not all(isinstance(n, int | float) and math.isfinite(n) and n > 0 for n in numbers):
        raise ValueError("a peak is not a positive number")
    for field, kind in (("target", str), ("device", str), ("threads", int), ("cache_bytes", int)):
        if not isinstance(getattr(machine, field), kind):
            raise TypeError(f"{field} must be {kind.__name__}")
    if not machine.flops_per_s:
        raise ValueError("there is no arithmetic peak")
    return machine
