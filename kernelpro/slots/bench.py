"""The bench of a search on several devices: each candidate goes to the next slot that is free.

A candidate is built once for each architecture that slots have, and judged on one device, against
the baseline on that device. A slot that ends in the middle costs nobody but time: its candidate is
judged once more elsewhere, and after that recorded as one that could not be judged.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from types import TracebackType

from kernelpro.bench import speedup, unprofiled
from kernelpro.builds import BuildLost, Builds
from kernelpro.errors import JudgeError, KernelproError
from kernelpro.judge.settings import JudgeSettings
from kernelpro.objective import Objective
from kernelpro.profiling.speed_of_light import SpeedOfLight, speed_of_light
from kernelpro.records import (
    Build,
    Candidate,
    Evaluation,
    Machine,
    Outcome,
    Problem,
    Step,
)
from kernelpro.search.bench import Measured
from kernelpro.slots.client import Line, ProcessLine, Slot, SlotLost
from kernelpro.slots.places import Place
from kernelpro.targets import Target

TRIES = 2
"""Slots that may be lost while they judge one candidate, before it is given up. Own choice: what
ends two is likelier to be at fault, though that is never held against it."""

RESTARTS = 3
"""Times in a row that a place may lose its slot before it is left alone. Own choice."""

EAGER = "eager"
JUDGED_ON = "judged on"
"""The verdict's evidence that names the device."""


class SlotBench:
    """Measures candidates on several devices; use as a context manager.

    Attributes:
        problem: what the candidates must compute.
        machine: the first device, with its measured peaks; the others are of its kind.
        light: the speed of light of the problem on it.
        busy: counts a device's busy time by its name.
        complaints: sentences about plugins that failed and slots that were lost.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        places: Sequence[Place],
        *,
        settings: JudgeSettings,
        objective: Objective | None = None,
        block: Iterable[str] = (),
        line: Callable[[Place], Line] = ProcessLine,
        build: Callable[[Candidate, str], Build | None] | None = None,
    ) -> None:
        """Choose the slots; nothing is started before the `with`.

        Args:
            problem: what the candidates must compute.
            target: what they are made for; where it is a GPU, candidates are built ahead of need.
            places: where slots are.
            settings: the judges' settings.
            objective: what the search is to find; speed by default.
            block: names of plugins to leave out.
            line: connects to a slot at a place.
            build: builds a candidate for an architecture; the target, in this process, by default.
        """
        self.problem = problem
        self.target = target
        self.busy: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
        self._places = tuple(places)
        self._settings = settings
        self._objective = objective or Objective()
        self._block = tuple(block)
        self._line = line
        self._builds = Builds(build or target.build)
        self._best = 0.0
        self._baseline = ""
        self._changed = threading.Condition()
        self._idle: list[Slot] = []
        self._slots: list[Slot] = []
        self._coming = 0
        self._closed = False
        self._losses: dict[str, int] = {}
        self._said: list[str] = []
        self.machine = Machine(target=target.name, device="")
        self.light = SpeedOfLight(sol_us=0.0, bound="", intensity=0.0, ridge=0.0)

    def __enter__(self) -> "SlotBench":
        try:
            self._open_all()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all slots; for good."""
        with self._changed:
            self._closed = True
            slots, self._slots, self._idle = self._slots, [], []
            self._changed.notify_all()
        if slots:
            with ThreadPoolExecutor(len(slots)) as pool:
                list(pool.map(Slot.close, slots))

    @property
    def slots(self) -> int:
        """How many candidates can be measured at once."""
        return len(self._places)

    @property
    def complaints(self) -> list[str]:
        """Sentences about plugins that failed and slots that were lost, each once."""
        with self._changed:
            every = [c for slot in self._slots for c in slot.complaints]
        return list(dict.fromkeys([*self._said, *every]))

    def remember(self, steps: Iterable[Step]) -> None:
        """Know what earlier steps of a resumed search showed; its slots then make ready."""
        steps = list(steps)
        self._builds.remember(steps)
        for step in steps:
            if step.index == 0 and step.evaluation.timing is not None:
                self._baseline = step.evaluation.timing.baseline
            if step.index and step.evaluation.outcome is Outcome.ACCEPTED:
                self._best = max(self._best, speedup(step.evaluation))
        if steps:
            self._all_ready(list(self._slots), self._baseline)

    def baseline(self) -> Measured:
        """Measure the reference on the first device; the others make ready meanwhile.

        Raises:
            JudgeError: it cannot be measured there.
        """
        first, others = self._slots[0], self._slots[1:]
        # On one processor they would disturb it; and what to time against may be yet to be found.
        apart = self.target.device != "cpu" and self._settings.baselines == EAGER
        if apart:
            self._all_ready(others, EAGER)
        try:
            with self.busy(_part(first)):
                measured = first.baseline()
        except SlotLost as lost:
            raise JudgeError(f"device {first.place.name} cannot be used: {lost}") from None
        timing = measured.evaluation.timing
        self._baseline = timing.baseline if timing is not None else EAGER
        self._put(first)
        if not apart:
            self._all_ready(others, self._baseline)
        return replace(measured, evaluation=_named(measured.evaluation, first))

    def prepare(self, candidate: Candidate) -> None:
        """Build ahead of `evaluate`; on a CPU nothing, since compiling would disturb timings."""
        if self.target.device != "cpu":
            with suppress(BuildLost):  # `evaluate` tries again
                for architecture in self._architectures():
                    self._builds.prepare(candidate, architecture)

    def evaluate(self, candidate: Candidate) -> Measured:
        """Take one candidate from source to diagnoses, on whichever device is free.

        Raises:
            JudgeError: no device is left.
        """
        try:
            built = self._built(candidate)
        except BuildLost as loss:
            return _unjudged([str(loss)])
        for build, seconds in built.values():
            if (early := self._builds.refused(candidate, build)) is not None:
                return unprofiled(early, {"build": seconds})
        lost: list[str] = []
        while len(lost) < TRIES:
            slot = self._take()
            try:
                with self.busy(_part(slot)):
                    measured = self._measured(slot, candidate, built)
            except BuildLost as loss:
                self._put(slot)
                return _unjudged([str(loss)])
            except SlotLost as loss:
                lost.append(f"device {slot.place.name} was lost ({loss})")
                self._replace(slot, str(loss))
            except KernelproError as error:
                if self._retire(slot, str(error)) == 0:
                    raise
                return _unjudged([str(error)])
            except BaseException:
                self._retire(slot, "it was left in the middle")
                raise
            else:
                self._put(slot)
                self._losses.pop(slot.place.name, None)
                evaluation = _named(measured.evaluation, slot)
                if lost:
                    words = f"{evaluation.message}; judged again, since {'; '.join(lost)}"
                    evaluation = replace(evaluation, message=words)
                return replace(measured, evaluation=evaluation)
        return _unjudged(lost)

    def confirm(self, candidate: Candidate) -> Evaluation:
        """Judge a candidate again from scratch on a free device.

        Raises:
            JudgeError: no device is left, or two were lost over it; or what builds it was lost.
        """
        lost: list[str] = []
        while len(lost) < TRIES:
            slot = self._take()
            try:
                with self.busy(_part(slot)):
                    build, _ = self._built_on(slot, candidate)
                    evaluation = slot.confirm(candidate, build)
            except BuildLost as loss:
                self._put(slot)
                raise JudgeError(
                    f"the winner could not be judged again: {loss}; use --resume"
                ) from None
            except SlotLost as loss:
                lost.append(f"device {slot.place.name} was lost ({loss})")
                self._replace(slot, str(loss))
            except BaseException:
                self._retire(slot, "it failed while it confirmed a winner")
                raise
            else:
                self._put(slot)
                return _named(evaluation, slot)
        raise JudgeError(f"the winner could not be judged again: {'; '.join(lost)}; use --resume")

    def _architectures(self) -> list[str]:
        """Those of the slots, or the search's own while there are none; each once."""
        with self._changed:
            there = [slot.architecture for slot in self._slots if slot.machine is not None]
        return list(dict.fromkeys(there)) or [self.machine.architecture]

    def _built(self, candidate: Candidate) -> dict[str, tuple[Build | None, float]]:
        """The candidate's builds and their seconds, by architecture; on a CPU slots build."""
        if self.target.device == "cpu":
            return {}
        return {each: self._builds.take(candidate, each) for each in self._architectures()}

    def _built_on(self, slot: Slot, candidate: Candidate) -> tuple[Build | None, float]:
        """A build for one slot, and its seconds, made now."""
        if self.target.device != "cpu":
            return self._builds.take(candidate, slot.architecture)
        build = slot.build(candidate)  # on the slot's processors, so that nobody is disturbed
        return build, build.seconds if build is not None else 0.0

    def _measured(
        self, slot: Slot, candidate: Candidate, built: Mapping[str, tuple[Build | None, float]]
    ) -> Measured:
        known = built.get(slot.architecture)
        build, seconds = known or self._built_on(slot, candidate)
        if known is None and (early := self._builds.refused(candidate, build)) is not None:
            return unprofiled(early, {"build": seconds})
        measured = slot.measure(candidate, build, seconds, self._best)
        if measured.evaluation.outcome is Outcome.ACCEPTED:
            with self._changed:
                self._best = max(self._best, speedup(measured.evaluation))
        return measured

    def _say(self, words: str) -> None:
        with self._changed:
            self._said.append(words)

    # --- slots that come and go -----------------------------------------------------------------

    def _open_all(self) -> None:
        """Start and open every slot; on one processor after each other, as they measure peaks."""
        for place in self._places:
            self._slots.append(Slot(place, self._line(place)))
        at_once = 1 if self.target.device == "cpu" else len(self._slots)
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(self._open, self._slots))
        first = self._slots[0].machine
        assert first is not None
        self.machine = first
        for slot in self._slots[1:]:
            if (why := self._unlike(slot)) is not None:
                raise JudgeError(f"{why}; name devices of one kind")
        self.light = speed_of_light(self.problem, self.machine)

    def _open(self, slot: Slot) -> None:
        try:
            self._open_one(slot)
        except SlotLost as lost:
            raise JudgeError(f"device {slot.place.name} cannot be used: {lost}") from None

    def _open_one(self, slot: Slot) -> None:
        slot.open(self.problem, self.target.name, self._settings, self._objective, self._block)

    def _unlike(self, slot: Slot) -> str | None:
        """Why times on a slot's device do not compare with those on the first."""
        there = slot.machine
        assert there is not None
        if (there.device, there.threads) == (self.machine.device, self.machine.threads):
            return None
        return (
            f"device {slot.place.name} is {there.device} with {there.threads} threads, but the "
            f"search's is {self.machine.device} with {self.machine.threads}, and their times do "
            "not compare"
        )

    def _all_ready(self, slots: Iterable[Slot], baseline: str) -> None:
        """Let slots make ready in the background; each is used as soon as it is."""
        for slot in slots:
            with self._changed:
                self._coming += 1
            threading.Thread(target=self._join, args=(slot, baseline), daemon=True).start()

    def _join(self, slot: Slot, baseline: str) -> None:
        """Make a slot ready and free, opening it first if it is new."""
        try:
            if slot.machine is None:
                self._open_one(slot)
                if (why := self._unlike(slot)) is not None:
                    raise JudgeError(why)
            slot.ready(baseline)
        except (SlotLost, KernelproError) as error:
            self._retire(slot, str(error))
        else:
            self._put(slot)
        finally:
            with self._changed:
                self._coming -= 1
                self._changed.notify_all()

    def _take(self) -> Slot:
        """Wait for a free slot.

        Raises:
            JudgeError: there is none left, and none to come.
        """
        with self._changed:
            while not self._idle:
                if self._closed or not (self._slots or self._coming):
                    said = f": {self._said[-1]}" if self._said else ""
                    raise JudgeError(f"no device is left to judge on{said}")
                self._changed.wait()
            self._idle.sort(key=self._slots.index)
            return self._idle.pop(0)

    def _put(self, slot: Slot) -> None:
        with self._changed:
            if not self._closed:
                self._idle.append(slot)
                self._changed.notify_all()

    def _retire(self, slot: Slot, why: str) -> int:
        """Take a slot out for good; how many are left or coming."""
        with self._changed:
            if not self._closed:
                self._said.append(f"device {slot.place.name} is not used any more: {why}")
            if slot in self._slots:
                self._slots.remove(slot)
            left = len(self._slots) + self._coming
            self._changed.notify_all()
        slot.close()
        return left

    def _replace(self, slot: Slot, why: str) -> None:
        """Start a slot anew where one was lost, unless that place loses one after the other."""
        place = slot.place
        with self._changed:
            if self._closed:
                return
            losses = self._losses[place.name] = self._losses.get(place.name, 0) + 1
            self._said.append(f"device {place.name} lost its judge ({why})")
            again = losses < RESTARTS
            self._slots.remove(slot)
            self._coming += again  # in the same breath, so that nobody thinks that none is left
            self._changed.notify_all()
        slot.close()
        if again:
            try:
                self.add(place)
            finally:
                with self._changed:
                    self._coming -= 1
                    self._changed.notify_all()

    def add(self, place: Place) -> bool:
        """Start a slot at a place that is new, or has lost one; False where there can be none yet.

        It is used as soon as it is ready.
        """
        if not self._baseline:
            return False  # nothing has been measured yet that it could time against
        with self._changed:
            self._coming += 1
        try:
            slot = Slot(place, self._line(place))
        except KernelproError as error:
            with self._changed:
                self._said.append(f"device {place.name} is not used any more: {error}")
        else:
            with self._changed:
                closed = self._closed
                if not closed:
                    self._slots.append(slot)
            if closed:
                slot.close()
            else:
                self._all_ready([slot], self._baseline)
        finally:
            with self._changed:
                self._coming -= 1
                self._changed.notify_all()
        return True


def _part(slot: Slot) -> str:
    return f"device {slot.place.name}"


def _named(evaluation: Evaluation, slot: Slot) -> Evaluation:
    """An evaluation whose verdict names the device."""
    verdict = evaluation.verdict
    if verdict is None:
        return evaluation
    evidence = {**verdict.evidence, JUDGED_ON: slot.label}
    return replace(evaluation, verdict=replace(verdict, evidence=evidence))


def _unjudged(reasons: Sequence[str]) -> Measured:
    return Measured(
        evaluation=Evaluation(
            outcome=Outcome.UNJUDGED,
            message=f"could not be judged, which is not its fault: {'; '.join(reasons)}",
        )
    )
