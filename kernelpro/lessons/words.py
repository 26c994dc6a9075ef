"""Lessons in words, for people and for prompts: what was tried, how often, and what it gave."""

import math
from collections.abc import Iterable

from kernelpro.records import Lesson


def told(lessons: Iterable[Lesson]) -> str:
    """One line a lesson; how little is known is always part of it."""
    return "\n".join(line(lesson) for lesson in lessons)


def line(lesson: Lesson, *, near: bool = True) -> str:
    """A lesson as one line.

    Such as `vec up, for scalar_loops: 7 of 12 tries faster, x1.08 on average (+- 3.1 %), on 4
    problems`.

    Args:
        lesson: the lesson.
        near: whether it is for a problem, from which distances count.
    """
    what = lesson.strategy or "any strategy"
    if lesson.finding:
        what += f", for {lesson.finding}"
    elif lesson.roofline:
        what += f", {lesson.roofline} bound parents"
    noun = "problem" if lesson.problems == 1 else "problems"
    tries = "try" if lesson.tries == 1 else "tries"
    text = f"{what}: {lesson.successes} of {lesson.tries} {tries} faster, {gain(lesson)}"
    text += f", on {lesson.problems} {noun}"
    if near:
        text += f", the nearest at distance {lesson.distance:.2f}"
    if lesson.failures:
        text += f"; failed with {'; '.join(lesson.failures)}"
    return text


def gain(lesson: Lesson) -> str:
    """The mean gain over the parent with its standard error, as a factor."""
    if lesson.log_gain is None:
        return "never timed"
    factor = f"x{math.exp(lesson.log_gain):.3g} on average"
    if lesson.log_gain_error is None:
        return f"{factor} (one timed)"
    return f"{factor} (+- {100 * lesson.log_gain_error:.1f} %)"
