"""libcupti through ctypes: where to find it, its parameter structs, its statuses as errors.

Struct layouts are those of cupti_profiler_host.h and cupti_range_profiler.h of CUDA 13.0.
"""

import ctypes
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kernelpro.errors import KernelproError

INSUFFICIENT_PRIVILEGES = 35
INVALID_CHIP_NAME = 46
PERMISSION = (
    "GPU counters are locked on this machine: run as root, or have an administrator load the "
    "driver with NVreg_RestrictProfilingToAdminUsers=0"
)

_SIZE, _POINTER, _TEXT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p


class CuptiError(KernelproError):
    """CUPTI cannot be loaded, or refused a call."""


def libraries(roots: Iterable[Path] | None = None) -> list[Path]:
    """Find copies of libcupti: beside torch in site-packages first, then CUDA toolkits.

    Args:
        roots: folders to look in; default every entry of sys.path, then /usr/local/cuda*.
    """
    patterns = (
        "nvidia/cu1[23]/lib/libcupti.so*",
        "nvidia/cuda_cupti/lib/libcupti.so*",
        "lib64/libcupti.so*",
        "extras/CUPTI/lib64/libcupti.so*",
        "lib/libcupti.so*",
    )
    if roots is None:
        toolkits = sorted(Path("/usr/local").glob("cuda*"), key=lambda p: (p.name != "cuda", p))
        roots = [*(Path(entry) for entry in sys.path if entry), *toolkits]
    found: dict[Path, None] = {}
    for root in roots:
        for pattern in patterns:
            found |= dict.fromkeys(sorted(root.glob(pattern), key=lambda p: -len(p.name)))
    return list(found)


class Parameters:
    """Makes CUPTI's parameter structs: size, a reserved pointer, then the named fields."""

    def __init__(self, name: str, *fields: tuple[str, Any]) -> None:
        self._type = type(
            name,
            (ctypes.Structure,),
            {"_fields_": [("structSize", _SIZE), ("pPriv", _POINTER), *fields]},
        )
        last = getattr(self._type, fields[-1][0] if fields else "pPriv")
        # Without the padding after the last field, as CUPTI itself computes a struct's size.
        self._bytes = last.offset + last.size

    def __call__(self, **values: Any) -> Any:
        """Make one with these fields set and all others zero."""
        parameters = self._type()
        parameters.structSize = self._bytes
        for name, value in values.items():
            setattr(parameters, name, value)
        return parameters


INITIALIZE = Parameters("Initialize")
CHIP = Parameters("Chip", ("device", _SIZE), ("name", _TEXT))
AVAILABILITY = Parameters(
    "Availability", ("context", _POINTER), ("size", _SIZE), ("image", _POINTER)
)
HOST = Parameters(
    "Host", ("kind", ctypes.c_int), ("chip", _TEXT), ("availability", _POINTER), ("host", _POINTER)
)
HOST_ONLY = Parameters("HostOnly", ("host", _POINTER))
ADD = Parameters("Add", ("host", _POINTER), ("names", _POINTER), ("count", _SIZE))
CONFIG_SIZE = Parameters("ConfigSize", ("host", _POINTER), ("size", _SIZE))
CONFIG = Parameters("Config", ("host", _POINTER), ("size", _SIZE), ("image", _POINTER))
PASSES = Parameters("Passes", ("size", _SIZE), ("image", _POINTER), ("passes", _SIZE))
BASE_METRICS = Parameters(
    "BaseMetrics",
    ("host", _POINTER),
    ("kind", ctypes.c_int),
    ("names", ctypes.POINTER(_TEXT)),
    ("count", _SIZE),
)
ENABLE = Parameters("Enable", ("context", _POINTER), ("profiler", _POINTER))
PROFILER = Parameters("Profiler", ("profiler", _POINTER))
DATA_SIZE = Parameters(
    "DataSize",
    ("profiler", _POINTER),
    ("names", _POINTER),
    ("count", _SIZE),
    ("max_ranges", _SIZE),
    ("max_nodes", ctypes.c_uint32),
    ("size", _SIZE),
)
DATA_INIT = Parameters("DataInit", ("profiler", _POINTER), ("size", _SIZE), ("image", _POINTER))
SET_CONFIG = Parameters(
    "SetConfig",
    ("profiler", _POINTER),
    ("config_size", _SIZE),
    ("config", _POINTER),
    ("data_size", _SIZE),
    ("data", _POINTER),
    ("range_mode", ctypes.c_int),
    ("replay_mode", ctypes.c_int),
    ("max_ranges", _SIZE),
    ("nesting_levels", ctypes.c_uint16),
    ("min_nesting_level", ctypes.c_uint16),
    ("pass_index", _SIZE),
    ("target_nesting_level", ctypes.c_uint16),
)
STOP = Parameters(
    "Stop",
    ("profiler", _POINTER),
    ("pass_index", _SIZE),
    ("target_nesting_level", _SIZE),
    ("all_submitted", ctypes.c_uint8),
)
DECODE = Parameters("Decode", ("profiler", _POINTER), ("dropped", _SIZE))
DATA_INFO = Parameters("DataInfo", ("image", _POINTER), ("size", _SIZE), ("ranges", _SIZE))
EVALUATE = Parameters(
    "Evaluate",
    ("host", _POINTER),
    ("data", _POINTER),
    ("data_size", _SIZE),
    ("range_index", _SIZE),
    ("names", _POINTER),
    ("count", _SIZE),
    ("values", _POINTER),
)


def names_array(names: Sequence[str]) -> Any:
    """A C array of strings; keep it alive as long as CUPTI may read it."""
    return (_TEXT * len(names))(*(name.encode() for name in names))


def at(buffer: Any) -> int:
    """Address of a ctypes object."""
    return ctypes.addressof(buffer)


class Cupti:
    """A loaded libcupti; calls return nothing and raise on any status but success."""

    def __init__(self, path: Path | None = None) -> None:
        """Load libcupti from a path, or the first copy found that loads.

        Raises:
            CuptiError: there is none, or none of them loads.
        """
        paths = [path] if path else libraries()
        failures = []
        for candidate in paths:
            try:
                self._library = ctypes.CDLL(str(candidate), mode=ctypes.RTLD_GLOBAL)
                # It looks for this one by name alone, which fails where no path leads to it; of
                # two copies in one process the first would serve both.
                host = candidate.parent / "libnvperf_host.so"
                if self.version() and host.is_file():
                    ctypes.CDLL(str(host), mode=ctypes.RTLD_GLOBAL)
            except (OSError, AttributeError) as error:
                failures.append(f"{candidate}: {error}")
                continue
            self.path = candidate
            return
        raise CuptiError(
            "libcupti cannot be loaded: "
            + ("; ".join(failures) or "no copy was found; install torch with CUDA, or the toolkit")
        )

    def __call__(self, function: str, parameters: Any) -> None:
        """Call a function with its parameter struct.

        Raises:
            CuptiError: its name and CUPTI's word for the status; for missing permission, what to
                do about it.
        """
        self.check(function, self.status(function, parameters))

    def check(self, function: str, status: int) -> None:
        """Raise what `__call__` raises unless the status is success."""
        if status == INSUFFICIENT_PRIVILEGES:
            raise CuptiError(PERMISSION)
        if status:
            raise CuptiError(f"{function} failed: {self._word(status)}")

    def status(self, function: str, parameters: Any) -> int:
        """Call a function and return its status; 0 is success."""
        try:
            entry = getattr(self._library, function)
        except AttributeError:
            raise CuptiError(
                f"{self.path} has no {function}: a CUPTI of CUDA 12.6 or newer is needed"
            ) from None
        return int(entry(ctypes.byref(parameters)))

    def version(self) -> int:
        """Number of this CUPTI, such as 130001; 0 for one that does nothing without a driver."""
        number = ctypes.c_uint32()
        status = self._library.cuptiGetVersion(ctypes.byref(number))
        return 0 if status else number.value

    def _word(self, status: int) -> str:
        text = _TEXT()
        self._library.cuptiGetResultString(ctypes.c_int(status), ctypes.byref(text))
        return (text.value or b"unknown status").decode() + f" ({status})"
