"""What ATen's losses mean."""

from collections.abc import Callable

from kernelpro.language.aten_reductions import MOST_PLACES, reduce_all
from kernelpro.language.builder import Arguments, Builder, NotCovered, Rule
from kernelpro.language.graph import Use


def _nll(b: Builder, logarithms: int, a: Arguments) -> int:
    target = a["target"].node
    node, index = b.nodes[logarithms], b.nodes[target]
    if a["weight"] is not None or index.dtype != "int64" or len(node.shape) != 2:
        raise NotCovered
    rows, columns = node.shape
    if index.shape != (rows,) or columns < 2 or not index.contiguous:
        raise NotCovered
    picked = b.add(
        kind="gather",
        op="gather",
        operands=(logarithms, target),
        shape=(rows,),
        dtype=node.dtype,
        columns=columns,
    )
    kept = b.pointwise("ne", b.operand(Use(node=target), integers=True), float(a["ignore_index"]))
    loss = b.pointwise("where", kept, b.pointwise("neg", picked), 0.0)
    if (reduction := a["reduction"]) == 0:
        return loss
    if b.shared_rows and node.dtype == "float32" and rows <= MOST_PLACES:
        total = b.reduce("sum", loss, b.rows(loss, -1))
        if reduction == 2:
            return total
        ones = b.pointwise("where", kept, 1.0, 0.0)
        return b.pointwise("div", total, b.reduce("sum", ones, b.rows(ones, -1)))
    total = b.add(
        kind="library",
        op="torch.sum",
        arguments=(Use(node=loss),),
        shape=(),
        dtype=node.dtype,
    )
    if reduction == 2:
        return total
    count = b.add(
        kind="library", op="torch.sum", arguments=(Use(node=kept),), shape=(), dtype="int64"
    )
    return b.add(
        kind="library",
        op="torch.div",
        arguments=(Use(node=total), Use(node=count)),
        shape=(),
        dtype=node.dtype,
    )


def _nll_loss(b: Builder, a: Arguments) -> int:
    return _nll(b, b.tensor(a["self"]), a)


def _cross_entropy(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    if a["label_smoothing"] != 0 or len(b.nodes[x].shape) != 2:
        raise NotCovered
    return _nll(b, b.log_softmax(x, b.rows(x, -1)), a)


def _loss(terms: Callable[[Builder, int, int], int]) -> Rule:
    def rule(b: Builder, a: Arguments) -> int:
        x, y = b.tensor(a["self"]), b.tensor(a["target"])
        if b.nodes[x].shape != b.nodes[y].shape or not b.nodes[x].shape:
            raise NotCovered
        losses = terms(b, x, y)
        reduction = {0: "", 1: "mean", 2: "sum"}[a["reduction"]]
        return reduce_all(b, reduction, losses) if reduction else losses

    return rule


def _smooth_l1(b: Builder, a: Arguments) -> int:
    if (beta := float(a["beta"])) <= 0.0:
        return _loss(lambda b, x, y: b.pointwise("abs", b.pointwise("sub", x, y)))(b, a) or 0

    def terms(b: Builder, x: int, y: int) -> int:
        far = b.pointwise("abs", b.pointwise("sub", x, y))
        near = b.pointwise("mul", b.pointwise("mul", far, far), 0.5 / beta)
        linear = b.pointwise("sub", far, 0.5 * beta)
        return b.pointwise("where", b.pointwise("lt", far, beta), near, linear)

    return _loss(terms)(b, a) or 0


def _huber(b: Builder, a: Arguments) -> int:
    delta = float(a["delta"])

    def terms(b: Builder, x: int, y: int) -> int:
        far = b.pointwise("abs", b.pointwise("sub", x, y))
        near = b.pointwise("mul", b.pointwise("mul", far, far), 0.5)
        linear = b.pointwise("mul", b.pointwise("sub", far, 0.5 * delta), delta)
        return b.pointwise("where", b.pointwise("le", far, delta), near, linear)

    return _loss(terms)(b, a) or 0


def _kl_div(b: Builder, a: Arguments) -> int:
    """target * (log target - x), which is 0 where the target is; see torch.nn.KLDivLoss."""

    def terms(b: Builder, x: int, y: int) -> int:
        if a["log_target"]:
            return b.pointwise("mul", b.pointwise("exp", y), b.pointwise("sub", y, x))
        entropy = b.pointwise("mul", y, b.pointwise("log", y))
        entropy = b.pointwise("where", b.pointwise("eq", y, 0.0), 0.0, entropy)
        return b.pointwise("sub", entropy, b.pointwise("mul", y, x))

    return _loss(terms)(b, a) or 0


def _triplet_margin(b: Builder, a: Arguments) -> int:
    """max(|a - p| - |a - n| + margin, 0) of each row; see torch.nn.TripletMarginLoss."""
    anchor, positive, negative = (b.tensor(a[n]) for n in ("anchor", "positive", "negative"))
    shapes = {b.nodes[x].shape for x in (anchor, positive, negative)}
    if a["swap"] or float(a["p"]) != 2.0 or len(shapes) > 1 or len(shapes.pop()) != 2:
        raise NotCovered
    span = b.rows(anchor, -1)

    def distance(other: int) -> int:
        apart = b.pointwise("add", b.pointwise("sub", anchor, other), float(a["eps"]))
        return b.pointwise("sqrt", b.reduce("sum", b.pointwise("mul", apart, apart), span))

    gap = b.pointwise("sub", distance(positive), distance(negative))
    losses = b.clamp(b.pointwise("add", gap, float(a["margin"])), 0.0, None)
    reduction = {0: "", 1: "torch.mean", 2: "torch.sum"}[a["reduction"]]
    if not reduction:
        return losses
    return b.add(
        kind="library",
        op=reduction,
        arguments=(Use(node=losses),),
        shape=(),
        dtype=b.nodes[losses].dtype,
    )


def _bce_with_logits(b: Builder, a: Arguments) -> int:
    """max(x, 0) - x y + log(1 + exp(-|x|)); see torch.nn.BCEWithLogitsLoss."""
    if a["weight"] is not None or a["pos_weight"] is not None:
        raise NotCovered

    def terms(b: Builder, x: int, y: int) -> int:
        power = b.pointwise("exp", b.pointwise("neg", b.pointwise("abs", x)))
        linear = b.pointwise("sub", b.pointwise("relu", x), b.pointwise("mul", x, y))
        return b.pointwise("add", linear, b.pointwise("log1p", power))

    return _loss(terms)(b, a) or 0


def _cosine_similarity(b: Builder, a: Arguments) -> int:
    """Append the product of two rows, each divided by its norm, which is at least eps."""
    one, two = b.tensor(a["x1"]), b.tensor(a["x2"])
    if b.nodes[one].shape != b.nodes[two].shape:
        raise NotCovered
    span, eps = b.rows(one, a["dim"]), float(a["eps"])

    def norm(x: int) -> int:
        squares = b.reduce("sum", b.pointwise("mul", x, x), span)
        return b.pointwise("maximum", b.pointwise("sqrt", squares), eps)

    dot = b.reduce("sum", b.pointwise("mul", one, two), span)
    return b.pointwise("div", b.pointwise("div", dot, norm(one)), norm(two))


def _squared_error(b: Builder, x: int, y: int) -> int:
    difference = b.pointwise("sub", x, y)
    return b.pointwise("mul", difference, difference)


RULES: dict[str, Rule] = {
    "smooth_l1_loss": _smooth_l1,
    "huber_loss": _huber,
    "kl_div": _kl_div,
    "triplet_margin_loss": _triplet_margin,
    "binary_cross_entropy_with_logits": _bce_with_logits,
    "cosine_similarity": _cosine_similarity,
    "nll_loss": _nll_loss,
    "nll_loss_nd": _nll_loss,
    "cross_entropy_loss": _cross_entropy,
    "mse_loss": _loss(_squared_error),
    "l1_loss": _loss(lambda b, x, y: b.pointwise("abs", b.pointwise("sub", x, y))),
}
