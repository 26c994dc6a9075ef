"""Whether a kernel can run with a schedule: a small model of the machine's resources.

It knows no operator, only what `Work` says of a region. `adapted` and `repaired` make a schedule
legal that one changed knob, or another region, has made illegal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelpro.language.cutlass_tiles import collected, legal_cutlass
from kernelpro.language.limits import UNKNOWN, Limits
from kernelpro.language.ring import Ring, part_of, ring
from kernelpro.language.schedule import KNOBS, CpuSchedule, CudaSchedule, Schedule
from kernelpro.language.tiles import (
    PARTIAL_BYTES,
    CudaGemm,
    Tiled,
    grouped,
    legal_tiles,
    plain_knobs,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the resource model must know of one region.

    Attributes:
        rows: number of rows.
        columns: elements per row.
        inner: elements from one of these to the next.
        flat: whether rows may be cut anywhere.
        mapped: no reduction: every element is on its own.
        online: whether a sum of exponentials can be found together with the largest element.
        slots: rows of values kept between passes, by `passes` value.
        reductions: results that are accumulated at the same time, at most.
        tensors: tensors read and written.
        item_bytes: bytes per element of the widest and of the narrowest tensor.
        output_bytes: bytes written.
        operators: how many it replaces.
        tiled: of a `gemm` or `transpose`: its matrices.
        copied: values of `passes` with which rows of float32 are kept as they are read.
    """

    rows: int
    columns: int
    flat: bool
    mapped: bool
    online: bool
    slots: dict[str, int]
    reductions: int
    tensors: int
    item_bytes: tuple[int, int]
    output_bytes: int
    operators: int = 1
    inner: int = 1
    tiled: Tiled | None = None
    copied: tuple[str, ...] = ()

    @property
    def lanes(self) -> int:
        """Elements that lie side by side: of a row, or of as many rows where these are strided."""
        return self.columns if self.inner == 1 else self.inner


STACK_BYTES = 512 << 10
"""A thread's rows between passes must fit beside everything else into a typical 1 MiB L2 cache."""

MOST_SHARED_BYTES = 227 << 10
"""Shared memory that a block of any card may ask for (CUDA C++ guide, capability 9.0)."""

OWN_SHARED_BYTES = 1024  # own: what joining results takes, and what the driver keeps of a block's

BULK_ELEMENTS = 4  # float32, which are 16 bytes: sizes of bulk copies, PTX ISA 8.0
BULK_CAPABILITY = 9.0

LEAST_ACROSS = 8  # own: threads side by side, so that they read whole sectors of 32 bytes
LEAST_THREADS = 128  # own: of a block that is made smaller, so that four warps hide latency
MOST_THREADS = 2048  # of a multiprocessor; CUDA C++ guide, compute capability 7.0, 8.0 and 9.0
REGISTERS_PER_BLOCKS = 65536
REGISTERS_PER_THREAD = 255  # CUDA C++ guide, table of compute capabilities 7.0 to 10.0
OWN_REGISTERS = 32  # own: addresses, counters and temporaries of these kernels, as ptxas reports


def legal(schedule: Schedule, works: Sequence[Work], limits: Limits = UNKNOWN) -> str:
    """Say why kernels for these regions cannot run with a schedule, or return an empty text.

    Args:
        schedule: the choices.
        works: the regions that share it.
        limits: of the machine.
    """
    if not isinstance(schedule, CpuSchedule | CudaSchedule):
        for work in works:
            if work.tiled is None:
                return f"knobs of a {schedule.family} do not fit this kernel"
            if isinstance(schedule, CudaGemm) and schedule.instruction == "cutlass":
                why = legal_cutlass(
                    schedule,
                    work.tiled,
                    limits.shared_bytes,
                    tf32=limits.tf32,
                    capability=limits.capability,
                    present=limits.cutlass,
                )
                if why:
                    return why
                continue
            why = legal_tiles(
                schedule,
                work.tiled,
                limits.threads,
                limits.lanes,
                limits.shared_bytes,
                tf32=limits.tf32,
                capability=limits.capability,
            )
            if why:
                return why
        return ""
    if any(work.tiled is not None for work in works):
        return f"a {works[0].tiled.kind if works[0].tiled else 'tiled kernel'} has its own knobs"
    if schedule.passes == "one" and not any(work.online for work in works):
        return "one pass needs a sum of exponentials of the elements less their largest"
    if schedule.staging != "none" and not any(work.slots[schedule.passes] for work in works):
        return "no value is needed again in a later pass, so nothing can be staged"
    if schedule.accumulators > 1 and not any(work.reductions for work in works):
        return "several accumulators need a reduction"
    if isinstance(schedule, CpuSchedule):
        return _legal_cpu(schedule, works, limits)
    return _legal_cuda(schedule, works, limits)


def adapted(schedule: Schedule, work: Work) -> Schedule:
    """Return the schedule without the choices that mean nothing for a region.

    One schedule for several regions becomes one for each: a region without a reduction has no
    accumulators, a short row no long iteration.
    """
    if not isinstance(schedule, CpuSchedule | CudaSchedule):
        return schedule
    if not work.online:
        schedule = replace(schedule, passes="multi")
    if not work.slots[schedule.passes]:
        schedule = replace(schedule, staging="none")
    if not work.reductions or work.inner > 1:
        schedule = replace(schedule, accumulators=1)
    if isinstance(schedule, CudaSchedule):
        if schedule.loads == "bulk" and _no_bulk(schedule, work):
            schedule = replace(schedule, loads="cached")
        if work.mapped or work.inner == 1:
            schedule = replace(schedule, share=1)
        if work.mapped:
            return replace(schedule, rows=1, cluster=1, split=1)
        if work.inner > 1:
            while schedule.share > min(work.columns, schedule.threads // LEAST_ACROSS):
                schedule = replace(schedule, share=schedule.share // 2)
            while schedule.split > 1 and work.columns < schedule.split * schedule.share:
                schedule = replace(schedule, split=schedule.split // 2)
            return replace(schedule, rows=1, cluster=1)
        if work.columns < schedule.cluster * schedule.threads * schedule.vec:
            schedule = replace(schedule, cluster=1)
        while schedule.split > 1 and (
            not work.reductions or work.columns < _split_span(schedule, work)
        ):
            schedule = replace(schedule, split=schedule.split // 2)
        return schedule
    while schedule.unroll > 1 and schedule.vec * schedule.unroll > max(work.lanes, 8):
        unroll = schedule.unroll // 2
        accumulators = min(schedule.accumulators, unroll)
        schedule = replace(schedule, unroll=unroll, accumulators=accumulators)
    return schedule


def repaired(schedule: Schedule, work: Work, knob: str = "") -> Schedule:
    """Return the schedule with other knobs following the one that was changed, where they must.

    A single changed knob is often illegal beside the others: sums found in one pass leave nothing
    to stage, fewer elements in flight feed fewer accumulators, more blocks at a time have fewer
    threads each.

    Args:
        schedule: with the changed knob.
        work: the region.
        knob: which one was changed; empty: not known.
    """
    schedule = adapted(schedule, work)
    if isinstance(schedule, CudaSchedule) and knob == "min_blocks":
        schedule = _beside_each_other(schedule, work)
    if isinstance(schedule, CpuSchedule):
        return replace(schedule, accumulators=min(schedule.accumulators, schedule.unroll))
    if isinstance(schedule, CudaSchedule):
        flying = schedule.vec * schedule.unroll
        blocks = [n for n in KNOBS["cuda"]["min_blocks"] if n * schedule.threads <= MOST_THREADS]
        return replace(
            schedule,
            accumulators=min(schedule.accumulators, flying),
            min_blocks=min(schedule.min_blocks, max(blocks)),
            rows=1 if schedule.cluster > 1 else schedule.rows,
        )
    if isinstance(schedule, CudaGemm):
        assert work.tiled is not None
        if schedule.instruction == "wgmma":
            return grouped(schedule, work.tiled)
        if schedule.instruction == "cutlass":
            return collected(schedule, work.tiled)
        return replace(schedule, **plain_knobs())
    return schedule


def _beside_each_other(schedule: CudaSchedule, work: Work) -> CudaSchedule:
    """Make blocks smaller until as many as wanted fit on a multiprocessor.

    Fewer threads leave registers; a larger cluster keeps less of a row in each block.
    """
    while schedule.threads > LEAST_THREADS and _registers(schedule, work) > _register_limit(
        schedule
    ):
        schedule = replace(schedule, threads=schedule.threads // 2)
    room = MOST_SHARED_BYTES - OWN_SHARED_BYTES
    while (
        1 < schedule.cluster < KNOBS["cuda"]["cluster"][-1]
        and schedule.min_blocks * staged_bytes(schedule, work) > room
    ):
        schedule = replace(schedule, cluster=2 * schedule.cluster)
    return schedule


def _register_limit(schedule: CudaSchedule) -> int:
    return min(
        REGISTERS_PER_THREAD, REGISTERS_PER_BLOCKS // (schedule.threads * schedule.min_blocks)
    )


def _registers(schedule: CudaSchedule, work: Work) -> int:
    """About how many registers a thread needs: elements in flight, and those of a row it keeps."""
    count = OWN_REGISTERS + work.tensors * schedule.vec * schedule.unroll
    if schedule.staging == "registers":
        count += work.slots[schedule.passes] * _elements_per_thread(schedule, work)
    return count


def _legal_cpu(schedule: CpuSchedule, works: Sequence[Work], limits: Limits) -> str:
    if limits.threads and schedule.threads > limits.threads:
        return f"the machine has {limits.threads} threads, not {schedule.threads}"
    if limits.lanes and schedule.vec > limits.lanes:
        return f"the processor's vectors have {limits.lanes} elements, not {schedule.vec}"
    if schedule.accumulators > schedule.unroll:
        return f"{schedule.accumulators} accumulators need as many unrolled vectors"
    for work in works:
        slots = work.slots[schedule.passes] if schedule.staging == "buffer" else 0
        width = schedule.vec * schedule.unroll if work.inner > 1 else 1
        if (held := slots * work.columns * width * 4) > STACK_BYTES:
            return f"a buffer of {held} bytes exceeds {STACK_BYTES}"
        if schedule.accumulators > 1 and work.inner > 1:
            return "neighbouring rows are reduced side by side; unroll instead of accumulators"
        if schedule.stores == "streaming" and not work.flat and work.lanes % schedule.vec:
            return f"streaming stores need rows in whole vectors of {schedule.vec}"
    if all(schedule.vec * schedule.unroll > max(work.lanes, 8) for work in works):
        return f"an iteration of {schedule.vec * schedule.unroll} elements exceeds every row"
    return ""


def staged_bytes(schedule: CudaSchedule, work: Work) -> int:
    """Shared memory in which a block keeps its part of its rows, or joins strided ones."""
    if schedule.split > 1 and schedule.staging == "shared":
        return ring_of(schedule, work.columns, work.slots[schedule.passes]).bytes
    each = schedule.vec if schedule.share > 1 else 0
    if schedule.staging == "shared":
        each += work.slots[schedule.passes] * _elements_per_thread(schedule, work)
    return each * schedule.threads * 4


def ring_of(schedule: CudaSchedule, columns: int, kept: int) -> Ring:
    """Return the places in which a block keeps its part of long rows.

    Args:
        schedule: how the kernel runs.
        columns: elements of a row.
        kept: float32 values that are kept of each element.
    """
    return ring(
        part=part_of(columns, schedule.split, schedule.vec),
        piece=schedule.threads * schedule.vec * schedule.unroll,
        kept=kept,
        min_blocks=schedule.min_blocks,
    )


def _elements_per_thread(schedule: CudaSchedule, work: Work) -> int:
    if work.inner > 1:
        return -(-work.columns // schedule.share) * schedule.vec
    span = schedule.threads // schedule.rows * schedule.cluster * schedule.vec
    return -(-work.columns // span) * schedule.vec


def _legal_cluster(schedule: CudaSchedule, works: Sequence[Work], limits: Limits) -> str:
    size = schedule.cluster
    if size == 1:
        return ""
    if limits.cluster == 1:
        return "clusters need compute capability 9.0 or above, which this card is not known to have"
    if limits.cluster and size > limits.cluster:
        return f"the card's largest cluster has {limits.cluster} blocks, not {size}"
    if schedule.rows > 1:
        return f"a cluster's blocks share one row, so {schedule.rows} rows per block cannot be"
    if all(work.mapped for work in works):
        return "a cluster of blocks needs a reduction"
    span = size * schedule.threads * schedule.vec
    if all(work.columns < span for work in works):
        return f"{size} blocks that read {span} elements at a time exceed every row"
    return ""


def _legal_share(schedule: CudaSchedule, works: Sequence[Work]) -> str:
    if schedule.share == 1:
        return ""
    if all(work.inner == 1 or work.mapped for work in works):
        return "threads share strided rows, whose elements are reduced"
    if schedule.threads // schedule.share < LEAST_ACROSS:
        return (
            f"{schedule.share} threads to a row leave {schedule.threads // schedule.share} of "
            f"{schedule.threads} side by side; {LEAST_ACROSS} at least"
        )
    if all(work.columns < schedule.share for work in works):
        return f"{schedule.share} threads exceed the columns of every row"
    return ""


def _split_span(schedule: CudaSchedule, work: Work) -> int:
    """Elements of a row that the blocks that share it read at a time."""
    if work.inner > 1:
        return schedule.split * schedule.share
    return schedule.split * schedule.threads * schedule.vec


def _legal_split(schedule: CudaSchedule, works: Sequence[Work], limits: Limits) -> str:
    parts = schedule.split
    if parts == 1:
        return ""
    if schedule.staging != "none" and schedule.loads != "bulk":
        return (
            f"{parts} parts of a row are read anew by each launch, so nothing can be staged; "
            "loads 'bulk' would let blocks that run together keep them"
        )
    if schedule.cluster > 1:
        return f"a row is shared either in {parts} parts or by a cluster, not by both"
    if schedule.rows > 1:
        return f"a block takes a part of one row, so {schedule.rows} rows per block cannot be"
    if not any(work.reductions for work in works):
        return "a row in parts needs a reduction"
    if all(work.columns < _split_span(schedule, work) for work in works):
        span = _split_span(schedule, works[0])
        return f"{parts} parts that read {span} elements at a time exceed every row"
    for work in works:
        if work.inner > 1 and (size := 4 * parts * work.rows * work.reductions) > PARTIAL_BYTES:
            return f"{parts} parts take {size} bytes, more than {PARTIAL_BYTES}"
    return _legal_together(schedule, works, limits) if schedule.staging == "shared" else ""


def _legal_together(schedule: CudaSchedule, works: Sequence[Work], limits: Limits) -> str:
    """Say why blocks cannot keep their parts of rows, all running at the same time."""
    parts = schedule.split
    if schedule.blocks:
        return f"blocks that run together are as many as fit, not {schedule.blocks}"
    there = limits.multiprocessors * schedule.min_blocks
    if limits.multiprocessors and parts > there:
        return (
            f"{parts} blocks that share a row run together, but {limits.multiprocessors} "
            f"multiprocessors have {there}"
        )
    for work in works:
        places = ring_of(schedule, work.columns, work.slots[schedule.passes])
        if places.pieces > places.places:
            return (
                f"a part has {places.pieces} pieces of {places.piece} elements, but a block has "
                f"room for {places.places}"
            )
    return ""


def _no_bulk(schedule: CudaSchedule, work: Work) -> str:
    """Say why rows of a region cannot be brought by the copy engine, or return an empty text."""
    if schedule.staging != "shared" or work.inner > 1:
        return "loads 'bulk' brings rows to shared memory; it needs staging='shared' of a rowwise"
    if schedule.passes not in work.copied:
        return (
            "loads 'bulk' brings rows of float32 that are kept as they are read, of which is none"
        )
    if schedule.rows > 1:
        return f"loads 'bulk' brings one row to a block, not {schedule.rows}"
    if work.columns % BULK_ELEMENTS:
        return f"rows of {work.columns} elements are no multiple of the 16 bytes of loads 'bulk'"
    return ""


def _legal_bulk(schedule: CudaSchedule, works: Sequence[Work], limits: Limits) -> str:
    if schedule.loads != "bulk":
        return ""
    if limits.capability and float(limits.capability) < BULK_CAPABILITY:
        return (
            f"loads 'bulk' asks the copy engine of compute capability {BULK_CAPABILITY}, but the "
            f"GPU has {limits.capability}"
        )
    return next((why for work in works if (why := _no_bulk(schedule, work))), "")


def _legal_cuda(schedule: CudaSchedule, works: Sequence[Work], limits: Limits) -> str:
    lanes = schedule.threads // schedule.rows
    if lanes < 32:
        return f"{schedule.rows} rows leave {lanes} of {schedule.threads} threads each; 32 at least"
    if schedule.threads * schedule.min_blocks > MOST_THREADS:
        return f"{schedule.min_blocks} blocks of {schedule.threads} threads exceed {MOST_THREADS}"
    if schedule.accumulators > schedule.vec * schedule.unroll:
        return f"{schedule.accumulators} accumulators need as many elements in flight"
    if schedule.rows > 1 and all(work.mapped for work in works):
        return "several rows per block need a reduction"
    if reason := _legal_share(schedule, works):
        return reason
    if any(work.inner > 1 for work in works):
        if schedule.rows > 1 or schedule.cluster > 1:
            return "strided rows are shared by `share` threads and `split` blocks, not otherwise"
        if schedule.accumulators > 1:
            return "neighbouring rows are reduced side by side; unroll instead of accumulators"
    if reason := (
        _legal_split(schedule, works, limits)
        or _legal_cluster(schedule, works, limits)
        or _legal_bulk(schedule, works, limits)
    ):
        return reason
    most_shared = (limits.shared_bytes or MOST_SHARED_BYTES) - OWN_SHARED_BYTES
    limit = _register_limit(schedule)
    for work in works:
        if schedule.vec * work.item_bytes[0] > 16:
            return f"{schedule.vec} elements of {work.item_bytes[0]} bytes exceed a 16-byte access"
        if work.inner > 1 and work.inner % schedule.vec:
            return f"{work.inner} rows side by side do not divide by {schedule.vec}"
        if work.inner == 1 and not work.flat and work.columns % schedule.vec:
            return f"rows of {work.columns} elements do not divide by {schedule.vec}"
        if (registers := _registers(schedule, work)) > limit:
            return f"about {registers} registers per thread exceed {limit}"
        if (shared := staged_bytes(schedule, work)) > most_shared:
            return f"{shared} bytes of shared memory exceed {most_shared}"
    return ""
