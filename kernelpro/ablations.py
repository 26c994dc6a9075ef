"""Ablations on real problems: what each part of the search is worth, one part changed at a time.

Every arm searches the same problems with the same seeds and the same number of candidates. What is
compared is a pair of searches that differ in one setting alone: the logarithm of the ratio of
their best judged speed-ups. Every search has its memory file in the output folder, so that an
ablation that was cut short goes on where it was. No search is told lessons but those of the arm
`memory_on`, which come after all others: they are told what the base's searches of the *other*
problems have seen, never of their own.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from kernelpro import api
from kernelpro.errors import KernelproError
from kernelpro.lessons.store import Store
from kernelpro.search.loop import AT_SPEED_OF_LIGHT
from kernelpro.spaces.statistics import Estimate, mean

SAME = 0.01
"""Two searches whose best speed-ups differ by less than this tie: a judged ratio tells no finer.
Own choice."""

FACTORS = ("feedback", "policy", "sol", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to search.

    Attributes:
        factor: which setting differs from the base's; empty for the base itself.
        name: for tables and file names.
        policy: where the tree grows.
        feedback: what proposers are shown.
        stop_ratio: end within this factor of the speed of light; 0 never does.
        lessons: whether it is told what searches of the other problems saw.
    """

    factor: str
    name: str
    policy: str = "mcts"
    feedback: str = "findings"
    stop_ratio: float = 0.0
    lessons: bool = False


BASE = Arm(factor="", name="base")
ARMS = (
    Arm(factor="feedback", name="feedback_metrics", feedback="metrics"),
    Arm(factor="feedback", name="feedback_asked", feedback="asked"),
    Arm(factor="feedback", name="feedback_none", feedback="none"),
    Arm(factor="policy", name="policy_epsilon_greedy", policy="epsilon_greedy"),
    Arm(factor="policy", name="policy_greedy", policy="greedy"),
    Arm(factor="policy", name="policy_best_of_n", policy="best_of_n"),
    Arm(factor="sol", name="sol_stop_on", stop_ratio=AT_SPEED_OF_LIGHT),
    Arm(factor="memory", name="memory_on", lessons=True),
)
"""Base: findings, mcts, no stop at the speed of light, no lessons of other problems.

Told unasked against told when asked is `feedback_asked`. Both measure the same, so candidates are
what it costs, not seconds: see `kernelpro.search.brief.Feedback`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one search came to.

    Attributes:
        problem: its name.
        seed: its seed.
        arm: its arm's name.
        speedup: its best judged speed-up; 1 where nothing was faster than the reference.
        candidates: how many it tried.
        found_at: how many it had tried when it had its best; 0 for none.
    """

    problem: str
    seed: int
    arm: str
    speedup: float
    candidates: int
    found_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """An arm against the base, over pairs of the same problem and seed.

    Attributes:
        arm: its name.
        pairs: how many.
        wins: pairs in which the arm's best is faster by more than `SAME`.
        losses: in which the base's is.
        log_ratio: mean of log(arm's speed-up / base's).
        rank_biserial: (W+ - W-) / (W+ + W-) of the signed ranks: 1 where the arm always wins, -1
            where it always loses, 0 where neither (Kerby, 2014); ties left out.
        p: of Wilcoxon's signed-rank test, two-sided; None where it could not be made.
        note: why there is no p, or empty.
        candidates: mean over pairs of how many candidates the arm tried, and the base.
        found_at: mean over pairs of how many it had tried at its best, and the base.
    """

    arm: str
    pairs: int
    wins: int
    losses: int
    log_ratio: Estimate
    rank_biserial: float
    p: float | None
    note: str
    candidates: tuple[float, float]
    found_at: tuple[float, float]


def ablate(
    problems: Sequence[str],
    folder: Path,
    *,
    target: str = "auto",
    iterations: int,
    seeds: int,
    factors: Sequence[str] = FACTORS,
    tell: Callable[[str], None] = print,
) -> list[Run]:
    """Search every problem with every arm and seed, or read what an earlier call has searched.

    Args:
        problems: bundled names or files.
        folder: where the memory files are kept.
        target: where to search.
        iterations: candidates of each search.
        seeds: searches of each problem and arm.
        factors: which settings to change.
        tell: prints a line a search.

    Raises:
        KernelproError: an unknown factor, a problem or target that cannot be used, or too few
            problems for lessons.
    """
    for factor in factors:
        if factor not in FACTORS:
            raise KernelproError(f"there is no factor {factor!r}; choose of {', '.join(FACTORS)}")
    if "memory" in factors and 0 < len(problems) < 2:
        raise KernelproError(
            f"lessons come from other problems, but only {problems[0]} is given; name two at "
            "least, or leave memory out of --factors"
        )
    arms = [BASE, *(arm for arm in ARMS if arm.factor in factors)]
    runs = []
    for told in (False, True):
        some = [arm for arm in arms if arm.lessons is told]
        for problem in problems:
            for seed in range(seeds):
                # In random order, so that a machine that slows down slows no arm more than others.
                for arm in random.Random(f"{problem} {seed}").sample(some, len(some)):
                    lessons = _lessons(problem, seed, arm, folder, problems, seeds)
                    found = _search(problem, seed, arm, folder, target, iterations, lessons)
                    runs.append(found)
                    tell(
                        f"{found.problem} seed {seed} {arm.name}: {found.speedup:.2f}x after "
                        f"{found.found_at} of {found.candidates} candidates"
                    )
    return runs


def _lessons(
    problem: str, seed: int, arm: Arm, folder: Path, problems: Sequence[str], seeds: int
) -> str | Path:
    """What a search is told and tells: the base tells a file of its own, which was empty."""
    own = folder / f"{Path(problem).stem}-{seed}.lessons.db"
    if arm is BASE:
        return own
    if not arm.lessons:
        return "off"
    told = own.with_name(f"told-{own.name}")
    if not told.exists():  # a resumed search is told what its memory file says
        folder.mkdir(parents=True, exist_ok=True)
        with Store(told) as store:
            for other in problems:
                for number in range(seeds) if other != problem else ():
                    written = folder / f"{Path(other).stem}-{number}.lessons.db"
                    if written.exists():
                        store.merge(written)
    return told


def _search(
    problem: str,
    seed: int,
    arm: Arm,
    folder: Path,
    target: str,
    iterations: int,
    lessons: str | Path,
) -> Run:
    place = folder / f"{Path(problem).stem}-{seed}-{arm.name}.jsonl"
    result = api.replay(place) if place.exists() else None
    if result is None or len(result.steps) <= iterations:
        result = api.search(
            problem,
            target=target,
            iterations=iterations,
            seed=seed,
            memory_file=place,
            resume=result is not None,
            policy=arm.policy,
            feedback=arm.feedback,
            stop_ratio=arm.stop_ratio,
            lessons=lessons,
            confirm=False,
        )
    best, found_at = 1.0, 0
    for node in list(result.tree)[1 : iterations + 1]:
        if node.worked and node.speedup is not None and node.speedup > best:
            best, found_at = node.speedup, node.index
    return Run(
        problem=result.problem.name,
        seed=seed,
        arm=arm.name,
        speedup=best,
        candidates=min(len(result.steps) - 1, iterations),
        found_at=found_at,
    )


def effects(runs: Sequence[Run]) -> list[Effect]:
    """Compare each arm with the base, pair by pair."""
    base = {(run.problem, run.seed): run for run in runs if run.arm == BASE.name}
    names = [arm.name for arm in ARMS if any(run.arm == arm.name for run in runs)]
    found = []
    for name in names:
        own = {(run.problem, run.seed): run for run in runs if run.arm == name}
        pairs = [(own[key], base[key]) for key in own if key in base]
        if pairs:
            found.append(_effect(name, pairs))
    return found


def _effect(name: str, pairs: Sequence[tuple[Run, Run]]) -> Effect:
    logs = [float(np.log(own.speedup / base.speedup)) for own, base in pairs]
    differing = [log for log in logs if abs(log) > np.log1p(SAME)]
    p, note = wilcoxon(differing)
    return Effect(
        arm=name,
        pairs=len(pairs),
        wins=sum(log > 0 for log in differing),
        losses=sum(log < 0 for log in differing),
        log_ratio=mean(logs),
        rank_biserial=rank_biserial(differing),
        p=p,
        note=note,
        candidates=_means([(own.candidates, base.candidates) for own, base in pairs]),
        found_at=_means([(own.found_at, base.found_at) for own, base in pairs]),
    )


def _means(pairs: Sequence[tuple[int, int]]) -> tuple[float, float]:
    own, base = np.asarray(pairs, dtype=np.float64).mean(axis=0)
    return float(own), float(base)


def rank_biserial(differences: Sequence[float]) -> float:
    """Matched-pairs rank-biserial correlation of differences that are not 0; 0 of none."""
    if not differences:
        return 0.0
    values = np.asarray(differences, dtype=np.float64)
    sizes = np.abs(values)
    # Equal sizes share the mean of their ranks.
    ranks = np.asarray([(sizes < s).sum() + ((sizes == s).sum() + 1) / 2 for s in sizes])
    return float((ranks * np.sign(values)).sum() / ranks.sum())


def wilcoxon(differences: Sequence[float]) -> tuple[float | None, str]:
    """Two-sided p of Wilcoxon's signed-rank test of differences that are not 0, or why not.

    SciPy makes the test: exact for few pairs.
    """
    if len(differences) < 6:  # with five pairs not even the same sign in all gives p < 0.05
        return None, f"{len(differences)} pairs differ; 6 at least can show anything"
    try:
        from scipy import stats
    except ImportError:
        return None, "SciPy is not installed; pip install kernelpro[bench]"
    return float(stats.wilcoxon(differences).pvalue), ""


def table(runs: Sequence[Run], found: Sequence[Effect]) -> str:
    """Write the arms' effects as a table."""
    problems = sorted({run.problem for run in runs})
    seeds = len({run.seed for run in runs})
    lines = [
        f"{len(problems)} problems ({', '.join(problems)}), {seeds} seeds; base: findings, mcts, "
        "no stop at the speed of light, no lessons",
        "ratio: geometric mean of the arm's best judged speed-up / the base's, same problem and "
        f"seed; ties within {SAME:.0%}",
        f"{'arm':24}{'pairs':>6}{'ratio':>24}{'won':>5}{'lost':>5}{'effect':>8}{'p':>8}"
        f"{'candidates':>14}{'best found at':>15}",
    ]
    for each in found:
        value = each.log_ratio
        ratio = f"{np.exp(value.mean):.3f} ({np.exp(value.low):.3f}..{np.exp(value.high):.3f})"
        p = "-" if each.p is None else f"{each.p:.3f}"
        lines.append(
            f"{each.arm:24}{each.pairs:>6}{ratio:>24}{each.wins:>5}{each.losses:>5}"
            f"{each.rank_biserial:>8.2f}{p:>8}"
            f"{each.candidates[0]:>7.1f}/{each.candidates[1]:<6.1f}"
            f"{each.found_at[0]:>8.1f}/{each.found_at[1]:<6.1f}"
            f"{'  ' + each.note if each.note else ''}"
        )
    lines.append("effect: rank-biserial correlation; candidates, best found at: arm/base")
    return "\n".join(lines)


WIDTH, ROW, LEFT, RIGHT = 640, 26, 170, 40
LEAST_SPAN = 0.05  # of the axis, as a logarithm: small effects are not blown up


def svg(found: Sequence[Effect]) -> str:
    """Draw each arm's ratio to the base with its interval, on a logarithmic axis."""
    ends = [abs(end) for each in found for end in (each.log_ratio.low, each.log_ratio.high)]
    span = 1.1 * max([LEAST_SPAN, *(end for end in ends if np.isfinite(end))])
    height = ROW * (len(found) + 2)

    def x(log: float) -> float:
        inside = min(max(log, -span), span)
        return LEFT + (WIDTH - LEFT - RIGHT) * (inside + span) / (2 * span)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="14">best speed-up of the arm / of the base, 95 % interval</text>',
    ]
    for log in (-span, -span / 2, 0.0, span / 2, span):
        colour = "black" if log == 0.0 else "#e0e0e0"
        parts.append(
            f'<path d="M{x(log):.1f} {ROW}V{height - ROW + 4}" stroke="{colour}"/>'
            f'<text x="{x(log):.1f}" y="{height - 6}" text-anchor="middle">{np.exp(log):.2f}</text>'
        )
    for place, each in enumerate(found):
        y = ROW * (place + 1) + ROW / 2
        value = each.log_ratio
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(each.arm)}</text>'
            f'<path d="M{x(value.low):.1f} {y:.1f}H{x(value.high):.1f}" stroke="#1f77b4" '
            f'stroke-width="2"/><circle cx="{x(value.mean):.1f}" cy="{y:.1f}" r="4" '
            'fill="#1f77b4"/>'
        )
    return "\n".join([*parts, "</svg>", ""])
