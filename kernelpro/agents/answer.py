"""From what an agent hands in to a candidate, as the judge takes it."""

from collections.abc import Sequence

from kernelpro.errors import AgentError
from kernelpro.models import anchors, lookups, sources
from kernelpro.records import Candidate, Problem
from kernelpro.search.loop import MAX_SOURCE_CHARACTERS
from kernelpro.subjects import PROGRAM, expanded, language_of


def candidate(
    source: str, problem: Problem, note: str, finding: str, author: str, read: Sequence[str]
) -> Candidate:
    """An answer as the judge takes it.

    Raises:
        KernelproError: it is empty, too long, or a program that does not fit the problem.
    """
    if not source.strip():
        raise AgentError("an answer must be the text of a file with class ModelNew, but is empty")
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise AgentError(
            f"an answer may have {MAX_SOURCE_CHARACTERS} characters, but this one has "
            f"{len(source)}; leave out what is not needed"
        )
    if PROGRAM.match(source):
        text = expanded(source, problem, "the answer")
    else:
        marks = (anchors.BEGIN, anchors.END)
        kept = [line for line in source.splitlines() if not any(mark in line for mark in marks)]
        text = sources.unfolded(_storable("\n".join(kept) + "\n"))
    return Candidate(
        source=text,
        language=language_of(text),
        rationale=lookups.with_read(
            _storable(" ".join(note.split()))[:2000], [_storable(path) for path in read]
        ),
        author=_storable(" ".join(author.split()))[:80],
        inspired_by=_storable(finding.strip())[:80],
    )


def _storable(text: str) -> str:
    """The text as a file can hold it."""
    return text.encode(errors="replace").decode().replace("\0", "?")
