"""What an edit of the hot loop can save at most, and where that loop is."""

from kernelpro.profiling.cpu.facts import PREFIX
from kernelpro.records import Evidence


def room(evidence: Evidence) -> float:
    """Share of the time, 0..1, that streaming the least bytes from main memory leaves free.

    All of it where the problem fits the last-level cache, or its bytes are not known.
    """
    if evidence.problem.min_bytes <= evidence.machine.cache_bytes:
        return 1.0
    return 1.0 - min(evidence.profile.get("cpu.bandwidth_share", 0.0), 1.0)


def where(evidence: Evidence) -> str:
    """The hot loop's address and function, as the facts of its code note it."""
    return evidence.profile.where(PREFIX + "instructions")
