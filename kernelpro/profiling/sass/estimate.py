"""What a static finding is worth: from the machine code alone, or backed by counters.

Machine code shows that something is there, not how often it runs. Alone it gives a guess that is
capped and of low confidence; stall reasons of the same kernel, where they were measured, turn it
into the share of time that warps lose to it, bounded by the idle issue slots.
"""

from dataclasses import dataclass

from kernelpro.profiling.issue_slots import ISSUE, LATENCY, room, stall, stalled
from kernelpro.profiling.readings import first_reading, fraction
from kernelpro.profiling.thresholds import cut
from kernelpro.records import Profile

STATIC = 0.3  # confidence in a finding that no counter confirms
BACKED = 0.6  # the same with a counter, cut at our own place
CAP = 0.3  # own: no guess from machine code alone is worth more than this share of the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Share of the kernel's time, 0..1, the confidence in it, and in words what backs it."""

    gain: float
    confidence: float
    words: str = ""


def wanted(*reasons: str) -> tuple[str, ...]:
    """Names of the counters that back a finding by these stall reasons."""
    return (*(stall(reason) for reason in reasons), LATENCY, ISSUE)


def static(gain: float) -> Estimate:
    """A guess from the code alone."""
    return Estimate(gain=min(fraction(gain), CAP), confidence=STATIC)


def by_stalls(profile: Profile, guess: float, *reasons: str) -> Estimate | None:
    """The share of time that warps wait for these reasons, where it was measured; else the guess.

    None where it was measured and is small: the code is as it is, but does not cost anything.
    """
    if first_reading(profile, LATENCY) is None or not any(stall(r) in profile for r in reasons):
        return static(guess)
    share = fraction(sum(stalled(profile, reason) for reason in reasons))
    if share < cut("sass_backed.stall"):
        return None
    return Estimate(
        gain=min(share, room(profile)),
        confidence=BACKED,
        words=f"; {share:.0%} of a warp's time waits for it",
    )


def by_issue(profile: Profile, guess: float) -> Estimate:
    """Issue slots that useless instructions take: the guess times how busy the slots are."""
    issued = first_reading(profile, ISSUE)
    if issued is None:
        return static(guess)
    return Estimate(
        gain=fraction(guess) * fraction(issued),
        confidence=BACKED,
        words=f"; {issued:.2f} issues a cycle",
    )


def shown(profile: Profile, *names: str) -> str:
    """Where: the first of these metrics' notes that is not empty."""
    return next((words for name in names if (words := profile.where(name))), "")
