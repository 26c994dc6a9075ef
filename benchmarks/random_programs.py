"""Random programs of the kernel language: each is refused with a reason, or right.

    python -m benchmarks.random_programs [--programs 5000] [--seed 1] [--target cpu] [--out DIR]

Random PyTorch modules are traced; for each, random programs are made of its first one: rewrites,
kernels split and merged, and random values for some knobs of every kernel. In most programs a value
comes with others that let it run, so that most are built; in the rest nothing is looked at, so that
most of those are refused. Each must parse, print back as it was, and either be refused by the
checker before anything is built, or build and be accepted by the judge. Exit status 1 if one does
neither.

    python -m benchmarks.random_programs --check [--capability 9.0] --target cuda

counts what the checker says, without a GPU: how many are legal, why the others are not, and which
values of knobs no legal kernel has.
"""

import argparse
import json
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kernelpro import problems, targets
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.language import writer
from kernelpro.language.legal import Work, legal, repaired
from kernelpro.language.limits import Limits, limits_of
from kernelpro.language.lower import lower
from kernelpro.language.parse import ProgramError, parse
from kernelpro.language.program import Program, Stage, text, with_schedules
from kernelpro.language.rewrites import rewrites
from kernelpro.language.schedule import (
    KNOBS,
    Schedule,
    family_of,
    from_knobs,
    jump,
    target_of,
    yielding,
)
from kernelpro.records import Candidate, Machine, Outcome, Problem

PER_PROBLEM = 10
CHANGED = 0.2  # share of knobs that get a random value; many combinations are illegal
BLIND = 0.2  # share of programs whose knobs are drawn without a look at what can run
TRIES = 60  # draws of other knobs until one that was drawn can run beside them
TF32 = 0.5  # share of problems for a GPU whose products may run on tensor cores
QUICK = JudgeSettings(
    min_pairs=3, max_pairs=3, max_timing_s=0.05, block_s=0.0, settle_s=0.0, hopeless=1e-9
)
UNARY = (
    "torch.tanh({})",
    "torch.sigmoid({})",
    "torch.relu({})",
    "-{}",
    "torch.abs({})",
    "torch.exp(torch.tanh({}))",
    "torch.log(torch.abs({}) + 1.5)",
    "torch.log1p(torch.abs({}))",
    "torch.expm1(torch.tanh({}))",
    "torch.sqrt(torch.abs({}) + 0.01)",
    "torch.rsqrt(torch.abs({}) + 0.1)",
    "torch.reciprocal(torch.abs({}) + 0.5)",
    "torch.erf({})",
    "F.gelu({})",
    "F.silu({})",
    "torch.clamp({}, -0.75, 1.25)",
    "{} * 0.3",
    "{} + 1.25",
    "{} / 3.0",
)
BINARY = (
    "{} + {}",
    "{} - {}",
    "{} * torch.sigmoid({})",
    "{} / (torch.abs({}) + 0.5)",
    "torch.maximum({}, {})",
    "torch.minimum({}, {})",
    "torch.where(x0 > 0.25, {}, {})",
)
ROWS = (
    "{}.mean(-1, keepdim=True)",
    "{}.amax(-1, keepdim=True)",
    "{}.amin(-1, keepdim=True)",
    "({}.sum(-1, keepdim=True) * 0.01)",
    "torch.logsumexp({}, -1, keepdim=True)",
    "{}.var(-1, keepdim=True)",
)
COLUMNS = (
    "{}.mean(-2, keepdim=True)",
    "{}.amax(-2, keepdim=True)",
    "({}.sum(-2, keepdim=True) * 0.05)",
    "torch.logsumexp({}, -2, keepdim=True)",
)
WHOLE = (
    "torch.softmax({}, -1)",
    "torch.log_softmax({}, -1)",
    "F.layer_norm({}, ({columns},))",
    "F.rms_norm({}, ({columns},), eps=1e-5)",
    "torch.softmax({}, -2)",
)
PRODUCTS = (
    "{} @ self.square",
    "F.linear({}, self.square)",
    "F.linear({}, self.square, self.weight)",
    "{} @ self.square.t()",
    "({}.transpose(-1, -2).contiguous() * 0.5).transpose(-1, -2).contiguous()",
    "(({0}.transpose(-1, -2) @ {0}) @ {0}.transpose(-1, -2)).transpose(-1, -2)",
)
"""The last two only where there are at least two dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one program: `accepted`, `refused`, or the name of a failure."""

    problem: str
    program: str
    outcome: str
    message: str


def module(generator: random.Random) -> str:
    """Write a random module in KernelBench's format: small, with few long rows, or with many."""
    outer = [generator.randint(1, 12) for _ in range(generator.randint(1, 2))]
    columns = generator.choice((5, 31, 64, 100, 128, 333, 512))
    kind = generator.random()
    if long := kind < 0.15:
        outer, columns = [generator.randint(1, 4)], generator.choice((4096, 16384))
    elif kind < 0.3:
        outer, columns = [generator.choice((100, 2048))], generator.choice((31, 64, 128))
    shape = (*outer, columns)
    inputs = {"x0": shape}
    if generator.random() < 0.6:
        inputs["x1"] = generator.choice((shape, (columns,), (*outer, 1), (outer[-1], columns)))
    width = generator.random() < 0.5
    lines: list[str] = []
    full, rows = ["x0"], list[str]()
    full += [name for name, given in inputs.items() if name != "x0" and given == shape]
    others = [name for name in inputs if name not in full] + ["self.weight"] * width
    for number in range(generator.randint(2, 9)):
        name, kind = f"v{number}", generator.random()
        operand = generator.choice(full)
        if kind < 0.27:
            value = generator.choice(UNARY).format(operand)
        elif kind < 0.35 and not long:
            value = f"0.2 * ({generator.choice(PRODUCTS).format(operand)})"
        elif kind < 0.65 or (kind < 0.8 and len(full) > 6):
            partner = generator.choice(full + others + rows)
            value = generator.choice(BINARY).format(operand, partner)
        elif kind < 0.85:
            lines.append(f"{name} = {generator.choice(ROWS + COLUMNS).format(operand)}")
            rows.append(name)
            continue
        else:
            value = generator.choice(WHOLE).format(operand, columns=columns)
        lines.append(f"{name} = {value}")
        full.append(name)
    results = [full[-1]] + [name for name in rows[-1:] if generator.random() < 0.5]
    body = "\n".join(f"        {line}" for line in lines)
    square = (
        f"        self.square = torch.nn.Parameter(torch.randn({columns}, {columns}) * "
        f"{columns**-0.5!r})\n"
        if not long
        else ""
    )
    given = ", ".join(f"torch.randn{inputs[name]}".replace(",)", ")") for name in inputs)
    return (
        "import torch\nimport torch.nn.functional as F\n\n\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        f"        self.weight = torch.nn.Parameter(torch.randn({columns}))\n"
        f"{square}\n"
        f"    def forward(self, {', '.join(inputs)}):\n{body}\n"
        f"        return {', '.join(results)}\n\n\n"
        f"def get_inputs():\n    return [{given}]\n"
    )


def programs(
    first: Program, generator: random.Random, count: int, limits: Limits
) -> Iterator[Program]:
    """Yield random programs that compute what the first does; most can run within the limits."""
    for _ in range(count):
        program = first
        for _ in range(generator.randint(0, 3)):
            if choices := list(rewrites(program)):
                own = [one for one in choices if one.name.startswith("own_")]
                program = generator.choice(own or choices).program
        try:
            works = lower(program).works
        except ProgramError:  # rewrites that do not fit together, which the checker is to find
            yield program
            continue
        blind = generator.random() < BLIND
        schedules = [
            drawn(schedule, generator) if blind else fitting(schedule, work, limits, generator)
            for schedule, work in zip(program.schedules, works, strict=True)
        ]
        yield with_schedules(program, schedules)


def values(schedule: Schedule, knob: str) -> Sequence[Any]:
    """What a knob may be drawn from: on a CPU as few threads as every machine has, or one more."""
    allowed = KNOBS[family_of(schedule)][knob]
    return allowed[:3] if knob == "threads" and target_of(schedule) == "cpu" else allowed


def drawn(schedule: Schedule, generator: random.Random) -> Schedule:
    """Give some knobs random values, whether that can run or not."""
    knobs = {
        name: generator.choice(values(schedule, name))
        for name in KNOBS[family_of(schedule)]
        if generator.random() < CHANGED
    }
    start = {f: getattr(schedule, f) for f in KNOBS[family_of(schedule)]}
    return from_knobs(family_of(schedule), start | knobs)


def fitting(schedule: Schedule, work: Work, limits: Limits, generator: random.Random) -> Schedule:
    """Give some knobs random values, each with values of others beside which it can run.

    The others stay where that will do, and are drawn more and more freely where not. A value that
    never can run is left.
    """
    schedule = repaired(schedule, work)  # a rewrite may have left nothing to stage, or no reduction
    names = [name for name in KNOBS[family_of(schedule)] if generator.random() < CHANGED]
    generator.shuffle(names)
    for name in names:
        value = generator.choice(values(schedule, name))
        for number in range(TRIES):
            made = yielding(jump(schedule, name, value), name)
            for other in KNOBS[family_of(schedule)]:
                if other != name and generator.random() < number / TRIES:
                    made = jump(made, other, generator.choice(values(made, other)))
            if not legal(made, [work], limits):
                schedule = made
                break
    return schedule


def judged(judge: Judge, problem: Problem, program: Program, limits: Limits) -> tuple[str, str]:
    """Take one program from its text to the judge's word: outcome and message."""
    words = text(program)
    again = parse(words)
    if again != program or text(again) != words:
        return "not_printed_back", "parse(text(program)) is another program"
    try:
        writer.check(problem, program, limits)
        source = writer.write_program(problem, program)
    except ProgramError as error:
        return "refused", error.reason
    language = "cpp" if problem.target == "cpu" else "cuda"
    candidate = Candidate(source=source, language=language)
    with judge.judging(candidate, judge.target.build(candidate)) as (found, _):
        if found.outcome is Outcome.ACCEPTED:
            return "accepted", found.message
        return found.outcome.value, found.message


def random_problem(folder: Path, target: str, generator: random.Random) -> Problem:
    """Write a random module to a folder and load it."""
    path = folder / f"random_{generator.getrandbits(40):x}.py"
    path.write_text(module(generator), encoding="utf-8")
    problem = problems.load(str(path), target=target)
    tf32 = target == "cuda" and generator.random() < TF32
    return replace(problem, precision="tf32") if tf32 else problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the checker says of one program.

    Attributes:
        program: what was drawn.
        reason: why it cannot run, or empty.
    """

    program: Program
    reason: str


def checked(count: int, seed: int, machine: Machine) -> Iterator[Checked]:
    """Yield what the checker says of each program, on a machine that need not be here."""
    limits = limits_of(machine)
    generator = random.Random(seed)
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        while done < count:
            problem = random_problem(Path(folder), machine.target, generator)
            if writer.prepare(problem).reason:
                continue
            allowed = writer.permitted(limits, problem)
            first = writer.start(problem, machine, allowed)
            for program in programs(first, generator, min(PER_PROBLEM, count - done), allowed):
                done += 1
                try:
                    writer.check(problem, program, limits)
                except ProgramError as error:
                    yield Checked(program=program, reason=error.reason)
                else:
                    yield Checked(program=program, reason="")


def stages(program: Program) -> Iterator[tuple[str, Schedule]]:
    """Yield kind and schedule of each kernel."""
    for stage in program.stages:
        if isinstance(stage, Stage) and stage.schedule is not None:
            yield stage.kind, stage.schedule


def print_checked(rows: Iterable[Checked]) -> None:
    """Print how many programs are legal, why the others are not, and what no legal one has."""
    reasons: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    seen: dict[str, dict[str, set[Any]]] = {}
    count = 0
    for row in rows:
        count += 1
        if row.reason:
            reasons[re.sub(r"\d+", "N", row.reason.rpartition(": ")[2])[:80]] += 1
            continue
        for kind, schedule in stages(row.program):
            kinds[kind] += 1
            knobs = seen.setdefault(family_of(schedule), {})
            for knob in KNOBS[family_of(schedule)]:
                knobs.setdefault(knob, set()).add(getattr(schedule, knob))
    print("refused by the checker because:")
    for reason, number in reasons.most_common():
        print(f"  {number:5} {reason}")
    print("legal kernels: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()))
    for family, knobs in seen.items():
        for knob, found in knobs.items():
            unseen = [str(value) for value in KNOBS[family][knob] if value not in found]
            if unseen and len(KNOBS[family][knob]) < 20:
                print(f"  no legal {family} kernel has {knob} = {', '.join(unseen)}")
    legal_ones = count - reasons.total()
    print(f"{count} programs: {legal_ones} legal ({legal_ones / count:.0%})")


def run(count: int, seed: int, target: str) -> Iterator[Row]:
    """Yield what became of each program; problems that are degenerate are left out."""
    where = targets.get(target)
    machine = where.machine()
    limits = limits_of(machine)
    generator = random.Random(seed)
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        while done < count:
            problem = random_problem(Path(folder), target, generator)
            if writer.prepare(problem).reason:
                continue
            with Judge(problem, where, settings=QUICK) as judge:
                if judge.audit.refused:
                    continue
                judge.baseline()
                first = writer.start(problem, machine, limits)
                number = min(PER_PROBLEM, count - done)
                allowed = writer.permitted(limits, problem)
                for program in programs(first, generator, number, allowed):
                    outcome, message = judged(judge, problem, program, limits)
                    done += 1
                    yield Row(
                        problem=problem.source,
                        program=text(program),
                        outcome=outcome,
                        message=message,
                    )


def main() -> int:
    """Judge random programs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="count what the checker says only")
    parser.add_argument("--capability", default="9.0", help="of the card that --check is for")
    args = parser.parse_args()
    if args.check:
        facts = {"capability": args.capability, "multiprocessors": "132"}
        machine = Machine(
            target=args.target,
            device="any",
            threads=2 if args.target == "cpu" else 0,
            facts=facts if args.target == "cuda" else {},
        )
        print_checked(checked(args.programs, args.seed, machine))
        return 0
    began = time.monotonic()
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what has come is told
    try:
        for row in run(args.programs, args.seed, args.target):
            outcomes[row.outcome] += 1
            if row.outcome == "refused":
                reasons[row.message.rpartition(": ")[2][:80]] += 1
            elif row.outcome != "accepted":
                failures.append(asdict(row))
                print(f"{row.outcome}: {row.message[:300]}\n{row.program}", flush=True)
                if args.out:
                    args.out.mkdir(parents=True, exist_ok=True)
                    path = args.out / f"failures-{args.seed}.json"
                    path.write_text(json.dumps(failures, indent=1))
            if sum(outcomes.values()) % 100 == 0:
                print(dict(outcomes), f"{time.monotonic() - began:.0f} s", flush=True)
    except KeyboardInterrupt:
        print(f"ended before {args.programs} programs")
    print("refused by the checker because:")
    for reason, number in reasons.most_common(12):
        print(f"  {number:5} {reason}")
    named = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.most_common())
    print(f"{sum(outcomes.values())} programs: {named}; {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
