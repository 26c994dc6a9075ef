"""Turns a worker's failure into an outcome and a sentence for people and proposers."""

from collections.abc import Sequence

from kernelpro.judge.channel import Failure, Garbage, Hung, Raised
from kernelpro.judge.workers import WorkerProcess
from kernelpro.records import Evaluation, Outcome, Verdict

MESSAGE_CHARACTERS = 1200
PRINTED_CHARACTERS = 300
# Names of what compilers' front ends raise: ours, CuPy's, Triton's, Python's own.
COMPILE_ERRORS = frozenset(
    ("CompileError", "CompileException", "CompilationError", "NVRTCError", "SyntaxError")
)
COMPILE_PHRASES = ("Error building extension", "error: ninja", "nvcc fatal")
# After these no call in that process means anything (CUDA's errors 700, 702, 710, 714 to 719).
DEVICE_FAULTS = (
    "illegal memory access",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_ASSERT",
    "device-side assert",
    "hardware stack error",
    "illegal instruction",
    "invalid program counter",
    "misaligned address",
    "unspecified launch failure",
    "launch timed out",
)
CONFINED = "(its process may write only below its working folder, and reach no other process)"
NETWORK = "it tried to open a network connection"


def is_device_fault(text: str) -> bool:
    """Tell whether an exception says that the process's GPU context is lost."""
    return any(phrase in text for phrase in DEVICE_FAULTS)


def may_have_hurt_device(failure: Failure) -> bool:
    """Tell whether a failure may have left the device in trouble."""
    return not isinstance(failure, Raised) or is_device_fault(failure.text)


def failed(failure: Failure, worker: WorkerProcess, phase: str, isolation: str) -> Evaluation:
    """Make the evaluation of a candidate whose worker failed; its process is ended if need be.

    The verdict's reason is `compile_error`, `runtime_error`, `device_fault`, `timeout`, `protocol`,
    `network`, `crashed`, or what the watchdog saw too much of: `memory`, `processes`, `threads`,
    `disk`, `output_flood`.
    """
    outcome, message = describe(failure, worker, phase)
    reason = outcome.value
    if worker.excess is not None:
        reason = worker.excess[0]
    elif isinstance(failure, Raised) and is_device_fault(failure.text):
        reason = "device_fault"
    elif isinstance(failure, Garbage):
        reason = "protocol"
    elif NETWORK in message:
        reason = "network"
    verdict = Verdict(decision="reject", reasons=(reason,), isolation=isolation)
    return Evaluation(outcome=outcome, message=message, verdict=verdict)


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
        if "PermissionError" in failure.types:
            lines.append(CONFINED)
        return Outcome.RUNTIME_ERROR, shorten(f"{name} in {phase}:\n" + "\n".join(lines))
    if isinstance(failure, Hung) and worker.excess is None:
        worker.end()
        return Outcome.TIMEOUT, f"no answer within the deadline in {phase}; it was killed"
    if isinstance(failure, Garbage):
        worker.end()
        return Outcome.CRASHED, f"in {phase} its process answered with {failure}; it was killed"
    words = worker.exit_in_words()
    if "SIGSYS" in words:
        words += f": {NETWORK}"
    printed = worker.drain.text.strip()[-PRINTED_CHARACTERS:]
    return Outcome.CRASHED, f"in {phase} {words}" + (f"; it printed: {printed}" if printed else "")


def shorten(text: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """Keep the first and the last part of a text, limit characters in all."""
    if len(text) <= limit:
        return text
    head = limit // 2
    return f"{text[:head]}\n[...]\n{text[-(limit - head) :]}"
