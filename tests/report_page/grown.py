"""Makes a large memory file of a small one, for tests of the report: real steps, new places."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from kernelpro.records import Confirmation, Step
from kernelpro.search.format import Header, header_line, record_line
from kernelpro.search.packing import Packer


def grow(header: Header, steps: Sequence[Step], count: int, path: Path) -> Path:
    """Write a memory of `count` steps, each a changed copy of one of `steps` below an earlier one.

    Sources differ in a line each, times and speed-ups by up to a fifth.
    """
    draw = random.Random(0)
    grown = [steps[0]]
    for index in range(1, count):
        model = steps[1 + index % (len(steps) - 1)]
        timing, factor = model.evaluation.timing, draw.uniform(0.8, 1.2)
        if timing is not None:
            timing = replace(
                timing, median_us=timing.median_us / factor, speedup=timing.speedup * factor
            )
        grown.append(
            replace(
                model,
                index=index,
                parent=draw.randrange(max(0, index - 40), index),
                candidate=replace(
                    model.candidate, source=f"{model.candidate.source}\n# change {index}\n"
                ),
                evaluation=replace(model.evaluation, timing=timing),
                clock_s=4.0 * index,
                exhausted=(),
            )
        )
    path.write_bytes(b"".join(written(header, grown)))
    return path


def written(header: Header, records: Iterable[Step | Confirmation]) -> list[bytes]:
    """The lines of a memory with these records, as a search writes them one after another."""
    packer = Packer()
    lines = [header_line(header)]
    for record in records:
        lines.append(record_line(record, packer))
        packer.keep()
    return lines
