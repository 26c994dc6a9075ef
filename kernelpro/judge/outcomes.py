"""Turns a worker's failure into an outcome and a sentence for people and proposers."""

from collections.abc import Sequence

from kernelpro.judge.channel import Failure, Garbage, Hung, Raised
from kernelpro.judge.workers import WorkerProcess
from kernelpro.records import Outcome

MESSAGE_CHARACTERS = 1200
PRINTED_CHARACTERS = 300
# Names of what compilers' front ends raise: ours, CuPy's, Triton's, Python's own.
COMPILE_ERRORS = frozenset(
    ("CompileError", "CompileException", "CompilationError", "NVRTCError", "SyntaxError")
)
COMPILE_PHRASES = ("Error building extension", "error: ninja", "nvcc fatal")


def is_compile_error(types: Sequence[str], text: str) -> bool:
    """Tell whether an exception says that a compiler refused the source."""
    return bool(COMPILE_ERRORS.intersection(types)) or any(p in text for p in COMPILE_PHRASES)


def describe(failure: Failure, worker: WorkerProcess, phase: str) -> tuple[Outcome, str]:
    """Say what became of a candidate whose worker failed; its process is ended.

    Args:
        failure: what the channel saw.
        worker: the candidate's process.
        phase: what it was doing, such as `its first call`.
    """
    if isinstance(failure, Raised):
        name = failure.types[0] if failure.types else "an exception"
        if is_compile_error(failure.types, failure.text):
            return Outcome.COMPILE_ERROR, shorten(f"{name} in {phase}: {failure.text}")
        lines = failure.trace.strip().splitlines()[-6:]
        return Outcome.RUNTIME_ERROR, shorten(f"{name} in {phase}:\n" + "\n".join(lines))
    if isinstance(failure, Hung):
        worker.end()
        return Outcome.TIMEOUT, f"no answer within the deadline in {phase}; it was killed"
    if isinstance(failure, Garbage):
        worker.end()
        return Outcome.CRASHED, f"in {phase} its process answered with {failure}; it was killed"
    words = worker.exit_in_words()
    printed = worker.drain.text.strip()[-PRINTED_CHARACTERS:]
    return Outcome.CRASHED, f"in {phase} {words}" + (f"; it printed: {printed}" if printed else "")


def shorten(text: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """Keep the first and the last part of a text, limit characters in all."""
    if len(text) <= limit:
        return text
    head = limit // 2
    return f"{text[:head]}\n[...]\n{text[-(limit - head) :]}"
