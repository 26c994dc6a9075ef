"""What a search needs to know how a candidate does: the bench, and what it gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kernelpro.records import Candidate, Classification, Diagnosis, Evaluation, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All that was found out about one candidate.

    Attributes:
        evaluation: how far it got, and its time.
        profile: its metrics; empty when it was not profiled.
        classification: None when it was not profiled.
        diagnoses: findings, most promising first.
        phases_s: wall seconds by phase.
    """

    evaluation: Evaluation
    profile: Profile = field(default_factory=Profile)
    classification: Classification | None = None
    diagnoses: tuple[Diagnosis, ...] = ()
    phases_s: Mapping[str, float] = field(default_factory=dict)


class Bench(Protocol):
    """Builds, judges, times, profiles and diagnoses candidates for one problem."""

    def baseline(self) -> Measured:
        """Measure the reference; called once, before anything else, in a new search only."""
        ...

    def prepare(self, candidate: Candidate) -> None:
        """Do what `evaluate` will need and does not take the device; called from any thread.

        Nothing is lost when it does nothing, as where compiling would disturb a measurement.
        """
        ...

    def evaluate(self, candidate: Candidate) -> Measured:
        """Measure one candidate; whatever becomes of it is a value.

        An outcome DUPLICATE says that its machine code equals an earlier candidate's.
        """
        ...
