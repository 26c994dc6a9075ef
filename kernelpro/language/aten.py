"""What each ATen operator means in the graph's small operator set.

Each rule takes a `Builder` and the call's arguments by schema name, with `Use` for tensors, and
returns the node that replaces the call, or None where it does not cover the call: then the
operator stays a torch call. Formulas are the operators' own definitions in torch's documentation.
Here are the rules of what only changes a shape, and the table of all.
"""

from kernelpro.language import aten_losses, aten_norms, aten_pointwise, aten_reductions
from kernelpro.language.builder import Arguments, Builder, NotCovered, Rule
from kernelpro.language.graph import Use

PRODUCTS = frozenset(["linear", "mm", "addmm", "bmm", "baddbmm", "matmul"])
"""Products of matrices: their result is always new memory, dense and in order."""

DENSE = PRODUCTS | {"contiguous", "arange"}
"""Library operators whose result is always dense and in order."""

FRESH = PRODUCTS | {
    *("convolution", "conv1d", "conv2d", "conv3d"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
}
"""Library operators whose result is always new memory, in whatever layout."""


def _same(b: Builder, a: Arguments) -> int:
    return int(a["self"].node) if isinstance(a["self"], Use) else b.tensor(a["self"])


def _copy(b: Builder, a: Arguments) -> int:
    x = _same(b, a)
    if not b.nodes[x].contiguous:
        raise NotCovered  # the copy has another layout
    return x


def _dropout(b: Builder, a: Arguments) -> int:
    if a["train"] and a["p"] != 0:
        raise NotCovered
    return _same(b, {"self": a["input"]})


def _shape_only(b: Builder, a: Arguments) -> int:
    return b.view(_same(b, a), b.shape)


def _expand(b: Builder, a: Arguments) -> int:
    x = _same(b, a)
    node = b.nodes[x]
    if node.shape == b.shape:
        return x
    if not node.contiguous:
        raise NotCovered
    return b.add(kind="expand", op="expand", operands=(x,), shape=b.shape, dtype=node.dtype)


RULES: dict[str, Rule] = {
    **aten_pointwise.RULES,
    **aten_reductions.RULES,
    **aten_norms.RULES,
    **aten_losses.RULES,
    **dict.fromkeys(
        [
            "view",
            "reshape",
            "unsqueeze",
            "squeeze",
            "flatten",
            "unflatten",
            "view_as",
            "reshape_as",
            "_unsafe_view",
        ],
        _shape_only,
    ),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expand),
    **dict.fromkeys(("alias", "detach"), _same),
    **dict.fromkeys(("clone", "contiguous", "lift_fresh_copy"), _copy),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _dropout),
}
