"""Detectors: instructions that the problem does not need."""

from kernelpro import Action, Detector, Diagnosis, Evidence, Problem, detector, hookimpl
from kernelpro.profiling import pipes
from kernelpro.profiling.instruction_mix import counters, executed, share
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import ISSUED, cuda_shares

DOUBLE, SINGLE = ("dadd", "dmul", "dfma"), ("fadd", "fmul", "ffma")
PEAK64 = "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained"
PEAK32 = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"
FLOAT16 = "sm__sass_thread_inst_executed_op_fp16_pred_on.sum"
FLOAT64_CODE, CONVERSION_CODE = "sass.fp64", "sass.conversion_share"
XU_WEIGHT = 4  # a conversion on the XU pipe takes four times the slots of an FMA


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of arithmetic that could be saved."""
    return [fp64_in_fp32_kernel, unfused_fp, conversion_overhead, integer_overhead]


def _float64(problem: Problem) -> bool | None:
    """Whether the problem has float64 tensors; None where nothing is known of it."""
    tensors = (*problem.inputs, *problem.outputs, *problem.parameters)
    return any(t.dtype in ("float64", "complex128") for t in tensors) if tensors else None


def _arithmetic(evidence: Evidence) -> float:
    """Busy share, 0..1, of arithmetic."""
    return (cuda_shares(evidence.profile) or (0.0, 0.0))[0]


@detector(
    level="kernel",
    needs=(pipes.FP64,),
    wants=(
        *counters(*DOUBLE, *SINGLE, "conversion"),
        PEAK64,
        PEAK32,
        pipes.XU,
        pipes.ALU,
        pipes.FMA,
        FLOAT64_CODE,
    ),
    classes=("compute", "balanced", "latency"),
    group="compute",
    threshold="FP64 pipe > 5 % without float64 tensors (own), or float64 > 15 % and float32 < 60 % "
    "of peak (NVIDIA's SpeedOfLight_Roofline rule)",
)
def fp64_in_fp32_kernel(evidence: Evidence) -> Diagnosis | None:
    """Arithmetic runs in float64 although the problem's tensors are not."""
    profile = evidence.profile
    known = _float64(evidence.problem)
    pipe, special = reading(profile, pipes.FP64), reading(profile, pipes.XU)
    counts = executed(profile, *DOUBLE, *SINGLE)
    doubles, singles = (sum(counts[:3]), sum(counts[3:])) if counts else (1.0, 0.0)
    of_float = ratio(doubles, doubles + singles)
    slower = fraction(ratio(reading(profile, PEAK64), reading(profile, PEAK32))) or 0.5
    # float64 is converted from and to float32 on the XU pipe: its work goes with the float64's.
    converts = share(profile, "conversion")
    mixed = special > pipe if converts is None else converts > cut("conversion_overhead.share")
    if known or not doubles > 0 or not pipe > cut("fp64_in_fp32_kernel.busy"):
        return None
    if known is None and not mixed and not _nvidia(evidence, counts):
        return None  # a kernel of float64 alone is likely meant to be
    gain = of_float * (1 - slower) * pipe / 100
    busy = max(pipe, special) if mixed else pipe
    if mixed:
        left = (pipe * slower, reading(profile, pipes.ALU), reading(profile, pipes.FMA))
        _, memory = cuda_shares(profile) or (0.0, 0.0)
        gain = max(gain, (busy - max(*left, 100 * memory)) / 100)
    return Diagnosis(
        bottleneck=(
            f"float64 arithmetic: FP64 pipe at {pipe:.0f} % (cut "
            f"{cut('fp64_in_fp32_kernel.busy'):g} %), {of_float:.0%} of float instructions"
            + (f", conversions keep the XU pipe at {special:.0f} %" if mixed and special else "")
        ),
        where=profile.where(FLOAT64_CODE),
        why="A constant without f or a double function makes float32 values float64 and back.",
        gain=fraction(gain),
        confidence=0.9 if known is False else 0.75 if converts else 0.7,
        actions=(
            Action(
                name="single_precision",
                instruction="Write 0.5f, not 0.5; use expf, sqrtf and the like; cast constants.",
            ),
            Action(name="float32_sums", instruction="Accumulate in float32, in several sums."),
        ),
        guard="Not where the tolerance needs float64 sums.",
    )


def _nvidia(evidence: Evidence, counts: tuple[float, ...] | None) -> bool:
    """NVIDIA's rule on achieved shares of the float64 and float32 peaks."""
    double = reading(evidence.profile, pipes.FP64) / 100
    single = reading(evidence.profile, pipes.FMA) / 100
    return (
        counts is not None
        and sum(counts[3:]) > 0
        and double > cut("fp64_in_fp32_kernel.float64")
        and single < cut("fp64_in_fp32_kernel.float32")
    )


@detector(
    level="kernel",
    needs=(pipes.FMA,),
    wants=counters(*SINGLE),
    classes=("compute", "balanced"),
    group="compute",
    threshold="> 10 % fewer instructions if additions and products were fused (NVIDIA's "
    "FPInstructions rule, counting pairs only)",
)
def unfused_fp(evidence: Evidence) -> Diagnosis | None:
    """Products and additions are executed apart that one instruction would do."""
    counts = executed(evidence.profile, *SINGLE)
    if counts is None:
        return None
    added, multiplied, fused = counts
    pairs = 2 * min(added, multiplied)  # an addition can only be fused with a product
    saved = fraction(ratio(pairs, pairs + fused) / 2)
    if not saved > cut("unfused_fp.share"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{saved:.0%} fewer float instructions if fused (cut {cut('unfused_fp.share'):.0%}): "
            f"{added:.3g} additions, {multiplied:.3g} products, {fused:.3g} fused"
        ),
        why="a * b + c takes two instructions of the FMA pipe instead of one.",
        gain=fraction(saved * reading(evidence.profile, pipes.FMA) / 100),
        confidence=0.7,
        actions=(
            Action(name="fused_multiply_add", instruction="Write fmaf(a, b, c); allow -fmad."),
            Action(name="factor", instruction="Factor expressions so that products meet sums."),
        ),
        guard="Changes rounding: by half a unit in the last place, for the better.",
    )


@detector(
    level="kernel",
    needs=(pipes.XU, ISSUED),
    wants=(*counters("conversion"), CONVERSION_CODE),
    classes=("compute", "balanced"),
    group="compute",
    threshold="> 5 % of instructions convert (own; GPUscout's conversion analysis)",
)
def conversion_overhead(evidence: Evidence) -> Diagnosis | None:
    """Many instructions only convert from one data type to another."""
    converts, special = share(evidence.profile, "conversion"), reading(evidence.profile, pipes.XU)
    if converts is None or not converts > cut("conversion_overhead.share"):
        return None
    weight = XU_WEIGHT if special > cut("sfu_bound.busy") else 1
    return Diagnosis(
        bottleneck=(
            f"{converts:.0%} of instructions are conversions (cut "
            f"{cut('conversion_overhead.share'):.0%}), XU pipe at {special:.0f} %"
        ),
        where=evidence.profile.where(CONVERSION_CODE),
        why="Conversions run on the special function unit, at a quarter of FMA's rate or less.",
        gain=fraction(min(weight * converts * _arithmetic(evidence), 1.0 - converts)),
        confidence=0.5,
        actions=(
            Action(name="hoist_conversion", instruction="Convert once, outside of the loop."),
            Action(name="vectorize", instruction="Convert pairs: half2, bfloat162."),
            Action(name="one_type", instruction="Keep one type through the chain."),
        ),
        guard="Not for the one conversion that loading and storing half precision takes.",
    )


@detector(
    level="kernel",
    needs=(pipes.ALU, ISSUED),
    wants=(*counters("integer", "fp32"), FLOAT16),
    classes=("compute", "latency", "balanced"),
    group="compute",
    threshold="> 2 integer instructions a float one, ALU or issue slots > 40 % (own)",
)
def integer_overhead(evidence: Evidence) -> Diagnosis | None:
    """Index arithmetic outweighs the arithmetic that the kernel is for."""
    profile = evidence.profile
    counts = executed(profile, "integer", "fp32")
    busy = max(reading(profile, pipes.ALU), reading(profile, ISSUED))
    if counts is None or not busy > cut("integer_overhead.busy"):
        return None
    integer, floats = counts[0], counts[1] + reading(profile, FLOAT16)
    if not floats > 0:
        return None
    if not (times := integer / floats) > cut("integer_overhead.ratio"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{times:.1f} integer instructions for each float one (cut "
            f"{cut('integer_overhead.ratio'):g}) with ALU or issue slots at {busy:.0f} % (cut "
            f"{cut('integer_overhead.busy'):g} %)"
        ),
        why="Addresses are computed anew for each element, in 64 bits or with divisions.",
        gain=min(fraction((1 - 1 / times) * _arithmetic(evidence)), 0.3),
        confidence=0.4,
        actions=(
            Action(name="hoist_index", instruction="Advance pointers; hoist index arithmetic."),
            Action(name="narrow_index", instruction="Use 32-bit indices and constant sizes."),
            Action(name="vectorize", instruction="Handle 4 elements for each address."),
        ),
        guard="Not when the integers are the data.",
    )
