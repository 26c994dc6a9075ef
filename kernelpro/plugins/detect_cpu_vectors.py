"""Detectors of the CPU target, instruction level: how well the hot loop uses vector registers."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.cpu.bounds import room, where
from kernelpro.profiling.readings import fraction, ratio
from kernelpro.profiling.thresholds import cut

FULL_WIDTH = 32  # bytes: AVX2; compilers prefer it on AVX-512 machines too
NO_MEMORY = "Little to gain where main memory is already the limit."


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of vector use on the CPU target."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="instruction",
    needs=("cpu.asm.vector_share",),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="vector",
    threshold="< 50 % vector instructions (own)",
)
def scalar_loop(evidence: Evidence) -> Diagnosis | None:
    """The hot loop works on one element at a time."""
    share, limit = evidence.profile["cpu.asm.vector_share"], cut("scalar_loop.vectors")
    if share >= limit:
        return None
    return Diagnosis(
        bottleneck=f"{share:.0%} of the hot loop's instructions work on vectors (cut {limit:.0%})",
        where=where(evidence),
        why="Not vectorised: a call, a strict order of summation or aliasing stops the compiler.",
        gain=0.6 * (1.0 - share) * room(evidence),
        confidence=0.6,
        actions=(
            Action(
                name="vectorize",
                instruction="Use vector types or intrinsics, or `#pragma omp simd` with a "
                "reduction clause; mark pointers __restrict__.",
            ),
            Action(name="accumulators", instruction="Reduce into one accumulator per lane."),
        ),
        guard=NO_MEMORY,
    )


@detector(
    level="instruction",
    needs=("cpu.asm.vector_bytes", "cpu.asm.vector_share", "cpu.vector_bytes"),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="vector",
    threshold="vectors narrower than the processor's, 32 B at most (exact)",
)
def narrow_vectors(evidence: Evidence) -> Diagnosis | None:
    """The hot loop's vectors are narrower than the processor's."""
    profile = evidence.profile
    width = profile["cpu.asm.vector_bytes"]
    full = min(profile["cpu.vector_bytes"], FULL_WIDTH)
    if profile["cpu.asm.vector_share"] < cut("scalar_loop.vectors") or width >= full:
        return None
    return Diagnosis(
        bottleneck=f"vectors of {width:.0f} B in the hot loop; the processor has {full:.0f} B",
        where=where(evidence),
        why="Part of each arithmetic unit is unused: generic build, or short loops.",
        gain=0.5 * (1.0 - width / full) * room(evidence),
        confidence=0.6,
        actions=(
            Action(
                name="vectorize",
                instruction=f"Build with -march=native and use vectors of {full:.0f} B.",
            ),
        ),
        guard=NO_MEMORY,
    )


@detector(
    level="instruction",
    needs=("cpu.asm.calls",),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="vector",
    threshold="any scalar call in the hot loop (exact)",
)
def calls_in_loop(evidence: Evidence) -> Diagnosis | None:
    """The hot loop calls a scalar function for each element."""
    calls = evidence.profile["cpu.asm.calls"]
    if calls <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{calls:.0f} scalar function calls in each iteration of the hot loop",
        where=where(evidence),
        why="A call saves registers, works on one element and keeps the loop from vectorising.",
        gain=0.7 * room(evidence),
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


@detector(
    level="instruction",
    needs=("cpu.asm.shuffles", "cpu.asm.instructions", "cpu.asm.horizontal"),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="vector",
    threshold="shuffles for > 20 % of the hot loop's instructions (own)",
)
def shuffles(evidence: Evidence) -> Diagnosis | None:
    """Much of the hot loop moves elements between lanes instead of computing."""
    profile = evidence.profile
    count = profile["cpu.asm.shuffles"]
    share, limit = fraction(ratio(count, profile["cpu.asm.instructions"])), cut("shuffles.share")
    if share <= limit or profile["cpu.asm.horizontal"] >= cut("horizontal_reduction.count"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{count:.0f} of {profile['cpu.asm.instructions']:.0f} instructions of the hot loop "
            f"shuffle lanes ({share:.0%}, cut {limit:.0%})"
        ),
        where=where(evidence),
        why="The compiler vectorised across the wrong loop, or data lies interleaved in memory.",
        gain=0.7 * share * room(evidence),
        confidence=0.5,
        actions=(
            Action(
                name="vectorize",
                instruction="Give each lane its own output: vector types along contiguous memory.",
            ),
            Action(name="stage_buffer", instruction="Pack a tile once, outside of the hot loop."),
        ),
        guard="A transpose needs some shuffles: they are its work.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.horizontal", "cpu.asm.instructions"),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="vector",
    threshold=">= 2 instructions in the hot loop that join a vector's lanes (own)",
)
def horizontal_reduction(evidence: Evidence) -> Diagnosis | None:
    """The hot loop joins the lanes of a vector in each iteration."""
    count = evidence.profile["cpu.asm.horizontal"]
    total, limit = evidence.profile["cpu.asm.instructions"], cut("horizontal_reduction.count")
    if count < limit:
        return None
    return Diagnosis(
        bottleneck=(
            f"{count:.0f} of {total:.0f} instructions of the hot loop join lanes (cut {limit:.0f})"
        ),
        where=where(evidence),
        why="Joining 8 lanes takes three dependent steps; once after the loop is enough.",
        gain=0.5 * room(evidence),
        confidence=0.5,
        actions=(
            Action(
                name="accumulators",
                instruction="Keep one accumulator vector per sum; join its lanes after the loop.",
            ),
        ),
        guard="Not where each iteration's sum is an output of its own.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.scalar_remainder", "cpu.asm.elements"),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="vector",
    threshold="left-over elements of a row for > 10 % of its iterations (own)",
)
def scalar_remainder(evidence: Evidence) -> Diagnosis | None:
    """Rows are short or odd, and their last elements are done one by one."""
    elements = int(evidence.profile["cpu.asm.elements"])
    if evidence.profile["cpu.asm.scalar_remainder"] <= 0 or elements < 2:
        return None
    row = _row(evidence)
    rest = row % elements
    share = rest / (row // elements + rest) if rest else 0.0
    limit = cut("scalar_remainder.share")
    if share <= limit:
        return None
    return Diagnosis(
        bottleneck=(
            f"rows of {row} elements leave {rest} for a loop that does them one by one, beside "
            f"{row // elements} iterations of {elements} (cut {limit:.0%} of iterations)"
        ),
        where=where(evidence),
        why="Each left-over element costs about as much as a whole vector.",
        gain=0.8 * share * room(evidence),
        confidence=0.3,
        actions=(
            Action(
                name="masked_tail",
                instruction="Do the last elements with one masked vector, or overlap the last "
                "vector with the one before.",
            ),
            Action(name="flatten_rows", instruction="Run one loop over all rows where rows join."),
        ),
        guard="Not when the loop already runs over all rows at once.",
    )


def _row(evidence: Evidence) -> int:
    """Elements of the innermost dimension of the first input, or output, that has one."""
    for spec in (*evidence.problem.inputs, *evidence.problem.outputs):
        if spec.shape:
            return spec.shape[-1]
    return 0
