"""Judge every worked kernel of kernelpro/exemplars and print one table: verdict, time of a call,
how many times as fast as eager torch and as torch.compile, and its time over the speed of light.

    python3 -m benchmarks.exemplars --out DIR                 # all, in about three minutes
    python3 -m benchmarks.exemplars --seconds 360 --out DIR   # with torch.compile's time for each
    python3 -m benchmarks.exemplars --only transpose --out DIR
    python3 -m benchmarks.exemplars --profiles        # profiles each instead, into its own folder

Each is judged on its own, the largest kernels first: one that crashes leaves the others alone.
torch.compile is timed while `--seconds` allow. For one that fails, its own process runs it beside
the reference and says where they differ.
"""

import argparse
import json
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kernelpro import api, exemplars, problems, targets
from kernelpro.cli import text
from kernelpro.cli.check import decision, in_words
from kernelpro.exemplars import Exemplar
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.profiling.speed_of_light import speed_of_light
from kernelpro.records import Candidate, Machine, Outcome
from kernelpro.serial import encode
from kernelpro.targets import Target

PROFILE_TOP = 5
"""Findings in a profile."""

OTHERS_S = 11.0
"""Seconds kept for each exemplar that is still to come before torch.compile is timed."""


@dataclass(kw_only=True)
class Row:
    """What became of one exemplar; times in microseconds, 0 where there is none."""

    name: str
    decision: str = "failed"
    us: float = 0.0
    eager_us: float = 0.0
    over_eager: float = 0.0
    low: float = 0.0
    high: float = 0.0
    over_compile: float = 0.0
    compile_note: str = "not timed"
    sol_us: float = 0.0
    seconds: float = 0.0
    words: str = ""
    evaluation: Any = None


def main() -> int:
    """Judge what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="a name; may be given again")
    parser.add_argument("--out", type=Path, help="folder for exemplars.json and table.txt")
    parser.add_argument("--seconds", type=float, default=190.0, help="for all (default 190)")
    parser.add_argument(
        "--profiles", action="store_true", help="write what `kernelpro profile` says beside each"
    )
    parser.add_argument("--diagnose", metavar="NAME", help="run one beside its reference, unjudged")
    args = parser.parse_args()
    if args.diagnose:
        diagnose(exemplars.by_name([args.diagnose])[0])
        return 0
    unknown = set(args.only) - set(exemplars.names())
    if unknown:
        parser.error(f"no exemplar is called {', '.join(sorted(unknown))}; there are "
                     f"{', '.join(exemplars.names())}")  # fmt: skip
    wanted = exemplars.by_name(args.only or exemplars.names())[::-1]
    if args.profiles:
        return profile(wanted, args.out)
    began = time.monotonic()
    target = targets.get("cuda")
    machine = target.machine()
    print(f"{machine.device}; its peaks took {time.monotonic() - began:.0f} s", flush=True)
    rows: list[Row] = []
    for number, exemplar in enumerate(wanted):
        left = args.seconds - (time.monotonic() - began)
        row = judged(exemplar, target, machine, left - OTHERS_S * (len(wanted) - number))
        rows.append(row)
        print(line(row), flush=True)
        if row.decision != "accept":
            print(row.words, flush=True)
            print(diagnosed(exemplar), flush=True)
        keep(args.out, rows)
    print("\n" + table(rows))
    return 0 if all(row.decision == "accept" for row in rows) else 1


def profile(wanted: Sequence[Exemplar], folder: Path | None) -> int:
    """Write the profile of each beside it, or into a folder; 1 if one was not accepted."""
    missed = 0
    for exemplar in wanted:
        began = time.monotonic()
        problem, machine, measured, complaints = api.profile(
            exemplar.candidate, str(exemplar.problem), target="cuda"
        )
        accepted = measured.evaluation.outcome is Outcome.ACCEPTED
        missed += not accepted
        words = text.measured(problem, machine, measured, top=PROFILE_TOP, metrics=False)
        path = exemplar.profile if folder is None else folder / f"{exemplar.name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(words.rstrip() + "\n", encoding="utf-8")
        for sentence in complaints:
            print(f"  note: {sentence}")
        print(f"{exemplar.name}: {measured.evaluation.outcome}, {time.monotonic() - began:.1f} s",
              flush=True)  # fmt: skip
    return 1 if missed else 0


def judged(exemplar: Exemplar, target: Target, machine: Machine, spare_s: float) -> Row:
    """Judge one against eager, and against torch.compile where there are seconds to spare."""
    began = time.monotonic()
    row = Row(name=exemplar.name)
    try:
        problem = problems.load(str(exemplar.problem), target=target.name)
        row.sol_us = speed_of_light(problem, machine).sol_us
        candidate = Candidate(source=exemplar.candidate.read_text(), author="exemplar")
        build = target.build(candidate)
        if build is not None and not build.ok:
            row.words = f"  NVRTC: {build.log[:3000]}"
        settings = JudgeSettings(other_shapes=True)
        with Judge(problem, target, settings=settings, sol_us=row.sol_us) as court:
            court.baseline()
            ready_s = time.monotonic() - began
            with court.judging(candidate, build) as (evaluation, _):
                row.decision = decision(evaluation)
                row.words += in_words(exemplar.name, evaluation)
                row.words += f"\n  the reference was ready after {ready_s:.1f} s"
                row.evaluation = encode(evaluation)
            if timing := evaluation.timing:
                row.us, row.eager_us, row.over_eager = (
                    timing.median_us,
                    timing.baseline_us,
                    timing.speedup,
                )
                row.low, row.high = timing.speedup_low, timing.speedup_high
                if spare_s - (time.monotonic() - began) > 0:
                    compare_compiled(row, court)
    except Exception:
        row.words += "\n" + "".join(traceback.format_exc().splitlines(keepends=True)[-12:])
    row.seconds = time.monotonic() - began
    return row


def compare_compiled(row: Row, court: Judge) -> None:
    """Time torch.compile's reference beside eager's; the candidate's ratio to it follows."""
    court.settings = replace(court.settings, baselines="eager,compile")
    try:
        message = court.baseline().message
    except Exception as error:  # the verdict stands without it
        row.compile_note = f"{type(error).__name__}: {str(error)[:200]}"
        return
    row.compile_note = message
    if found := re.search(r"torch\.compile \S+ us is ([\d.]+) times as fast as eager", message):
        row.over_compile = row.over_eager / float(found[1])


def line(row: Row) -> str:
    """The row of the table."""
    over = f"{row.us / row.sol_us:8.2f}" if row.us and row.sol_us else f"{'-':>8}"
    compiled = f"{row.over_compile:8.2f}" if row.over_compile else f"{'-':>8}"
    return (
        f"{row.name:20} {row.decision:8} {row.us:10.1f} {row.eager_us:10.1f} {row.over_eager:8.2f} "
        f"{f'{row.low:.2f}-{row.high:.2f}':>12} {compiled} {over} {row.seconds:6.0f}"
    )


def table(rows: list[Row]) -> str:
    """All rows under their heading."""
    head = (
        f"{'exemplar':20} {'verdict':8} {'us':>10} {'eager us':>10} {'x eager':>8} "
        f"{'95 %':>12} {'x comp.':>8} {'x SOL':>8} {'s':>6}"
    )
    return "\n".join([head, *map(line, rows)])


def keep(folder: Path | None, rows: list[Row]) -> None:
    """Write what is known so far."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    written = json.dumps([asdict(row) for row in rows], indent=1, default=str)
    (folder / "exemplars.json").write_text(written + "\n")
    (folder / "table.txt").write_text(table(rows) + "\n")


def diagnosed(exemplar: Exemplar) -> str:
    """What `--diagnose` says of one, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.exemplars", "--diagnose", exemplar.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    except subprocess.TimeoutExpired:
        return "  run on its own it does not end in 90 s"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return "\n".join(f"  | {text}" for text in lines[-40:])


def diagnose(exemplar: Exemplar) -> None:
    """Run a candidate beside its reference here, and print where and how their results differ."""
    import torch

    space: dict[str, Any] = {"__name__": "exemplar"}
    exec(compile(exemplar.problem.read_text(), str(exemplar.problem), "exec"), space)
    exec(compile(exemplar.candidate.read_text(), str(exemplar.candidate), "exec"), space)
    torch.manual_seed(0)
    reference = space["Model"](*space["get_init_inputs"]()).cuda()
    candidate = space["ModelNew"](*space["get_init_inputs"]()).cuda()
    candidate.load_state_dict(reference.state_dict())
    inputs = [x.cuda() for x in space["get_inputs"]()]
    with torch.no_grad():
        wanted, found = reference(*inputs), candidate(*inputs)
        torch.cuda.synchronize()
    pairs = [(wanted, found)] if isinstance(wanted, torch.Tensor) else zip(wanted, found)  # noqa: B905
    for number, (want, got) in enumerate(pairs):
        print(f"output {number}: wanted {want.dtype} {tuple(want.shape)}, "
              f"found {got.dtype} {tuple(got.shape)}")  # fmt: skip
        if want.shape != got.shape:
            continue
        w, g = want.double(), got.double()
        rms = float(w.square().mean().sqrt())
        off = (w - g).abs()
        off = torch.where(torch.isfinite(off), off, torch.full_like(off, 1e30))
        bad = off > 0.02 * rms + 0.02 * w.abs()
        print(f"rms {rms:.4g}, largest difference {float(off.max()):.4g}, not finite "
              f"{int((~torch.isfinite(g)).sum())}, off by more than 2 %: {int(bad.sum())} of "
              f"{bad.numel()}")  # fmt: skip
        places = bad.nonzero()
        for place in [*places[:6].tolist(), *places[-4:].tolist()]:
            at = tuple(place)
            print(f"  at {at}: wanted {float(w[at]):.6g}, found {float(g[at]):.6g}")
        for axis in range(bad.dim()):
            marked = bad.any(dim=tuple(d for d in range(bad.dim()) if d != axis)).nonzero()
            line = marked.flatten().tolist()
            print(f"  places with errors along axis {axis}: {len(line)} of {bad.shape[axis]}: "
                  f"{line[:12]} ... {line[-4:]}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
