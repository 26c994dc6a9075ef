"""Times a candidate interleaved with the baseline: base, candidate, candidate, base, ...

On the CPU the judge's own clock decides: one byte out, one byte back around each call, less the
same without the call. The side whose turn it is not is stopped, so that neither its OpenMP threads,
which spin for milliseconds after a call, nor any others take time from the side that is timed. On
CUDA events decide, behind a kernel that spins until all launches of
the block are queued, so that they hold the GPU's time and not the launches'. The judge's clock
attests them: they must not fall short of the time of a block of calls less that of a block
without calls. Timed calls get inputs that no earlier call had, and a random sample of their
outputs is kept for comparison. A kept call must not take much longer than a timed one: work that
is put off until somebody looks would show there. Neither must a call no row of whose inputs came
before: what is remembered of earlier ones would show there.
"""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelpro.judge import raw, timing
from kernelpro.judge.channel import Failure, Garbage
from kernelpro.judge.correctness import form_error, read_outputs
from kernelpro.judge.device_lock import DeviceLock
from kernelpro.judge.inputs import Bank
from kernelpro.judge.settings import JudgeSettings
from kernelpro.judge.workers import WorkerProcess
from kernelpro.records import Timing

LEAST_US = 0.05  # what is left of a call after subtraction is never less
NULLS_PER_BLOCK = 2
LEAST_CALLS = 5  # in a block, so that its median survives an interruption,
LONG_CALL_US = 20_000.0  # unless calls take so long that an interruption hardly shows
SMALL_BYTES = 1 << 20  # outputs of so few bytes are compared in a millisecond or two, so
SMALL_FACTOR = 4  # so many times as many calls are: each has its chance to find a stale result
DITHERED = 1 / 4  # of the compared calls: the others tell more of who knows inputs by few values
FRESH_SHARE = 0.25  # own: calls on rows that never came before may take this share longer,
FRESH_US = {"cpu": 50.0, "cuda": 5.0}  # besides so much, by either clock
MANY_IN_BLOCK = 20  # calls from which a block has a second one on rows that never came before
HASTY_PAIRS = 3  # enough when even they took three times the time that timing may take
AGREEMENT = 0.25  # events may fall short of the judge's wall clock by this share,
AGREEMENT_US = 40.0  # or by this much a call: honest kernels of 70 us fell short by up to 28 us,
AGREEMENT_BLOCK_US = 200.0  # and by this a block, which the host may hold up once: 225 us were seen
ATTEMPTS = 3  # at timing on a card that something else disturbs,
DISTURBED_PAUSE_S = 0.3  # so long after one another
SECOND_LOOK_PAIRS = 8  # blocks of each side that tell a disturbed card from a dishonest candidate,
DISHONEST = 3.0  # whose clocks differ by so many times what the baseline's do
LATE_FACTOR = 2.0  # own: keeping outputs may cost so many times what it costs the baseline, whose
# outputs may lie nearer,
LATE_SHARE = 0.25  # besides this share of a call,
LATE_US = 50.0  # and this
LATE_CALLS = 5  # kept calls without which nothing is said
SUSPICIOUS = 0.05  # probability below which more pairs are measured,
MANY_CALLS = 24  # until there are so many kept calls,
DOUBT_S = 3.0  # or so much time has passed, whatever else timing may take
LATE = 1e-4  # probability below which the candidate is late: a busy machine delays some calls
SPIN_MARGIN = 1.5  # of the time that queueing a block's launches took
MOST_SPIN_US = 100_000.0
NOT_ALONE = "; another kernelpro held the device's lock, so both may have been timed at once"


class BaselineFailed(Exception):
    """The baseline's worker failed while it was timed."""


@dataclass(slots=True)
class Challenge:
    """A timed call whose outputs the judge fetched.

    Attributes:
        index: input set.
        salt: what its swapped elements derive from.
        outputs: copies of the outputs, taken to be of the right form.
        problem: reason and sentence if they were not.
    """

    index: int
    salt: int
    outputs: list[torch.Tensor]
    problem: tuple[str, str] | None = None


@dataclass(slots=True)
class Side:
    """One worker while it is timed.

    Attributes:
        worker: its process.
        times_us: times of its calls, by block.
        slopes_us: on CUDA, the judge's wall time of each block less that of one without calls,
            for each call.
        nulls_us: on the CPU, times of handshakes without a call.
        kept_us: on the CPU, times of calls whose outputs were kept, with that copy in them.
        copies_us: on the CPU, the baseline's times of that copy alone.
        fresh_us: times of calls no row of whose inputs had come before; not among the others.
        calls: timed calls in a block.
        spin_us: on CUDA, how long a block's first kernel spins.
    """

    worker: WorkerProcess
    times_us: list[list[float]] = field(default_factory=list)
    slopes_us: list[float] = field(default_factory=list)
    nulls_us: list[float] = field(default_factory=list)
    kept_us: list[float] = field(default_factory=list)
    copies_us: list[float] = field(default_factory=list)
    fresh_us: list[float] = field(default_factory=list)
    calls: int = 1
    spin_us: float = 0.0
    _medians: list[float] = field(default_factory=list)

    def block_us(self, least_us: float) -> list[float]:
        """Median of each block, less the handshake's; what is below least_us counts as that."""
        null = self._null_us()
        self._medians += [timing.median(block) for block in self.times_us[len(self._medians) :]]
        return [max(median - null, least_us) for median in self._medians]

    def all_us(self, least_us: float) -> list[float]:
        """Every call's time, less the handshake's; what is below least_us counts as that."""
        null = self._null_us()
        return [max(t - null, least_us) for block in self.times_us for t in block]

    def resolution_us(self) -> float:
        """What a call must take to be told from a handshake: their interquartile range."""
        if not self.nulls_us:
            return LEAST_US
        spread = timing.percentile(self.nulls_us, 75) - timing.percentile(self.nulls_us, 25)
        return max(spread, LEAST_US)

    def copy_us(self) -> float:
        """What the copy of outputs takes, less the handshake's time; 0 where it was not timed."""
        if not self.copies_us:
            return 0.0
        return max(timing.median(self.copies_us) - self._null_us(), 0.0)

    def _null_us(self) -> float:
        return timing.median(self.nulls_us) if self.nulls_us else 0.0


@dataclass(slots=True)
class Measurement:
    """What one interleaved measurement gave.

    Attributes:
        timing: the statistics.
        challenges: timed calls to be compared.
        inconsistency: why the times are not to be believed, in words, or empty.
        clocks_disagree: whether that is because events and the judge's clock do not agree.
        disturbance: why nothing can be said, because something else uses the device; or empty.
        candidate_us: the candidate's calls, from which the statistics were made.
        baseline_us: the baseline's calls.
        ratios: baseline / candidate for each pair of blocks.
    """

    timing: Timing
    challenges: list[Challenge]
    inconsistency: str = ""
    clocks_disagree: bool = False
    disturbance: str = ""
    candidate_us: list[float] = field(default_factory=list)
    baseline_us: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)


class Stopwatch:
    """Runs blocks of timed calls on the workers of one bank."""

    def __init__(self, bank: Bank, settings: JudgeSettings, threads: int, lock: DeviceLock) -> None:
        self.bank = bank
        self.lock = lock
        self.settings = settings
        self.threads = threads
        self._random = random.SystemRandom()
        self._order: list[int] = []
        self._salts: list[int] = []
        self._queueing_us = 0.0

    def compare(
        self, base: WorkerProcess, candidate: WorkerProcess, *, baseline: str = "eager"
    ) -> Measurement:
        """Time a candidate against the baseline, with the device to themselves.

        Where events and the judge's clock do not agree, both sides are looked at again: another
        program's kernels between two calls are in the one and not in the other. If the baseline's
        clocks disagree too, or the candidate's now agree, everything is measured anew; a candidate
        whose clocks never agreed on such a card is not judged.

        Raises:
            Failure: the candidate's worker failed.
            BaselineFailed: the baseline's did.
        """
        with self.lock.held() as alone:
            try:
                for attempt in range(1, ATTEMPTS + 1):
                    measured = self._compare(base, candidate, baseline, alone)
                    if not measured.clocks_disagree:
                        break
                    measured.disturbance = disturbance(*self._second_look(base, candidate))
                    if not measured.disturbance:
                        break
                    if attempt < ATTEMPTS:
                        time.sleep(DISTURBED_PAUSE_S)
                return measured
            finally:
                base.go_on()
                candidate.go_on()

    def _compare(
        self, base: WorkerProcess, candidate: WorkerProcess, baseline: str, alone: bool
    ) -> Measurement:
        settings = self.settings
        sides = (Side(base), Side(candidate))
        kept: list[Challenge] = []
        last: Challenge | None = None
        challenged_calls = settings.challenged_calls
        if self.bank.output_bytes <= SMALL_BYTES:
            challenged_calls *= SMALL_FACTOR
        elif self.bank.is_large:
            challenged_calls = 1  # the device holds no more of them
        # The order within a pair alternates, so that equal sides meet and need no switch.
        began = time.monotonic()
        for side, other in (sides, sides[::-1]):
            _give_way(other, side)
            self._warm_up(side, baseline=side is sides[0])
        active: Side | None = None
        pairs = 0
        while pairs < settings.max_pairs:
            for side, other in (sides, sides[::-1])[:: 1 if pairs % 2 == 0 else -1]:
                is_base = side is sides[0]
                # The baseline is fetched from too, because a fetch slows the next calls down.
                challenged = self._random.randrange(side.calls)
                if side is not active:
                    _give_way(other, side)
                challenge = self._guarded(is_base, side, side is not active, challenged)
                active = side
                if challenge is not None and not is_base:
                    last = challenge
            pairs += 1
            if last is not None:
                _keep_a_sample(kept, last, pairs, challenged_calls - 1, self._random)
            ratios = _ratios(sides)
            spent_s = time.monotonic() - began
            in_time = spent_s < max(3 * settings.max_timing_s, DOUBT_S)
            if (in_time or _are_too_few(*sides)) and _is_doubtful(*sides):
                continue
            if timing.is_enough(
                ratios,
                min_pairs=settings.min_pairs,
                precision=settings.precision,
                hopeless=settings.hopeless,
            ):
                break
            if pairs >= settings.min_pairs and spent_s > settings.max_timing_s:
                break
            if pairs >= HASTY_PAIRS and spent_s > 3 * settings.max_timing_s:
                break
        if last is not None and last not in kept:
            kept.append(last)
        least = _resolution_us(sides)
        mine, theirs, ratios = sides[1].all_us(least), sides[0].all_us(least), _ratios(sides)
        apart = _inconsistency(sides[1])
        return Measurement(
            timing=timing.summarise(
                mine,
                theirs,
                [ratios],
                baseline=baseline,
                clock=self._clock_name(candidate, least) + ("" if alone else NOT_ALONE),
                threads=self.threads if candidate.device == "cpu" else 0,
            ),
            challenges=kept,
            inconsistency=apart or _lateness(*sides) or _memory(*sides),
            clocks_disagree=bool(apart),
            candidate_us=mine,
            baseline_us=theirs,
            ratios=ratios,
        )

    def alone(self, base: WorkerProcess, *, baseline: str = "eager") -> Timing:
        """Time the baseline by itself.

        Raises:
            BaselineFailed: its worker failed.
        """
        with self.lock.held() as alone:
            return self._alone(base, baseline, alone)

    def _alone(self, base: WorkerProcess, baseline: str, alone: bool) -> Timing:
        side = Side(base)
        self._warm_up(side, baseline=True)
        began = time.monotonic()
        for n in range(self.settings.max_pairs):
            self._guarded(True, side, n == 0, -1)
            if n + 1 >= self.settings.min_pairs and (
                time.monotonic() - began > self.settings.max_timing_s / 4
            ):
                break
        least = side.resolution_us()
        times = side.all_us(least)
        return timing.summarise(
            times,
            times,
            [[1.0]],
            baseline=baseline,
            clock=self._clock_name(base, least) + ("" if alone else NOT_ALONE),
            threads=self.threads if base.device == "cpu" else 0,
        )

    def _clock_name(self, worker: WorkerProcess, least_us: float) -> str:
        if worker.device == "cpu":
            return (
                "judge's wall clock around each call, less an empty handshake; "
                f"{least_us:.1f} us is the least that it tells from none"
            )
        return "CUDA events behind a full queue, attested by the judge's wall clock"

    def _second_look(self, base: WorkerProcess, candidate: WorkerProcess) -> tuple[Side, Side]:
        """Clock a few blocks of either side, both by events and by the judge."""
        sides = (Side(base), Side(candidate))
        for side in sides:
            self._warm_up(side, baseline=side is sides[0])
        for _ in range(SECOND_LOOK_PAIRS):
            for side in sides:
                self._guarded(side is sides[0], side, True, -1, attested=True)
        return sides

    def _guarded(
        self, is_base: bool, side: Side, switched: bool, challenged: int, *, attested: bool = False
    ) -> Challenge | None:
        try:
            if side.worker.device == "cpu":
                return self._cpu_block(side, switched, challenged, trusted=is_base)
            return self._cuda_block(side, switched, challenged, attested=attested or not is_base)
        except Failure as failure:
            if is_base:
                raise BaselineFailed from failure
            raise

    def _warm_up(self, side: Side, *, baseline: bool) -> None:
        """Make two calls and decide from them how many a block takes."""
        settings = self.settings
        try:
            if side.worker.device == "cpu":
                time.sleep(settings.settle_s)
                spent = [self._cpu_call(side.worker)[0] / 1e3 for _ in range(3)]
                side.calls = _calls_in_block(min(spent), settings)
                side.nulls_us += self._handshakes(side.worker)
                return
            self._cuda_calls(side, 2, call=True, keep=-1)
            events, _ = self._cuda_calls(side, 3, call=True, keep=-1)
            side.calls = max(3, _calls_in_block(timing.median(events), settings))
            _, wall_us = self._cuda_calls(side, side.calls, call=True, keep=-1)
            # The worker's word can only make its own block look slower than it is.
            side.spin_us = SPIN_MARGIN * min(self._queueing_us, wall_us, MOST_SPIN_US)
        except Failure as failure:
            if baseline:
                raise BaselineFailed from failure
            raise

    # --- the CPU ----------------------------------------------------------------------------

    def _cpu_call(
        self, worker: WorkerProcess, command: bytes = b"g", *, fresh: bool = False
    ) -> tuple[int, int, int]:
        index = self._random.randrange(len(self.bank.sets))
        salt = self._salt(compared=command == b"c", fresh=fresh)
        worker.channel.prepare(index, salt, self.settings.call_deadline_s)
        return worker.channel.timed(command, self.settings.call_deadline_s), index, salt

    def _salt(self, *, compared: bool, fresh: bool) -> int:
        """Draw what a timed call's inputs derive from; most keep their lowest bits."""
        dithered = fresh or (compared and self._random.random() < DITHERED)
        return raw.salted(self._random.getrandbits(64), dithered=dithered)

    def _handshakes(self, worker: WorkerProcess) -> list[float]:
        return [
            worker.channel.timed(b"n", self.settings.call_deadline_s) / 1e3
            for _ in range(NULLS_PER_BLOCK)
        ]

    def _cpu_block(
        self, side: Side, switched: bool, challenged: int, *, trusted: bool = False
    ) -> Challenge | None:
        if switched:
            self._cpu_call(side.worker)  # warms threads and caches; not counted
        times, challenge = [], None
        fresh = {self._random.randrange(side.calls) for _ in range(1 + side.calls // MANY_IN_BLOCK)}
        for n in range(side.calls):
            if n in fresh:
                side.fresh_us.append(self._cpu_call(side.worker, fresh=True)[0] / 1e3)
            times.append(self._cpu_call(side.worker)[0] / 1e3)
            if n == challenged:
                # A call that cannot be told from the others, whose outputs are taken the moment
                # that it returns; its time, with that copy in it, does not count.
                spent, index, salt = self._cpu_call(side.worker, b"c")
                side.kept_us.append(spent / 1e3)
                challenge = self._fetch(side.worker, index, salt)
        side.times_us.append(times)
        if trusted and challenge is not None:
            copy = side.worker.channel.timed(b"k", self.settings.call_deadline_s)
            side.copies_us.append(copy / 1e3)
        side.nulls_us += self._handshakes(side.worker)
        return challenge

    # --- CUDA -------------------------------------------------------------------------------

    def _cuda_calls(
        self, side: Side, count: int, *, call: bool, keep: int, fresh: Sequence[int] = ()
    ) -> tuple[list[float], float]:
        """Run a block in the worker; its event times and the judge's wall time, in us."""
        self._order = [self._random.randrange(len(self.bank.sets)) for _ in range(count)]
        self._salts = [self._salt(compared=n == keep, fresh=n in fresh) for n in range(count)]
        began = time.perf_counter_ns()
        reply = side.worker.channel.request(
            "block",
            self.settings.call_deadline_s,
            order=self._order,
            salts=self._salts,
            keep=keep,
            call=call,
            spin_us=side.spin_us,
        )
        wall_us = (time.perf_counter_ns() - began) / 1e3
        queueing_us = reply.get("queueing_us")
        self._queueing_us = queueing_us if isinstance(queueing_us, float) else 0.0
        return _event_times(reply, count), wall_us

    def _cuda_block(
        self, side: Side, switched: bool, challenged: int, *, attested: bool
    ) -> Challenge | None:
        if switched:
            self._cuda_calls(side, 1, call=True, keep=-1)  # the GPU changes contexts; not counted
        count, empty_us = side.calls + 1, 0.0
        fresh = self._random.choice([n for n in range(count) if n != challenged])
        if attested:
            _, empty_us = self._cuda_calls(side, count, call=False, keep=-1)
        events, wall_us = self._cuda_calls(side, count, call=True, keep=challenged, fresh=(fresh,))
        side.fresh_us.append(events.pop(fresh))
        side.times_us.append(events)
        if attested:
            side.slopes_us.append((wall_us - empty_us) / count)
        if challenged < 0 or not attested:
            return None
        return self._fetch(side.worker, self._order[challenged], self._salts[challenged])

    # --- both -------------------------------------------------------------------------------

    def _fetch(self, worker: WorkerProcess, index: int, salt: int) -> Challenge:
        reply = worker.channel.request("fetch", self.settings.call_deadline_s, earlier=False)
        problem = form_error(reply, self.bank, worker.device)
        expected = self.bank.expected(True)[index]
        outputs = (
            []
            if problem
            else [
                raw.copied(t, e.values.device)
                for t, e in zip(read_outputs(worker.out, expected), expected, strict=True)
            ]
        )
        return Challenge(index=index, salt=salt, outputs=outputs, problem=problem)


def _give_way(one: Side, other: Side) -> None:
    """Stop a side and let the other go on; on a GPU both run: their threads only queue launches."""
    if one.worker.device == "cpu":
        one.worker.stop()
        other.worker.go_on()


def _calls_in_block(call_us: float, settings: JudgeSettings) -> int:
    least = 1 if call_us > LONG_CALL_US else LEAST_CALLS
    wanted = int(settings.block_s * 1e6 / max(call_us, 1.0))
    return max(least, min(settings.max_block_calls, wanted))


def _event_times(reply: dict[str, Any], count: int) -> list[float]:
    events = reply.get("events_us")
    if (
        not isinstance(events, list)
        or len(events) != count
        or not all(isinstance(e, float) and 0.0 <= e < 1e12 for e in events)
    ):
        raise Garbage("event times that are no times")
    return [max(float(e), LEAST_US) for e in events]


def _resolution_us(sides: Sequence[Side]) -> float:
    """The clock's resolution, the same for all sides: a ratio of two times below it is 1."""
    return max(side.resolution_us() for side in sides)


def _ratios(sides: Sequence[Side]) -> list[float]:
    least = _resolution_us(sides)
    base, candidate = sides[0].block_us(least), sides[1].block_us(least)
    return [b / c for b, c in zip(base, candidate, strict=True)]


def _keep_a_sample(
    kept: list[Challenge],
    new: Challenge,
    seen: int,
    size: int,
    generator: random.SystemRandom,
) -> None:
    """Keep a uniform sample of all challenges seen so far (reservoir sampling)."""
    if len(kept) < size:
        kept.append(new)
    elif size > 0 and (place := generator.randrange(seen)) < size:
        kept[place] = new


def _inconsistency(side: Side) -> str:
    """Compare event times with the slope of the judge's wall clock.

    Events that claim more than the wall clock saw gain a candidate nothing, so only work that they
    leave out is held against it.
    """
    if not side.slopes_us:
        return ""
    slope_us, events_us = _clocks_us(side)
    allowed_us = AGREEMENT_US + AGREEMENT_BLOCK_US / side.calls
    if slope_us - events_us <= max(AGREEMENT * slope_us, allowed_us):
        return ""
    return (
        f"CUDA events in its process say {events_us:.1f} us a call, but the judge's clock saw "
        f"{slope_us:.1f} us"
    )


def _clocks_us(side: Side) -> tuple[float, float]:
    """What a call took by the judge's clock, and by events."""
    events = [sum(block) / len(block) for block in side.times_us]
    return timing.median(side.slopes_us), timing.median(events)


def disturbance(base: Side, candidate: Side) -> str:
    """Say why a disagreement of the candidate's clocks may be the device's, or nothing.

    Args:
        base: clocked again, by events and by the judge.
        candidate: likewise, in between.
    """
    slope_us, events_us = _clocks_us(candidate)
    base_slope_us, base_events_us = _clocks_us(base)
    if _inconsistency(base) or slope_us - events_us < DISHONEST * (base_slope_us - base_events_us):
        return (
            f"of the baseline too CUDA events say {base_events_us:.1f} us a call and the judge's "
            f"clock {base_slope_us:.1f} us: something else uses the device"
        )
    if not _inconsistency(candidate):
        return (
            "its events and the judge's clock disagreed, and agreed when both sides were clocked "
            "again: something else uses the device at times"
        )
    return ""


def _lateness(base: Side, candidate: Side) -> str:
    """Compare calls whose outputs were kept with timed ones, by what that costs the baseline.

    A candidate that took over its end of the channel could answer a timed call at once, and compute
    when its outputs are wanted. On a GPU no call is clocked alone, so nothing is said.
    """
    if _are_too_few(base, candidate):
        return ""
    late_us, copy_us, chance = _late(base, candidate)
    all_late = 0.5 ** len(candidate.kept_us)  # calls may take so long that there are but few
    if chance > max(LATE, all_late):
        return ""
    return (
        f"calls whose outputs are kept take it {late_us:.1f} us longer than the timed ones, and "
        f"keeping them costs the baseline {copy_us:.1f} us: it computes after it has answered"
    )


def _memory(base: Side, candidate: Side) -> str:
    """Compare calls on rows that never came before with the others, which share rows.

    A candidate that remembers rows has answers for the others only. Both medians stand on the same
    clock; what the baseline takes longer on fresh rows is allowed besides.
    """
    fresh, device = candidate.fresh_us, candidate.worker.device
    if len(fresh) < LATE_CALLS or not base.fresh_us or not candidate.times_us:
        return ""
    call_us = _middle_us(candidate)
    more_us = max(0.0, timing.median(base.fresh_us) - _middle_us(base))
    allowed_us = FRESH_SHARE * call_us + FRESH_US[device] + LATE_FACTOR * more_us
    late = sum(us > call_us + allowed_us for us in fresh)
    ways = sum(math.comb(len(fresh), n) for n in range(late, len(fresh) + 1))
    if ways / 2.0 ** len(fresh) > max(LATE, 0.5 ** len(fresh)):
        return ""
    return (
        f"calls on rows that never came before take it {timing.median(fresh):.1f} us, others "
        f"{call_us:.1f} us: it remembers rows"
    )


def _is_doubtful(base: Side, candidate: Side) -> bool:
    """Whether more kept calls must tell lateness from a busy machine's delays.

    Where there are too few to say anything and all of them are late, more are taken whatever the
    time: a slow machine must not be where nothing is said.
    """
    kept = len(candidate.kept_us)
    if not kept or not base.kept_us or kept >= MANY_CALLS:
        return False
    chance = _late(base, candidate)[2]
    return chance <= 0.5**kept if kept < LATE_CALLS else chance < SUSPICIOUS


def _are_too_few(base: Side, candidate: Side) -> bool:
    return len(candidate.kept_us) < LATE_CALLS or not base.kept_us


def _late(base: Side, candidate: Side) -> tuple[float, float, float]:
    """How late kept calls are, what keeping costs the baseline, and how probable that is by chance.

    The probability is that of a sign test: of so many kept calls, each of which is as probably
    above the timed calls' median as below it, so many are later than is allowed.
    """
    kept, call_us = candidate.kept_us, _middle_us(candidate)
    # Of the quicker calls, which a busy machine has not delayed: else its delays would be allowed.
    # The copy alone is timed too, because a difference of long calls may well hide a short copy.
    copy_us = max(_quarter_us(base.kept_us) - _quarter_us(_calls_us(base)), base.copy_us())
    allowed_us = LATE_FACTOR * copy_us + LATE_SHARE * call_us + LATE_US
    late = sum(us > call_us + allowed_us for us in kept)
    ways = sum(math.comb(len(kept), n) for n in range(late, len(kept) + 1))
    return timing.median(kept) - call_us, copy_us, ways / 2.0 ** len(kept)


def _calls_us(side: Side) -> list[float]:
    return [us for block in side.times_us for us in block]


def _middle_us(side: Side) -> float:
    return timing.median(_calls_us(side))


def _quarter_us(times: Sequence[float]) -> float:
    """The lower quartile: a quarter of the times are below it."""
    return sorted(times)[len(times) // 4]
