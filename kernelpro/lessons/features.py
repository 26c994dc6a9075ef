"""What a problem is like, without its name: features of its operator graph, and a distance.

Two problems with equal features are the same to lessons, whatever they are called.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelpro.errors import KernelproError
from kernelpro.records import Problem
from kernelpro.serial import encode

if TYPE_CHECKING:
    from kernelpro.language.graph import Graph

REDUCTIONS = frozenset(["sum", "prod", "amax", "amin"])
"""Operators of the graph that reduce; as in `kernelpro.language.graph`, which loads torch."""

WEIGHTS = {"operators": 0.5, "row": 0.15, "size": 0.15, "intensity": 0.1, "dtype": 0.1}
"""Shares of the distance; they sum to 1. What is computed decides most about which changes pay,
then how it is laid out. Own choice."""

DOUBLINGS = {"row": 8.0, "size": 10.0, "intensity": 6.0}
"""Doublings after which a size counts as wholly different. Own choice: 2**8 is from a row that fits
into registers to one that does not, 2**10 from a cache to main memory, 2**6 from memory to
compute bound on common machines."""

_ROW = ("amax", "sub", "exp", "sum")
# ATen operators as the graph's operators, so that a problem that cannot be traced still compares
# with one that was. As `kernelpro.language.aten` writes them; the others keep their own name.
_ATEN: dict[str, tuple[str, ...]] = {
    "softmax": (*_ROW, "reciprocal", "mul"),
    "log_softmax": (*_ROW, "log", "sub"),
    "logsumexp": (*_ROW, "log", "add"),
    "native_layer_norm": ("sum", "mul", "sub", "mul", "sum", "mul", "add", "rsqrt", "mul"),
    "native_group_norm": ("sum", "mul", "sub", "mul", "sum", "mul", "add", "rsqrt", "mul"),
    "mean": ("sum", "mul"),
    "gelu": ("mul", "erf", "mul", "add", "mul"),
    "silu": ("sigmoid", "mul"),
    "clamp": ("maximum", "minimum"),
    "pow": ("mul",),
    "max": ("amax",),
    "min": ("amin",),
    "nll_loss_forward": ("gather", "neg"),
    "embedding": ("gather",),
    "index_select": ("gather",),
    **dict.fromkeys(("linear", "addmm", "mm", "bmm", "baddbmm", "dot", "mv"), ("matmul",)),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_transpose2d"), ("convolution",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a problem is like.

    Attributes:
        operators: computing operators by name, each with its count; views do not count.
        row_log2: log2 of the elements of the longest reduced row; 0 without a reduction.
        strided: whether a reduction runs over dimensions that are not the last ones.
        input_log2: log2 of the elements of the largest input.
        output_log2: log2 of the elements of the largest output.
        intensity_log2: log2 of FLOPs per least byte.
        dtype: element type.
        traced: whether they are of the operator graph; else of counts alone, without knowledge
            of which dimensions are reduced.
    """

    operators: Mapping[str, int] = field(default_factory=dict)
    row_log2: float = 0.0
    strided: bool = False
    input_log2: float = 0.0
    output_log2: float = 0.0
    intensity_log2: float = 0.0
    dtype: str = "float32"
    traced: bool = False

    @property
    def fingerprint(self) -> str:
        """16 hex digits; equal for equal features."""
        text = json.dumps(encode(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def operator_class(self) -> str:
        """The problem's kind, by its costliest operators.

        `convolution` or `matmul` where there is one; `row-wise` where rows are reduced and their
        elements kept, as in norms and softmax; `reduction` where only results are kept; `lookup`,
        `pointwise`, or `other`.
        """
        for name in ("convolution", "matmul"):
            if self.operators.get(name):
                return name
        if self.operators.keys() & REDUCTIONS:
            return "row-wise" if self.output_log2 > self.input_log2 - 1.0 else "reduction"
        if self.operators.get("gather"):
            return "lookup"
        return "pointwise" if self.operators else "other"


def of_graph(problem: Problem, graph: "Graph") -> Features:
    """Features of a traced problem: the nodes that its outputs need."""
    nodes = [graph.nodes[number] for number in sorted(graph.needed())]
    computing = [node for node in nodes if node.kind in ("pointwise", "reduce", "gather")]
    names = [node.op for node in computing]
    names += [name for node in nodes if node.kind == "library" for name in _library(node.op)]
    reduces = [node for node in nodes if node.kind == "reduce"]
    return _made(
        problem,
        names,
        row=max((node.columns for node in reduces), default=0),
        strided=any(node.inner > 1 for node in reduces),
        traced=True,
    )


def of_counts(problem: Problem) -> Features:
    """Features of what the problem's record says: counts of ATen operators, shapes, FLOPs, bytes.

    Nothing of the problem is executed. Reduced rows are taken to be the last dimension.
    """
    names = [
        part
        for name, count in problem.operators.items()
        for part in _aten(name.partition(".")[2] or name)
        for _ in range(count)
    ]
    reduces = REDUCTIONS & set(names)
    rows = [spec.shape[-1] for spec in problem.inputs if spec.shape]
    return _made(problem, names, row=max(rows, default=0) if reduces else 0)


def of_problem(problem: Problem) -> Features:
    """Features of the operator graph where torch can trace one, else of the counts.

    Tracing runs the problem file's code; the trace is the one that the built-in proposer uses.
    """
    from kernelpro.language import writer  # torch comes with it

    try:
        graph = writer.prepare(problem).graph
    except KernelproError:  # its file does not even load
        graph = None
    return of_counts(problem) if graph is None else of_graph(problem, graph)


def distance(one: Features, other: Features) -> float:
    """How different two problems are, 0..1: symmetric, and 0 for equal features.

    A weighted mean (WEIGHTS) of parts within 0..1, as in Gower's coefficient (Gower 1971, "A
    general coefficient of similarity and some of its properties"): operators by the Bray-Curtis
    dissimilarity of log(1 + count); row, size and intensity by the difference of their logarithms
    over DOUBLINGS, at most 1; dtype equal or not. Rows of another direction, last dimensions
    against others, are wholly different. Whether features were traced does not count.
    """
    size = max(
        abs(one.input_log2 - other.input_log2),
        abs(one.output_log2 - other.output_log2),
    )
    parts = {
        "operators": _bray_curtis(one.operators, other.operators),
        "row": 1.0 if one.strided != other.strided else _far("row", one.row_log2 - other.row_log2),
        "size": _far("size", size),
        "intensity": _far("intensity", one.intensity_log2 - other.intensity_log2),
        "dtype": float(one.dtype != other.dtype),
    }
    return sum(WEIGHTS[name] * part for name, part in parts.items())


def _bray_curtis(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    pairs = [
        (math.log1p(one.get(name, 0)), math.log1p(other.get(name, 0)))
        for name in sorted(one.keys() | other.keys())  # in order, so that sums are the same
    ]
    whole = sum(a + b for a, b in pairs)
    return sum(abs(a - b) for a, b in pairs) / whole if whole else 0.0


def _far(name: str, doublings: float) -> float:
    return min(1.0, abs(doublings) / DOUBLINGS[name])


def _made(
    problem: Problem, names: Iterable[str], row: int, strided: bool = False, traced: bool = False
) -> Features:
    return Features(
        operators=dict(sorted(Counter(names).items())),
        row_log2=_log2(row),
        strided=strided,
        input_log2=_log2(max((math.prod(spec.shape) for spec in problem.inputs), default=0)),
        output_log2=_log2(max((math.prod(spec.shape) for spec in problem.outputs), default=0)),
        intensity_log2=_log2(problem.flops / max(1, problem.min_bytes)),
        dtype=problem.dtype,
        traced=traced,
    )


def _log2(value: float) -> float:
    """Round to a tenth of a doubling: what is closer is the same. 0 for nothing."""
    return round(math.log2(value), 1) if value > 0 else 0.0


def _library(call: str) -> tuple[str, ...]:
    """Operators of a call that stays with torch, such as `torch.ops.aten.linear.default`."""
    return _aten(call.removeprefix("torch.ops.aten.").partition(".")[0])


def _aten(name: str) -> tuple[str, ...]:
    plain = name.strip("_")
    return _ATEN.get(plain, (plain,))
