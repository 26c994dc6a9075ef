"""How often is a first answer valid: in the kernel language, and in raw CUDA or C++?

    python -m benchmarks.one_shot ANSWERS [--target cpu] [--json FILE]

ANSWERS is a folder with one folder for each problem, named like a bundled problem or holding a
`problem.py`; in it any number of answers, one a file: programs of the kernel language (their text
begins with @cpu or @cuda) and Python files with `class ModelNew`. Each is taken as it is, once,
with nothing sent back, and ends as `refused` (the language's checker), `compile_error`,
`runtime_error`, `wrong_result`, ... or `accepted`. The table has a line for each way of writing:
how many were valid (accepted), and how fast those were.

The kernel language's share is compared with the others' on the same problems by Fisher's exact test
where both have answers.
"""

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelpro import problems, subjects, targets
from kernelpro.errors import KernelproError
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.records import Candidate, Outcome, Problem

LANGUAGE = "kernel language"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one answer.

    Attributes:
        problem: its problem's name.
        file: the answer's file name.
        written_in: `kernel language`, `cpp`, `cuda`, `triton` or `torch`.
        outcome: `accepted` or how it failed.
        message: the first sentence of why.
        speedup: over the baseline if it was accepted.
    """

    problem: str
    file: str
    written_in: str
    outcome: str
    message: str
    speedup: float = 0.0


def answers(folder: Path, target: str) -> Iterator[Answer]:
    """Judge every answer of a folder.

    Raises:
        KernelproError: a problem cannot be read.
    """
    where = targets.get(target)
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        own = place / "problem.py"
        problem = problems.load(str(own) if own.exists() else place.name, target=target)
        files = sorted(f for f in place.iterdir() if f.is_file() and f != own)
        with Judge(problem, where, settings=JudgeSettings()) as judge:
            for file in files:
                yield judged(judge, problem, place.name, file)


def judged(judge: Judge, problem: Problem, name: str, file: Path) -> Answer:
    """Take one answer to the judge."""
    try:
        source = subjects.text_of(file)
        program = subjects.PROGRAM.match(source) is not None
        written_in = LANGUAGE if program else subjects.language_of(source)
        if program:
            source = subjects.expanded(source, problem, file.name)
    except KernelproError as error:
        return Answer(
            problem=name,
            file=file.name,
            written_in=LANGUAGE,
            outcome="refused",
            message=str(error),
        )
    candidate = Candidate(source=source, language=subjects.language_of(source))
    with judge.judging(candidate, judge.target.build(candidate)) as (found, _):
        accepted = found.outcome is Outcome.ACCEPTED and found.timing is not None
        return Answer(
            problem=name,
            file=file.name,
            written_in=written_in,
            outcome=found.outcome.value,
            message=found.message.partition("\n")[0],
            speedup=found.timing.speedup if accepted and found.timing is not None else 0.0,
        )


def table(rows: Sequence[Answer]) -> str:
    """Write a line for each way of writing."""
    lines = [f"{'written in':16} answers  valid  share   geomean of valid  failures"]
    for written_in in sorted({row.written_in for row in rows}):
        mine = [row for row in rows if row.written_in == written_in]
        valid = [row.speedup for row in mine if row.outcome == "accepted"]
        failures = Counter(row.outcome for row in mine if row.outcome != "accepted")
        told = ", ".join(f"{count} {outcome}" for outcome, count in failures.most_common())
        speed = f"{statistics.geometric_mean(valid):.2f}x" if valid else "-"
        share = len(valid) / len(mine)
        lines.append(
            f"{written_in:16} {len(mine):7} {len(valid):6} {share:6.0%} {speed:>18}  {told}"
        )
    if (p := compared(rows)) is not None:
        lines.append(f"kernel language against the others, same problems: p = {p:.3g}")
    return "\n".join(lines)


def compared(rows: Sequence[Answer]) -> float | None:
    """Fisher's exact test, two-sided, on the problems for which both kinds have answers."""
    both = {r.problem for r in rows if r.written_in == LANGUAGE} & {
        r.problem for r in rows if r.written_in != LANGUAGE
    }
    ours = [r.outcome == "accepted" for r in rows if r.problem in both and r.written_in == LANGUAGE]
    theirs = [
        r.outcome == "accepted" for r in rows if r.problem in both and r.written_in != LANGUAGE
    ]
    if not ours or not theirs:
        return None
    return fisher(sum(ours), len(ours), sum(theirs), len(theirs))


def fisher(a: int, n: int, b: int, m: int) -> float:
    """Two-sided p value of a of n against b of m successes (hypergeometric)."""
    total = a + b

    def chance(k: int) -> float:
        return math.comb(n, k) * math.comb(m, total - k) / math.comb(n + m, total)

    seen = chance(a)
    possible: Iterable[int] = range(max(0, total - m), min(n, total) + 1)
    return min(1.0, sum(chance(k) for k in possible if chance(k) <= seen * (1 + 1e-9)))


def main() -> int:
    """Judge the answers and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("answers", type=Path)
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path, help="also write every answer's end to this file")
    args = parser.parse_args()
    if not args.answers.is_dir():
        parser.error(f"expected a folder of answers, but {args.answers} is none")
    rows = []
    for row in answers(args.answers, args.target):
        rows.append(row)
        print(f"{row.problem}/{row.file}: {row.outcome} {row.message[:100]}", flush=True)
    if not rows:
        parser.error(f"{args.answers} holds no answers: a folder for each problem, answers in it")
    print(table(rows))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
