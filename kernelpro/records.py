"""The nouns of kernelpro: small frozen records that every layer shares.

This module imports no other part of kernelpro (but its errors), touches no GPU and does no I/O.
A physical field's name ends in its unit: times in microseconds (`_us`) or seconds (`_s`), sizes
in bytes. An expected failure is a value (`Outcome`), never an exception.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar, overload

from kernelpro.errors import MissingMetric

T = TypeVar("T")

# --- the problem ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Shape and element type of one tensor.

    Attributes:
        shape: sizes of the dimensions, outermost first; `()` for a scalar tensor.
        dtype: torch's name without the prefix: `float32`, `int64`.
        name: parameter's name in the module, or empty.
    """

    shape: tuple[int, ...]
    dtype: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One shape of a workload mix.

    Attributes:
        name: for people: the file's, or its sizes.
        weight: how often the real service calls it, beside the others.
        sizes: module constants that it replaces.
    """

    name: str
    weight: float
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What to speed up: a reference module in KernelBench's format, bound to one target's sizes.

    Attributes:
        name: short name: a bundled problem's name, or the file's stem.
        origin: `bundled` or the path the source was read from.
        source: the problem file's text, unchanged.
        target: name of the target whose sizes are used (`cpu`, `cuda`).
        sizes: module constants that were replaced before the inputs were made.
        inputs: tensors that `forward` takes, in order (non-tensor arguments are left out).
        outputs: tensors that `forward` returns, in order.
        parameters: the module's parameters, in order, with names.
        flops: floating-point operations of one call, counted on the reference.
        flops_note: which operators the count covers, and by which rule.
        min_bytes: least bytes one call must move: each input and used parameter once in, each
            output once out.
        operators: names of the ATen operators that the reference calls, each with its count.
        precision: tolerance policy that the judge applies.
        workloads: shapes that a mix is judged at; then sizes, inputs, outputs, parameters and
            operators are those of the first, flops and min_bytes those of the mean call.
    """

    name: str
    origin: str
    source: str
    target: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    parameters: tuple[TensorSpec, ...] = ()
    flops: int = 0
    flops_note: str = ""
    min_bytes: int = 0
    operators: Mapping[str, int] = field(default_factory=dict)
    precision: str = "strict"
    workloads: tuple[Workload, ...] = ()

    @property
    def dtype(self) -> str:
        """Element type of the first floating-point output or input; `float32` if there is none."""
        for spec in (*self.outputs, *self.inputs):
            if "float" in spec.dtype:
                return spec.dtype
        return "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the device under a target can do, measured once on this machine.

    Attributes:
        target: `cpu` or `cuda`.
        device: the processor's or card's own name.
        threads: threads that both sides of a comparison may use (0 on a GPU).
        bandwidth_bytes_per_s: measured main-memory bandwidth, reads plus writes.
        flops_per_s: measured peak by path, such as `float32`, `bfloat16_tensor`.
        cache_bytes: last-level cache.
        launch_us: least time of one launch or parallel region.
        facts: versions and names worth keeping with a result.
    """

    target: str
    device: str
    threads: int = 0
    bandwidth_bytes_per_s: float = 0.0
    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    cache_bytes: int = 0
    launch_us: float = 0.0
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """What binaries for it are labelled with, such as `sm_90`; empty of a processor."""
        capability = self.facts.get("capability", "")
        return f"sm_{capability.replace('.', '')}" if capability else ""


# --- the candidate and what became of it ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One submission: a Python file with `class ModelNew(torch.nn.Module)`.

    Equal sources are the same candidate.

    Attributes:
        source: the file's text.
        language: what its kernels are written in: `cpp`, `cuda`, `triton`, `torch`.
        rationale: why its author expects it to be faster.
        author: name of the plugin or model that wrote it.
        inspired_by: name of the detector whose finding it acts on, or empty.
        strategy: short name of what was changed, the same on every problem: `vec up`,
            `merge_kernels`. Lessons are counted by it; see docs/lessons.md.
    """

    source: str
    language: str = "torch"
    rationale: str = field(default="", compare=False)
    author: str = field(default="", compare=False)
    inspired_by: str = field(default="", compare=False)
    strategy: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        """First 12 hex digits of the source's SHA-256."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What compiling a candidate's kernels ahead of its run gave.

    Attributes:
        ok: False when the compiler refused the source.
        key: content address: hash of sources, flags, compiler version and architecture.
        binary: path of the built file, or empty when the candidate builds itself when loaded.
        machine_code: hash of the instructions; equal hashes mean equal machine code.
        log: the compiler's words, shortened.
        seconds: wall time; 0 when it came from the cache.
        cached: True when it came from the cache.
        resources: what the compiler reports, such as `registers` or `spill_bytes`.
    """

    ok: bool
    key: str = ""
    binary: str = ""
    machine_code: str = ""
    log: str = ""
    seconds: float = 0.0
    cached: bool = False
    resources: Mapping[str, float] = field(default_factory=dict)


DISPATCH = "dispatch"
"""Author of a candidate that is put together of others, one a shape; no policy chose its parent."""


class Outcome(StrEnum):
    """How far a candidate got; everything but ACCEPTED is an expected result too."""

    ACCEPTED = "accepted"
    FLAGGED = "flagged"  # right, but its number needs a person's eye; never a headline
    REFUSED = "refused"  # a gate threw it out before it was built
    DUPLICATE = "duplicate"  # same source or same machine code as an earlier one
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"  # raised an exception
    CRASHED = "crashed"  # its process ended: signal, abort, exit
    TIMEOUT = "timeout"
    WRONG_RESULT = "wrong_result"
    UNJUDGED = "unjudged"  # its judge or its machine went away, which is not held against it


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One comparison of an output with the float64 reference.

    Attributes:
        inputs: name of the input set, such as `shipped-0` or `zero-mean`.
        output: position of the output.
        rms_error: root mean square of the error, relative to the output's own.
        max_error: largest error, relative to the output's root mean square.
        rms_limit: largest rms_error that is accepted.
        max_limit: largest max_error that is accepted (before the part that grows with |value|).
        ok: whether the output agrees.
        note: what was wrong, in words, or empty.
    """

    inputs: str
    output: int
    rms_error: float
    max_error: float
    rms_limit: float
    max_limit: float
    ok: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judge's word on a candidate: does it compute the same function?

    Attributes:
        decision: `accept`, `flag` or `reject`; `unjudged` where the device was not to be had alone.
        reasons: machine-readable codes, such as `shape`, `mutated_input`, `faster_than_sol`.
        checks: the comparisons; of many equal ones the worst is kept.
        calls_compared: how many calls' outputs were compared.
        isolation: what confined the candidate's process.
        evidence: what the verdict rests on, in words: precision policy and limits, a hash of the
            seeds, versions, clocks.
    """

    decision: str
    reasons: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    calls_compared: int = 0
    isolation: str = ""
    evidence: Mapping[str, str] = field(default_factory=dict)


FASTER = 1.02
"""The lower end of a ratio's interval must be above this before anything is called faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time of one call, measured interleaved with the baseline in the same run.

    Attributes:
        median_us: median time of a call.
        p20_us: 20th percentile.
        p80_us: 80th percentile.
        runs: timed calls.
        baseline_us: median time of the baseline's calls between them.
        baseline: what the baseline was, such as `eager`.
        speedup: median over interleaved pairs of baseline time / candidate time.
        speedup_low: lower end of the 95 % bootstrap interval of that ratio.
        speedup_high: upper end.
        clock: which clock decided.
        threads: threads that both sides could use; 0 where that has no meaning.
    """

    median_us: float
    p20_us: float
    p80_us: float
    runs: int
    baseline_us: float
    baseline: str
    speedup: float
    speedup_low: float
    speedup_high: float
    clock: str
    threads: int = 0

    @property
    def faster(self) -> bool:
        """Whether the measurement shows that the candidate is faster than the baseline."""
        return self.speedup_low > FASTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy of one call, from a window long enough for the counter to be trusted.

    Attributes:
        joules: of a call, idle power included.
        mean_watts: of the device during the window.
        window_s: the window's length.
        baseline_joules: of a call of the baseline, in a window just before; 0 if not measured.
    """

    joules: float
    mean_watts: float
    window_s: float
    baseline_joules: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AtShape:
    """What became of a candidate at one shape of a workload mix.

    Attributes:
        name: the workload's.
        weight: its weight.
        outcome: how far the candidate got there.
        message: the reason in words.
        timing: of a call at that shape, or None.
    """

    name: str
    weight: float
    outcome: Outcome
    message: str = ""
    timing: Timing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """One kernel that torch.compile made of the reference, as Inductor chose it.

    Attributes:
        name: Inductor's own, such as `triton_per_fused__softmax_0`.
        kind: `pointwise`, `persistent reduction` (a row stays on chip), `looped reduction`, `split
            reduction` (a row is shared by several blocks, whose parts are joined after it), or
            another heuristic's name.
        operators: ATen operators that it computes, as far as its name tells them apart.
        sizes: elements along each of its axes: of Triton `x`, `y`, `z`, `r0_`, `r1_`, rounded up to
            a power of two where the kernel does not say them; of C++ each loop, outermost first.
        choices: how it runs: of Triton `XBLOCK`, `R0_BLOCK`, `num_warps`, `num_stages`; of a split
            row its `parts` that a later kernel joins, or `RSPLIT`, those of this kernel alone; 1
            for `online` where a softmax finds maximum and sum together. Of C++ `lanes` of a vector
            (1: none), `threads`, `nests` of loops, and 1 for `buffer` where values are kept between
            them.
        tuned: whether the choices are the ones that ran fastest of several.
    """

    name: str
    kind: str
    operators: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, int] = field(default_factory=dict)
    tuned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What torch.compile made of the reference as a baseline.

    Attributes:
        baseline: as in `Timing.baseline`.
        kernels: in the order in which they were written.
        note: what could not be read of them, and why; or empty.
    """

    baseline: str
    kernels: tuple[CompiledKernel, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What building, judging and timing a candidate showed.

    Attributes:
        outcome: how far it got.
        message: the reason in one or two sentences, for people and for proposers.
        build: None when the candidate builds itself when loaded, or was not built.
        verdict: None when it was not judged.
        timing: None when it was not timed.
        energy: None when it was not weighed.
        phases_s: wall seconds by phase: `build`, `start`, `load`, `judge`, `time`.
        shapes: of a workload mix what became of it at each shape; timing is then of the mean call.
        compiled: of the baseline what torch.compile made of it, where that was asked to compete; of
            a mix at one shape after the other.
    """

    outcome: Outcome
    message: str = ""
    build: Build | None = None
    verdict: Verdict | None = None
    timing: Timing | None = None
    energy: Energy | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)
    shapes: tuple[AtShape, ...] = ()
    compiled: tuple[Compiled, ...] = ()

    @property
    def at_every_shape(self) -> bool:
        """Whether it stands at every shape by itself; true where there is but one shape."""
        return all(shape.outcome is Outcome.ACCEPTED for shape in self.shapes)


# --- what profiling showed --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a profile, and how it came about.

    Attributes:
        value: None when it is absent.
        unit: such as `%`, `bytes`, `us`, or empty for a count or ratio.
        how: `measured` (a counter or a clock), `static` (read off the machine code), `derived`
            (computed from other metrics), or `absent`.
        note: the tool or formula; for an absent one, why.
    """

    value: float | None
    unit: str = ""
    how: str = "measured"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch (GPU) or operator call (CPU) inside one call of the module."""

    name: str
    duration_us: float
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One GPU kernel of a candidate with its own metrics; launches of equal name are joined.

    Attributes:
        name: the kernel's name, demangled and shortened.
        share: its share of the device time of one call, 0..1.
        launches: how often one call launches it.
        metrics: counters, launch facts and facts of its machine code.
    """

    name: str
    share: float
    launches: int = 1
    metrics: Mapping[str, Metric] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Mapping[str, float]):
    """Named metrics of one candidate, merged from every tool that ran.

    As a mapping it holds only metrics that have a value: `profile["cpu.time_us"]`,
    `profile.get(name)`, `name in profile`. Reading an absent one raises `MissingMetric`, which
    says why it is absent.

    Attributes:
        metrics: of the whole candidate: counts summed over its kernels, the rest weighed by time.
        launches: what one call launches, in order.
        kernels: its kernels, the longest first; empty where they were not told apart.
    """

    metrics: Mapping[str, Metric] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    kernels: tuple[Kernel, ...] = ()

    def of(self, kernel: Kernel) -> "Profile":
        """The profile as one kernel sees it: its own metrics before the candidate's."""
        return Profile(
            metrics={**self.metrics, **kernel.metrics}, launches=self.launches, kernels=(kernel,)
        )

    def note(self, name: str) -> str:
        """The note of a metric, or empty: how a value was found, or why it is absent."""
        metric = self.metrics.get(name)
        return metric.note if metric else ""

    def where(self, name: str) -> str:
        """Where a metric's value was found; empty for one that is absent."""
        return self.note(name) if name in self else ""

    def __contains__(self, name: object) -> bool:
        metric = self.metrics.get(name) if isinstance(name, str) else None
        return metric is not None and metric.value is not None

    @overload
    def get(self, name: str, /) -> float | None: ...
    @overload
    def get(self, name: str, /, default: float) -> float: ...
    @overload
    def get(self, name: str, /, default: T) -> float | T: ...
    def get(self, name: str, /, default: Any = None) -> Any:
        """The value of a metric, or default; quicker than through the error of an absent one."""
        metric = self.metrics.get(name)
        return default if metric is None or metric.value is None else metric.value

    def __getitem__(self, name: str) -> float:
        metric = self.metrics.get(name)
        if metric is None:
            raise MissingMetric(
                f"metric {name!r} was not collected; a detector that reads it must name it in its "
                f"needs (collected: {', '.join(sorted(self)) or 'nothing'})"
            )
        if metric.value is None:
            raise MissingMetric(f"metric {name!r} is absent: {metric.note or 'no reason given'}")
        return metric.value

    def __iter__(self) -> Iterator[str]:
        return (name for name, metric in self.metrics.items() if metric.value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """Where a kernel stands on the roofline, in theory and as measured.

    Attributes:
        theory: class that the problem's own FLOPs and least bytes put it in: `compute`,
            `memory`, `latency`, `balanced`, or `unknown` where the problem is.
        measured: class that the measurement shows; `system` where the device waits for the host,
            `mixed` where no class has half of the kernels' time, or `unknown`.
        dispatched: class whose detectors ran: the theory's when the two disagree.
        level: memory level that is busiest (`DRAM`, `L2`, `L1`, `shared memory`), or empty.
        confidence: `high` when the two agree, else `low`.
        theory_confidence: of the theory's class: `high`, `medium`, `low`, or empty.
        measured_confidence: of the measured class, likewise.
        sol_us: speed of light: no call can be faster, from problem and measured peaks.
        sheet_us: the same from the device's datasheet; 0 for a device without one here.
        bound: which term sets it: `bytes`, `flops` or `launches`.
        intensity: FLOPs per least byte.
        ridge: FLOPs per byte at which this machine turns from memory to compute bound.
        text: the same in one or two sentences.
    """

    theory: str
    measured: str
    dispatched: str
    level: str = ""
    confidence: str = "low"
    theory_confidence: str = ""
    measured_confidence: str = ""
    sol_us: float = 0.0
    sheet_us: float = 0.0
    bound: str = ""
    intensity: float = 0.0
    ridge: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to try: a move's name and, in words, what to do."""

    name: str
    instruction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One bottleneck that a detector saw, in words that a proposer can act on.

    A detector leaves `detector`, `level`, `group` and `kernel` empty: they are filled in from its
    declaration and from the kernel that it was shown.

    Attributes:
        bottleneck: WHAT: value against threshold.
        why: WHY: the mechanism in one line.
        gain: GAIN: estimated share of the time that could be saved, 0..1. A detector gives the
            share of the kernel that it saw; what is kept is the share of the whole call.
        detector: the detector's name.
        level: `kernel`, `instruction` or `system`.
        confidence: 0..1; 1 for an exact measured rule, less for a heuristic.
        where: WHERE: loop, file:line, instruction; or empty.
        actions: HOW: at most three edits.
        guard: GUARD: when not to do it.
        group: findings of one group share a bound, so their gains must not be added.
        kernel: name of the kernel, or empty for the whole candidate.
    """

    bottleneck: str
    why: str
    gain: float
    detector: str = ""
    level: str = ""
    confidence: float = 0.5
    where: str = ""
    actions: tuple[Action, ...] = ()
    guard: str = ""
    group: str = ""
    kernel: str = ""

    def __post_init__(self) -> None:
        for name in ("gain", "confidence"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(
                    f"{name} must be within 0..1, but {self.detector} gave {getattr(self, name)}"
                )
        if len(self.actions) > 3:
            raise ValueError(f"{self.detector} gave {len(self.actions)} actions; 3 at most")

    @property
    def rank(self) -> float:
        """Estimated gain weighed by confidence: what findings are sorted by."""
        return self.gain * self.confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a detector may look at."""

    problem: Problem
    candidate: Candidate
    machine: Machine
    evaluation: Evaluation
    profile: Profile
    classification: Classification


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """A micro-profiling tool: from metrics to a diagnosis.

    Attributes:
        name: unique, lower case with underscores.
        level: `kernel`, `instruction` or `system`.
        needs: names of the metrics that it reads; collected once for all detectors. It does not
            run when one of them is absent.
        diagnose: looks at the evidence and returns findings, or None.
        targets: targets that it understands.
        classes: roofline classes that dispatch it; empty for all.
        threshold: the cut that it applies and where that comes from, in words.
        wants: metrics that it reads where they are there, and does without where not.
        group: detectors of one group share a bound; of their findings only the best counts.
        summary: what it looks for, in one line.
    """

    name: str
    level: str
    needs: tuple[str, ...]
    diagnose: Callable[[Evidence], Diagnosis | Iterable[Diagnosis] | None]
    targets: tuple[str, ...] = ("cpu", "cuda")
    classes: tuple[str, ...] = ()
    threshold: str = ""
    wants: tuple[str, ...] = ()
    group: str = ""
    summary: str = ""


def detector(
    *,
    level: str,
    needs: tuple[str, ...] = (),
    wants: tuple[str, ...] = (),
    targets: tuple[str, ...] = ("cuda",),
    classes: tuple[str, ...] = (),
    group: str = "",
    threshold: str = "",
) -> Callable[[Callable[[Evidence], Diagnosis | Iterable[Diagnosis] | None]], Detector]:
    """Make a detector of the function below it, with its name and its docstring's first line.

    See `Detector` for the arguments.
    """

    def declare(function: Callable[[Evidence], Any]) -> Detector:
        return Detector(
            name=function.__name__,
            level=level,
            needs=needs,
            diagnose=function,
            targets=targets,
            classes=classes,
            threshold=threshold,
            wants=wants,
            group=group,
            summary=(function.__doc__ or "").strip().partition("\n")[0],
        )

    return declare


# --- the search -------------------------------------------------------------------------------


def change_in(rationale: str) -> str:
    """The change that a rationale names, such as `unroll 2 -> 4`; empty where it names none.

    The built-in proposer writes `CHANGE: why`, before it perhaps who asked for it or which kernel
    it is about, each with a colon.
    """
    return rationale.rpartition(": ")[0].rpartition(": ")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """All that a proposer may look at when it writes the next candidate.

    Attributes:
        problem: what to speed up.
        machine: what it runs on.
        parent: the candidate to improve; the reference itself at the root.
        evaluation: what became of the parent.
        profile: the parent's metrics.
        diagnoses: the parent's findings, most promising first.
        tried: ids of every candidate that this search has seen.
        attempts: what the parent's children were and what they gave, oldest first.
        seed: for random choices; differs from step to step.
        lessons: what earlier searches of like problems saw of strategies, for the parent's
            findings and class; empty unless the search was started with lessons.
        worth: for each change that this search has made, such as `unroll 2 -> 4`, how often, and
            the sum of the logarithms of what it gained.
        node: index of the parent's step; -1 where it is not known.
        steps: every step of the search so far, in order.
        sol_us: the problem's speed of light on the machine; 0 where it is not known.
        fruitless: how many of the latest tries from the parent, in a row, gained nothing.
        held_back: gives the proposal with what is held back of profiles until it is asked for;
            None where nothing is. Proposers call `ask`.
    """

    problem: Problem
    machine: Machine
    parent: Candidate
    evaluation: Evaluation
    profile: Profile
    diagnoses: tuple[Diagnosis, ...]
    tried: frozenset[str]
    attempts: tuple["Attempt", ...]
    seed: int
    lessons: tuple["Lesson", ...] = ()
    worth: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    node: int = -1
    steps: tuple["Step", ...] = ()
    sol_us: float = 0.0
    fruitless: int = 0
    held_back: Callable[[], "Proposal"] | None = field(default=None, repr=False, compare=False)

    def ask(self) -> "Proposal":
        """The same with all that may be known of profiles; the step will say that it was asked.

        Only a search with feedback `asked` holds anything back; of any other it is the same.
        """
        return self if self.held_back is None else replace(self.held_back(), tried=self.tried)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A child that the parent already has, in short."""

    rationale: str
    outcome: Outcome
    speedup: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a search had before it when it chose a parent while other candidates were under way.

    Attributes:
        steps: how many steps were in the tree.
        closed: how many nodes had been found exhausted by then, in the whole search.
        under_way: parents of the other candidates, oldest choice first.
    """

    steps: int
    closed: int
    under_way: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What earlier searches of like problems saw of one strategy; docs/lessons.md has formulas.

    Attributes:
        finding: detector whose finding was acted on; empty for any, and for none.
        roofline: class that the parents were of; empty for any.
        strategy: what was changed; empty for all strategies together.
        tries: candidates that did so.
        successes: those accepted and at least 1.02 times as fast as what they were made from.
        weight: tries discounted by the distance of their problems and by another device.
        log_gain: mean natural logarithm of the speed-up over the parent, of the tries that were
            timed, weighed likewise; None when none was.
        log_gain_error: its standard error; None with fewer than two timed tries.
        worth: expected log gain of one more try, failures counted as 0, shrunk towards what is
            known of more general lessons: few tries move it little.
        problems: distinct problems that it was seen on.
        distance: of the nearest of them, 0..1.
        failures: the commonest reasons of failures, shortened.
    """

    finding: str = ""
    roofline: str = ""
    strategy: str = ""
    tries: int
    successes: int
    weight: float
    log_gain: float | None = None
    log_gain_error: float | None = None
    worth: float = 0.0
    problems: int = 0
    distance: float = 0.0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One finished search iteration: journal line, tree node, event and table row in one.

    Attributes:
        index: position in the memory file; 0 is the baseline, the root of the tree.
        parent: index of the step whose candidate this one was made from.
        reward: what the search maximises.
        phases_s: wall seconds by phase: `select`, `propose`, `gate`, `build`, `start`, `load`,
            `judge`, `time`, `profile`, `diagnose`.
        clock_s: seconds since the search began, at the end of the step.
        exhausted: indices of nodes that were selected since the step before, but for which no
            proposer had a candidate left; they are closed.
        choice: what the choice of the parent rested on; None when that was all earlier steps.
        exhausted_choices: the same for each of the exhausted.
        asked: whether its proposer asked for the parent's profile, where the search holds that
            back until then.
    """

    index: int
    parent: int | None
    candidate: Candidate
    evaluation: Evaluation
    profile: Profile = field(default_factory=Profile)
    classification: Classification | None = None
    diagnoses: tuple[Diagnosis, ...] = ()
    reward: float = 0.0
    phases_s: Mapping[str, float] = field(default_factory=dict)
    clock_s: float = 0.0
    exhausted: tuple[int, ...] = ()
    choice: Choice | None = None
    exhausted_choices: tuple[Choice, ...] = ()
    asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A would-be winner judged again from scratch: fresh process, fresh seeds, more samples.

    Attributes:
        step: index of the step whose candidate was judged.
        evaluation: what that showed; only this number is a headline.
    """

    step: int
    evaluation: Evaluation
