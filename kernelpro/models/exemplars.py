"""Which worked kernels of `kernelpro.exemplars` a prompt shows: at most two, and only on CUDA.

The first is of the problem's own kind, by its operators; of those, the one that shows what the
node's findings ask for, then what is made for such shapes, then what is of the problem's element
type, then of the bound that the profile names. A second is shown only if a finding asks for what it
shows.
"""

import math
from collections.abc import Callable, Mapping

from kernelpro import exemplars
from kernelpro.exemplars import Exemplar
from kernelpro.lessons.features import of_counts
from kernelpro.records import Problem, Proposal

MOST = 2
"""Worked kernels in a prompt at most; one is 700 to 2700 tokens. Own choice."""

FINDINGS = 5
"""Findings that are looked at: those that the prompt tells."""

_SCANS = frozenset(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"))
_LOOKUPS = frozenset(
    (
        *("scatter", "scatter_add", "scatter_reduce", "index_add", "index_put", "histc"),
        *("bincount", "gather", "index_select", "embedding", "index"),
    )
)
_MATMULS = frozenset(("mm", "bmm", "addmm", "baddbmm", "matmul", "linear"))
_SOFTMAXES = frozenset(("softmax", "safe_softmax"))
_MOVES = frozenset(("clone", "copy", "cat", "permute", "contiguous"))


LONG_ROW = 1 << 16
"""Elements from which a row of float32 is longer than a multiprocessor's shared memory."""

MANY_PRODUCTS = 4
"""Products from which one launch for all is worth its bookkeeping. Own choice."""

DEEP = 32
"""An operand so many times the result leaves too few tiles to fill a GPU. Own choice."""


def _counts(problem: Problem) -> dict[str, int]:
    return {
        (name.partition(".")[2] or name).strip("_"): count
        for name, count in problem.operators.items()
    }


def _products(problem: Problem) -> int:
    return sum(count for name, count in _counts(problem).items() if name in _MATMULS)


def _is_deep(problem: Problem) -> bool:
    """Whether a product's inner dimension is much longer than its result is large."""
    largest = max((math.prod(spec.shape) for spec in problem.inputs), default=0)
    result = max((math.prod(spec.shape) for spec in problem.outputs), default=0)
    return largest > DEEP * result > 0


# Made for some problems of their kind: for these they come first, for the others last.
_MADE_FOR: Mapping[str, Callable[[Problem], bool]] = {
    "cluster_rms_norm": lambda p: of_counts(p).row_log2 >= math.log2(LONG_ROW),
    "online_softmax": lambda p: bool(_counts(p).keys() & (_SOFTMAXES | {"log_softmax"})),
    "grouped_matmul": lambda p: _products(p) >= MANY_PRODUCTS or "grouped_mm" in _counts(p),
    "split_k_matmul": _is_deep,
}


def operator_class(problem: Problem) -> str:
    """The problem's kind, of `kernelpro.exemplars.CLASSES`, or another of lessons' kinds."""
    names = set(_counts(problem))
    attention = any("scaled_dot_product" in name for name in names)
    if attention or (names & _SOFTMAXES and _counts(problem).get("bmm") == 2):
        return "attention"
    if names & _SCANS:
        return "scan"
    if names and names <= _MOVES:
        return "layout"
    kind = of_counts(problem).operator_class
    return "lookup" if kind == "pointwise" and names & _LOOKUPS else kind


def chosen(proposal: Proposal) -> tuple[Exemplar, ...]:
    """The worked kernels that a prompt shows, the one that fits best first; none but on CUDA.

    Args:
        proposal: problem, machine and findings of the node to go on from.
    """
    if proposal.problem.target != "cuda":
        return ()
    kind = operator_class(proposal.problem)
    asked = _asked(proposal)
    usable = [e for e in exemplars.INDEX if _runs(e, proposal.machine.facts)]
    ranked = sorted(usable, key=lambda e: _rank(e, proposal, kind, asked))
    first = next((e for e in ranked if e.operator_class == kind), None)
    others = [e for e in ranked if e is not first and _asked_at(e, asked) < FINDINGS]
    found = ([first] if first is not None else []) + others
    return tuple(found[:MOST])


def _asked(proposal: Proposal) -> Mapping[str, int]:
    """Names of actions that findings ask for, with the place of the first finding that does."""
    found: dict[str, int] = {}
    for place, diagnosis in enumerate(proposal.diagnoses[:FINDINGS]):
        for action in diagnosis.actions:
            found.setdefault(action.name, place)
    return found


def _asked_at(exemplar: Exemplar, asked: Mapping[str, int]) -> int:
    return min((asked[name] for name in exemplar.actions if name in asked), default=FINDINGS)


def _rank(
    exemplar: Exemplar, proposal: Proposal, kind: str, asked: Mapping[str, int]
) -> tuple[int, bool, int, bool, bool, int]:
    """Sorts the one that fits best first; of equals, the newest architecture's."""
    made_for = _MADE_FOR.get(exemplar.name)
    fits = 1 if made_for is None else 0 if made_for(proposal.problem) else 2
    own = proposal.steps[proposal.node] if 0 <= proposal.node < len(proposal.steps) else None
    roofline = own.classification if own is not None else None
    bound = roofline.dispatched if roofline is not None else ""
    return (
        _asked_at(exemplar, asked),
        exemplar.operator_class != kind,
        fits,
        exemplar.dtype != proposal.problem.dtype,
        exemplar.bottleneck != bound,
        -exemplar.arch,
    )


def _runs(exemplar: Exemplar, facts: Mapping[str, str]) -> bool:
    """Whether the machine can run it; a machine that does not say what it is counts as sm_80."""
    major, _, minor = facts.get("capability", "8.0").partition(".")
    here = int(major) * 10 + int(minor or 0)
    return here == exemplar.arch if exemplar.arch_only else here >= exemplar.arch


def text(shown: tuple[Exemplar, ...], *, sources: bool) -> str:
    """The part of a prompt: what each shows and why, and its source where code is to be written."""
    parts = []
    for exemplar in shown:
        parts.append(f"{exemplar.name}: {exemplar.technique}; {exemplar.why}")
        if sources:
            source = exemplar.candidate.read_text(encoding="utf-8")
            parts.append(f"```\n{source.rstrip()}\n```")
    return "\n".join(parts)
