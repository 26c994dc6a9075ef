"""What is known for one problem: tries of the nearest problems, summed up and discounted."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelpro.lessons.features import Features, distance
from kernelpro.lessons.store import Source, Store
from kernelpro.lessons.tries import START, Try
from kernelpro.ranking import HIT
from kernelpro.records import Lesson, Outcome

NEAREST = 16
"""Problems that lessons are drawn from: the nearest of those on the same target. Own choice."""

HALF_DISTANCE = 0.25
"""Distance at which a try counts half. Own choice: about that of softmax and log-softmax is well
below it, that of a row-wise problem and a matrix product twice it."""

OTHER_DEVICE = 0.5
"""What a try on another device of the same target counts. Own choice."""

PRIOR_TRIES = 4.0
"""Tries that what is more generally known counts for. Own choice: with fewer real ones than that,
chance decides more than the strategy."""

MOST_LESSONS = 256
"""Lessons that a search keeps, those of the most weight; bounds its memory file. Own choice."""

FAILURES = 2
"""Reasons of failures that a lesson keeps, the commonest. Own choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A problem that lessons were drawn from.

    Attributes:
        fingerprint: of its features.
        problem: its name, as last searched; for people.
        distance: from the problem at hand, 0..1.
        searches: of it.
        tries: in those.
    """

    fingerprint: str
    problem: str
    distance: float
    searches: int
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """All that a search is told of earlier ones; read once and kept in its memory file.

    Attributes:
        lessons: the most general first, then by weight.
        nearest: problems they were drawn from, nearest first.
        digest: 16 hex digits of which searches, with how many tries, were read.
    """

    lessons: tuple[Lesson, ...] = ()
    nearest: tuple[Near, ...] = ()
    digest: str = ""

    def told(self, roofline: str, findings: frozenset[str]) -> tuple[Lesson, ...]:
        """Those that fit a parent of a class with findings of these detectors; general ones too."""
        return tuple(
            lesson
            for lesson in self.lessons
            if (lesson.finding in findings if lesson.finding else lesson.roofline in ("", roofline))
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A try with what it counts here."""

    one: Try
    weight: float
    distance: float
    fingerprint: str


Key = tuple[str, str, str]
"""Finding, class and strategy of a lesson."""

ANY: Key = ("", "", "")


def recall(store: Store, features: Features, target: str, device: str) -> Recalled:
    """Sum up what the searches of the nearest problems saw.

    Raises:
        LessonsError: the file cannot be read.
    """
    sources = store.sources(target)
    near, nearest = _nearest(sources, features)
    seen: list[_Seen] = []
    known: list[tuple[str, int]] = []
    tries: Counter[str] = Counter()
    for source in near:
        far = distance(features, source.features)
        weight = 0.5 ** (far / HALF_DISTANCE)
        if source.device != device:
            weight *= OTHER_DEVICE
        mark = source.features.fingerprint
        found = store.tries(source.search)
        known.append((source.search, len(found)))
        tries[mark] += len(found)
        seen += [_Seen(one, weight, far, mark) for one in found]
    return Recalled(
        lessons=summed(seen),
        nearest=tuple(
            Near(
                fingerprint=mark,
                problem=group[-1].problem,
                distance=round(distance(features, group[0].features), 4),
                searches=len(group),
                tries=tries[mark],
            )
            for mark, group in nearest.items()
        ),
        digest=hashlib.sha256(repr(sorted(known)).encode()).hexdigest()[:16],
    )


def by_operator_class(store: Store) -> dict[tuple[str, str], tuple[Lesson, ...]]:
    """All that is known, by target and operator class, undiscounted: for people.

    Raises:
        LessonsError: the file cannot be read.
    """
    seen: dict[tuple[str, str], list[_Seen]] = {}
    for source in store.sources():
        group = seen.setdefault((source.target, source.features.operator_class), [])
        mark = source.features.fingerprint
        group += [_Seen(one, 1.0, 0.0, mark) for one in store.tries(source.search)]
    return {key: summed(seen[key]) for key in sorted(seen)}


def summed(seen: Iterable[_Seen]) -> tuple[Lesson, ...]:
    """One lesson for all tries, for each strategy, and for each with a class and with a finding.

    A first kernel is no change of a kernel, so it counts for its own strategy alone.
    """
    groups: dict[Key, list[_Seen]] = {}
    for each in seen:
        one = each.one
        keys = [("", "", one.strategy), ("", one.roofline, one.strategy)]
        if one.strategy != START:
            keys.append(ANY)
        if one.finding:
            keys.append((one.finding, "", one.strategy))
        for key in keys:
            groups.setdefault(key, []).append(each)
    worth: dict[Key, float] = {}
    for key in sorted(groups, key=lambda key: (_generality(key), key)):
        worth[key] = _worth(groups[key], _prior(key, groups[key], worth))
    lessons = [_lesson(key, group, worth[key]) for key, group in groups.items()]
    lessons.sort(key=lambda one: (-one.weight, one.finding, one.roofline, one.strategy))
    lessons.sort(key=lambda one: _generality((one.finding, one.roofline, one.strategy)) > 0)
    return tuple(lessons[:MOST_LESSONS])


def _nearest(
    sources: Iterable[Source], features: Features
) -> tuple[list[Source], Mapping[str, list[Source]]]:
    """Searches of the nearest problems, and the same by fingerprint, nearest first."""
    groups: dict[str, list[Source]] = {}
    for source in sources:
        groups.setdefault(source.features.fingerprint, []).append(source)
    order = sorted(groups, key=lambda mark: (distance(features, groups[mark][0].features), mark))
    kept = {mark: groups[mark] for mark in order[:NEAREST]}
    return [source for group in kept.values() for source in group], kept


def _generality(key: Key) -> int:
    """0 for all strategies together, then 1 for a strategy, 2 in a class, 3 for a finding."""
    finding, roofline, strategy = key
    return 3 if finding else 2 if roofline else 1 if strategy else 0


def _prior(key: Key, group: Iterable[_Seen], worth: Mapping[Key, float]) -> float:
    """What the more general lessons expect: those of the strategy, else of all."""
    _, _, strategy = key
    if key == ANY:
        return 0.0
    if _generality(key) == 1:
        return worth.get(ANY, 0.0)
    if _generality(key) == 2:
        return worth[("", "", strategy)]
    # A finding's tries have parents of classes; what those expect, weighed alike.
    pairs = [(worth[("", each.one.roofline, strategy)], each.weight) for each in group]
    return sum(w * value for value, w in pairs) / sum(w for _, w in pairs)


def _worth(group: Iterable[_Seen], prior: float) -> float:
    """Mean of what tries were worth, shrunk towards prior as by PRIOR_TRIES more tries.

    The posterior mean of a normal model with known variances (Efron and Morris 1975, "Data
    analysis using Stein's estimator and its generalizations"), with the ratio of within to between
    variance set to PRIOR_TRIES. A try is worth its log gain where that is above 0, else 0: the
    search keeps the parent.
    """
    total, weight = PRIOR_TRIES * prior, PRIOR_TRIES
    for each in group:
        total += each.weight * max(0.0, each.one.log_gain or 0.0)
        weight += each.weight
    return total / weight


def _lesson(key: Key, group: list[_Seen], worth: float) -> Lesson:
    finding, roofline, strategy = key
    timed = [(each.weight, each.one.log_gain) for each in group if each.one.log_gain is not None]
    mean = error = None
    if timed:
        whole = sum(w for w, _ in timed)
        mean = sum(w * gain for w, gain in timed) / whole
        if len(timed) > 1:
            # Standard error of a weighted mean, with n / (n - 1) for the estimated mean.
            squares = sum((w * (gain - mean)) ** 2 for w, gain in timed)
            error = math.sqrt(squares * len(timed) / (len(timed) - 1)) / whole
    reasons = Counter(_reason(each.one) for each in group if each.one.failure)
    failures = sorted(reasons, key=lambda text: (-reasons[text], text))
    return Lesson(
        finding=finding,
        roofline=roofline,
        strategy=strategy,
        tries=len(group),
        successes=sum(success(each.one) for each in group),
        weight=_kept(sum(each.weight for each in group)),
        log_gain=None if mean is None else _kept(mean),
        log_gain_error=None if error is None else _kept(error),
        worth=_kept(worth),
        problems=len({each.fingerprint for each in group}),
        distance=_kept(min(each.distance for each in group)),
        failures=tuple(failures[:FAILURES]),
    )


def success(one: Try) -> bool:
    """Whether a try was accepted and faster than what it was made from, by HIT at least."""
    accepted = one.outcome is Outcome.ACCEPTED and one.log_gain is not None
    return accepted and (one.log_gain or 0.0) >= math.log(HIT)


def _reason(one: Try) -> str:
    return f"{one.outcome.value}: {one.failure}"


def _kept(value: float) -> float:
    """Six significant digits: what is kept in a memory file."""
    return float(f"{value:.6g}")
