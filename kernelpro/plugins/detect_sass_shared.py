"""Detectors, instruction level: shared memory, as the machine code accesses it."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.sass.estimate import BACKED, by_stalls, shown, wanted
from kernelpro.profiling.thresholds import cut

CONFLICTS = tuple(
    f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st")
)
WAVEFRONTS = tuple(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st"))
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
_SHARED = ("short_scoreboard", "mio_throttle")


@hookimpl
def detectors() -> list[Detector]:
    """Give this family's detectors."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="instruction",
    needs=("sass.shared_narrow_per_ffma", "sass.shared_adjacent", "sass.hot_loop_instructions"),
    wants=wanted(*_SHARED),
    classes=("compute", "latency", "balanced"),
    group="shared",
    threshold="> 0.5 four-byte loads from shared memory for each FFMA, next to each other (own)",
)
def shared_width(evidence: Evidence) -> Diagnosis | None:
    """Shared memory is read four bytes at a time although neighbours are needed too."""
    profile = evidence.profile
    per_ffma, adjacent = profile["sass.shared_narrow_per_ffma"], profile["sass.shared_adjacent"]
    if per_ffma <= cut("shared_width.per_ffma") or adjacent < cut("shared_width.adjacent"):
        return None
    guess = by_stalls(
        profile, 0.75 * adjacent / max(profile["sass.hot_loop_instructions"], 1.0), *_SHARED
    )
    if guess is None:
        return None
    return Diagnosis(
        bottleneck=(
            f"{per_ffma:.2f} four-byte loads from shared memory for each FFMA "
            f"(cut {cut('shared_width.per_ffma')}), {adjacent:.0f} next to each other{guess.words}"
        ),
        where=shown(profile, "sass.shared_adjacent"),
        why="Each load takes a slot of the memory queue that a 16-byte one would fill.",
        gain=guess.gain,
        confidence=guess.confidence,
        actions=(
            Action(name="vectorize", instruction="Read float4 from shared memory."),
            Action(
                name="register_tile", instruction="Compute more products from each loaded value."
            ),
        ),
        guard="Keep rows padded or swizzled, or wide loads meet in banks.",
    )


@detector(
    level="instruction",
    needs=("sass.bank_ways", "sass.shared_accesses", "sass.hot_loop_instructions"),
    wants=(*CONFLICTS, *WAVEFRONTS, L1, *wanted(*_SHARED)),
    group="shared",
    threshold="lanes meet in a bank by the addresses in the code (exact where they are known)",
)
def static_bank_model(evidence: Evidence) -> Diagnosis | None:
    """By their addresses, lanes of one access meet in a bank of shared memory."""
    profile = evidence.profile
    ways = profile["sass.bank_ways"]
    if ways < cut("static_bank_model.ways"):
        return None
    waves = sum(reading(profile, name) for name in WAVEFRONTS)
    if waves > 0 and CONFLICTS[0] in profile:
        share = ratio(sum(reading(profile, name) for name in CONFLICTS), waves)
        if share < cut("static_bank_model.conflicts"):
            return None
        gain, confidence = fraction(share * reading(profile, L1, 100.0) / 100), BACKED
        words = f"; conflicts make {share:.0%} of the passes"
    else:
        repeated = (ways - 1) * max(profile["sass.shared_accesses"], 1.0)
        guess = by_stalls(
            profile, repeated / (repeated + profile["sass.hot_loop_instructions"]), *_SHARED
        )
        if guess is None:
            return None
        gain, confidence, words = guess.gain, guess.confidence, guess.words
    return Diagnosis(
        bottleneck=f"a {ways:.0f}-way bank conflict by the addresses in the code (cut 2){words}",
        where=shown(profile, "sass.bank_ways"),
        why="Lanes whose addresses differ by a multiple of 128 B take turns at one bank.",
        gain=gain,
        confidence=confidence,
        actions=(
            Action(name="pad_shared", instruction="Make the row one element longer, as [32][33]."),
            Action(
                name="swizzle", instruction="XOR the column with the row, in units of the access."
            ),
        ),
        guard="Assumes blocks whose x size is a multiple of 32; padding breaks 16-byte alignment.",
    )
