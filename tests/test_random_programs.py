"""The generator of random programs: most can run, some cannot, and every knob is drawn."""

import random
from dataclasses import replace
from typing import Any

from benchmarks import random_programs
from kernelpro.language.legal import Work, legal
from kernelpro.language.limits import Limits
from kernelpro.language.schedule import KNOBS, CudaSchedule, family_of
from kernelpro.language.tiles import CudaGemm, Tiled
from kernelpro.records import Machine

CARD = Machine(target="cuda", device="any", facts={"capability": "9.0", "multiprocessors": "132"})
LIMITS = Limits(shared_bytes=227 << 10, cluster=16, tf32=True, capability="9.0")
ROWS = Work(
    rows=64,
    columns=16384,
    flat=False,
    mapped=False,
    online=True,
    slots={"multi": 1, "one": 1},
    reductions=1,
    tensors=2,
    item_bytes=(2, 2),
    output_bytes=1 << 22,
    copied=("multi",),
)
COLUMNS = replace(ROWS, rows=4096, columns=8192, inner=64)
PRODUCT = replace(
    ROWS,
    tiled=Tiled(kind="gemm", batch=1, m=1024, n=1024, k=4096, layout="NT", item_bytes=4, tensors=1),
)


def test_most_programs_for_a_gpu_can_run_and_some_cannot():
    rows = list(random_programs.checked(150, 1, CARD))  # transposes are rare: this seed has some
    can_run = [row for row in rows if not row.reason]
    assert 0.6 * len(rows) < len(can_run) < len(rows)
    kinds = {kind for row in can_run for kind, _ in random_programs.stages(row.program)}
    assert kinds == {"map", "rowwise", "colwise", "gemm", "transpose"}
    assert len({row.reason for row in rows}) > 3


def drawn(start, work, count=2000):
    """Values of each knob in schedules that were drawn for a work, all of which must be legal."""
    generator = random.Random(1)
    found: dict[str, set[Any]] = {knob: set() for knob in KNOBS[family_of(start)]}
    for _ in range(count):
        schedule = random_programs.fitting(start, work, LIMITS, generator)
        assert legal(schedule, [work], LIMITS) == ""
        for knob, values in found.items():
            values.add(getattr(schedule, knob))
    return found


def test_every_value_of_every_knob_of_a_gpu_s_rows_comes_up_in_what_can_run():
    along = drawn(CudaSchedule(), ROWS)
    down = drawn(CudaSchedule(), COLUMNS)
    assert {knob: along[knob] | down[knob] for knob in along} == {
        knob: set(values) for knob, values in KNOBS["cuda"].items()
    }


def test_every_value_of_every_knob_of_a_gpu_s_products_comes_up_in_what_can_run():
    assert PRODUCT.tiled is not None
    half = replace(PRODUCT, tiled=replace(PRODUCT.tiled, item_bytes=2))  # for 'multistage'
    wide, narrow = drawn(CudaGemm(), PRODUCT), drawn(CudaGemm(), half)
    assert {knob: wide[knob] | narrow[knob] for knob in wide} == {
        knob: set(values) for knob, values in KNOBS["cuda gemm"].items()
    }


def test_what_cannot_run_is_drawn_too():
    generator = random.Random(1)
    blind = [random_programs.drawn(CudaSchedule(), generator) for _ in range(200)]
    assert any(legal(schedule, [ROWS], LIMITS) for schedule in blind)
    assert any(not legal(schedule, [ROWS], LIMITS) for schedule in blind)


def test_the_checker_s_words_are_counted(capsys):
    rows = list(random_programs.checked(20, 1, CARD))
    random_programs.print_checked(rows)
    said = capsys.readouterr().out
    number = sum(not row.reason for row in rows)
    assert said.splitlines()[0] == "refused by the checker because:"
    assert said.splitlines()[-1] == f"20 programs: {number} legal ({number / 20:.0%})"
