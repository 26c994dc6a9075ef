"""A space of 24 points whose times are a formula, and a runner that obeys the same formula."""

import math
from typing import Any

from kernelpro.language.legal import Work
from kernelpro.spaces.table import Header, Point, Space

KNOBS: dict[str, tuple[Any, ...]] = {
    "vec": (4, 8),
    "unroll": (1, 2, 4),
    "accumulators": (1, 2, 4),
    "stores": ("normal", "streaming"),
}
WORK = Work(
    rows=64,
    columns=64,
    flat=False,
    mapped=False,
    online=False,
    slots={"multi": 0, "one": 0},
    reductions=1,
    tensors=2,
    item_bytes=(4, 4),
    output_bytes=1 << 14,
)
WRONG = (8, 4, 4, "streaming")


def time_us(values):
    """Fastest at (8, 4, 2, "normal"): 10 us."""
    vec, unroll, accumulators, stores = values
    steps = abs(math.log2(8 / vec)) + abs(math.log2(4 / unroll)) + abs(math.log2(accumulators / 2))
    return 10.0 + 3.0 * steps + 2.0 * (stores == "streaming")


def points():
    return [
        (vec, unroll, accumulators, stores)
        for vec in KNOBS["vec"]
        for unroll in KNOBS["unroll"]
        for accumulators in KNOBS["accumulators"]
        for stores in KNOBS["stores"]
        if accumulators <= unroll
    ]


def space():
    header = Header(
        problem="tiny",
        target="cpu",
        device="a formula",
        knobs=KNOBS,
        works=(WORK,),
        start={"vec": 4, "unroll": 1, "accumulators": 1, "stores": "normal"},
        baseline_us=(30.0,),
        legal=24,
        rounds=3,
    )
    found = [
        Point(values=values, fault="wrong result: output 0 is off by 1")
        if values == WRONG
        else Point(
            values=values, rounds_us=tuple(time_us(values) + off for off in (1.0, 0.0, -1.0))
        )
        for values in points()
    ]
    return Space(name="tiny", header=header, points={point.values: point for point in found})


class Formula:
    """Runs points by the formula; a call of a point in `deadly` ends the process with status 9."""

    def __init__(self, problem, limits, deadly=(), tick=lambda: None):
        self.deadly, self.tick = deadly, tick
        self.built = 0

    def build(self, schedules):
        self.built += len(schedules)
        return {s: "compile error: 4 is too few" for s in schedules if (s.vec, s.unroll) == (4, 4)}

    def reference(self):
        return lambda: 30.0

    def forward(self, schedule):
        values = (schedule.vec, schedule.unroll, schedule.accumulators, schedule.stores)
        if values in self.deadly:
            raise SystemExit(9)
        if values == (8, 1, 1, "streaming"):
            raise OSError("no launch")
        return lambda: None if values == WRONG else time_us(values)

    def wrong(self, call):
        self.tick()
        return "" if call() else "wrong result: nothing"

    def time_us(self, call, yardstick):
        self.tick()
        return call() / yardstick(), yardstick()
