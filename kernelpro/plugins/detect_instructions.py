"""Detectors, instruction level: what the hot loop's machine code, or a warp's accesses, show."""

from collections.abc import Callable

from kernelpro import Action, Detector, Diagnosis, Evidence, hookimpl
from kernelpro.profiling.loops import DIVIDE_CYCLES

ASM = "cpu.asm."
SCALAR = 0.5  # own: fewer than half of the floating-point instructions work on vectors
CHAIN = 1.5  # own: the carried chain takes half again as long as the loop's other work
DIVIDING = 0.25  # own: a quarter of the loop
FULL_WIDTH = 32  # bytes: AVX2; compilers prefer it on AVX-512 machines too
NARROW = 0.75  # GPUscout's idea, own cut: three quarters of accesses are 4 B a lane or less
THROTTLED = 0.3  # NVIDIA's CPIStall rule
LOCAL = 0.1  # GPUscout's formula, own cut: a tenth of L2's sectors

WIDTHS = tuple(f"smsp__sass_inst_executed_op_memory_{bits}b.sum" for bits in (8, 16, 32, 64, 128))
LG_THROTTLE = "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
LOCAL_LOADS = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"
LOCAL_STORES = "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"
L2_SECTORS = "lts__t_sectors.sum"


@hookimpl
def detectors() -> list[Detector]:
    """Give the instruction-level detectors of both targets."""
    return [
        _static(scalar_loop, ("vector_share", "calls"), "< 50 % vector instructions (own)"),
        _static(
            narrow_vectors,
            ("vector_bytes", "vector_share"),
            "vectors narrower than the processor's, 32 B at most (own)",
            "cpu.vector_bytes",
        ),
        _static(calls_in_loop, ("calls", "elements"), "any scalar call in the hot loop (exact)"),
        _static(
            serial_chain,
            ("chain", "chain_cycles", "throughput_cycles", "accumulators"),
            "carried chain > 1.5 times the loop's throughput in the cost model (own)",
        ),
        _static(spills, ("spills", "instructions"), "any spill in the hot loop (exact)"),
        _static(gathers, ("gathers", "loads"), "any element-wise access in a vector loop (exact)"),
        _static(
            divisions,
            ("divisions", "throughput_cycles", "elements"),
            "divisions or square roots for > 25 % of the loop in the cost model (own)",
        ),
        Detector(
            name="narrow_accesses",
            level="instruction",
            needs=(*WIDTHS, LG_THROTTLE, LATENCY),
            diagnose=narrow_accesses,
            targets=("cuda",),
            classes=("memory", "latency"),
            threshold="> 75 % of accesses of 4 B a lane or less (own), queue stall > 30 % (NVIDIA)",
        ),
        Detector(
            name="local_memory",
            level="instruction",
            needs=(LOCAL_LOADS, LOCAL_STORES, L2_SECTORS),
            diagnose=local_memory,
            targets=("cuda",),
            threshold="local memory > 10 % of L2 sectors (GPUscout's formula, own cut)",
        ),
    ]


def _static(
    diagnose: Callable[[Evidence], Diagnosis | None],
    names: tuple[str, ...],
    threshold: str,
    *others: str,
) -> Detector:
    return Detector(
        name=diagnose.__name__,
        level="instruction",
        needs=(*(ASM + name for name in names), *others),
        diagnose=diagnose,
        targets=("cpu",),
        threshold=threshold,
    )


def _where(evidence: Evidence, name: str) -> str:
    return evidence.profile.metrics[ASM + name].note


def _room(evidence: Evidence) -> float:
    """Share of the time, 0..1, that streaming the least bytes from main memory leaves free."""
    if evidence.problem.min_bytes <= evidence.machine.cache_bytes:
        return 1.0
    return 1.0 - min(evidence.profile.get("cpu.bandwidth_share", 0.0), 1.0)


def scalar_loop(evidence: Evidence) -> Diagnosis | None:
    """The hot loop works on one element at a time."""
    share = evidence.profile["cpu.asm.vector_share"]
    if share >= SCALAR:
        return None
    return Diagnosis(
        detector="scalar_loop",
        level="instruction",
        bottleneck=f"{share:.0%} of the hot loop's instructions work on vectors (cut {SCALAR:.0%})",
        where=_where(evidence, "vector_share"),
        why="Not vectorised: a call, a strict order of summation or aliasing stops the compiler.",
        gain=0.6 * (1.0 - share) * _room(evidence),
        confidence=0.6,
        actions=(
            Action(
                name="vectorize",
                instruction="Use vector types or intrinsics, or `#pragma omp simd` with a "
                "reduction clause; mark pointers __restrict__.",
            ),
            Action(name="accumulators", instruction="Reduce into one accumulator per lane."),
        ),
        guard="Little to gain where main memory is already the limit.",
    )


def narrow_vectors(evidence: Evidence) -> Diagnosis | None:
    """The hot loop's vectors are narrower than the processor's."""
    profile = evidence.profile
    width = profile["cpu.asm.vector_bytes"]
    full = min(profile["cpu.vector_bytes"], FULL_WIDTH)
    if profile["cpu.asm.vector_share"] < SCALAR or width >= full:
        return None
    return Diagnosis(
        detector="narrow_vectors",
        level="instruction",
        bottleneck=f"vectors of {width:.0f} B in the hot loop; the processor has {full:.0f} B",
        where=_where(evidence, "vector_bytes"),
        why="Part of each arithmetic unit is unused: generic build, or short loops.",
        gain=0.5 * (1.0 - width / full) * _room(evidence),
        confidence=0.6,
        actions=(
            Action(
                name="vectorize",
                instruction=f"Build with -march=native and use vectors of {full:.0f} B.",
            ),
        ),
        guard="Little to gain where main memory is already the limit.",
    )


def calls_in_loop(evidence: Evidence) -> Diagnosis | None:
    """The hot loop calls a scalar function for each element."""
    calls = evidence.profile["cpu.asm.calls"]
    if calls <= 0:
        return None
    return Diagnosis(
        detector="calls_in_loop",
        level="instruction",
        bottleneck=f"{calls:.0f} scalar function calls in each iteration of the hot loop",
        where=_where(evidence, "calls"),
        why="A call saves registers, works on one element and keeps the loop from vectorising.",
        gain=0.7 * _room(evidence),
        confidence=0.8,
        actions=(
            Action(
                name="vectorize",
                instruction="Write the function as an inline polynomial on vectors, or let the "
                "compiler use its vector math library (-ffast-math, libmvec).",
            ),
            Action(name="one_pass", instruction="Evaluate it once per element, not in each pass."),
        ),
        guard="Check the approximation's error against the problem's tolerance.",
    )


def serial_chain(evidence: Evidence) -> Diagnosis | None:
    """Each iteration waits for the last one's result."""
    profile = evidence.profile
    chain, busy = profile["cpu.asm.chain_cycles"], profile["cpu.asm.throughput_cycles"]
    if chain <= 0 or chain <= CHAIN * busy:
        return None
    return Diagnosis(
        detector="serial_chain",
        level="instruction",
        bottleneck=(
            f"{profile['cpu.asm.chain']:.0f} dependent operations carried over each iteration, "
            f"about {chain:.0f} cycles of waiting against {busy:.1f} of work (cut {CHAIN} times) "
            f"with {profile['cpu.asm.accumulators']:.0f} accumulators"
        ),
        where=_where(evidence, "chain_cycles"),
        why="An addition takes about 4 cycles to be ready, and the next one needs its result.",
        gain=(1.0 - busy / chain) * _room(evidence),
        confidence=0.7,
        actions=(
            Action(name="accumulators", instruction="Use 4 or more independent accumulators."),
            Action(name="unroll", instruction="Unroll so that independent work fills the wait."),
            Action(name="vectorize", instruction="Reduce lane-wise, join lanes at the end."),
        ),
        guard="Changes the order of summation; float32 sums stay within tolerance, often better.",
    )


def spills(evidence: Evidence) -> Diagnosis | None:
    """The hot loop keeps vectors in the stack frame."""
    count, total = evidence.profile["cpu.asm.spills"], evidence.profile["cpu.asm.instructions"]
    if count <= 0:
        return None
    return Diagnosis(
        detector="spills",
        level="instruction",
        bottleneck=f"{count:.0f} of {total:.0f} instructions of the hot loop load or store spills",
        where=_where(evidence, "spills"),
        why="More values are live than there are vector registers, or a call forces them out.",
        gain=min(count / total, 0.5) * _room(evidence),
        confidence=0.5,
        actions=(
            Action(name="fewer_rows_per_block", instruction="Work on fewer rows at a time."),
            Action(name="stage_none", instruction="Do not hold the row in registers."),
            Action(name="stage_buffer", instruction="Hold it in a small buffer in cache."),
        ),
        guard="One or two spills beside many loads cost nothing.",
    )


def gathers(evidence: Evidence) -> Diagnosis | None:
    """The hot loop fetches or places single elements of vectors."""
    count = evidence.profile["cpu.asm.gathers"]
    if count <= 0:
        return None
    return Diagnosis(
        detector="gathers",
        level="instruction",
        bottleneck=f"{count:.0f} gathers or element inserts in each iteration of the hot loop",
        where=_where(evidence, "gathers"),
        why="Elements that are not contiguous are fetched one by one.",
        gain=0.4 * _room(evidence),
        confidence=0.5,
        actions=(
            Action(name="vectorize", instruction="Let the inner loop run over contiguous memory."),
            Action(name="stage_buffer", instruction="Transpose a tile into a small buffer first."),
        ),
        guard="Not when the indices come from data, as in an embedding.",
    )


def divisions(evidence: Evidence) -> Diagnosis | None:
    """Divisions and square roots take a large part of the hot loop."""
    profile = evidence.profile
    count, total = profile["cpu.asm.divisions"], profile["cpu.asm.throughput_cycles"]
    share = min(count * DIVIDE_CYCLES / total, 1.0) if total > 0 else 0.0
    if share <= DIVIDING:
        return None
    return Diagnosis(
        detector="divisions",
        level="instruction",
        bottleneck=(
            f"{count:.0f} divisions or square roots in each iteration of the hot loop, "
            f"{share:.0%} of it in the cost model (cut {DIVIDING:.0%})"
        ),
        where=_where(evidence, "divisions"),
        why="The divider takes some 5 cycles for each vector and is not pipelined.",
        gain=0.6 * share * _room(evidence),
        confidence=0.5,
        actions=(
            Action(
                name="hoist_reciprocal",
                instruction="Divide once outside of the loop; multiply by the reciprocal inside.",
            ),
        ),
        guard="Little to gain where main memory is already the limit; costs half a unit in the "
        "last place.",
    )


def narrow_accesses(evidence: Evidence) -> Diagnosis | None:
    """Most memory instructions move 4 bytes a lane or less, and their queue is full."""
    profile = evidence.profile
    counts = [profile[name] for name in WIDTHS]
    total, latency = sum(counts), profile[LATENCY]
    narrow = sum(counts[:3]) / total if total else 0.0
    stall = profile[LG_THROTTLE] / latency if latency else 0.0
    if narrow <= NARROW or stall <= THROTTLED:
        return None
    return Diagnosis(
        detector="narrow_accesses",
        level="instruction",
        bottleneck=(
            f"{narrow:.0%} of memory instructions move 4 B a lane or less (cut {NARROW:.0%}); "
            f"{stall:.0%} of latency waits for their queue (cut {THROTTLED:.0%})"
        ),
        why="Each narrow access takes a slot of the load queue that a wide one would fill better.",
        gain=min(0.75 * stall, 1.0),
        confidence=0.6,
        actions=(
            Action(name="vectorize", instruction="Use float4 loads and stores, 16-byte aligned."),
            Action(name="unroll", instruction="Give each thread several elements."),
        ),
        guard="Not for rows whose length is no multiple of the vector.",
    )


def local_memory(evidence: Evidence) -> Diagnosis | None:
    """Registers spill, or arrays are indexed by variables: the traffic goes through L1 and L2."""
    profile = evidence.profile
    local, total = profile[LOCAL_LOADS] + profile[LOCAL_STORES], profile[L2_SECTORS]
    share = local / total if total else 0.0
    if share <= LOCAL:
        return None
    return Diagnosis(
        detector="local_memory",
        level="instruction",
        bottleneck=f"local memory makes {share:.0%} as many sectors as all of L2 (cut {LOCAL:.0%})",
        why="Spilled registers or arrays with variable indices live in memory, not registers.",
        gain=min(0.5 * share, 0.5),
        confidence=0.5,
        actions=(
            Action(name="fewer_rows_per_block", instruction="Hold fewer values per thread."),
            Action(name="fewer_blocks_per_sm", instruction="Relax __launch_bounds__."),
            Action(name="unroll", instruction="Unroll so that every index is a constant."),
        ),
        guard="Some of it is absorbed by L1; compare times before and after.",
    )
