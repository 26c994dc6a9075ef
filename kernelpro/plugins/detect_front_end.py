"""Detectors: caches of constants and instructions that miss."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.issue_slots import LATENCY, stall, stalled
from kernelpro.profiling.readings import fraction, reading
from kernelpro.profiling.thresholds import cut

CONSTANTS = "idc__request_hit_rate.pct"
CODE = "sm__icc_request_hit_rate.pct"


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of the front end's caches."""
    return [constant_cache_miss, icache_pressure]


def _missed(evidence: Evidence, rate: str) -> float:
    """Share, 0..1, of requests that missed."""
    return fraction((100.0 - reading(evidence.profile, rate, default=100.0)) / 100)


@detector(
    level="kernel",
    needs=(CONSTANTS, stall("imc_miss"), LATENCY),
    classes=("latency",),
    group="issue",
    threshold="> 10 % of requests miss and stall > 5 % of latency (own)",
)
def constant_cache_miss(evidence: Evidence) -> Diagnosis | None:
    """Constants miss their cache and warps wait for them."""
    missed, share = _missed(evidence, CONSTANTS), stalled(evidence.profile, "imc_miss")
    if not missed > cut("constant_cache_miss.share") or not share > cut(
        "constant_cache_miss.stall"
    ):
        return None
    return Diagnosis(
        bottleneck=(
            f"{missed:.0%} of requests for constants miss (cut "
            f"{cut('constant_cache_miss.share'):.0%}); {share:.0%} of latency waits for them"
        ),
        why="The constant cache is small and serves one address at a time.",
        gain=share,
        confidence=0.5,
        actions=(
            Action(
                name="read_only_loads",
                instruction="Read tables through __ldg or shared memory, not __constant__.",
            ),
            Action(name="uniform_index", instruction="Index constants equally in a warp."),
        ),
        guard="A first touch in a very short kernel cannot be avoided.",
    )


@detector(
    level="kernel",
    needs=(CODE, stall("no_instruction"), LATENCY),
    classes=("latency", "compute"),
    group="issue",
    threshold="> 5 % of fetches miss and stall > 10 % of latency (own)",
)
def icache_pressure(evidence: Evidence) -> Diagnosis | None:
    """Instructions miss their cache and warps wait for them."""
    missed, share = _missed(evidence, CODE), stalled(evidence.profile, "no_instruction")
    if not missed > cut("icache_pressure.share") or not share > cut("icache_pressure.stall"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{missed:.0%} of instruction fetches miss (cut {cut('icache_pressure.share'):.0%}); "
            f"{share:.0%} of latency waits (cut {cut('icache_pressure.stall'):.0%})"
        ),
        why="Unrolled and inlined code is larger than the instruction caches.",
        gain=share,
        confidence=0.5,
        actions=(
            Action(name="less_unrolling", instruction="Use smaller unroll factors."),
            Action(name="split_cold_paths", instruction="Move rare paths out of the loop."),
        ),
        guard="Not for a kernel so short that its code is fetched for the first time.",
    )
