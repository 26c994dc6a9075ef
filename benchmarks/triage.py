"""What looking at a kernel costs without running it: machine code, and all detectors.

    python -m benchmarks.triage [FILE.ncu-rep ...] [--cubin FILE.cubin]

For each kernel of a recorded report: reading its listing into facts, and running every detector on
its profile. For a cubin: disassembly and facts, with nvdisasm's own start beside it, which a search
hides by disassembling while the candidate is judged.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kernelpro import Candidate, Evaluation, Evidence, Machine, Outcome, Problem, Profile
from kernelpro.isolation import Hooks
from kernelpro.manager import create_plugin_manager
from kernelpro.profiling import roofline
from kernelpro.profiling.counters import ncu_report
from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.profiling.sass import facts, tools

REPORT = Path(__file__).parents[1] / "tests" / "data" / "zoo.ncu-rep"
ROUNDS = 7
T = TypeVar("T")


def main() -> None:
    """Time and print a table, in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="*", type=Path, default=[REPORT])
    parser.add_argument("--cubin", type=Path)
    args = parser.parse_args()
    manager, _ = create_plugin_manager(entry_points=False)
    dispatcher = Dispatcher(Hooks(manager).detectors())
    print(f"{len(dispatcher.chosen('cuda', 'mixed'))} detectors of the CUDA target")
    print(f"{'kernel':28} {'listing to facts':>18} {'all detectors':>15} {'findings':>9}  (ms)")
    for path in args.reports:
        for kernel in ncu_report.read(path).kernels:
            _row(kernel, dispatcher)
    if args.cubin:
        start_ms, _ = timed(lambda: tools.run(tools.find("nvdisasm"), ["--version"]))
        whole_ms, found = timed(lambda: facts.of_file(args.cubin))
        print(
            f"{args.cubin.name}: {len(found)} kernels in {whole_ms:.0f} ms, "
            f"{whole_ms / len(found):.0f} ms a kernel; nvdisasm alone starts in {start_ms:.0f} ms"
        )
    command = [sys.executable, "-c", "import kernelpro, sys; assert 'torch' not in sys.modules"]
    bare_ms, _ = timed(lambda: subprocess.run([sys.executable, "-c", "0"], check=True))
    with_ms, _ = timed(lambda: subprocess.run(command, check=True))
    print(f"import kernelpro: {with_ms - bare_ms:.0f} ms beyond Python's own start, without torch")


def _row(kernel: ncu_report.RecordedKernel, dispatcher: Dispatcher) -> None:
    metrics = dict(kernel.metrics)
    static_ms = 0.0
    if kernel.sass:
        static_ms, found = timed(lambda: facts.of_listing(kernel.sass, kernel.name))
        metrics |= found[0].metrics
    profile = Profile(metrics=metrics)
    evidence = Evidence(
        problem=Problem(name="recorded", origin="benchmark", source="", target="cuda"),
        candidate=Candidate(source=""),
        machine=Machine(target="cuda", device=""),
        evaluation=Evaluation(outcome=Outcome.ACCEPTED),
        profile=profile,
        classification=roofline.classify_recorded(profile),
    )
    detect_ms, diagnoses = timed(lambda: dispatcher.diagnose(evidence))
    print(f"{kernel.name[:28]:28} {static_ms:18.1f} {detect_ms:15.1f} {len(diagnoses):9}")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Median milliseconds of a few runs after a first one, and the result."""
    result = work()
    spent = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        result = work()
        spent.append((time.perf_counter() - began) * 1e3)
    return statistics.median(spent), result


if __name__ == "__main__":
    main()
