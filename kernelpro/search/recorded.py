"""A bench that answers from a finished search's steps instead of measuring.

With it a search needs no device: the same seed, policy and proposers give the identical tree.
"""

from collections.abc import Iterable

from kernelpro.errors import KernelproError
from kernelpro.records import Candidate, Step
from kernelpro.search.bench import Measured


class RecordedBench:
    """Looks each candidate up by its id; of several steps with one id the first counts."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._by_id: dict[str, Step] = {}
        for step in steps:
            self._by_id.setdefault(step.candidate.id, step)
        self._baseline = next(iter(self._by_id.values()), None)

    def baseline(self) -> Measured:
        """Return what the recorded baseline, step 0, gave."""
        if self._baseline is None:
            raise KernelproError("a recorded bench needs steps, the baseline first, but got none")
        return _measured(self._baseline)

    def prepare(self, candidate: Candidate) -> None:
        """Nothing needs to be prepared."""

    def evaluate(self, candidate: Candidate) -> Measured:
        """Return what the candidate gave when it was recorded.

        Raises:
            KernelproError: it was not recorded.
        """
        step = self._by_id.get(candidate.id)
        if step is None:
            raise KernelproError(
                f"candidate {candidate.id} was not recorded, so its evaluation is not known; "
                "run the same proposers, seed and settings as the recorded search, or measure anew"
            )
        return _measured(step)


def _measured(step: Step) -> Measured:
    return Measured(
        evaluation=step.evaluation,
        profile=step.profile,
        classification=step.classification,
        diagnoses=step.diagnoses,
        phases_s=step.phases_s,
    )
