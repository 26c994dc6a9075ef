"""Detectors of the CPU target, instruction level: what the hot loop's arithmetic waits for."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.cpu.bounds import room, where
from kernelpro.profiling.cpu.loops import DIVIDE_CYCLES
from kernelpro.profiling.readings import fraction, ratio
from kernelpro.profiling.thresholds import cut

INTEGER_DIVIDE_CYCLES = 18.0  # own: 64-bit division, 10 to 40 cycles on current cores
NO_MEMORY = "Little to gain where main memory is already the limit."


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of arithmetic on the CPU target."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="instruction",
    needs=(
        "cpu.asm.chain",
        "cpu.asm.chain_cycles",
        "cpu.asm.throughput_cycles",
        "cpu.asm.accumulators",
    ),
    wants=("cpu.rate.cycles", "cpu.rate.throughput_cycles", "cpu.bandwidth_share"),
    targets=("cpu",),
    group="chain",
    threshold="carried chain > 1.5 times the loop's throughput in the cost model (own)",
)
def serial_chain(evidence: Evidence) -> Diagnosis | None:
    """Each iteration waits for the last one's result."""
    profile = evidence.profile
    if profile["cpu.asm.chain"] <= 0:
        return None
    waiting, busy = profile["cpu.asm.chain_cycles"], profile["cpu.asm.throughput_cycles"]
    modelled = profile.get("cpu.rate.cycles"), profile.get("cpu.rate.throughput_cycles")
    tool = "own model"
    if modelled[0] and modelled[1]:
        waiting, busy = modelled[0], modelled[1]
        tool = profile.where("cpu.rate.cycles").partition(":")[0]
    limit = cut("serial_chain.factor")
    if waiting <= limit * busy:
        return None
    return Diagnosis(
        bottleneck=(
            f"{profile['cpu.asm.chain']:.0f} dependent operations carried over each iteration, "
            f"about {waiting:.1f} cycles against {busy:.1f} of work (cut {limit:g} times; {tool}) "
            f"with {profile['cpu.asm.accumulators']:.0f} accumulators"
        ),
        where=where(evidence),
        why="An addition takes about 4 cycles to be ready, and the next one needs its result.",
        gain=(1.0 - busy / waiting) * room(evidence),
        confidence=0.7,
        actions=(
            Action(name="accumulators", instruction="Use 4 or more independent accumulators."),
            Action(name="unroll", instruction="Unroll so that independent work fills the wait."),
            Action(name="vectorize", instruction="Reduce lane-wise, join lanes at the end."),
        ),
        guard="Changes the order of summation; float32 sums stay within tolerance, often better.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.divisions", "cpu.asm.throughput_cycles"),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="compute",
    threshold="divisions or square roots for > 25 % of the loop in the cost model (own)",
)
def divisions(evidence: Evidence) -> Diagnosis | None:
    """Divisions and square roots take a large part of the hot loop."""
    profile = evidence.profile
    count, total = profile["cpu.asm.divisions"], profile["cpu.asm.throughput_cycles"]
    share = min(count * DIVIDE_CYCLES / total, 1.0) if total > 0 else 0.0
    limit = cut("divisions.share")
    if share <= limit:
        return None
    return Diagnosis(
        bottleneck=(
            f"{count:.0f} divisions or square roots in each iteration of the hot loop, "
            f"{share:.0%} of it in the cost model (cut {limit:.0%})"
        ),
        where=where(evidence),
        why="The divider takes some 5 cycles for each vector and is not pipelined.",
        gain=0.6 * share * room(evidence),
        confidence=0.5,
        actions=(
            Action(
                name="hoist_reciprocal",
                instruction="Divide once outside of the loop; multiply by the reciprocal inside.",
            ),
        ),
        guard=f"{NO_MEMORY} A reciprocal costs half a unit in the last place.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.integer_divisions", "cpu.asm.instructions"),
    wants=("cpu.asm.throughput_cycles", "cpu.bandwidth_share"),
    targets=("cpu",),
    group="compute",
    threshold="any integer division in the hot loop (exact)",
)
def integer_divisions(evidence: Evidence) -> Diagnosis | None:
    """The hot loop divides integers, as index arithmetic with / and % does."""
    count = evidence.profile["cpu.asm.integer_divisions"]
    if count <= 0:
        return None
    cycles = count * INTEGER_DIVIDE_CYCLES
    share = cycles / (cycles + evidence.profile.get("cpu.asm.throughput_cycles", 1.0))
    return Diagnosis(
        bottleneck=f"{count:.0f} integer divisions in each iteration of the hot loop",
        where=where(evidence),
        why="Row and column are computed by / and %, some 18 cycles each, for every element.",
        gain=0.8 * share * room(evidence),
        confidence=0.7,
        actions=(
            Action(name="nest_loops", instruction="Loop over rows, and inside over columns."),
            Action(name="constant_sizes", instruction="Make the divisor a compile-time constant."),
        ),
        guard="Not when the division is part of the result, as for integer outputs.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.conversions", "cpu.asm.instructions"),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="compute",
    threshold="conversions between float and double for > 5 % of the hot loop (own)",
)
def double_promotion(evidence: Evidence) -> Diagnosis | None:
    """Float data is computed on in double, and converted there and back."""
    if evidence.problem.dtype not in ("float32", "float16", "bfloat16"):
        return None
    count, total = evidence.profile["cpu.asm.conversions"], evidence.profile["cpu.asm.instructions"]
    share, limit = ratio(count, total), cut("double_promotion.share")
    if share <= limit:
        return None
    return Diagnosis(
        bottleneck=(
            f"{count:.0f} of {total:.0f} instructions of the hot loop convert between float and "
            f"double ({share:.0%}, cut {limit:.0%})"
        ),
        where=where(evidence),
        why="A literal like 0.5 or a call like exp() is double; half as many lanes do twice the "
        "bytes.",
        gain=min(0.5, share + 0.25) * room(evidence),
        confidence=0.7,
        actions=(
            Action(
                name="float_literals",
                instruction="Write 0.5f and expf(); keep every operand of the loop in float.",
            ),
        ),
        guard="Not for a sum that needs double to stay within tolerance.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.separate_multiply_adds", "cpu.asm.instructions", "cpu.fused"),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    classes=("compute", "balanced", "latency"),
    group="compute",
    threshold="any multiply whose result is added at once, on a processor with FMA (exact)",
)
def missed_fma(evidence: Evidence) -> Diagnosis | None:
    """Products are added in an instruction of their own, though the processor fuses the two."""
    profile = evidence.profile
    count, total = profile["cpu.asm.separate_multiply_adds"], profile["cpu.asm.instructions"]
    if count < cut("missed_fma.count") or not profile["cpu.fused"]:
        return None
    return Diagnosis(
        bottleneck=f"{count:.0f} of {total:.0f} instructions of the hot loop add a product",
        where=where(evidence),
        why="A fused multiply-add does both in one slot and half the latency.",
        gain=min(0.5, ratio(count, total)) * room(evidence),
        confidence=0.5,
        actions=(
            Action(
                name="fused_multiply_add",
                instruction="Build with -march=native -ffp-contract=fast, or use __builtin_fmaf.",
            ),
        ),
        guard="Not where the product's own rounding is asked for. " + NO_MEMORY,
    )


@detector(
    level="instruction",
    needs=("cpu.asm.branches", "cpu.asm.vector_share"),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="vector",
    threshold="a conditional jump inside a hot loop that is not vectorised (own)",
)
def branches_in_loop(evidence: Evidence) -> Diagnosis | None:
    """The hot loop decides for each element by a jump, and is not vectorised."""
    profile = evidence.profile
    count = profile["cpu.asm.branches"]
    if count < cut("branches_in_loop.count"):
        return None
    if profile["cpu.asm.vector_share"] >= cut("scalar_loop.vectors"):
        return None
    return Diagnosis(
        bottleneck=f"{count:.0f} conditional jumps inside the hot loop, beside its last one",
        where=where(evidence),
        why="A jump that depends on the data keeps the loop scalar, and a wrong guess costs 16 "
        "cycles.",
        gain=0.5 * room(evidence),
        confidence=0.5,
        actions=(
            Action(
                name="vectorize",
                instruction="Compute both sides and select: a ternary on vectors, min, max.",
            ),
            Action(name="split_loop", instruction="Hoist what does not depend on the element."),
        ),
        guard="Not where one side is expensive and rare.",
    )


@detector(
    level="instruction",
    needs=("cpu.asm.overhead", "cpu.asm.instructions", "cpu.asm.throughput_cycles"),
    wants=("cpu.bandwidth_share",),
    targets=("cpu",),
    group="compute",
    threshold="> 50 % of the hot loop's instructions count and jump, and instructions are the "
    "limit (own)",
)
def loop_overhead(evidence: Evidence) -> Diagnosis | None:
    """Most of the hot loop counts, compares and jumps."""
    profile = evidence.profile
    share, count = fraction(profile["cpu.asm.overhead"]), profile["cpu.asm.instructions"]
    limit = cut("loop_overhead.share")
    # Only where starting instructions is what limits the loop: four a cycle in our model.
    if share <= limit or count / 4 < profile["cpu.asm.throughput_cycles"]:
        return None
    return Diagnosis(
        bottleneck=(
            f"{share:.0%} of the hot loop's {count:.0f} instructions touch no vector register "
            f"(cut {limit:.0%})"
        ),
        where=where(evidence),
        why="Counters, addresses and jumps take the slots in which arithmetic could start.",
        gain=0.4 * share * room(evidence),
        confidence=0.3,
        actions=(
            Action(name="unroll", instruction="Do two to four vectors in each iteration."),
            Action(name="vectorize", instruction="Work on whole vectors."),
        ),
        guard=NO_MEMORY,
    )


@detector(
    level="instruction",
    needs=("cpu.rate.port_share", "cpu.rate.cycles", "cpu.rate.throughput_cycles"),
    wants=(
        "cpu.asm.instructions",
        "cpu.asm.divisions",
        "cpu.asm.shuffles",
        "cpu.flops_share",
        "cpu.bandwidth_share",
    ),
    targets=("cpu",),
    classes=("compute", "balanced"),
    group="compute",
    threshold="one unit busy for >= 90 % of the loop's cycles in llvm-mca or osaca (own)",
)
def busy_port(evidence: Evidence) -> Diagnosis | None:
    """One unit of the core is busy all the time while the others wait for it."""
    profile = evidence.profile
    share, cycles = profile["cpu.rate.port_share"], profile["cpu.rate.cycles"]
    limit = cut("busy_port.share")
    slots = profile.get("cpu.asm.instructions", 0.0) / 4
    # A unit that is busy with the multiply-adds themselves is as it should be.
    if profile.get("cpu.asm.divisions", 0.0) + profile.get("cpu.asm.shuffles", 0.0) <= 0:
        return None
    if share < limit or cycles <= 0 or slots >= cycles / 2:
        return None
    port = profile.where("cpu.rate.port_share").partition(";")[0]
    free = (1.0 - slots / cycles) * (1.0 - min(profile.get("cpu.flops_share", 0.0), 1.0))
    return Diagnosis(
        bottleneck=(
            f"unit {port} is busy {share:.0%} of the hot loop's {cycles:.1f} cycles (cut "
            f"{limit:.0%}), which could start {4 * cycles:.0f} instructions and has "
            f"{4 * slots:.0f}"
        ),
        where=where(evidence),
        why="Divisions or shuffles all go to one unit, and the others have nothing to do.",
        gain=0.5 * free * room(evidence),
        confidence=0.3,
        actions=(
            Action(
                name="cheaper_instructions",
                instruction="Replace what that unit does: a reciprocal for a division, a "
                "polynomial for a quotient, contiguous data for shuffles.",
            ),
        ),
        guard="A model of the core, not a measurement.",
    )
