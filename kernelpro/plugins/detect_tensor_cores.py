"""Detectors: matrix units that are unused, starved, or used the slow way."""

from kernelpro import Action, Detector, Diagnosis, Evidence, Profile, detector, hookimpl
from kernelpro.profiling import pipes
from kernelpro.profiling.instruction_mix import counters, executed, share
from kernelpro.profiling.issue_slots import LATENCY, stall, stalled
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.speed_of_light import admits_matrix_units, is_matmul
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import cuda_shares

# HFMA2.MMA, with which compilers put constants into registers, counts as a tensor and as an HMMA
# instruction: it is taken off before anything is concluded.
TENSOR = "sm__inst_executed_pipe_tensor.sum"
IDIOM = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"
HMMA = "sm__inst_executed_pipe_tensor_op_hmma.sum"
GMMA = "sm__inst_executed_pipe_tensor_op_gmma.sum"
CAPABILITY = "device__attribute_compute_capability_major"
_PATH = "sm__ops_path_tensor_src_{}.sum"
# Operations by what the matrix unit was fed, with its rate relative to half precision (A100 and
# H100 alike, by their datasheets).
PATHS = {
    "bfloat16": (_PATH.format("bf16_dst_fp32"), 1.0),
    "tf32": (_PATH.format("tf32_dst_fp32"), 0.5),
    "float64": (_PATH.format("fp64"), 1 / 16),
}
LEGACY_LOSS = 0.35  # own: mma.sync reaches some 65 % of wgmma's rate


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of matrix units."""
    return [tensor_core_unused, tensor_core_starved, legacy_mma_on_hopper, tensor_flops_by_dtype]


def _matrix_instructions(profile: Profile) -> float:
    return max(reading(profile, TENSOR) - reading(profile, IDIOM), 0.0)


@detector(
    level="kernel",
    needs=(TENSOR, IDIOM, pipes.FMA),
    wants=counters("ffma"),
    classes=("compute", "balanced", "latency"),
    group="compute",
    threshold="matrix product of which no instruction uses a matrix unit, FFMA > 30 % (own)",
)
def tensor_core_unused(evidence: Evidence) -> Diagnosis | None:
    """A matrix product is computed without the matrix units."""
    profile, problem, rates = evidence.profile, evidence.problem, evidence.machine.flops_per_s
    if not is_matmul(problem):
        return None
    plain = rates.get("float32", 0.0)
    fast = max((r for name, r in rates.items() if name.endswith("_tensor")), default=0.0)
    whole = admits_matrix_units(problem)  # else float32 keeps its accuracy in three products
    if not whole:
        fast = rates.get("tf32_tensor", 0.0) / 3
        if problem.dtype != "float32" or not 0 < plain < fast:
            return None
    if _matrix_instructions(profile) > 0:
        return None
    scalar = share(profile, "ffma")
    fma = reading(profile, pipes.FMA)
    counted = executed(profile, "ffma")
    # Is this kernel the product, or something around it? It is if it does most of the work.
    if (
        counted
        and problem.flops
        and 2 * counted[0] < cut("tensor_core_unused.work") * problem.flops
    ):
        return None
    if not (fma / 100 if scalar is None else scalar) > cut("tensor_core_unused.ffma"):
        return None
    units = Action(
        name="matrix_units",
        instruction="Use mma.sync or wmma (sm_80), wgmma (sm_90a), or a library's GEMM.",
    )
    split = Action(
        name="split_precision",
        instruction="Where float32 accuracy is asked for: three TF32 products.",
    )
    return Diagnosis(
        bottleneck=(
            f"no matrix instruction in a matrix product, {scalar or fma / 100:.0%} FFMA (cut "
            f"{cut('tensor_core_unused.ffma'):.0%})"
        ),
        why=(
            "The matrix units do the same arithmetic many times faster than the FMA pipe."
            if whole
            else "Three products of matrix units, which keep float32's accuracy, take less time "
            "than one of the FMA pipe."
        ),
        gain=fraction(fma / 100 * (1 - (ratio(plain, fast) or 0.1))),
        confidence=0.8,
        actions=(units, split) if whole else (split,),
        guard="Not when the tolerance admits neither TF32 nor a split product.",
    )


@detector(
    level="kernel",
    needs=(TENSOR, IDIOM, pipes.TENSOR),
    wants=(pipes.TENSOR_MMA, stall("long_scoreboard"), stall("barrier"), LATENCY),
    classes=("compute", "balanced", "latency"),
    group="compute",
    threshold="matrix unit < 50 % although intensity is above the ridge (own)",
)
def tensor_core_starved(evidence: Evidence) -> Diagnosis | None:
    """The matrix units wait for data although there is arithmetic enough."""
    profile, place = evidence.profile, evidence.classification
    busy = pipes.matrix_percent(profile) or 0.0
    if not _matrix_instructions(profile) > 0 or not busy > cut("tensor_core_starved.least"):
        return None
    if not busy < cut("tensor_core_starved.busy"):
        return None
    known = place.ridge > 0 and place.intensity > 0
    _, memory = cuda_shares(profile) or (0.0, 0.0)
    if (known and place.intensity <= place.ridge) or 100 * memory >= cut("busy"):
        return None
    waits = {
        "loads": stalled(profile, "long_scoreboard"),
        "barriers": stalled(profile, "barrier"),
    }
    longest = max(waits, key=lambda name: waits[name])
    seen = f"; {waits[longest]:.0%} of latency waits for {longest}" if waits[longest] > 0 else ""
    return Diagnosis(
        bottleneck=(
            f"matrix unit at {busy:.0f} % (cut {cut('tensor_core_starved.busy'):g} %, a good GEMM "
            f"reaches {cut('tensor_core_starved.good'):g} %){seen}"
        ),
        why="Operands do not arrive in time, or each step waits for the one before.",
        gain=fraction(1 - busy / cut("tensor_core_starved.good")),
        confidence=0.5 if known else 0.3,
        actions=(
            Action(name="async_copy", instruction="Load 3 or 4 stages ahead (cp.async, TMA)."),
            Action(name="larger_block", instruction="Use larger tiles: more products per load."),
            Action(name="warp_specialisation", instruction="Let one warp only copy tiles."),
        ),
        guard="Not for a library's kernel on a shape that it does well; nor for small products.",
    )


@detector(
    level="kernel",
    needs=(HMMA, IDIOM, GMMA, pipes.TENSOR),
    wants=(CAPABILITY, pipes.TENSOR_MMA),
    classes=("compute", "balanced"),
    group="compute",
    threshold="more than half of matrix instructions are mma.sync, matrix unit > 20 % (own)",
)
def legacy_mma_on_hopper(evidence: Evidence) -> Diagnosis | None:
    """Matrix products on sm_90 use the instructions of sm_80."""
    profile = evidence.profile
    group = reading(profile, GMMA)
    # On this chip HMMA also counts HFMA2.MMA and the warp group instructions.
    legacy = max(reading(profile, HMMA) - reading(profile, IDIOM) - group, 0.0)
    part, busy = ratio(legacy, legacy + group), pipes.matrix_percent(profile) or 0.0
    if reading(profile, CAPABILITY, default=9.0) != 9:
        return None
    if not part > cut("legacy_mma_on_hopper.share") or not busy > cut("legacy_mma_on_hopper.busy"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{part:.0%} of matrix instructions are mma.sync (cut "
            f"{cut('legacy_mma_on_hopper.share'):.0%}), matrix unit at {busy:.0f} %"
        ),
        why="mma.sync takes its operands from registers and cannot reach wgmma's rate.",
        gain=LEGACY_LOSS * part,
        confidence=0.4,
        actions=(
            Action(
                name="wgmma",
                instruction="Use wgmma from shared memory with TMA loads; compile for sm_90a.",
            ),
        ),
        guard="Not for products with fewer than 64 rows.",
    )


@detector(
    level="kernel",
    needs=(pipes.TENSOR,),
    wants=(*(metric for metric, _ in PATHS.values()), pipes.TENSOR_MMA),
    classes=("compute", "balanced"),
    group="compute",
    threshold="> half of matrix operations on a path slower than the problem's type (own)",
)
def tensor_flops_by_dtype(evidence: Evidence) -> Diagnosis | None:
    """Matrix units are fed a wider type than the problem's tensors have."""
    profile, problem = evidence.profile, evidence.problem
    done = {name: reading(profile, metric) for name, (metric, _) in PATHS.items()}
    path = max(done, key=lambda name: done[name])
    part, (_, rate) = ratio(done[path], sum(done.values())), PATHS[path]
    half = problem.dtype in ("float16", "bfloat16")
    best = 1.0 if half else PATHS["tf32"][1]
    known = bool(problem.inputs or problem.outputs) and problem.dtype != "float64"
    if not known or not rate < best or not part > cut("tensor_flops_by_dtype.share"):
        return None
    busy = pipes.matrix_percent(profile) or 0.0
    return Diagnosis(
        bottleneck=(
            f"{part:.0%} of matrix operations are {path} (cut "
            f"{cut('tensor_flops_by_dtype.share'):.0%}), the problem's tensors are {problem.dtype}"
        ),
        why=f"The {path} path runs at {rate / best:.2g} times the rate that this type allows.",
        gain=fraction(busy / 100 * (1 - rate / best)),
        confidence=0.6,
        actions=(
            Action(
                name="narrow_operands",
                instruction="Feed the matrix unit the tensors' own type; accumulate in float32.",
            ),
        ),
        guard="Not when the tolerance asks for the wider type.",
    )
