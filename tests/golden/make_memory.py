"""Make the golden files of the current memory format: `python -m tests.golden.make_memory`.

`toy.vN.jsonl` is a memory as version N wrote it; `lines.vN.txt` lists what its lines could hold.
Run it once for each new version, never for an old one.
"""

import sys
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from kernelpro.records import Confirmation, Step
from kernelpro.search import memory
from kernelpro.search.format import VERSION, Header
from kernelpro.search.packing import empty_defaults
from tests.search.toy import Setup, accepted, header

FOLDER = Path(__file__).parent


def make_memory(path: Path) -> None:
    """Write a toy search of 30 candidates, then one confirmation."""
    setup = Setup(path=path, seed=3)
    with memory.create(path, header(setup.seed, setup.policy)) as journal:
        end = setup.start(journal, []).run()
        assert end.best is not None
        journal.append_confirmation(
            Confirmation(step=end.best.index, evaluation=accepted(speedup=4.0))
        )


def line_fields() -> str:
    """Name every field and type that a line of the current format may hold, one a line.

    With the empty default that makes a line leave it out: it may change in a new version only.
    """
    found: dict[str, str] = {}

    def visit(hint: Any) -> None:
        for part in get_args(hint):
            visit(part)
        if isinstance(hint, type) and is_dataclass(hint):
            hints, empty = get_type_hints(hint), dict(empty_defaults(hint))
            for field in fields(hint):
                name = f"{hint.__name__}.{field.name}"
                if name not in found:
                    found[name] = _words(hints[field.name])
                    if empty[field.name] is not MISSING:
                        found[name] += f", left out where it is {empty[field.name]!r}"
                    visit(hints[field.name])
        elif isinstance(hint, type) and issubclass(hint, Enum):
            found[hint.__name__] = " ".join(str(member.value) for member in hint)

    for cls in (Header, Step, Confirmation):
        visit(cls)
    return "".join(f"{name}: {found[name]}\n" for name in sorted(found))


def _words(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return text.replace("kernelpro.records.", "").replace("collections.abc.", "")


if __name__ == "__main__":
    target = FOLDER / f"toy.v{VERSION}.jsonl"
    target.unlink(missing_ok=True)
    make_memory(target)
    (FOLDER / f"lines.v{VERSION}.txt").write_text(line_fields(), encoding="utf-8")
    sys.stdout.write(f"{target.name}: {target.stat().st_size} bytes\n")
