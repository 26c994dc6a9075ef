"""Time the counters of one kernel and of a module of three kernels, in the process and through ncu.

    python3 -m benchmarks.profilers                  # on a machine with an NVIDIA GPU
    python3 -m benchmarks.profilers --json counters.json

Both ways read the same counters of the same call in the same run: the lite pack, which places a
kernel on the roofline, and the pack of all that the detectors of a class read. Each row has a fresh
process, as each candidate of a search has: `first` includes all that a process pays once, `warm` is
the median of further collections. Loading torch and starting CUDA is in neither, but it is in what
the ncu process takes, which starts anew for each collection, as it does for a person.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelpro.errors import KernelproError
from kernelpro.isolation import Hooks
from kernelpro.judge import watched
from kernelpro.manager import create_plugin_manager
from kernelpro.profiling.counters import cupti, launches, ncu, packs
from kernelpro.profiling.dispatch import Dispatcher

MODULES = {
    "one kernel": "torch.softmax(x, dim=-1)",
    "three kernels": "torch.softmax(torch.relu(x * 2.0), dim=-1)",
}
SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.randn(32768, 1024)]
"""
LITE, CLASS = "lite", "memory"
DEADLINE_S = 300.0


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="warm collections (default 5)")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument(
        "--row", nargs=2, metavar=("MODULE", "PACK"), help="measure one row and print it as JSON"
    )
    args = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("benchmarks.profilers needs an NVIDIA GPU that torch can use; there is none here")
        return 2
    if args.row:
        module, name = args.row
        print(json.dumps(measure(module, name, chosen()[name], args.repeat)))
        return 0
    rows = []
    for module in MODULES:
        for name in (LITE, CLASS):
            command = [sys.executable, "-m", "benchmarks.profilers", "--row", module, name]
            done = subprocess.run(
                [*command, "--repeat", str(args.repeat)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                print(f"{module}, {name}: {(done.stderr.splitlines() or ['it failed'])[-1]}")
                return 1
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(line(rows[-1]), flush=True)
    print(f"on {torch.cuda.get_device_name()}, {ncu_in_words()}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


def chosen() -> dict[str, tuple[tuple[str, ...], ...]]:
    """The packs to collect: the lite one, and what the detectors of a class need beside it."""
    manager, _ = create_plugin_manager()
    needs = Dispatcher(Hooks(manager).detectors()).needs("cuda", CLASS)
    return {LITE: (packs.LITE,), CLASS: packs.plan(needs)}


def measure(
    module: str, name: str, pack: tuple[tuple[str, ...], ...], repeat: int
) -> dict[str, Any]:
    """Collect a pack in this process, then through ncu."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.json"
        request = {
            "candidate": None,
            "warm": watched.WARM,
            "problem": {
                "name": module.replace(" ", "_"),
                "origin": "benchmark",
                "source": SOURCE.format(body=MODULES[module]),
                "target": "cuda",
                "sizes": {},
            },
        }
        job.write_text(json.dumps(request), encoding="utf-8")
        model, inputs, _ = watched.load(request)

        def call() -> None:
            with torch.no_grad():
                model(*inputs)
            torch.cuda.synchronize()

        before = call_us(call)
        seen, first = timed(call, pack)
        warm = [timed(call, pack) for _ in range(repeat)]
        after = call_us(call)
        outside, words = through_ncu(job, [n for part in pack for n in part], Path(folder))
    kernels, apart = launches.join(seen["launches"], seen["ranges"])
    return {
        "module": module,
        "pack": name,
        "counters": len({n for part in pack for n in part}),
        "rejected": seen["rejected"],
        "passes": seen["passes"],
        "kernels": [kernel.name for kernel in kernels],
        "note": seen["reason"] or apart or words,
        "first_s": first,
        "first_phases_s": seen["seconds"],
        "warm_s": statistics.median(seconds for _, seconds in warm),
        "warm_phases_s": warm[-1][0]["seconds"],
        "ncu_s": outside,
        "call_us_before": before,
        "call_us_after": after,
    }


def call_us(call: Any) -> float:
    """Median time of a call: the same before and after a collection, which must leave no trace."""
    samples = []
    for _ in range(200):
        began = time.perf_counter()
        call()
        samples.append(time.perf_counter() - began)
    return statistics.median(samples) * 1e6


def timed(call: Any, pack: Sequence[Sequence[str]]) -> tuple[dict[str, Any], float]:
    """What a collection in this process gives, and its seconds."""
    began = time.perf_counter()
    seen = cupti.collect(call, packs=pack)
    return seen, time.perf_counter() - began


def through_ncu(job: Path, metrics: list[str], folder: Path) -> tuple[float | None, str]:
    """Seconds of an ncu process for the same counters; None and why when it recorded nothing."""
    try:
        done = ncu.record(
            [sys.executable, "-m", "kernelpro.judge.watched", str(job)],
            folder / "report.ncu-rep",
            ncu.Wanted(metrics=tuple(dict.fromkeys(metrics)), source=False),
            deadline_s=DEADLINE_S,
        )
    except KernelproError as error:
        return None, str(error)
    return done.seconds, ""


def line(row: dict[str, Any]) -> str:
    """One row as text."""
    outside = row["ncu_s"]
    compared = (
        f"ncu process {outside:6.2f} s = {outside / row['warm_s']:5.1f} x warm, "
        f"{outside / row['first_s']:5.1f} x first"
        if outside
        else "ncu process       -"
    )
    head = (
        f"{row['module']:13} {row['pack']:7} {row['counters']:4} counters {row['passes']:3} passes "
        f"{len(row['kernels'])} kernels: first {row['first_s']:6.3f} s, warm {row['warm_s']:6.3f} s"
    )
    phases = "\n".join(
        f"{'':22}{which}: "
        + ", ".join(f"{name} {seconds:.3f} s" for name, seconds in row[key].items())
        for which, key in (("first", "first_phases_s"), ("warm", "warm_phases_s"))
    )
    note = f"\n{'':22}{row['note']}" if row["note"] else ""
    still = (
        f"\n{'':22}a call takes {row['call_us_before']:.1f} us before and "
        f"{row['call_us_after']:.1f} us after"
    )
    return f"{head}; {compared}\n{phases}{still}{note}"


def ncu_in_words() -> str:
    """Which ncu was compared with."""
    program = ncu.find()
    if program is None:
        return "no ncu"
    try:
        return f"ncu {'.'.join(map(str, ncu.version(program)))}"
    except KernelproError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
