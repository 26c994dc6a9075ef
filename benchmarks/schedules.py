"""Times schedules of a problem's first program next to eager torch and torch.compile, in one run.

    python3 -m benchmarks.schedules row_softmax --knobs "vec=4, threads=512" --knobs "vec=8"
    python3 -m benchmarks.schedules FILE.py --target cuda --compile --knobs "share=8, threads=1024"

Every set of knobs is laid over the schedule that the product starts from, which is timed too. What
the checker refuses is told with its reason; a result that is not close to the reference's is called
wrong. Times are medians of single calls, on CUDA by events; inputs stay the same, so small ones are
found in the caches: the judge says what counts. Exit status 1 if a result is wrong or fails.
"""

import argparse
import ast
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.gemm import loaded, microseconds
from kernelpro import problems, targets
from kernelpro.judge.raw import map_tensors, tensors_in
from kernelpro.language import writer
from kernelpro.language.legal import legal
from kernelpro.language.limits import Limits, limits_of
from kernelpro.language.lower import lower
from kernelpro.language.program import Program, with_schedules
from kernelpro.language.schedule import CpuSchedule, CudaSchedule, described
from kernelpro.problems.module import instantiate
from kernelpro.records import Problem

CLOSE = 1e-3
SEED = 0


def knobs_in(text: str) -> dict[str, Any]:
    """Read `vec=4, staging='shared'`."""
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}


class Bench:
    """Runs programs of one problem on inputs that are made once."""

    def __init__(self, problem: Problem, limits: Limits, folder: Path) -> None:
        self.problem, self.limits, self.folder = problem, limits, folder
        self.device = "cuda" if problem.target == "cuda" else "cpu"
        module = instantiate(problem)
        self.reference = module.model(SEED).to(self.device).eval()
        self.inputs = map_tensors(list(module.inputs(SEED)), lambda t: t.to(self.device))
        self.arguments = module.init_arguments()
        self.wanted = tensors_in(self.call(self.reference))
        self._count = 0

    def call(self, model: Any) -> Any:
        """Call a module on the inputs, without gradients."""
        with torch.no_grad():
            return model(*self.inputs)

    def us(self, call: Callable[[], object]) -> float:
        """Median time of a call in microseconds."""
        return microseconds(call, self.device, budget_s=0.2)

    def program(self, program: Program) -> tuple[float, str]:
        """Time one program; its time, and what is wrong with it, or nothing."""
        self._count += 1
        source = writer.write_program(self.problem, program)
        module = loaded(source, self.folder / f"candidate{self._count}.py")
        positional, named = self.arguments
        torch.manual_seed(SEED)
        made = module.ModelNew(*positional, **named).to(self.device).eval()
        found = tensors_in(self.call(made))
        right = len(found) == len(self.wanted) and all(
            torch.allclose(a, b, rtol=CLOSE, atol=CLOSE)
            for a, b in zip(found, self.wanted, strict=True)
        )
        del found
        return self.us(lambda: self.call(made)), "" if right else "WRONG"


def main() -> int:
    """Time what was asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", help="a bundled problem's name or a file")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--knobs", action="append", default=[], help="repeat it")
    parser.add_argument("--compile", action="store_true", help="time torch.compile too")
    args = parser.parse_args()
    target = targets.get(args.target)
    machine = target.machine()
    limits = limits_of(machine)
    problem = problems.load(args.problem, target=target.name)
    began, failed = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(problem, limits, Path(folder))
        eager_us = bench.us(lambda: bench.call(bench.reference))
        print(f"{problem.name} on {machine.device}: eager torch {eager_us:.1f} us")
        first = writer.start(problem, machine, limits)
        works = lower(first).works
        for one in first.schedules:
            print(f"  starts with {described(one)}")
        for text in ("", *args.knobs):
            schedules = [
                replace(one, **knobs_in(text))
                if isinstance(one, CpuSchedule | CudaSchedule)
                else one
                for one in first.schedules
            ]
            pairs = zip(schedules, works, strict=True)
            if why := next((w for one, work in pairs if (w := legal(one, [work], limits))), ""):
                print(f"  {text}: refused, {why}", flush=True)
                continue
            try:
                us, wrong = bench.program(with_schedules(first, schedules))
            except Exception as error:
                failed += 1
                print(f"  {text}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                continue
            failed += bool(wrong)
            print(
                f"  {text or 'start'}: {us:.1f} us, {eager_us / us:.3f} x eager's speed {wrong}",
                flush=True,
            )
        if args.compile:
            compiled = torch.compile(bench.reference, dynamic=False)
            print(f"  torch.compile: {bench.us(lambda: bench.call(compiled)):.1f} us")
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
