"""Which metrics a chip has and how many replays they take, on a machine without GPU and driver.

Needs a CUPTI that works without a driver: that of a CUDA 13.0 toolkit or of the package
nvidia-cuda-cupti 13.0. From 13.3 on, CUPTI does nothing where libcuda.so.1 is missing.
"""

from collections.abc import Iterable
from functools import cache

from kernelpro.profiling.counters import libcupti
from kernelpro.profiling.counters.libcupti import Cupti, CuptiError
from kernelpro.profiling.counters.metric_set import Chip

INSTALL = "install nvidia-cuda-cupti==13.0.*, or the CUDA 13.0 toolkit"


def known(chip: str) -> frozenset[str]:
    """Base metrics of a chip, such as `dram__bytes` of `GH100`; append `.sum` and the like.

    Raises:
        CuptiError: no CUPTI here works without a driver, or it does not know the chip.
    """
    return _chip(chip).base_metrics()


def check(chip: str, names: Iterable[str]) -> tuple[str, ...]:
    """The metrics among names that a chip does not have, in order.

    Raises:
        CuptiError: as for `known`.
    """
    prepared = _chip(chip).prepare(list(names))
    _chip(chip).close(prepared)
    return prepared.rejected


def passes(chip: str, names: Iterable[str]) -> int:
    """How often a kernel is replayed to collect the metrics together, unknown ones left out.

    Raises:
        CuptiError: as for `known`.
    """
    prepared = _chip(chip).prepare(list(names))
    _chip(chip).close(prepared)
    return prepared.passes


def reason() -> str:
    """Why nothing can be looked up here, or an empty string when it can."""
    try:
        _cupti()
    except CuptiError as error:
        return str(error)
    return ""


@cache
def _cupti() -> Cupti:
    failures = []
    for path in libcupti.libraries():
        try:
            cupti = Cupti(path)
        except CuptiError as error:
            failures.append(str(error))
            continue
        if cupti.version():
            return cupti
        failures.append(f"{path} does nothing without a driver")
    found = "; ".join(failures) or "no libcupti was found"
    raise CuptiError(f"metric names cannot be looked up without a GPU: {found}; {INSTALL}")


@cache
def _chip(name: str) -> Chip:
    return Chip(_cupti(), name)
