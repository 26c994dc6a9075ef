"""Run many schedules of one problem in this process: build in batches, call, time.

The kernels are the kernel language's own, so nothing has to be confined; a space is a record of
how they do, and no judgement. Each point is called through the very `ModelNew` that a search would
judge. On the CPU many points are compiled as one library, which takes a fraction of the time; for a
GPU several processes compile a batch side by side.
"""

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import torch

from kernelpro.judge.numerics import Expected, compare, expect
from kernelpro.language import emit_cpp, module, writer
from kernelpro.language.limits import Limits
from kernelpro.language.regions import Region
from kernelpro.language.schedule import CpuSchedule, Schedule
from kernelpro.problems.module import flatten, instantiate
from kernelpro.records import Build, Candidate, Problem
from kernelpro.targets.cpu import build_cpp
from kernelpro.targets.cuda import CudaTarget
from kernelpro.targets.nvrtc import Compiler

BATCH = 24
"""Points in one library: enough that the compiler's start hardly counts, few enough that a killed
recording loses little. Own choice."""

LEAST_PAIRS = 9
LEAST_S = 3e-3
"""A round times at least so many pairs of calls, and pairs for so many seconds. Own choice."""

COMPILERS = BATCH
"""Processes that compile for a GPU at most; no more than there are processors."""

INPUT_SEED = 20260101
# glibc's malloc.h: freed memory stays with the process, so that no call pays for fresh pages.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_SPIN_CYCLES = 200_000  # of a GPU, during which its queue fills; as the judge's worker does
# torch has no types for these.
_event: Callable[..., Any] = torch.cuda.Event
_spin: Callable[[int], None] = torch.cuda._sleep


class Harness:
    """Makes and runs the kernels of one problem."""

    def __init__(self, problem: Problem, limits: Limits) -> None:
        """Make inputs and the expected outputs.

        Args:
            problem: what is computed.
            limits: of the machine, for checks.

        Raises:
            ProblemError: the reference fails.
        """
        self.problem = problem
        self.limits = limits
        self.device = problem.target
        self._library: dict[Schedule, tuple[str, int]] = {}
        self._compilers: list[CudaTarget] = []
        if self.device == "cpu":
            _keep_memory()
            torch.set_num_threads(max(1, limits.threads))
        own = instantiate(problem)
        self._model = own.model(INPUT_SEED).to(self.device)
        self._init = own.init_arguments()
        self._inputs = [_moved(value, self.device) for value in own.inputs(INPUT_SEED)]
        self._expected = self._reference(own)

    def build(self, schedules: Sequence[Schedule]) -> dict[Schedule, str]:
        """Compile the kernels of some points together; say for each that fails why."""
        if self.device != "cpu":
            return self._cubins(schedules)
        text = self._batch(schedules)
        made = build_cpp(text, emit_cpp.FLAGS)
        if made.ok:
            for place, schedule in enumerate(schedules):
                self._library[schedule] = made.binary, place
            return {}
        if len(schedules) == 1:
            return {schedules[0]: f"compile error: {made.log[:200]}"}
        failed: dict[Schedule, str] = {}
        for schedule in schedules:
            failed |= self.build([schedule])
        return failed

    def _cubins(self, schedules: Sequence[Schedule]) -> dict[Schedule, str]:
        """Compile some points for the GPU, several at a time."""
        while len(self._compilers) < min(COMPILERS, os.cpu_count() or 1, len(schedules)):
            self._compilers.append(CudaTarget(Compiler()))
        idle = list(self._compilers)

        def build(schedule: Schedule) -> Build | None:
            target = idle.pop()
            try:
                return target.build(Candidate(source=self._source(schedule)))
            finally:
                idle.append(target)

        with ThreadPoolExecutor(len(idle)) as pool:
            built = list(pool.map(build, schedules))
        failed = {}
        for schedule, made in zip(schedules, built, strict=True):
            assert made is not None  # the language's candidates declare their source
            if made.ok:
                self._library[schedule] = made.binary, 0
            else:
                failed[schedule] = f"compile error: {made.log[:200]}"
        return failed

    def _source(self, schedule: Schedule) -> str:
        """The candidate's file of a point."""
        program = writer.first_program(self.problem, schedule)
        return writer.write_program(self.problem, program)

    def forward(self, schedule: Schedule) -> Callable[[], Any]:
        """Load a point's kernels; the result computes one call.

        Raises:
            ProgramError: no program can be made with the schedule.
        """
        source = self._source(schedule)
        namespace: dict[str, Any] = {"__name__": "point"}
        binary, place = self._library[schedule]
        if self.device == "cpu":
            namespace["_given"] = _Numbered(ctypes.CDLL(binary), place)
            source = source.replace(module.CPP_GLUE, "\n_kernels = _given\n")
        else:
            namespace["_given"] = binary
            source = source.replace(module.CUDA_MODULE, "_module = cupy.RawModule(path=_given)")
        exec(compile(source, "<point>", "exec"), namespace)
        positional, named = self._init
        candidate = namespace["ModelNew"](*positional, **named).to(self.device)
        candidate.load_state_dict(self._model.state_dict())
        inputs = self._inputs

        def call() -> Any:
            with torch.no_grad():
                return candidate(*inputs)

        return call

    def reference(self) -> Callable[[], Any]:
        """The problem's own module, eager."""
        model, inputs = self._model, self._inputs

        def call() -> Any:
            with torch.no_grad():
                return model(*inputs)

        return call

    def wrong(self, call: Callable[[], Any]) -> str:
        """Call once and say what is wrong with the result, or return an empty text."""
        found = flatten(self.problem.name, call())
        if len(found) != len(self._expected):
            return f"wrong result: {len(found)} outputs, not {len(self._expected)}"
        for place, (output, wanted) in enumerate(zip(found, self._expected, strict=True)):
            if tuple(output.shape) != wanted.shape or output.dtype != wanted.dtype:
                return f"wrong result: output {place} has another shape or type"
            check, _ = compare(output, wanted, inputs="recorded", output=place)
            if not check.ok:
                return f"wrong result: output {place} is off by {check.max_error:.2g}"
        return ""

    def time_us(self, call: Callable[[], Any], yardstick: Callable[[], Any]) -> tuple[float, float]:
        """Time a point and the yardstick in turn, with warm caches.

        What slows a shared machine down for milliseconds slows both, so that the ratio stays.

        Returns:
            Median over pairs of the point's time / the yardstick's, and the yardstick's least
            microseconds.
        """
        once = _cuda_us if self.device == "cuda" else _cpu_us
        call()
        yardstick()
        ratios: list[float] = []
        least_us = float("inf")
        end = time.perf_counter() + LEAST_S
        while len(ratios) < LEAST_PAIRS or time.perf_counter() < end:
            own_us, yardstick_us = once(call), once(yardstick)
            ratios.append(own_us / yardstick_us)
            least_us = min(least_us, yardstick_us)
        return median(ratios), least_us

    def _batch(self, schedules: Sequence[Schedule]) -> str:
        kernels = []
        for place, schedule in enumerate(schedules):
            program = writer.first_program(self.problem, schedule)
            lowered = writer.check(self.problem, program, self.limits)
            regions = [piece for piece in lowered.pieces if isinstance(piece, Region)]
            for number, (region, own) in enumerate(zip(regions, lowered.schedules, strict=True)):
                assert isinstance(own, CpuSchedule)
                kernels.append((f"point{place}_region{number}", region, own))
        comment = f"{len(schedules)} schedules of {self.problem.name}."
        return emit_cpp.emit(lowered.graph, kernels, comment)

    def _reference(self, own: Any) -> list[Expected]:
        name = self.problem.name
        native = flatten(name, self._model(*self._inputs))
        exact = own.model(INPUT_SEED).to(self.device)
        exact.load_state_dict(self._model.state_dict())
        try:
            double = flatten(name, exact.double()(*[_double(value) for value in self._inputs]))
        except RuntimeError:  # the reference mixes types by hand
            double = native
        return [expect(a, b, self.problem.precision) for a, b in zip(native, double, strict=True)]


class _Numbered:
    """A library of many points, seen as if it held one point's kernels alone."""

    def __init__(self, library: ctypes.CDLL, place: int) -> None:
        self._library, self._place = library, place

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, f"point{self._place}_{name}")
        setattr(self, name, function)
        return function


def _cpu_us(call: Callable[[], Any]) -> float:
    began = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - began) / 1e3


def _cuda_us(call: Callable[[], Any]) -> float:
    begin, end = _event(enable_timing=True), _event(enable_timing=True)
    torch.cuda.synchronize()
    _spin(_SPIN_CYCLES)
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def _moved(value: Any, device: str) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _double(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_float else value


def _keep_memory() -> None:
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(_M_TOP_PAD, 64 << 20)


def versions(problem: Problem, facts: Mapping[str, str]) -> dict[str, str]:
    """Versions of what takes part in a recording."""
    import platform

    from kernelpro import __version__

    found = {"kernelpro": __version__, "torch": str(torch.__version__)}
    found["python"] = platform.python_version()
    if problem.target == "cpu":
        found["compiler"] = facts.get("compiler", "")
    elif torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found
