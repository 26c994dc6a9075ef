"""Weighs candidates of a search: joins the judge and a meter, in a window of the device's own."""

from dataclasses import replace
from types import TracebackType
from typing import Any

from kernelpro.energy import beside
from kernelpro.energy import meter as meters
from kernelpro.energy.meter import measure_resolution
from kernelpro.energy.protocol import EnergySettings
from kernelpro.energy.windows import Weighed
from kernelpro.errors import KernelproError
from kernelpro.judge.judge import Judge
from kernelpro.judge.session import Session
from kernelpro.records import Energy, Evaluation
from kernelpro.settings import resolve

REPEATS = 2
"""Windows of one candidate that may be repeated: a search has other candidates. Own choice."""


class Scale:
    """A meter that is open for a whole search; use as a context manager."""

    def __init__(self, device: str, **options: Any) -> None:
        """Open the device's meter.

        Args:
            device: `cuda` or `cpu`.
            options: passed on to `beside.weigh`.

        Raises:
            NoMeter: there is none.
            KernelproError: another process uses the device already.
        """
        given = resolve("energy", EnergySettings)
        self._settings = replace(given, repeats=min(given.repeats, REPEATS))
        self._options = options
        self._meter = meters.find(device)
        try:
            if (others := self._meter.read().others) and not given.shared:
                raise KernelproError(
                    f"{self._meter.device} is not ours alone: process {others[0]} uses it too; end "
                    "that, or set shared = true in [energy] of kernelpro.toml and take the joules "
                    "with care"
                )
            self._resolution_s = measure_resolution(self._meter)
            self._meter.resolution_s = self._resolution_s
        except BaseException:
            self._meter.close()
            raise

    def __enter__(self) -> "Scale":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._meter.close()

    def weigh(self, judge: Judge, evaluation: Evaluation, session: Session | None) -> Evaluation:
        """Add joules to an accepted evaluation, or say in its evidence why there are none.

        Args:
            judge: whose device is taken for it, with no worker in the making.
            evaluation: of the candidate.
            session: its process; None weighs the baseline alone.
        """
        try:
            with judge.exclusive() as alone:
                if not alone and not self._settings.shared:
                    raise beside.Untrusted("another kernelpro measures on this device")
                paces = [judge.pace()]
                if session is not None:
                    paces.append(judge.pace(session, evaluation))
                weighed = beside.weigh(
                    self._meter,
                    paces,
                    self._settings,
                    resolution_s=self._resolution_s,
                    **self._options,
                )
        except KernelproError as error:
            return _with_words(evaluation, f"not measured: {error}")
        energy = _energy(weighed)
        words = (
            f"{self._meter.name}; a window of {energy.window_s:.1f} s each of the baseline and of "
            f"this; {energy.joules:.4g} J a call, the baseline {energy.baseline_joules:.4g} J; "
            "idle power included, caches warm"
        )
        return _with_words(replace(evaluation, energy=energy), words)


def _energy(weighed: list[Weighed]) -> Energy:
    base, own = weighed[0], weighed[-1]
    return Energy(
        joules=own.joules,
        mean_watts=own.watts,
        window_s=own.window.end_s - own.window.begin_s,
        baseline_joules=base.joules,
    )


def _with_words(evaluation: Evaluation, words: str) -> Evaluation:
    if evaluation.verdict is None:
        return evaluation
    evidence = {**evaluation.verdict.evidence, "energy": words}
    return replace(evaluation, verdict=replace(evaluation.verdict, evidence=evidence))
