"""How long the code search takes: to index a tree once, to open it again, and a query.

    python benchmarks/code_search.py /path/to/cutlass
    python benchmarks/code_search.py --rounds 20 /path/to/cutlass

Queries are of all sorts: a symbol, words that are everywhere, words that are nowhere together.
Times are wall times beside the processor time of this process, since others may use the machine.
The folder for the index is a new one, so that the first query makes it.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from kernelpro.code_search import files, index
from kernelpro.code_search.library import Library
from kernelpro.code_search.settings import CodeSearchSettings

QUERIES = (
    "make_tiled_copy",
    "TiledMMA",
    "cute layout composition",
    "TMA load pipeline sm90",
    "epilogue visitor tree",
    "cp.async copy atom",
    "swizzle shared memory bank conflict",
    "warp specialized persistent kernel tile scheduler",
    "copy",
    "gemm",
    "const int the",
    "nosuchwordanywhere",
)


def main() -> None:
    """Time the search of one tree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root", help="folder of the tree")
    parser.add_argument("--rounds", type=int, default=10, help="each query so often")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["KERNELPRO_CACHE"] = cache
        settings = CodeSearchSettings(root=args.root)
        first_s, _ = timed(lambda: Library(settings).search("x"))
        again_s, again_cpu_s = timed(lambda: Library(settings).search("x"))
        library = Library(settings)
        library.search("x")
        found = files.sources(library.root, settings.file_bytes)
        size = index.place(library.root).stat().st_size
        text = sum(file.size for file in found)
        print(
            f"{library.tree_version or library.root}: {len(found)} files, {text / 1e6:.0f} MB of "
            f"text; index {size / 1e6:.0f} MB, made in {first_s:.1f} s; opened again, checked and "
            f"asked in {again_s * 1e3:.0f} ms ({again_cpu_s * 1e3:.0f} ms of processor time)"
        )
        print(f"{'query':52} {'median':>9} {'worst':>9} {'processor':>10}")
        worst = 0.0
        for query in QUERIES:
            times = [timed(partial(library.search, query)) for _ in range(args.rounds)]
            walls, cpus = zip(*times, strict=True)
            worst = max(worst, median(walls))
            print(
                f"{query:52} {median(walls) * 1e3:6.1f} ms {max(walls) * 1e3:6.1f} ms "
                f"{median(cpus) * 1e3:7.1f} ms"
            )
        print(f"slowest query: {worst * 1e3:.1f} ms (median of {args.rounds}); the aim is 50 ms")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
