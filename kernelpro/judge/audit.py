"""Audits a problem before anything is judged: is there a function whose speed means anything?

A speed-up on a problem whose answer does not depend on its input, which zeros solve, or whose
reference disagrees with itself says nothing about kernels; such a problem is refused for headline
numbers, with the reason, before any candidate is seen. It takes about six runs of the reference,
and one for each of its parameters.
"""

import copy
import hashlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import psutil
import torch

from kernelpro.errors import JudgeError, ProblemError
from kernelpro.judge import raw
from kernelpro.judge.inputs import perturb, shipped, zero_mean
from kernelpro.judge.numerics import Expected, compare, expect
from kernelpro.judge.reference import (
    LARGE_BYTES,
    Reference,
    answer,
    answer_like,
    disagreement,
    is_doubtful,
    size_bytes,
)
from kernelpro.problems.module import ProblemModule, instantiate
from kernelpro.records import Problem, TensorSpec
from kernelpro.settings import cache_folder

VERSION = 4  # of what is looked for; a cached audit of another version is made again
DEGENERATE = 1e-6  # of the output's rms: outputs that differ less are the same
LOOSE = (1e-4, 1e-2)  # absolute tolerances in common use, under which tiny outputs vanish
HELD_INPUTS = 6  # so many times the inputs' bytes are held at once: three sets, a call's, float64's
HELD_OUTPUTS = 10  # and the outputs': three answers in two types, and what float64 takes on the way
COPIES = 4  # inputs, parameters and outputs are held so often at once
MOST_PARAMETERS = 64  # more than these are perturbed together
SEEDS = (11, 12)  # of the inputs; an audit is the same each time, the judge's seeds are its own
REFUSING, NOTE = "refuse", "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about a problem that a reader of its results must know.

    Attributes:
        code: machine-readable, such as `input_independent`.
        sentence: the same in words.
        weight: `refuse` (no headline number) or `note`.
    """

    code: str
    sentence: str
    weight: str = NOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What the audit of one problem found.

    Attributes:
        problem: its name.
        findings: the refusing ones first.
        seconds: wall time that it took when it was made.
        cached: whether it was made earlier.
    """

    problem: str
    findings: tuple[Finding, ...]
    seconds: float
    cached: bool = False

    @property
    def refused(self) -> bool:
        """Whether the problem is refused for headline numbers."""
        return any(finding.weight == REFUSING for finding in self.findings)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Codes of the refusing findings."""
        return tuple(f.code for f in self.findings if f.weight == REFUSING)


def audited(problem: Problem, device: str) -> Audit:
    """Return the audit of a problem, from the cache folder if it was made before.

    Raises:
        JudgeError: the reference cannot run.
    """
    path = cache_folder() / "audits" / f"{key(problem)}.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return Audit(
            problem=problem.name,
            findings=tuple(Finding(**finding) for finding in kept["findings"]),
            seconds=float(kept["seconds"]),
            cached=True,
        )
    except (OSError, ValueError, KeyError, TypeError):
        made = audit(problem, device)
    if "memory" in made.reasons:  # what is free now may not be what is free next time
        return made
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{time.monotonic_ns()}")
        new.write_text(json.dumps(asdict(made)), encoding="utf-8")
        new.replace(path)
    except OSError:
        pass  # a full or read-only disk costs the next search the audit's time
    return made


def key(problem: Problem) -> str:
    """Hash of all that the audit depends on."""
    parts = [VERSION, problem.source, sorted(problem.sizes.items()), problem.precision]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def audit(problem: Problem, device: str) -> Audit:
    """Run the reference on two seeds and with other parameters, and say what is odd.

    Args:
        problem: the problem, loaded for a target.
        device: `cpu` or `cuda`, where the reference runs.

    Raises:
        JudgeError: the reference cannot run.
    """
    began = time.monotonic()
    findings = [*_of_memory(problem, device)]
    if not any(f.weight == REFUSING for f in findings):
        try:
            findings += _of_runs(problem, torch.device(device))
        except ProblemError as error:
            raise JudgeError(str(error)) from error
        except torch.OutOfMemoryError:
            findings.append(
                Finding(
                    code="memory",
                    sentence=f"the reference does not fit into the memory of {device}",
                    weight=REFUSING,
                )
            )
    findings.sort(key=lambda f: f.weight != REFUSING)
    return Audit(problem=problem.name, findings=tuple(findings), seconds=time.monotonic() - began)


def need_bytes(problem: Problem) -> int:
    """Estimate the memory that judging needs, from shapes alone."""
    specs = (*problem.inputs, *problem.parameters, *problem.outputs)
    return COPIES * sum(_bytes(spec) for spec in specs)


def _bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * (
        raw.DTYPES[spec.dtype].itemsize if spec.dtype in raw.DTYPES else 4
    )


def _of_memory(problem: Problem, device: str) -> Iterator[Finding]:
    need = need_bytes(problem)
    free = torch.cuda.mem_get_info()[0] if device == "cuda" else psutil.virtual_memory().available
    if need > free:
        yield Finding(
            code="memory",
            sentence=f"judging needs about {need / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB of "
            f"{device} memory are free; make its sizes smaller",
            weight=REFUSING,
        )
    integers = [n for n, spec in enumerate(problem.inputs) if "float" not in spec.dtype]
    if integers:
        which = ", ".join(f"{n} ({problem.inputs[n].dtype})" for n in integers[:8])
        yield Finding(
            code="integer_inputs",
            sentence=f"inputs that are no floating-point numbers are used as shipped: {which}",
        )


def _of_runs(problem: Problem, device: torch.device) -> Iterator[Finding]:
    module = instantiate(problem)
    values = [_inputs(module, seed, device, problem) for seed in SEEDS]
    generator = torch.Generator(device).manual_seed(SEEDS[0])
    signed = raw.map_tensors(values[0], lambda t: zero_mean(t, generator))
    model = module.model(SEEDS[0])
    reference = Reference(model, device, problem.precision)
    first, again = (answer(problem, reference, values[0]) for _ in range(2))
    if check := disagreement(first, again):
        yield Finding(
            code="not_deterministic",
            sentence="the reference gives two results for the same input (dropout in training "
            f"mode, other random numbers?): output {check.output} differs by "
            f"{check.rms_error:.1e} of its rms; make the file deterministic, such as by .eval()",
            weight=REFUSING,
        )
        return
    share = _non_finite(first)
    if share == 1.0:
        yield Finding(
            code="non_finite", sentence="every output is NaN or infinite", weight=REFUSING
        )
        return
    if share > 0:
        yield Finding(
            code="some_non_finite", sentence=f"{share:.2%} of the outputs are NaN or infinite"
        )
    del again
    shipped = _looked_at(values[0], reference.expected_for(values[0], first), first, device)
    del first, reference
    # What the judge sees: perturbed parameters, and inputs that are not only the shipped ones.
    perturb(model, SEEDS[1])
    judged = Reference(model, device, problem.precision)
    sets, fixed = _on_all(problem, judged, values, signed)
    del judged
    yield from _of_outputs(shipped, sets, fixed)
    yield from _of_parameters(module, device, values[0], problem)


def _inputs(module: ProblemModule, seed: int, device: torch.device, problem: Problem) -> list[Any]:
    """Make inputs on the device; they leave it where the audit's answers would have no room."""
    value = shipped(module, seed, device)
    size = size_bytes(value)
    need = HELD_INPUTS * size + HELD_OUTPUTS * sum(_bytes(spec) for spec in problem.outputs)
    if size <= LARGE_BYTES or (device.type == "cuda" and need < torch.cuda.mem_get_info()[0]):
        return value
    value = list(raw.map_tensors(value, torch.Tensor.cpu))
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """What one output is on one input set.

    Attributes:
        exact: whether it is compared to the bit.
        zeros_pass: whether zeros would be accepted.
        is_copy: whether it has the values of an input.
        doubtful: whether float64 and its own type disagree.
        rms: of its values.
        is_even: whether all of its values are the same.
        largest: its largest magnitude.
    """

    exact: bool
    zeros_pass: bool
    is_copy: bool
    doubtful: bool
    rms: float
    is_even: bool
    largest: float


def _looked_at(
    value: list[Any], expected: list[Expected], outputs: list[torch.Tensor], device: torch.device
) -> list[_Output]:
    """What each output is on an input set, by the reference's answers."""
    found = []
    for e, output in zip(expected, outputs, strict=True):
        plain = not e.exact and e.values.numel() > 0
        found.append(
            _Output(
                exact=e.exact,
                zeros_pass=_zeros_pass(e),
                is_copy=_is_copy(value, output, device),
                doubtful=is_doubtful(e),
                rms=e.scale,
                is_even=plain
                and e.values.numel() > 1
                and float(e.values.std()) <= DEGENERATE * e.scale,
                largest=float(e.values.abs().max()) if plain else math.inf,
            )
        )
    return found


def _on_all(
    problem: Problem, judged: Reference, values: list[list[Any]], signed: list[Any]
) -> tuple[list[list[_Output]], set[int]]:
    """What outputs are on each set, and which hardly change; of large tensors one set at a time."""
    outputs = answer(problem, judged, values[0])
    expected = judged.expected_for(values[0], outputs)
    sets = [_looked_at(values[0], expected, outputs, judged.device)]
    fixed = set(range(len(outputs)))
    for value in (values[1], signed):
        other = (
            answer_like(judged, value, outputs)
            if value is signed
            else answer(problem, judged, value)
        )
        if other is not None:
            fixed = {n for n in fixed if _is_fixed(expected[n], [other[n]])}
            sets.append(_looked_at(value, judged.expected_for(value, other), other, judged.device))
    return sets, fixed


def _non_finite(outputs: list[torch.Tensor]) -> float:
    floats = [t for t in outputs if t.is_floating_point() and t.numel()]
    count = sum(t.numel() for t in floats)
    odd = sum(int((~torch.isfinite(t)).sum()) for t in floats)
    return odd / count if count else 0.0


def _of_outputs(
    shipped: list[_Output], sets: list[list[_Output]], fixed: set[int]
) -> Iterator[Finding]:
    """Look at each output; a defect of all of them on every set is a defect of the problem.

    Args:
        shipped: the outputs on the shipped inputs, with the parameters as constructed.
        sets: on each of the inputs that are judged with.
        fixed: outputs that hardly change with the input.
    """
    count = len(shipped)
    words = {n: "the output" if count == 1 else f"output {n}" for n in range(count)}
    zeros, zeros_shipped = (
        {n for n in range(count) if all(among[n].zeros_pass for among in each)}
        for each in (sets, [shipped])
    )
    copies, copies_shipped = (
        {n for n in range(count) if all(among[n].is_copy for among in each)}
        for each in (sets, [shipped])
    )
    noisy = {n for n in range(count) if any(s[n].doubtful for s in sets) and n not in zeros}
    for code, which, text in (
        ("ill_conditioned", noisy, "is mostly rounding: answers cannot be told apart"),
        ("input_independent", fixed, "is the same for other inputs"),
        ("zeros_accepted", zeros, "is so close to zero that zeros are accepted"),
        ("output_is_input", copies, "equals an input"),
    ):
        weight = REFUSING if len(which) == count else NOTE
        for n in sorted(which):
            yield Finding(code=code, sentence=f"{words[n]} {text}", weight=weight)
    for code, which, text in (
        ("shipped_zeros", zeros_shipped - zeros, "is zero"),
        ("shipped_copies", copies_shipped - copies, "equals an input"),
    ):
        for n in sorted(which):
            yield Finding(
                code=code,
                sentence=f"on the shipped inputs, with the parameters as constructed, {words[n]} "
                f"{text}; it is judged with other inputs and parameters too",
            )
    for n, output in enumerate(shipped):
        if output.exact or n in zeros or n in zeros_shipped:
            continue
        if output.is_even:
            yield Finding(code="constant_output", sentence=f"all elements of {words[n]} are equal")
        vanishing = [limit for limit in LOOSE if output.largest <= limit]
        if vanishing:
            yield Finding(
                code="tiny_output",
                sentence=f"{words[n]} has an rms of {output.rms:.1e}: zeros would pass an absolute "
                f"tolerance of {vanishing[0]:g}, though not kernelpro's",
            )


def _is_copy(value: list[Any], output: torch.Tensor, device: torch.device) -> bool:
    """Whether an output has the values of an input."""
    return any(
        t.shape == output.shape
        and t.dtype == output.dtype
        and bool(torch.equal(t.to(device), output))
        for t in raw.tensors_in(value)
    )


def _is_fixed(expected: Expected, others: list[torch.Tensor]) -> bool:
    """Whether an output hardly changes with the input."""
    for other in others:
        if tuple(other.shape) != expected.shape:
            return False
        line = torch.view_as_real(other) if other.is_complex() else other
        line = line.reshape(-1)
        if expected.exact:
            if not bool(torch.equal(line, expected.values)):
                return False
            continue
        apart = torch.nan_to_num(line.double() - expected.values, 0.0, 0.0, 0.0).abs()
        if apart.numel() and float(apart.max()) > DEGENERATE * max(expected.scale, 1e-300):
            return False
    return True


def _zeros_pass(expected: Expected) -> bool:
    zeros = torch.zeros(expected.shape, dtype=expected.dtype, device=expected.values.device)
    check, _ = compare(zeros, replace(expected, policy="strict"), inputs="shipped-0", output=0)
    return check.ok


def _of_parameters(
    module: ProblemModule, device: torch.device, value: list[Any], problem: Problem
) -> Iterator[Finding]:
    """Perturb one parameter after the other; those without effect need not be computed with."""
    model = module.model(SEEDS[0])
    perturb(model, SEEDS[1])  # a branch that is switched off at first must not hide the others
    named = [(n, p) for n, p in model.named_parameters() if p.is_floating_point() and p.numel()]
    if not named:
        return
    base = [expect(t, t) for t in answer(problem, Reference(model, device), value)]

    def matters(changed: torch.nn.Module) -> bool:
        outputs = answer(problem, Reference(changed, device), value)
        return not all(_is_fixed(e, [o]) for e, o in zip(base, outputs, strict=True))

    everything = copy.deepcopy(model)
    perturb(everything, SEEDS[0])
    if not matters(everything):
        yield Finding(
            code="weights_irrelevant", sentence="no parameter changes the outputs", weight=NOTE
        )
        return
    idle = []
    for name, _ in named[:MOST_PARAMETERS]:
        changed = copy.deepcopy(model)
        with torch.no_grad():
            parameter = dict(changed.named_parameters())[name]
            parameter.add_(torch.randn_like(parameter) * max(float(parameter.abs().mean()), 0.1))
        if not matters(changed):
            idle.append(name)
    if idle:
        yield Finding(
            code="parameter_without_effect",
            sentence=f"parameters that change no output: {', '.join(idle[:8])}",
        )
