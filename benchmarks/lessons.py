"""Do lessons of other problems help? Paired searches with and without them, same seeds and budgets.

    python -m benchmarks.lessons row_softmax rms_norm layer_norm --seeds 5 --iterations 30 --out DIR

First every problem is searched without lessons (arm `without`), each search writing to a lessons
file of its own. Then each is searched again (arm `with`), told the lessons of all searches of the
*other* problems, never of its own. A pair is one problem with one seed. Told apart:

- `final`: log of the best speed-up after all evaluations;
- `area`: mean over the evaluations of the log of the best speed-up so far;
- `reach`: evaluations until 95 % of the best speed-up that any search of the problem found; one
  more than the budget where that was not reached.

For each: the median difference, Wilcoxon's signed-rank test (two-sided, of scipy) and the
matched-pairs rank-biserial correlation (Kerby 2014): 1 where every pair favours lessons, -1 where
none does. The arms run one after the other, so drift of the machine is not paired out; speed-ups
are ratios to the baseline in the same minute. Searches that are in DIR already are not run again.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import kernelpro
from kernelpro import problems
from kernelpro.lessons.store import Store
from kernelpro.records import Outcome, Step
from kernelpro.search import memory

REACHED = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One problem with one seed, in both arms; values as (without, with)."""

    problem: str
    seed: int
    final: tuple[float, float]
    area: tuple[float, float]
    reach: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """What the pairs say of one measure.

    Attributes:
        pairs: how many; those without a difference say nothing.
        favour: pairs in which lessons did better, and worse.
        median: of the differences, with lessons minus without.
        p: of Wilcoxon's test; 1 where no pair differs.
        effect: matched-pairs rank-biserial correlation, above 0 where lessons did better.
    """

    pairs: int
    favour: tuple[int, int]
    median: float
    p: float
    effect: float


def main() -> int:
    """Run the searches that are missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", help="names or files (default: every bundled one)")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--policy", default="mcts")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N")
    parser.add_argument("--out", type=Path, required=True, help="folder for searches and tables")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    names = args.problems or problems.bundled()
    if len(names) < 2:
        parser.error("lessons come from other problems, so at least two are needed")

    def search(name: str, seed: int, arm: str, lessons: Path) -> list[Step]:
        file = args.out / f"{Path(name).stem}-{seed}-{arm}.jsonl"
        again = file.exists()
        kernelpro.search(
            None if again else name,
            target=args.target,
            iterations=args.iterations,
            seed=seed,
            sizes={n: int(v) for n, _, v in (text.partition("=") for text in args.size)} or None,
            policy=args.policy,
            memory_file=file,
            resume=again,
            lessons=lessons,
            confirm=False,
        )
        steps = memory.read(file)[1]
        print(f"{file.stem}: {math.exp(curve(steps)[-1]):.3f}x", flush=True)
        return steps

    seeds = range(args.seeds)
    curves: dict[tuple[str, int, str], list[float]] = {}
    for name in names:
        for seed in seeds:
            own = args.out / f"{Path(name).stem}-{seed}.db"
            curves[name, seed, "without"] = curve(search(name, seed, "without", own))
    for name in names:
        for seed in seeds:
            told = args.out / f"told-{Path(name).stem}-{seed}.db"
            if not told.exists():  # a resumed search is told what its memory file says
                with Store(told) as store:
                    for other in names:
                        for number in seeds if other != name else ():
                            store.merge(args.out / f"{Path(other).stem}-{number}.db")
            curves[name, seed, "with"] = curve(search(name, seed, "with", told))
    pairs = [pair(curves, name, seed, args.iterations) for name in names for seed in seeds]
    tests = {
        "final": tested([(b - a) for a, b in (each.final for each in pairs)], fewer=False),
        "area": tested([(b - a) for a, b in (each.area for each in pairs)], fewer=False),
        "reach": tested([(b - a) for a, b in (each.reach for each in pairs)], fewer=True),
    }
    text = render(pairs, tests)
    print(text)
    (args.out / "table.txt").write_text(text + "\n")
    rows = {"pairs": [asdict(p) for p in pairs], "tests": {k: asdict(t) for k, t in tests.items()}}
    (args.out / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def curve(steps: Sequence[Step]) -> list[float]:
    """Log of the best speed-up after each evaluation; the baseline's is 0."""
    best, found = 0.0, []
    for step in steps[1:]:
        timing = step.evaluation.timing
        if step.evaluation.outcome is Outcome.ACCEPTED and timing is not None:
            best = max(best, math.log(timing.speedup))
        found.append(best)
    return found


def pair(
    curves: dict[tuple[str, int, str], list[float]], name: str, seed: int, iterations: int
) -> Pair:
    """Compare the arms of one problem and seed."""
    goal = max(c[-1] for (n, _, _), c in curves.items() if n == name) + math.log(REACHED)

    def reach(values: list[float]) -> float:
        return float(next((n for n, v in enumerate(values, 1) if v >= goal), iterations + 1))

    without, told = (curves[name, seed, arm] for arm in ("without", "with"))
    return Pair(
        problem=Path(name).stem,
        seed=seed,
        final=(without[-1], told[-1]),
        area=(statistics.fmean(without), statistics.fmean(told)),
        reach=(reach(without), reach(told)),
    )


def tested(differences: Sequence[float], *, fewer: bool) -> Test:
    """Test paired differences; with fewer, less is better."""
    from scipy import stats  # not a dependency of kernelpro

    better = [-d if fewer else d for d in differences]
    apart = [d for d in better if d]
    ranks = stats.rankdata([abs(d) for d in apart])
    up = sum(rank for rank, d in zip(ranks, apart, strict=True) if d > 0)
    whole = sum(ranks)
    return Test(
        pairs=len(differences),
        favour=(sum(d > 0 for d in apart), sum(d < 0 for d in apart)),
        median=statistics.median(differences),
        p=float(stats.wilcoxon(apart).pvalue) if apart else 1.0,
        effect=float((2 * up - whole) / whole) if apart else 0.0,
    )


def render(pairs: Sequence[Pair], tests: dict[str, Test]) -> str:
    """The tables as text."""
    lines = [f"{'problem':24} seed   final speed-up       mean log best      evaluations"]
    for each in pairs:
        final = " -> ".join(f"{math.exp(value):6.3f}" for value in each.final)
        area = " -> ".join(f"{value:6.3f}" for value in each.area)
        reach = " -> ".join(f"{value:3.0f}" for value in each.reach)
        lines.append(f"{each.problem:24} {each.seed:4}  {final}   {area}   {reach}")
    lines.append("")
    for name, test in tests.items():
        better, worse = test.favour
        lines.append(
            f"{name:6} median difference {test.median:+.4f}; lessons better in {better}, worse in "
            f"{worse} of {test.pairs} pairs; Wilcoxon p = {test.p:.3f}; effect {test.effect:+.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
