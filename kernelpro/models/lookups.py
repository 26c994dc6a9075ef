"""What a role may look up before it answers: `search_code` and `read_file` on a tree of sources.

`read_profile` is another where a search holds the parent's profile back until it is asked for.
Which files were read is kept in the second line of the candidate's rationale, so that the memory
file and later prompts know what helped.
"""

import re
from collections.abc import Sequence

from kernelpro.code_search import answers
from kernelpro.code_search.library import Library
from kernelpro.errors import CodeSearchError
from kernelpro.models.exchange import Call, Tool
from kernelpro.records import Outcome, Step

SEARCH = Tool(
    name="search_code",
    description="Find places in CUTLASS and CuTe, or the tree of sources at hand, by symbol and "
    "text. Gives paths, lines and snippets.",
    schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Names and words: make_tiled_copy."}
        },
        "required": ["query"],
    },
)
READ = Tool(
    name="read_file",
    description="Read lines of a file of that tree.",
    schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "As search_code gives it."},
            "first": {"type": "integer", "description": "Line to begin with, from 1."},
            "last": {"type": "integer", "description": "Line to end with."},
        },
        "required": ["path"],
    },
)
PROFILE = Tool(
    name="read_profile",
    description="Read what the profiler saw of the source to change: findings, with what could be "
    "gained, and what stops further gain.",
    schema={
        "type": "object",
        "properties": {"why": {"type": "string", "description": "What you want to know."}},
        "required": ["why"],
    },
)
TOOLS = (SEARCH, READ)
NAMES = frozenset(tool.name for tool in (*TOOLS, PROFILE))

FILES = 6
"""Files that a rationale names, and discoveries that a prompt tells of, at most. Own choice."""

_FAULT = "error: "
_READ = re.compile(r"^\[read (.+)\]$", re.MULTILINE)


def run(library: Library | None, call: Call, most_characters: int) -> str:
    """What a look-up gives, as text for the model; a fault is told to it likewise."""
    if library is None:
        return f"{_FAULT}there is no tree of sources here"
    try:
        if call.tool == SEARCH.name:
            query = call.arguments.get("query")
            found = library.search(query if isinstance(query, str) else "")
            return _cut(answers.hits_text(library, found), most_characters)
        path, first, last = (call.arguments.get(name) for name in ("path", "first", "last"))
        excerpt = library.read(
            path if isinstance(path, str) else "",
            first if isinstance(first, int) else 1,
            last if isinstance(last, int) else None,
        )
        return _cut(answers.excerpt_text(excerpt), most_characters)
    except CodeSearchError as error:
        return f"{_FAULT}{error}"


def read_by(call: Call, result: str) -> str:
    """The file that a look-up read, or empty."""
    path = call.arguments.get("path")
    read = call.tool == READ.name and isinstance(path, str) and not result.startswith(_FAULT)
    return str(path) if read else ""


def with_read(rationale: str, read: Sequence[str]) -> str:
    """A rationale that names the files that were read for it."""
    named = list(dict.fromkeys(path for path in read if "\n" not in path and "]" not in path))
    return f"{rationale}\n[read {', '.join(named[:FILES])}]" if named else rationale


def read_for(rationale: str) -> list[str]:
    """The files that were read for a candidate."""
    found = _READ.search(rationale)
    return found[1].split(", ") if found else []


def discoveries(steps: Sequence[Step]) -> dict[str, tuple[int, float]]:
    """Files that were read before an accepted, faster candidate: the best such step, its speed-up.

    The fastest first.
    """
    best: dict[str, tuple[int, float]] = {}
    for step in steps:
        timing = step.evaluation.timing
        if step.evaluation.outcome is Outcome.ACCEPTED and timing is not None and timing.faster:
            for path in read_for(step.candidate.rationale):
                if path not in best or timing.speedup > best[path][1]:
                    best[path] = (step.index, timing.speedup)
    return dict(sorted(best.items(), key=lambda item: -item[1][1])[:FILES])


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[cut off here; ask for fewer lines]"
