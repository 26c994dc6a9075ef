"""Launch the kernels of zoo.cu, each with one pathology or without it, and say what should be seen.

    python3 -m benchmarks.zoo                 # launches every kernel, for a profiler that watches
    python3 -m benchmarks.zoo bad_bank ...    # only these

Kernels run once to warm up; then the profiler is started, and each runs once more.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIDE = 4096  # of the square matrices
SOURCE = Path(__file__).with_suffix(".cu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """One launch.

    Attributes:
        name: what to call it; the kernel's name unless `kernel` says otherwise.
        grid: blocks.
        block: threads of a block.
        last: value of the kernel's last argument.
        expected: detectors, one of which must be among the first three findings; for a specimen
            without a pathology empty.
        kernel: name of the function.
    """

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    last: int
    expected: tuple[str, ...] = ()
    kernel: str = ""


_ALL = SIDE * SIDE
_EACH = _ALL // 256

ZOO = (
    Specimen(
        name="bad_uncoalesced",
        grid=(SIDE // 256,),
        block=(256,),
        last=SIDE,
        expected=("uncoalesced_load", "sectors_per_request", "uncoalesced_hotspot"),
    ),
    Specimen(name="good_uncoalesced", grid=(SIDE // 8,), block=(256,), last=SIDE),
    Specimen(
        name="bad_narrow", grid=(132 * 8,), block=(256,), last=_ALL, expected=("narrow_accesses",)
    ),
    Specimen(name="good_narrow", grid=(132 * 8,), block=(256,), last=_ALL),
    Specimen(
        name="bad_bank",
        grid=(SIDE // 32, SIDE // 32),
        block=(32, 32),
        last=SIDE,
        expected=("smem_bank_conflict", "smem_conflict_hotspot"),
    ),
    Specimen(name="good_bank", grid=(SIDE // 32, SIDE // 32), block=(32, 32), last=SIDE),
    Specimen(
        name="bad_spill",
        grid=(264,),
        block=(1024,),
        last=200,
        expected=("spill_instructions", "local_memory_traffic"),
    ),
    Specimen(name="good_spill", grid=(1056,), block=(256,), last=200),
    Specimen(
        name="bad_dynamic_index",
        grid=(1024,),
        block=(256,),
        last=4096,
        expected=("dynamic_local_array", "local_memory_traffic"),
    ),
    Specimen(name="good_dynamic_index", grid=(1024,), block=(256,), last=4096),
    Specimen(
        name="bad_fp64",
        grid=(_EACH,),
        block=(256,),
        last=_ALL,
        expected=("fp64_in_fp32_kernel", "fp64_instructions"),
    ),
    Specimen(name="good_fp64", grid=(_EACH,), block=(256,), last=_ALL),
    Specimen(
        name="bad_diverge",
        grid=(_EACH,),
        block=(256,),
        last=_ALL,
        expected=("thread_divergence", "branch_divergence"),
    ),
    Specimen(name="good_diverge", grid=(_EACH,), block=(256,), last=_ALL),
    Specimen(
        name="bad_atomic", grid=(_EACH,), block=(256,), last=_ALL, expected=("global_atomics",)
    ),
    Specimen(name="good_atomic", grid=(132 * 8,), block=(256,), last=_ALL),
    Specimen(
        name="bad_small_grid",
        grid=(1,),
        block=(256,),
        last=1 << 20,
        expected=("small_grid",),
        kernel="strided_sum",
    ),
    Specimen(
        name="good_small_grid", grid=(132 * 8,), block=(256,), last=_ALL, kernel="strided_sum"
    ),
)


def launchers() -> Iterator[tuple[Specimen, Callable[[], None]]]:
    """Build zoo.cu with NVRTC and yield each specimen with a function that launches it once."""
    import cupy

    module: Any = cupy.RawModule(
        code=SOURCE.read_text(encoding="utf-8"), options=("-std=c++17", "-lineinfo")
    )
    left, right = cupy.zeros(_ALL, cupy.float32), cupy.zeros(_ALL, cupy.float32)
    for specimen in ZOO:
        function = module.get_function(specimen.kernel or specimen.name)

        def launch(specimen: Specimen = specimen, function: Any = function) -> None:
            function(specimen.grid, specimen.block, (left, right, cupy.int32(specimen.last)))
            cupy.cuda.Device().synchronize()

        yield specimen, launch


def main(names: list[str]) -> None:
    """Warm up, start the profiler, and launch."""
    import cupy

    chosen = [(s, launch) for s, launch in launchers() if not names or s.name in names]
    for _, launch in chosen:
        launch()
    cupy.cuda.profiler.start()
    for _, launch in chosen:
        launch()
    cupy.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
