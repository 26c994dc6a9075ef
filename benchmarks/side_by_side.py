"""Profile the same kernels in-process and by an ncu process, and compare what is found.

    python3 -m benchmarks.side_by_side [NAME ...] [--out DIR]

For each subject of benchmarks/subjects.py: the class and the first findings from counters that the
range profiler read in this process, and from a report that ncu wrote of a second process. One ncu
process records all subjects; its wall time is shared out evenly.
"""

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.subjects import NAMES, made
from benchmarks.zoo import ZOO
from kernelpro.isolation import Hooks
from kernelpro.manager import create_plugin_manager
from kernelpro.profiling import roofline
from kernelpro.profiling.counters import ncu, ncu_report, packs
from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.profiling.throughput import measured_class
from kernelpro.ranking import shortlist
from kernelpro.records import (
    Candidate,
    Diagnosis,
    Evaluation,
    Evidence,
    Kernel,
    Machine,
    Outcome,
    Problem,
    Profile,
)

TOP = 3
SECTIONS = ("SourceCounters", "LaunchStats", "Occupancy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One way's word on one subject.

    Attributes:
        measured: class of its longest kernel.
        top: names of the first findings of that kernel and the call.
        seconds: what collecting cost.
        kernels: kernels told apart.
    """

    measured: str
    top: tuple[str, ...]
    seconds: float
    kernels: int


class Here:
    """A session in this very process: runs what a collector asks for on one subject."""

    target = "cuda"

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def collect(self, function: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run `module:name`, and pass its answer through JSON as between processes."""
        module, _, name = function.partition(":")
        answer = getattr(importlib.import_module(module), name)(self._call, **arguments)
        found: Mapping[str, Any] = json.loads(json.dumps(answer))
        return found


def main() -> None:
    """Compare and print the table; with --out also as JSON, and the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    names = args.names or list(NAMES)
    subjects = made()
    manager, _ = create_plugin_manager(entry_points=False)
    hooks = Hooks(manager)
    dispatcher = Dispatcher(hooks.detectors())
    asked = dispatcher.needs("cuda", "mixed")
    device = _device()
    here = {
        name: _in_process(name, subjects[name], hooks, dispatcher, asked, device) for name in names
    }
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "subjects.ncu-rep"
        there = dict(_by_ncu(names, report, dispatcher, asked, device))
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / "subjects.ncu-rep").write_bytes(report.read_bytes())
    print(f"on {device}; {len(packs.plan(asked)[-1])} counters in the class pack")
    print(f"{'subject':20} {'in process':44} {'by ncu':44} seconds")
    agreed = 0
    for name in names:
        mine, theirs = here[name], there.get(name)
        expected = next((s.expected for s in ZOO if s.name == name), ())
        agreed += bool(theirs and theirs.measured == mine.measured)
        print(
            f"{name:20} {_told(mine, expected):44} {_told(theirs, expected) if theirs else '-':44} "
            f"{mine.seconds:.2f} / {theirs.seconds if theirs else 0:.2f}"
        )
    for way, seen in (("in process", here), ("by ncu", there)):
        bad = [s for s in ZOO if s.expected and s.name in seen]
        good = [s for s in ZOO if not s.expected and s.name in seen]
        hits = sum(bool(set(s.expected) & set(seen[s.name].top)) for s in bad)
        false = sum(bool(set(_expected_of_twin(s.name)) & set(seen[s.name].top)) for s in good)
        print(
            f"{way}: {hits} of {len(bad)} pathologies among the first {TOP} findings, "
            f"{false} of {len(good)} fixed twins accused of theirs"
        )
    print(f"same class of the longest kernel: {agreed} of {len(names)}")
    if dispatcher.complaints:
        print("complaints:", *dispatcher.complaints, sep="\n  ")


def _in_process(
    name: str,
    call: Callable[[], object],
    hooks: Hooks,
    dispatcher: Dispatcher,
    asked: frozenset[str],
    device: str,
) -> Seen:
    evaluation = Evaluation(outcome=Outcome.ACCEPTED)
    problem, candidate = _problem(name), Candidate(source="")
    call()
    began = time.monotonic()
    profile = hooks.collect(problem, candidate, evaluation, asked, Here(call))
    seconds = time.monotonic() - began
    return _seen(profile, dispatcher, name, device, seconds)


def _by_ncu(
    names: Sequence[str],
    report: Path,
    dispatcher: Dispatcher,
    asked: frozenset[str],
    device: str,
) -> Iterator[tuple[str, Seen]]:
    command = [sys.executable, "-m", "benchmarks.subjects", *names]
    counters = tuple(name for pack in packs.plan(asked) for name in pack)
    wanted = ncu.Wanted(metrics=counters, sections=SECTIONS, source=False)
    recording = ncu.record(command, report, wanted, deadline_s=400)
    kernels = list(ncu_report.read(report).kernels)
    expected = [(s.kernel or s.name, s.name) for s in ZOO if s.name in names]
    each = recording.seconds / len(names)
    for kernel, name in expected:
        place = next(n for n, k in enumerate(kernels) if k.name.startswith(kernel))
        yield name, _seen(_joined([kernels.pop(place)]), dispatcher, name, device, each)
    softmax = [k for k in kernels if "softmax_rows" in k.name]
    product = [k for k in kernels if "gemm" in k.name.lower() or "nvjet" in k.name.lower()]
    rest = [k for k in kernels if k not in softmax and k not in product]
    for name, part in (
        ("triton_softmax", softmax),
        ("cublas_bf16_gemm", product),
        ("many_kernels", rest),
    ):
        if name in names and part:
            yield name, _seen(_joined(part), dispatcher, name, device, each)


def _joined(kernels: Sequence[ncu_report.RecordedKernel]) -> Profile:
    """Kernels of a report as one call's profile."""
    times = [k.metrics[packs.DURATION].value or 0.0 for k in kernels]
    whole = sum(times) or 1.0
    parts = tuple(
        Kernel(name=k.name, share=time / whole, metrics=k.metrics)
        for k, time in sorted(zip(kernels, times, strict=True), key=lambda pair: -pair[1])
    )
    return Profile(metrics=parts[0].metrics if len(parts) == 1 else {}, kernels=parts)


def _seen(profile: Profile, dispatcher: Dispatcher, name: str, device: str, seconds: float) -> Seen:
    longest = max(profile.kernels, key=lambda k: k.share, default=None)
    seen = profile.of(longest) if longest is not None else profile
    classification = roofline.classify_recorded(seen)
    found: tuple[Diagnosis, ...] = dispatcher.diagnose(
        Evidence(
            problem=_problem(name),
            candidate=Candidate(source=""),
            machine=Machine(target="cuda", device=device),
            evaluation=Evaluation(outcome=Outcome.ACCEPTED),
            profile=profile,
            classification=classification,
        )
    )
    own = [d for d in found if longest is None or d.kernel == longest.name]
    return Seen(
        measured=measured_class(seen),
        top=tuple(d.detector for d in shortlist(own, TOP)),
        seconds=seconds,
        kernels=len(profile.kernels),
    )


def _expected_of_twin(name: str) -> tuple[str, ...]:
    bad = name.replace("good_", "bad_")
    return next((s.expected for s in ZOO if s.name == bad), ())


def _told(seen: Seen, expected: Sequence[str]) -> str:
    mark = "" if not expected else "+" if set(expected) & set(seen.top) else "!"
    many = f" ({seen.kernels} kernels)" if seen.kernels > 1 else ""
    return f"{mark}{seen.measured}{many}: {', '.join(seen.top)}"


def _problem(name: str) -> Problem:
    return Problem(name=name, origin="benchmark", source="", target="cuda")


def _device() -> str:
    import torch

    return str(torch.cuda.get_device_name())


if __name__ == "__main__":
    main()
