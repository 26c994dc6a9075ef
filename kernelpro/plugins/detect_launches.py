"""Detectors, system level: how kernels are launched: too short, one by one, on one stream."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.readings import fraction
from kernelpro.profiling.thresholds import cut

GAPS = "system.gap_share"

FUSE = Action(name="fuse", instruction="Compute neighbouring kernels in one launch.")
GRAPH = Action(
    name="cuda_graph",
    instruction="Capture the launches once with torch.cuda.graph and replay them, with inputs "
    "copied into the captured buffers.",
)


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of this module."""
    return [value for value in globals().values() if isinstance(value, Detector)]


@detector(
    level="system",
    needs=("system.launches", "system.mean_kernel_us", GAPS),
    wants=("system.launch_api_us",),
    group="launch",
    threshold="kernels < 10 us on average, or shorter than their launch; device busy < 80 % (own)",
)
def launch_bound(evidence: Evidence) -> Diagnosis | None:
    """The device waits for the host between short kernels."""
    profile = evidence.profile
    gap, mean = profile[GAPS], profile["system.mean_kernel_us"]
    short, busy = cut("launch_bound.kernel"), cut("launch_bound.busy")
    api = profile.get("system.launch_api_us", 0.0)
    if 1.0 - gap >= busy or (mean >= short and mean >= api):
        return None
    return Diagnosis(
        bottleneck=(
            f"the GPU is busy {1 - gap:.0%} of a call (cut {busy:.0%}) with "
            f"{profile['system.launches']:.3g} launches of {mean:.1f} us on average "
            f"(cut {short:g} us{f', a launch call takes {api:.1f} us' if api else ''})"
        ),
        where=profile.where("system.mean_kernel_us"),
        why="The host needs longer to launch a kernel than the kernel runs.",
        gain=fraction(gap),
        confidence=0.7,
        actions=(
            FUSE,
            Action(name="more_rows_per_block", instruction="Do all rows in one launch."),
            GRAPH,
        ),
        guard="Not when the call is a single kernel already: then its launch is the floor.",
    )


@detector(
    level="system",
    needs=("system.tiny_kernels", "system.tiny_share", "system.tiny_chain_share"),
    group="launch",
    threshold="more than 5 kernels < 5 us a step, with > 20 % of its time (own)",
)
def tiny_kernels(evidence: Evidence) -> Diagnosis | None:
    """Chains of kernels that are shorter than a launch."""
    profile = evidence.profile
    count, share = profile["system.tiny_kernels"], profile["system.tiny_share"]
    saved = profile["system.tiny_chain_share"]
    if count <= cut("tiny_kernels.launches") or share <= cut("tiny_kernels.share") or saved <= 0:
        return None
    return Diagnosis(
        bottleneck=(
            f"{count:.3g} kernels of a step are shorter than {cut('tiny_kernels.us'):g} us (cut "
            f"{cut('tiny_kernels.launches'):.0f} of them); with the waits before them they take "
            f"{share:.0%} of it (cut {cut('tiny_kernels.share'):.0%})"
        ),
        where=profile.where("system.tiny_kernels"),
        why="Each pays for a launch, reads its input from memory and writes its result back.",
        gain=fraction(saved),
        confidence=0.6,
        actions=(
            Action(
                name="fuse",
                instruction="Compute a chain of element-wise kernels in the kernel that makes "
                "its input or in the one that uses its result.",
            ),
            GRAPH,
        ),
        guard="Not across a reduction over the whole tensor: that needs a grid-wide barrier.",
    )


@detector(
    level="system",
    needs=(
        "system.sequence_launches",
        "system.sequence_repeats",
        "system.graph_share",
        "system.sync_calls",
        "system.alloc_calls",
        GAPS,
    ),
    group="launch",
    threshold="the same >= 3 launches >= 3 times, busy < 90 %, no wait or allocation inside (own)",
)
def graph_candidate(evidence: Evidence) -> Diagnosis | None:
    """The same launches are made again and again, each by the host."""
    profile = evidence.profile
    length, repeats = profile["system.sequence_launches"], profile["system.sequence_repeats"]
    gap = profile[GAPS]
    if (
        length < cut("graph_candidate.launches")
        or repeats < cut("graph_candidate.repeats")
        or 1.0 - gap >= cut("graph_candidate.busy")
        or profile["system.graph_share"] > 0
        or profile["system.sync_calls"] > 0
        or profile["system.alloc_calls"] > 0
    ):
        return None
    return Diagnosis(
        bottleneck=(
            f"{length:.0f} launches repeat {repeats:.0f} times (cut "
            f"{cut('graph_candidate.repeats'):.0f}) with the GPU busy {1 - gap:.0%} "
            f"(cut {cut('graph_candidate.busy'):.0%})"
        ),
        where=profile.where("system.sequence_launches"),
        why="A CUDA graph launches a fixed sequence at once, without the host between kernels.",
        gain=fraction(gap),
        confidence=0.5,
        actions=(GRAPH, FUSE),
        guard="Not when shapes or addresses change between calls, and an output that the graph "
        "owns must be copied before the next replay.",
    )


@detector(
    level="system",
    needs=("system.small_grid_share", "system.serial_share"),
    group="streams",
    threshold="> 30 % of kernel time in launches of less than one wave, equal ones in a row (own)",
)
def stream_serialisation(evidence: Evidence) -> Diagnosis | None:
    """Equal small launches run one after the other though the device could hold several."""
    profile = evidence.profile
    small, saved = profile["system.small_grid_share"], profile["system.serial_share"]
    if small <= cut("stream_serialisation.share") or saved <= 0:
        return None
    return Diagnosis(
        bottleneck=(
            f"{small:.0%} of the kernel time is in launches that do not fill the device once "
            f"(cut {cut('stream_serialisation.share'):.0%})"
        ),
        where=profile.where("system.serial_share"),
        why="Launches of one stream wait for each other, and most multiprocessors stay empty.",
        gain=fraction(saved),
        confidence=0.3,
        actions=(
            Action(
                name="batch_launches",
                instruction="Do all of them in one launch, with one more dimension of the grid.",
            ),
            Action(
                name="parallel_streams",
                instruction="Put independent launches on streams of their own, or on branches of "
                "a graph.",
            ),
        ),
        guard="Not when each launch reads what the one before it wrote.",
    )


@detector(
    level="system",
    needs=("system.streams", "system.default_stream_turns"),
    group="streams",
    threshold="the legacy default stream takes turns with others, never together (own)",
)
def default_stream(evidence: Evidence) -> Diagnosis | None:
    """Kernels of other streams wait for the legacy default stream, and it for them."""
    turns = evidence.profile["system.default_stream_turns"]
    if turns <= 0:
        return None
    return Diagnosis(
        bottleneck=(
            f"kernels on the default stream and on others never run together "
            f"({turns:.0%} of the time could overlap)"
        ),
        where=evidence.profile.where("system.streams"),
        why="The legacy default stream waits for every blocking stream and they for it.",
        gain=fraction(turns),
        confidence=0.3,
        actions=(
            Action(
                name="parallel_streams",
                instruction="Launch all work on streams of your own, made non-blocking, and join "
                "them with events.",
            ),
        ),
        guard="Not when the streams depend on each other's results.",
    )


@detector(
    level="system",
    needs=("system.load_calls", "system.load_share"),
    group="loading",
    threshold="any module loaded or compiled inside the window (exact)",
)
def jit_or_lazy_load(evidence: Evidence) -> Diagnosis | None:
    """Code was loaded or compiled while the clock ran; a warm call does not pay for that."""
    count = evidence.profile["system.load_calls"]
    if count <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{count:.3g} loads of code a step, {evidence.profile['system.load_share']:.0%} "
        "of its time (cut: none)",
        where=evidence.profile.where("system.load_calls"),
        why="The first launch of a kernel loads or compiles it: this call was not warm.",
        gain=0.0,
        confidence=0.1,
        actions=(
            Action(
                name="warm_up",
                instruction="Call once before the clock starts; for a recording set "
                "CUDA_MODULE_LOADING=EAGER.",
            ),
        ),
        guard="Times of such a recording say nothing about the steady state.",
    )
