"""A worker that is still alive after it was judged, in which collectors may run code."""

from collections.abc import Mapping
from typing import Any

from kernelpro.errors import JudgeError
from kernelpro.judge.channel import COLLECT_BYTES, Failure, Raised
from kernelpro.judge.outcomes import describe
from kernelpro.judge.workers import WorkerProcess


class Session:
    """A worker that is still alive, in which collectors may run code.

    Attributes:
        target: name of the target.
        worker: the process.
    """

    def __init__(self, worker: WorkerProcess, target: str, deadline_s: float) -> None:
        self.target = target
        self.worker = worker
        self._deadline_s = deadline_s

    def collect(self, function: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run `module:name` in the worker and return the JSON object that it returns.

        The function is called with `call`, which runs the module once on staged inputs and waits
        for it to end, and then with `arguments` as keywords.

        Raises:
            JudgeError: the function raised, or the process failed.
        """
        self.worker.zygote.settle()
        try:
            reply = self.worker.channel.request(
                "collect",
                self._deadline_s,
                limit=COLLECT_BYTES,
                function=function,
                arguments=dict(arguments),
            )
        except Failure as failure:
            _, words = describe(failure, self.worker, f"collector {function}")
            if not isinstance(failure, Raised):
                self.worker.end()
            raise JudgeError(f"collector {function} gave no result: {words}") from None
        value = reply.get("value")
        if not isinstance(value, dict):
            raise JudgeError(f"collector {function} must return an object, but gave {value!r:.80}")
        return value
