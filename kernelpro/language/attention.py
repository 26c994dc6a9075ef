"""Attention that is written as two products and a softmax, left to torch's own operator for it.

`aten.scaled_dot_product_attention` keeps the scores on chip, which otherwise are written and read
several times. The mask, the scale and what is added to the scores go along.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelpro.language.own_kernels import operator_of, turned, without_unread
from kernelpro.language.program import (
    Apply,
    Expression,
    Library,
    Name,
    Number,
    Program,
    Reshape,
    Stage,
    Type,
    fresh_names,
    names_in,
    read_by,
)

ATTENTION = "aten.scaled_dot_product_attention.default"
PRODUCTS = ("matmul", "bmm")
LOWEST = float("-inf")


@dataclass(frozen=True, slots=True)
class _Scores:
    """What becomes of the product of queries and keys before the softmax.

    Attributes:
        product: its name.
        scale: its factor.
        hidden: true for the places that are left out, or None.
        shown: true for those that are not, or None.
        added: what is added to the scores, or None.
    """

    product: str
    scale: float = 1.0
    hidden: Expression | None = None
    shown: Expression | None = None
    added: Name | None = None


def fused_attention(
    program: Program, product: Library, known: Mapping[str, Type]
) -> Program | None:
    """Compute softmax(scale x q k^T + mask) v by one operator, given its second product.

    None where the product is none of that kind, or others read what is between.
    """
    if operator_of(product) not in PRODUCTS or product.keywords:
        return None
    weights, values = product.arguments
    if not (isinstance(weights, Name) and isinstance(values, Name)):
        return None
    stage = next(
        (s for s in program.stages if isinstance(s, Stage) and s.body[-1].name == weights.name),
        None,
    )
    if stage is None or stage.kind != "rowwise" or not _read_once(program, weights.name):
        return None
    meanings = {line.name: line.value for line in stage.body}
    if any(line.dtype for line in stage.body) or _read_elsewhere(program, stage, product):
        return None
    scores = _scores(_softmax_of(_whole(weights, meanings)))
    first = next(
        (
            s
            for s in program.stages
            if isinstance(s, Library) and scores and s.name == scores.product
        ),
        None,
    )
    if scores is None or first is None or first.keywords or not _read_once(program, first.name):
        return None
    if operator_of(first) not in PRODUCTS or not all(isinstance(a, Name) for a in first.arguments):
        return None
    queries, across = first.arguments
    if stage.columns != known[first.name].shape[-1] or len(known[queries.name].shape) < 3:
        return None
    views = dict(turned(program, known))
    fresh = fresh_names(program)
    made: list[Library] = []
    keys = views.get(across.name)
    if keys is None:
        *outer, depth, count = known[across.name].shape
        kind = Type(known[across.name].dtype, (*outer, count, depth))
        keys = Name(fresh(f"{across.name}_turned"))
        made.append(Library(keys.name, kind, "aten.transpose.int", (across, -2, -1)))
    if len({known[one.name].shape[:-2] for one in (queries, across, values)}) > 1:
        return None
    mask: Name | None = scores.added
    if scores.hidden is not None or scores.shown is not None:
        if mask is not None or (found := _mask(scores, known, fresh("shown"))) is None:
            return None
        mask, more = found
        made += more
    if mask is not None and not _spreads(known, mask, made, known[first.name].shape):
        return None
    made.append(
        Library(
            product.name,
            product.type,
            ATTENTION,
            (queries, keys, values, mask, 0.0, False),
            (("scale", scores.scale),),
        )
    )
    stages: list[Stage | Library] = []
    for one in program.stages:
        if one is product:
            stages += made
        elif one is not stage and one is not first:
            stages.append(one)
    return without_unread(replace(program, stages=tuple(stages)), set(views))


def _whole(value: Expression, meanings: Mapping[str, Expression]) -> Expression:
    """Write an expression with what a stage's own names stand for."""
    match value:
        case Name(name) if name in meanings:
            return _whole(meanings[name], meanings)
        case Apply(op, operands, dtype):
            return Apply(op, tuple(_whole(one, meanings) for one in operands), dtype)
        case Reshape(kind, operand, shape):
            return Reshape(kind, _whole(operand, meanings), shape)
    return value


def _softmax_of(value: Expression) -> Expression | None:
    """What an expression is the softmax of, or None."""
    match value:
        case Apply("mul", (power, Apply("reciprocal", (Apply("sum", (total,)),)))) if (
            power == total
        ):
            pass
        case Apply("div", (power, Apply("sum", (total,)))) if power == total:
            pass
        case _:
            return None
    match power:
        case Apply("exp", (Apply("sub", (x, Apply("amax", (largest,)))),)) if x == largest:
            return x
    return None


def _scores(value: Expression | None) -> _Scores | None:
    """Take scores apart, or say by None that they are not a product's."""
    match value:
        case Apply("where", (condition, Number(low), rest)) if low == LOWEST:
            return _with_mask(_scores(rest), hidden=condition)
        case Apply("where", (condition, rest, Number(low))) if low == LOWEST:
            return _with_mask(_scores(rest), shown=condition)
        case Apply("add", (rest, Name() as added)) | Apply("add", (Name() as added, rest)):
            found = _scores(rest)
            if found is None or found.hidden or found.shown or found.added:
                return None
            return replace(found, added=added)
        case Apply("mul", (Name(product), Number(scale))):
            return _Scores(product, scale)
        case Apply("div", (Name(product), Number(scale))):
            return _Scores(product, 1.0 / scale)
        case Name(product):
            return _Scores(product)
    return None


def _with_mask(
    found: _Scores | None, *, hidden: Expression | None = None, shown: Expression | None = None
) -> _Scores | None:
    if found is None or found.hidden or found.shown or found.added:
        return None
    return _Scores(found.product, found.scale, hidden, shown)


def _mask(
    scores: _Scores, known: Mapping[str, Type], name: str
) -> tuple[Name, list[Library]] | None:
    """Return the mask that is true where a score counts, and the calls that make it."""
    condition = scores.hidden if scores.hidden is not None else scores.shown
    arguments: tuple[Name | float, ...]
    match condition:
        case Name(source) if known[source].dtype == "bool":
            if scores.hidden is None:
                return Name(source), []
            op, arguments = "aten.logical_not.default", (Name(source),)
        case Apply("eq" | "ne" as compared, (Name(source), Number(value))):
            kept = (compared == "eq") == (scores.hidden is None)
            op, arguments = f"aten.{'eq' if kept else 'ne'}.Scalar", (Name(source), value)
        case _:
            return None
    kind = Type("bool", known[source].shape)
    return Name(name), [Library(name, kind, op, arguments)]


def _spreads(
    known: Mapping[str, Type], mask: Name, made: list[Library], shape: tuple[int, ...]
) -> bool:
    """Whether a mask has a place for each score, as it is or repeated."""
    of = next((one.type for one in made if one.name == mask.name), known.get(mask.name))
    if of is None or len(of.shape) > len(shape) or len(of.shape) < 2:
        return False
    pairs = zip(reversed(of.shape), reversed(shape), strict=False)
    return all(size in (1, whole) for size, whole in pairs)


def _read_once(program: Program, name: str) -> bool:
    """Whether one stage alone reads a value, and forward does not return it."""
    readers = sum(any(n.name == name for n in names_in(read_by(s))) for s in program.stages)
    return readers == 1 and not any(n.name == name for n in names_in(program.result))


def _read_elsewhere(program: Program, stage: Stage, product: Library) -> bool:
    """Whether anything but the product reads what a stage computes."""
    own = {line.name for line in stage.body}
    readers = [names_in(program.result)]
    readers += [names_in(read_by(s)) for s in program.stages if s is not stage and s is not product]
    return any(name.name in own for found in readers for name in found)
