"""Worked CUDA kernels that prompts show: short, correct, fast, one technique each.

Each is a folder with a problem in KernelBench's format (`problem.py`), a candidate that the judge
accepts (`candidate.py`), and what its profile says (`profile.txt`). `INDEX` says what each is an
example of; which of them a prompt shows is decided in `kernelpro.models.exemplars`. This file loads
neither torch nor any of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent

CLASSES = ("pointwise", "row-wise", "reduction", "matmul", "attention", "scan", "lookup", "layout")
"""Kinds of problems: those of `kernelpro.lessons.features`, and three that it has no word for."""

BOTTLENECKS = ("memory", "compute", "latency", "launch", "occupancy")
"""What keeps such a kernel slow until the technique is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemplar:
    """A worked kernel.

    Attributes:
        name: its folder's name.
        operator_class: the kind of problem that it solves, of CLASSES.
        bottleneck: what it is there for, of BOTTLENECKS.
        dtype: element type of its problem.
        technique: what it shows, in a few words.
        why: why that is fast, in a sentence.
        actions: names of detectors' actions that it is an example of.
        arch: compute capability that it needs at least, such as 80.
        arch_only: whether it runs on that one alone, as what is compiled for sm_90a does.
    """

    name: str
    operator_class: str
    bottleneck: str
    dtype: str
    technique: str
    why: str
    actions: tuple[str, ...] = ()
    arch: int = 70
    arch_only: bool = False

    @property
    def problem(self) -> Path:
        """Its problem file."""
        return _FOLDER / self.name / "problem.py"

    @property
    def candidate(self) -> Path:
        """Its candidate file."""
        return _FOLDER / self.name / "candidate.py"

    @property
    def profile(self) -> Path:
        """What `kernelpro profile` said of it on the card that its first line names."""
        return _FOLDER / self.name / "profile.txt"


INDEX: Sequence[Exemplar] = (
    Exemplar(
        name="vectorized_swiglu",
        operator_class="pointwise",
        bottleneck="memory",
        dtype="float32",
        technique="16-byte accesses, several in flight",
        why="wide contiguous accesses issued before the first use keep the memory busy.",
        actions=("vectorize", "unroll", "consecutive_lanes"),
    ),
    Exemplar(
        name="residual_rms_norm",
        operator_class="row-wise",
        bottleneck="memory",
        dtype="bfloat16",
        technique="fused norm: the row stays in registers",
        why="the sum is written and never read again, where separate kernels read it twice.",
        actions=("fuse", "stage_registers", "packed_conversions"),
        arch=80,
    ),
    Exemplar(
        name="online_softmax",
        operator_class="row-wise",
        bottleneck="memory",
        dtype="float32",
        technique="online softmax: maximum and sum in one pass",
        why="rows too long for registers are read twice instead of three times.",
        actions=("one_pass",),
    ),
    Exemplar(
        name="cluster_rms_norm",
        operator_class="row-wise",
        bottleneck="memory",
        dtype="float32",
        technique="thread-block cluster and distributed shared memory",
        why="eight multiprocessors hold a row that fits into none of them, so it is read once.",
        actions=("stage_shared", "cluster_multicast"),
        arch=90,
    ),
    Exemplar(
        name="warp_row_norm",
        operator_class="reduction",
        bottleneck="latency",
        dtype="float32",
        technique="a warp for each short row, shuffles instead of barriers",
        why="no thread waits for another warp, and four chains of additions hide their latency.",
        actions=("shuffles", "warp_shuffle", "warp_reduce", "accumulators"),
    ),
    Exemplar(
        name="transpose",
        operator_class="layout",
        bottleneck="memory",
        dtype="float32",
        technique="tile in shared memory with a padded row",
        why="reads and writes are both contiguous, and the padding keeps the banks apart.",
        actions=("consecutive_lanes", "pad_shared", "stage_shared"),
    ),
    Exemplar(
        name="tiled_matmul",
        operator_class="matmul",
        bottleneck="compute",
        dtype="float32",
        technique="register tiles of 8 x 8 and double-buffered shared memory",
        why="each element read from shared memory is used eight times, at full float32 precision.",
        actions=("register_tile", "stage_shared", "prefetch"),
    ),
    Exemplar(
        name="split_k_matmul",
        operator_class="matmul",
        bottleneck="occupancy",
        dtype="float32",
        technique="split-K with a second kernel that adds the parts",
        why="few results leave most multiprocessors idle unless the inner dimension is split.",
        actions=("two_pass", "split_rows"),
    ),
    Exemplar(
        name="mma_matmul",
        operator_class="matmul",
        bottleneck="compute",
        dtype="bfloat16",
        technique="tensor cores by mma.sync, fed by a cp.async pipeline",
        why="copies for later steps run while tensor cores multiply; swizzling avoids conflicts.",
        actions=("matrix_units", "tensor_cores", "async_copy", "swizzle", "swizzle_shared"),
        arch=80,
    ),
    Exemplar(
        name="wgmma_matmul",
        operator_class="matmul",
        bottleneck="compute",
        dtype="bfloat16",
        technique="tensor cores by wgmma, fed by TMA, with warp specialisation",
        why="operands go from shared memory to the tensor cores without passing registers.",
        actions=("wgmma", "warp_specialisation", "bulk_copy", "wgmma_in_flight"),
        arch=90,
        arch_only=True,
    ),
    Exemplar(
        name="grouped_matmul",
        operator_class="matmul",
        bottleneck="launch",
        dtype="bfloat16",
        technique="grouped GEMM: all groups' tiles in one launch",
        why="small groups fill the GPU together instead of one after the other.",
        actions=("batch_launches",),
        arch=80,
    ),
    Exemplar(
        name="flash_attention",
        operator_class="attention",
        bottleneck="memory",
        dtype="bfloat16",
        technique="attention forward with scores in registers",
        why="the scores, by far the largest tensor, never exist in memory.",
        arch=80,
    ),
    Exemplar(
        name="row_scan",
        operator_class="scan",
        bottleneck="memory",
        dtype="float32",
        technique="prefix sums: thread, warp, block, and a carry",
        why="one read and one write of each element, with the next tile already on its way.",
        actions=("prefetch",),
    ),
    Exemplar(
        name="histogram",
        operator_class="lookup",
        bottleneck="latency",
        dtype="float32",
        technique="privatised counters in shared memory",
        why="threads meet at a counter of their warp's copy instead of one in global memory.",
        actions=("privatise", "private_bins", "aggregate_keys"),
    ),
)


def names() -> list[str]:
    """Names of all exemplars, in the index's order."""
    return [exemplar.name for exemplar in INDEX]


def by_name(names: Iterable[str]) -> list[Exemplar]:
    """The exemplars so called, in the index's order; unknown names are left out."""
    wanted = set(names)
    return [exemplar for exemplar in INDEX if exemplar.name in wanted]
