"""Detectors of the CPU target, instruction level: how the hot loop reads and writes memory."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.cpu.bounds import room, where
from kernelpro.profiling.readings import ratio


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of memory accesses on the CPU target."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="instruction",
    needs=("cpu.asm.spills", "cpu.asm.instructions"),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="registers",
    threshold="any spill in the hot loop (exact)",
)
def spills(evidence: Evidence) -> Diagnosis | None:
    """The hot loop keeps vectors in the stack frame."""
    count, total = evidence.profile["cpu.asm.spills"], evidence.profile["cpu.asm.instructions"]
    if count <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{count:.0f} of {total:.0f} instructions of the hot loop load or store spills",
        where=where(evidence),
        why="More values are live than there are vector registers, or a call forces them out.",
        gain=min(ratio(count, total), 0.5) * room(evidence),
        confidence=0.5,
        actions=(
            Action(name="fewer_rows_per_block", instruction="Work on fewer rows at a time."),
            Action(name="stage_none", instruction="Do not hold the row in registers."),
            Action(name="stage_buffer", instruction="Hold it in a small buffer in cache."),
        ),
        guard="One or two spills beside many loads cost nothing.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.gathers",),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="access",
    threshold="any element-wise access in a vector loop (exact)",
)
def gathers(evidence: Evidence) -> Diagnosis | None:
    """The hot loop fetches or places single elements of vectors."""
    count = evidence.profile["cpu.asm.gathers"]
    if count <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{count:.0f} gathers or element inserts in each iteration of the hot loop",
        where=where(evidence),
        why="Elements that are not contiguous are fetched one by one.",
        gain=0.4 * room(evidence),
        confidence=0.5,
        actions=(
            Action(name="vectorize", instruction="Let the inner loop run over contiguous memory."),
            Action(name="stage_buffer", instruction="Transpose a tile into a small buffer first."),
        ),
        guard="Not when the indices come from data, as in an embedding.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.strided_loads", "cpu.asm.loads"),
    targets=("cpu",),
    group="access",
    threshold="any load of one element whose address moves by a cache line or more (exact)",
)
def strided_access(evidence: Evidence) -> Diagnosis | None:
    """The inner loop walks across memory's order and uses one element of each cache line."""
    count, loads = evidence.profile["cpu.asm.strided_loads"], evidence.profile["cpu.asm.loads"]
    if count <= 0:
        return None
    return Diagnosis(
        bottleneck=(
            f"{count:.0f} of {loads:.0f} loads of the hot loop jump by a cache line or more each "
            "iteration"
        ),
        where=where(evidence),
        why="A line of 64 B is fetched for one element, and no vector can be loaded.",
        # Streaming the least bytes says nothing here: most of what is fetched is not used.
        gain=0.6,
        confidence=0.6,
        actions=(
            Action(
                name="interchange",
                instruction="Exchange the loops so that the inner one runs along contiguous "
                "memory; keep a row of accumulators.",
            ),
            Action(name="stage_buffer", instruction="Work on tiles that stay in the first cache."),
        ),
        guard="Not when the whole walk fits the first cache and is repeated.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.fixed_stores",),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="chain",
    threshold="any store to one address in each iteration of the hot loop (exact)",
)
def memory_accumulator(evidence: Evidence) -> Diagnosis | None:
    """The hot loop adds to one place in memory instead of a register."""
    count = evidence.profile["cpu.asm.fixed_stores"]
    if count <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{count:.0f} stores of the hot loop write the same address in each iteration",
        where=where(evidence),
        why="The sum lives in memory, as it must where pointers may alias: one element at a time, "
        "each waiting for the last.",
        gain=0.6 * room(evidence),
        confidence=0.7,
        actions=(
            Action(
                name="accumulators",
                instruction="Sum into a local variable, several for a long sum; store it once.",
            ),
            Action(name="vectorize", instruction="Mark the pointers __restrict__."),
        ),
        guard="Not where another thread must see every value.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.atomics",),
    targets=("cpu",),
    group="chain",
    threshold="any atomic instruction in the hot loop (exact)",
)
def atomics_in_loop(evidence: Evidence) -> Diagnosis | None:
    """The hot loop updates memory atomically in each iteration."""
    count = evidence.profile["cpu.asm.atomics"]
    if count <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{count:.0f} atomic instructions in each iteration of the hot loop",
        where=where(evidence),
        why="An atomic takes some 20 cycles alone, hundreds when threads pass the line around.",
        gain=0.7,
        confidence=0.8,
        actions=(
            Action(
                name="private_sums",
                instruction="Sum per thread (`reduction` clause or a local), join once at the end.",
            ),
        ),
        guard="Not for updates whose place depends on the data, unless a private copy fits cache.",
    )
