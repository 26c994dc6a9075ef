"""Detectors of the CUDA target, kernel level: DRAM, and memory behind the device's own."""

from dataclasses import replace

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.counters.packs import DURATION
from kernelpro.profiling.memory_traffic import (
    CAUSES,
    CYCLES,
    DRAM,
    L1,
    L2,
    L2_FROM_SM,
    L2_HIT,
    LEVELS,
    SECTOR_BYTES,
    busiest,
    busy,
    known_cause,
)
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.speed_of_light import output_bytes
from kernelpro.profiling.thresholds import cut

DRAM_READ = "dram__bytes_read.sum"
DRAM_WRITE = "dram__bytes_write.sum"
_MISSES = "lts__t_sectors_srcunit_tex{}_lookup_miss.sum"
L2_MISSES = _MISSES.format("")
HOST_MISSES = _MISSES.format("_aperture_sysmem")
PEER_MISSES = _MISSES.format("_aperture_peer")
COMPRESSED = "lrc__average_ilc_input_sector_success_rate.pct"
COMPRESSIBLE = "lrc__ilc_input_sectors.sum"

FUSE = Action(name="fuse", instruction="Join neighbours so that no intermediate is written.")
ONE_PASS = Action(name="one_pass", instruction="Read each input once, keep the row on chip.")


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of main memory."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="kernel",
    needs=LEVELS,
    wants=(*CAUSES, *CYCLES),
    classes=("memory", "balanced"),
    group="memory",
    threshold="DRAM >= 60 % of peak and the busiest level (NVIDIA's SpeedOfLight rule)",
)
def dram_bound(evidence: Evidence) -> Diagnosis | None:
    """DRAM is busy for most of the kernel's time."""
    profile = evidence.profile
    share = busy(profile, DRAM)
    if 100 * share < cut("busy") or share < max(busy(profile, L2), busy(profile, L1)):
        return None
    cause = known_cause(profile)
    return Diagnosis(
        bottleneck=f"DRAM at {share:.0%} of peak (cut {cut('busy'):.0f} %)",
        why=f"Main memory is busy with {cause}."
        if cause
        else "The multiprocessors wait for main memory; only fewer bytes make this much faster.",
        gain=0.0 if 100 * share >= cut("near_roof") else 1.0 - share,
        confidence=0.4 if cause else 0.9,
        actions=(
            FUSE,
            ONE_PASS,
            Action(name="vectorize", instruction="Load 16 bytes a thread, aligned."),
        ),
        guard="At 80 % and more only fewer bytes help; other edits are lost work.",
    )


def _moved(evidence: Evidence) -> tuple[float, float]:
    """Bytes that DRAM moved, and how many times the problem's least bytes that is (0: unknown)."""
    moved = reading(evidence.profile, DRAM_READ) + reading(evidence.profile, DRAM_WRITE)
    return moved, ratio(moved, evidence.problem.min_bytes)


@detector(
    level="kernel",
    needs=(DRAM, DRAM_READ, DRAM_WRITE),
    classes=("memory", "balanced", "latency"),
    group="memory",
    threshold="DRAM bytes > 1.5 times the problem's least bytes (own)",
)
def dram_amplification(evidence: Evidence) -> Diagnosis | None:
    """DRAM moves clearly more bytes than inputs and outputs have."""
    moved, factor = _moved(evidence)
    if factor <= (limit := cut("dram_amplification.factor")):
        return None
    return Diagnosis(
        bottleneck=(
            f"DRAM moves {moved / 1e6:.4g} MB, {factor:.1f} times the least "
            f"{evidence.problem.min_bytes / 1e6:.4g} MB (cut {limit:g})"
        ),
        why="The same data is fetched more than once, or intermediates go through memory.",
        gain=busy(evidence.profile, DRAM) * (1 - 1 / factor),
        confidence=0.8,
        actions=(
            FUSE,
            replace(ONE_PASS, instruction="Use an online formula that reads the row once."),
            Action(name="stage_shared", instruction="Keep the row in shared memory for re-use."),
        ),
        guard="Not when the extra bytes are stores that the problem asks for.",
    )


@detector(
    level="kernel",
    needs=(DRAM, DRAM_READ, DRAM_WRITE, L2_HIT),
    classes=("memory",),
    group="memory",
    threshold="L2 hit < 50 %, DRAM >= 60 %, bytes > 1.5 times the least (own)",
)
def l2_thrash(evidence: Evidence) -> Diagnosis | None:
    """Data that is read again has left L2 before, so DRAM serves it twice."""
    profile = evidence.profile
    hit, share = reading(profile, L2_HIT), busy(profile, DRAM)
    _, factor = _moved(evidence)
    if (
        hit >= (limit := cut("l2_thrash.hit"))
        or 100 * share < cut("busy")
        or factor <= cut("dram_amplification.factor")
    ):
        return None
    return Diagnosis(
        bottleneck=f"L2 serves {hit:.0f} % of reads (cut {limit:.0f} %) while DRAM moves "
        f"{factor:.1f} times the least bytes",
        why="Blocks that share data run too far apart in time; L2 cannot hold what lies between.",
        gain=share * (1 - 1 / factor),
        confidence=0.5,
        actions=(
            Action(
                name="swizzle_blocks",
                instruction="Number blocks so that neighbours in time share rows or columns.",
            ),
            Action(name="streaming_stores", instruction="Keep streamed data from evicting reads."),
            Action(name="smaller_working_set", instruction="Tile so that a wave fits into L2."),
        ),
        guard="Not when each byte is used by one block only.",
    )


@detector(
    level="kernel",
    needs=(DRAM, DRAM_READ, DRAM_WRITE),
    classes=("memory",),
    group="memory",
    threshold="DRAM writes > 1.5 times the outputs' bytes (own)",
)
def write_amplification(evidence: Evidence) -> Diagnosis | None:
    """More bytes are written to DRAM than the outputs have."""
    written, output = reading(evidence.profile, DRAM_WRITE), output_bytes(evidence.problem)
    factor = ratio(written, output)
    if factor <= (limit := cut("write_amplification.factor")):
        return None
    moved, _ = _moved(evidence)
    return Diagnosis(
        bottleneck=f"{written / 1e6:.4g} MB written to DRAM for {output / 1e6:.4g} MB of outputs "
        f"({factor:.1f} times, cut {limit:g})",
        why="Outputs are written twice, in part of a sector, or beside temporaries and zero fills.",
        gain=fraction(busy(evidence.profile, DRAM) * ratio(written - output, moved)),
        confidence=0.6,
        actions=(
            Action(name="fuse", instruction="Write each output once; drop temporaries and fills."),
            Action(name="vectorize", instruction="Write whole 32-byte sectors, 16 bytes a thread."),
        ),
        guard="Not when the kernel also updates buffers that are no outputs by design.",
    )


@detector(
    level="kernel",
    needs=(L2_FROM_SM, L2_MISSES, HOST_MISSES, PEER_MISSES),
    wants=(DURATION, *LEVELS, *CYCLES),
    classes=("memory", "latency"),
    group="memory",
    threshold="> 40 % of L2 misses go to host or peer memory (NVIDIA's MemoryApertureUsage rule)",
)
def sysmem_or_peer_traffic(evidence: Evidence) -> Diagnosis | None:
    """The kernel reads or writes memory of the host or of another device."""
    profile = evidence.profile
    host, peer = reading(profile, HOST_MISSES), reading(profile, PEER_MISSES)
    share = fraction(ratio(host + peer, reading(profile, L2_MISSES)))
    moved = (host + peer) * SECTOR_BYTES
    ruled = reading(profile, L2_FROM_SM) > cut("sysmem_or_peer_traffic.l2")
    # A slow link keeps L2 idle, so a kernel in which no level is busy is suspect as well.
    if (
        share <= (limit := cut("sysmem_or_peer_traffic.share"))
        or moved < cut("sysmem_or_peer_traffic.bytes")
        or not (ruled or 100 * busiest(profile) < cut("busy"))
    ):
        return None
    rate = ratio(moved, reading(profile, DURATION) * 1e-9)
    faster = fraction(ratio(rate, evidence.machine.bandwidth_bytes_per_s))
    return Diagnosis(
        bottleneck=f"{share:.0%} of L2's misses ({moved / 1e6:.3g} MB) go to "
        f"{'host' if host >= peer else 'peer'} memory (cut {limit:.0%})",
        why="PCIe and NVLink carry a small part of what the device's own memory does.",
        gain=share * (1.0 - faster),
        confidence=0.9 if ruled else 0.6,
        actions=(
            Action(name="copy_to_device", instruction="Copy or prefetch to the device first."),
            Action(name="no_managed_memory", instruction="No zero-copy or managed memory here."),
        ),
        guard="Not when each byte is read once and the copy would cost as much.",
    )


@detector(
    level="kernel",
    needs=(COMPRESSED, COMPRESSIBLE, DRAM),
    classes=("memory",),
    group="memory",
    threshold="< 20 % of compressible sectors compress (NVIDIA's MemoryL2Compression rule)",
)
def l2_compression(evidence: Evidence) -> Diagnosis | None:
    """Compressible memory is in use, but few of its sectors compress."""
    profile = evidence.profile
    success, tried = reading(profile, COMPRESSED), reading(profile, COMPRESSIBLE)
    # Without compressible memory the unit counts its inputs too, and none of them succeeds.
    if tried <= 0 or not 0 < success < (limit := cut("l2_compression.success")):
        return None
    return Diagnosis(
        bottleneck=f"{success:.1f} % of {tried:.3g} sectors compress (cut {limit:.0f} %)",
        why="Sectors that do not compress pay for the attempt and save no bandwidth.",
        gain=0.1 * busy(profile, DRAM) * (1.0 - success / 100),
        confidence=0.3,
        actions=(
            Action(name="plain_memory", instruction="Allocate it without compression."),
            Action(name="compressible_writes", instruction="Write zeros or equal values in runs."),
        ),
        guard="Compression also saves L2 capacity, which this does not see.",
    )
