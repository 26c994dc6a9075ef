"""Arithmetic on spans of time: unions, gaps and overlaps, as numpy arrays of starts and ends."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Spans: TypeAlias = NDArray[np.float64]
"""Shape (n, 2): start and end of each, sorted and without overlaps."""

NONE: Spans = np.empty((0, 2))


def union(starts: ArrayLike, ends: ArrayLike) -> Spans:
    """The times in which at least one of the spans was under way; any order, overlaps allowed."""
    begin, end = np.asarray(starts, dtype=float), np.asarray(ends, dtype=float)
    if not len(begin):
        return NONE
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    fresh = np.flatnonzero(np.concatenate(([True], begin[1:] > end[:-1])))
    last = np.concatenate((fresh[1:] - 1, [len(begin) - 1]))
    return np.column_stack((begin[fresh], end[last]))


def clip(spans: Spans, low: float, high: float) -> Spans:
    """The parts of the spans within low..high."""
    cut = np.clip(spans, low, high)
    return cut[cut[:, 1] > cut[:, 0]]


def gaps(spans: Spans, low: float, high: float) -> Spans:
    """The times within low..high that no span covers."""
    inside = clip(spans, low, high)
    edges = np.concatenate(([low], inside.ravel(), [high])).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def total(spans: Spans) -> float:
    """Sum of the lengths."""
    return float((spans[:, 1] - spans[:, 0]).sum())


def overlaps(spans: Spans, others: Spans) -> NDArray[np.float64]:
    """Of each span, for how long one of the others is under way too.

    The spans themselves may overlap each other; the others must not.
    """
    if not len(others) or not len(spans):
        return np.zeros(len(spans))
    return _covered(others, spans[:, 1]) - _covered(others, spans[:, 0])


def _covered(spans: Spans, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """For how long the spans were under way before each of the times."""
    lengths = spans[:, 1] - spans[:, 0]
    before = np.concatenate(([0.0], np.cumsum(lengths)))
    place = np.searchsorted(spans[:, 0], at, side="right")
    last = np.maximum(place - 1, 0)
    over = np.maximum(spans[last, 1] - at, 0.0) * (place > 0)
    covered: NDArray[np.float64] = before[place] - over
    return covered
