"""Disassemble a built binary while its candidate is judged, so that nobody waits for nvdisasm.

nvdisasm takes half a second to start, whatever its input; judging takes longer than that.
"""

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kernelpro.profiling.sass import disassembly
from kernelpro.profiling.sass.disassembly import Disassembled

KEPT = 8  # binaries that were begun and not asked for yet; the oldest is forgotten

_jobs: "OrderedDict[Path, Future[tuple[Disassembled, ...]]]" = OrderedDict()
_pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disassembly")


def begin(path: Path) -> None:
    """Start to disassemble a file; `of_file` gives the result. Errors wait until then."""
    if path not in _jobs:
        _jobs[path] = _pool.submit(disassembly.of_file, path)
        while len(_jobs) > KEPT:
            _jobs.popitem(last=False)


def of_file(path: Path) -> tuple[Disassembled, ...]:
    """The kernels of a file, begun ahead or read now; see `disassembly.of_file`."""
    job = _jobs.pop(path, None)
    return disassembly.of_file(path) if job is None else job.result()
