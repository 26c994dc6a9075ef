"""A judged worker at full pace: bursts of calls for measurements that take seconds, as of energy.

Before each burst the inputs are refilled as for timed calls; inside it they stay as they are and
no cache is flushed. The outputs of a burst's last call can be compared with the reference.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import SystemRandom

from kernelpro.errors import JudgeError
from kernelpro.judge import raw
from kernelpro.judge.channel import Failure
from kernelpro.judge.correctness import Findings, compare_outputs, form_error, read_outputs
from kernelpro.judge.inputs import Bank
from kernelpro.judge.outcomes import describe
from kernelpro.judge.settings import JudgeSettings
from kernelpro.judge.workers import WorkerProcess

CONDITIONS = {
    "inputs": "refilled before each burst of calls as for timed calls; the same within a burst",
    "L2 cache": "warm: nothing is flushed between the calls of a burst",
}
"""How calls of a burst differ from the judge's timed calls, for the record."""
CAPTURED = {"launches": "one call captured in a CUDA graph, replayed; the host is not timed"}
"""Likewise, of calls that were captured."""


class Pace:
    """Runs one worker's module many times in a row.

    Attributes:
        refill_s: what refilling the inputs took before the last burst.
    """

    def __init__(
        self, worker: WorkerProcess, bank: Bank, settings: JudgeSettings, *, perturbed: bool
    ) -> None:
        """Take a worker that was judged.

        Args:
            worker: its module is loaded and its inputs are staged.
            bank: whose inputs those are.
            settings: deadlines.
            perturbed: whether the module has taken the bank's parameters.

        Raises:
            JudgeError: the problem changes its inputs, so that repeated calls get other ones.
        """
        if bank.mutates:
            raise JudgeError(
                f"problem {bank.problem.name} changes its inputs, so calls cannot be repeated on "
                "them; give a problem whose forward leaves its inputs as they are"
            )
        self.refill_s = 0.0
        self._worker = worker
        self._bank = bank
        self._settings = settings
        self._perturbed = perturbed
        self._random = SystemRandom()
        self._index = self._salt = 0

    def capture(self) -> None:
        """Capture a call in a CUDA graph, which later bursts replay; CUDA alone.

        Raises:
            JudgeError: it cannot be captured, as when it waits for the device, or what was captured
                is not all that it does.
        """
        with self._failures("capturing a call in a CUDA graph"):
            self._worker.channel.request("capture", self._settings.call_deadline_s)
        self.burst(1)
        if wrong := self.check():
            raise JudgeError(
                "a judged candidate computes something else when its call is replayed from a CUDA "
                f"graph ({wrong}); it must launch everything on torch's current stream"
            )

    def burst(self, calls: int) -> float:
        """Refill the inputs and make so many calls; their wall time in seconds, waited for.

        Raises:
            JudgeError: the worker failed.
        """
        with self._failures("a burst of calls"):
            self._index = self._random.randrange(len(self._bank.sets))
            self._salt = self._random.getrandbits(64)
            began = time.perf_counter()
            deadline_s = self._settings.call_deadline_s
            self._worker.channel.prepare(self._index, self._salt, deadline_s)
            self._worker.channel.request("burst", deadline_s, calls=0)
            ready = time.perf_counter()
            self._worker.channel.request("burst", deadline_s, calls=calls)
            ended = time.perf_counter()
        self.refill_s = ready - began
        return ended - ready

    def check(self) -> str:
        """Compare the last burst's last outputs; empty when right, else what is wrong with them.

        Raises:
            JudgeError: the worker failed.
        """
        with self._failures("fetching a burst's outputs"):
            reply = self._worker.channel.request(
                "fetch", self._settings.call_deadline_s, earlier=False
            )
            fault = form_error(reply, self._bank, self._worker.device)
        if fault is not None:
            return fault[1]
        form = self._bank.expected(True)[self._index]
        outputs = [
            raw.copied(t, e.values.device)
            for t, e in zip(read_outputs(self._worker.out, form), form, strict=True)
        ]
        expected = self._bank.expected_after_swaps(self._index, self._salt, self._perturbed)
        findings = Findings()
        compare_outputs(outputs, expected, "a burst's last call", findings)
        return findings.message

    @contextmanager
    def _failures(self, phase: str) -> Iterator[None]:
        try:
            yield
        except Failure as failure:
            _, words = describe(failure, self._worker, phase)
            raise JudgeError(f"a judged candidate failed while it was weighed: {words}") from None
