"""Rewrites by linear algebra: fewer operations or copies for the same function, in any schedule.

A product of which only sums are wanted needs not be computed: its operand is summed instead, and a
product with a diagonal matrix multiplies each element once. The sums are taken in another order
than the reference's, so the judge's blessing is needed as for any rewrite.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelpro.language.attention import fused_attention
from kernelpro.language.column_parts import split_product
from kernelpro.language.own_kernels import PRODUCTS, operand, operator_of, turned, without_unread
from kernelpro.language.program import (
    Apply,
    Assign,
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
from kernelpro.language.rewrites import Rewritten, folded
from kernelpro.language.schedule import from_knobs

NARROW = ("float16", "bfloat16")
DIAGONALS = ("diag", "diag_embed")
SUMS = ("sum", "mean")


def algebra(program: Program) -> Iterator[Rewritten]:
    """Yield what each rewrite makes of a program, where it changes anything.

    The kernels that come out have plain schedules.
    """
    # Sizes of values are only known once the program has been lowered, which needs torch.
    from kernelpro.language.lower import lower, types
    from kernelpro.language.parse import ProgramError

    if not any(map(_is_product, program.stages)):
        return
    try:
        known = types(program)
    except ProgramError:
        return
    found: list[Rewritten] = []
    for stage in program.stages:
        if not _is_product(stage):
            continue
        if (changed := diagonal_product(program, stage, known)) is not None:
            found.append(Rewritten(program=changed, name="diagonal_product", why=SCALES))
        if isinstance(stage, Library):
            for name, (rule, why) in RULES.items():
                if (changed := rule(program, stage, known)) is not None:
                    found.append(Rewritten(program=changed, name=name, why=why))
    for one in found:
        try:
            lower(one.program)
        except ProgramError:
            continue
        yield one


@dataclass(frozen=True, slots=True)
class _Factors:
    """A product's operands: left [..., m, k], right [k, n] or, turned, [n, k], bias [n]."""

    left: Name | Reshape
    right: Name
    turned: bool
    bias: Name | None
    depth: int


def sum_of_product(program: Program, product: Library, known: Mapping[str, Type]) -> Program | None:
    """Sum the right matrix instead of the product's rows: sum(x @ w) = x @ sum(w).

    With m x n x k multiplications before, there are m x k after, and n x k additions.
    """
    factors = _factors(product, program, known)
    place = _only_reader(program, product.name)
    if factors is None or place is None:
        return None
    stage = program.stages[place]
    assert isinstance(stage, Stage)
    if stage.kind != "rowwise" or stage.columns != known[product.name].shape[-1]:
        return None
    fresh = fresh_names(program)
    total = fresh(f"{factors.right.name}_sum")
    columns, depth = stage.columns, factors.depth
    of_right = Assign(total, Apply("sum", (_wide(factors.right, known),)))
    plain = _plain(program)
    if factors.turned:
        shorter = [Stage("colwise", depth, columns, plain, (of_right,), inner=depth)]
    else:
        shorter = [Stage("rowwise", depth, columns, plain, (of_right,))]

    def added(value: Expression) -> Expression | None:
        """Sum what is added to every row of the product."""
        if not isinstance(value, Name):
            return None
        if known[value.name].shape != (columns,):
            scale = Number(float(columns))
            return Apply("mul", (value, scale)) if _is_per_row(known[value.name]) else None
        name = fresh(f"{value.name}_sum")
        line = Assign(name, Apply("sum", (_wide(value, known),)))
        shorter.append(Stage("rowwise", 1, columns, plain, (line,)))
        return Name(name)

    vector = Reshape("view", Name(total), (depth,))
    result: Expression = Apply("sum", (Apply("mul", (factors.left, vector)),))
    if factors.bias is not None:
        bias = added(factors.bias)
        assert bias is not None
        result = Apply("add", (result, bias))
    sums = _Sums(product.name, result, columns, {"sum": 1.0, "mean": 1.0 / columns}, added)
    body = _summed(stage, program, sums, known, wide=True)
    if body is None or not all(_is_known_per_row(line, body, known) for line in body):
        return None
    rest = replace(stage, columns=depth, schedule=plain, body=body)
    return _replaced(program, product, [*shorter, rest], known)


def product_of_sum(program: Program, product: Library, known: Mapping[str, Type]) -> Program | None:
    """Multiply the sum of rows instead of each: mean(x @ w, 1) = mean(x, 1) @ w."""
    factors = _factors(product, program, known)
    place = _only_reader(program, product.name)
    if factors is None or place is None or not isinstance(factors.left, Name):
        return None
    stage = program.stages[place]
    assert isinstance(stage, Stage)
    shape = known[factors.left.name].shape
    columns = known[product.name].shape[-1]
    if stage.kind != "colwise" or stage.inner != columns or shape[-2] != stage.columns:
        return None
    fresh = fresh_names(program)
    mean, small = fresh(f"{factors.left.name}_mean"), fresh(f"{product.name}_mean")
    blocks = stage.rows // stage.inner
    plain = _plain(program)
    shorter = Stage(
        "colwise",
        blocks * factors.depth,
        stage.columns,
        plain,
        (Assign(mean, Apply("mean", (factors.left,))),),
        inner=factors.depth,
    )
    arguments = tuple(
        Name(mean) if argument == factors.left else argument for argument in product.arguments
    )
    assert product.type is not None
    smaller = replace(
        product,
        name=small,
        arguments=arguments,
        type=Type(product.type.dtype, (*shape[:-2], 1, columns)),
    )
    # In exact arithmetic the mean of a product's rows is the product of their mean, bias and all.

    def added(value: Expression) -> Expression | None:
        """Take the mean of what is added to every row of the product: it repeats."""
        is_same = isinstance(value, Name) and _is_same_for_rows(known[value.name])
        return value if is_same else None

    sums = _Sums(product.name, Name(small), 1.0, {"sum": float(stage.columns), "mean": 1.0}, added)
    body = _summed(stage, program, sums, known)
    names = [found.name for line in body or () for found in names_in(line.value)]
    own = {small, *(line.name for line in body or ())}
    if body is None or not all(n in own or _is_same_for_rows(known[n]) for n in names):
        return None
    if len(body) == 1 and body[0].value == Name(small):
        smaller = replace(smaller, name=body[0].name)
        return _replaced(program, product, [shorter, smaller], known)
    rows = blocks if set(names) - own else 1  # other operands repeat by rows
    rest = Stage("map", rows, stage.rows // rows, plain, body)
    return _replaced(program, product, [shorter, smaller, rest], known)


def diagonal_product(
    program: Program, product: Stage | Library, known: Mapping[str, Type]
) -> Program | None:
    """Multiply by the diagonal instead of a matrix of zeros: diag(a) @ b = a[:, None] * b."""
    diagonals = {
        stage.name: (stage.arguments[0], known[stage.arguments[0].name])
        for stage in program.stages
        if isinstance(stage, Library)
        and operator_of(stage) in DIAGONALS
        and len(stage.arguments) == 1
        and not stage.keywords
        and isinstance(stage.arguments[0], Name)
        and len(known[stage.arguments[0].name].shape) == 1
    }
    if isinstance(product, Library):
        if operator_of(product) not in ("mm", "matmul") or product.keywords:
            return None
        body = [Assign(product.name, Apply("matmul", product.arguments))]
    else:
        body = list(product.body)
    first = _scaled(body[0].value, diagonals)
    if first is None or len(shape := known[body[0].name].shape) != 2:
        return None
    body[0] = replace(body[0], value=first)
    stage = Stage("map", shape[0], shape[1], _plain(program), tuple(body))
    stages = tuple(stage if one is product else one for one in program.stages)
    return without_unread(replace(program, stages=stages), set(diagonals))


def _scaled(value: Any, diagonals: Mapping[str, tuple[Name, Type]]) -> Expression | None:
    """A product with a diagonal matrix by its diagonal, in whatever is done with it; or None."""
    match value:
        case Apply(op="matmul", operands=(Name() as left, Name() as right)):
            if left.name in diagonals:
                diagonal, kind = diagonals[left.name]
                return Apply("mul", (right, Reshape("view", diagonal, (*kind.shape, 1))))
            if right.name in diagonals:
                return Apply("mul", (left, diagonals[right.name][0]))
        case Apply():
            each = [_scaled(one, diagonals) for one in value.operands]
            if any(one is not None for one in each):
                pairs = zip(each, value.operands, strict=True)
                return replace(value, operands=tuple(new or old for new, old in pairs))
    return None


_Rule = Callable[[Program, Library, Mapping[str, Type]], Program | None]

RULES: dict[str, tuple[_Rule, str]] = {
    "sum_of_product": (
        sum_of_product,
        "only sums of the product's rows are wanted, so its right matrix is summed instead",
    ),
    "product_of_sum": (
        product_of_sum,
        "only sums over the product's rows are wanted, so they are summed before it",
    ),
    "split_product": (
        split_product,
        "parts of the product's columns are computed apart, so that none must be copied",
    ),
    "fused_attention": (
        fused_attention,
        "torch's operator for attention keeps the scores on chip",
    ),
}
"""Rewrites of torch's products: name -> function and why."""

SCALES = "all that the diagonal matrix does is to scale rows or columns"


def _is_product(stage: Stage | Library) -> bool:
    if isinstance(stage, Stage):
        return stage.kind == "gemm"
    return operator_of(stage) in PRODUCTS


def _plain(program: Program) -> Any:
    return from_knobs(program.target, {})


def _factors(product: Library, program: Program, known: Mapping[str, Type]) -> _Factors | None:
    """The operands of a product that is no batch of several, or None."""
    arguments = list(product.arguments)
    op, bias = operator_of(product), None
    if product.keywords or product.type is None:
        return None
    if op == "addmm":
        bias = arguments.pop(0)
    if op == "linear" and len(arguments) == 3:
        bias = arguments.pop()
    views = dict(turned(program, known))
    left, right = (operand(value, views) for value in arguments)
    is_turned = op == "linear"
    if isinstance(right, Apply):
        (right,) = right.operands
        is_turned = not is_turned
    if not (isinstance(left, Name | Reshape) and isinstance(right, Name)):
        return None
    if not (bias is None or isinstance(bias, Name)):
        return None
    if bias is not None and known[bias.name].shape != product.type.shape[-1:]:
        return None
    shape = left.shape if isinstance(left, Reshape) else known[left.name].shape
    sizes = known[right.name].shape
    if len(sizes) != 2 or len(shape) < 2 or shape[-1] == 1 or product.type.shape[-1] == 1:
        return None
    return _Factors(left, right, is_turned, bias, shape[-1])


def _only_reader(program: Program, name: str) -> int | None:
    """Place of the kernel that alone reads a value, or None."""
    if any(found.name == name for found in names_in(program.result)):
        return None
    places = [
        place
        for place, stage in enumerate(program.stages)
        if any(found.name == name for found in names_in(read_by(stage)))
    ]
    if len(places) != 1 or not isinstance(program.stages[places[0]], Stage):
        return None
    return places[0]


@dataclass(frozen=True, slots=True)
class _Sums:
    """How a kernel's sums over a product are found without it.

    Attributes:
        name: the product.
        total: what its sum is, up to a factor.
        ones: what the sum of as many ones is, up to that factor.
        factors: the factor of each kind of sum.
        added: gives the sum of what is added to the product, up to the factor, or None.
    """

    name: str
    total: Expression
    ones: float
    factors: Mapping[str, float]
    added: Callable[[Expression], Expression | None]

    def read_in(self, value: Expression) -> bool:
        """Whether an expression reads the product."""
        return any(found.name == self.name for found in names_in(value))


def _summed(
    stage: Stage,
    program: Program,
    sums: _Sums,
    known: Mapping[str, Type],
    *,
    wide: bool = False,
) -> tuple[Assign, ...] | None:
    """The stage's body with each sum of a linear function of a product replaced, or None.

    Args:
        stage: a kernel that reduces rows.
        program: the whole.
        sums: what to replace.
        known: types of all values.
        wide: whether the sums are float32 whatever the product's type.
    """
    outside = {found.name for found in names_in(program.result)}
    for other in program.stages:
        if other is not stage:
            outside |= {found.name for found in names_in(read_by(other))}
    inlined: dict[str, Expression] = {}  # values that have an element for each of the row
    body: list[Assign] = []
    for line in stage.body:
        value = _inlined(line.value, inlined)
        if _reads_whole(value, sums.name):
            # One element for each of the row: it may only be summed, by a later line.
            if line.name in outside or line.dtype:
                return None
            inlined[line.name] = value
            continue
        changed = _replaced_in(value, sums)
        if changed is None:
            return None
        changed, kind = folded(changed), known[line.name].dtype
        if wide and kind in NARROW:
            changed, line = Apply("cast", (changed,), kind), replace(line, dtype="")
        body.append(replace(line, value=changed))
    return tuple(body)


def _wide(value: Name, known: Mapping[str, Type]) -> Expression:
    """A value in float32, so that a sum of many keeps its bits."""
    return Apply("cast", (value,), "float32") if known[value.name].dtype in NARROW else value


def _inlined(value: Expression, inlined: Mapping[str, Expression]) -> Expression:
    if isinstance(value, Name):
        return inlined.get(value.name, value)
    if isinstance(value, Apply):
        return replace(value, operands=tuple(_inlined(one, inlined) for one in value.operands))
    if isinstance(value, Reshape):
        return replace(value, operand=_inlined(value.operand, inlined))
    return value


def _reads_whole(value: Expression, name: str) -> bool:
    """Whether an expression reads a value outside of any sum of it."""
    if isinstance(value, Name):
        return value.name == name
    if isinstance(value, Reshape):
        return _reads_whole(value.operand, name)
    if isinstance(value, Apply):
        return value.op not in SUMS and any(_reads_whole(one, name) for one in value.operands)
    return False


def _replaced_in(value: Expression, sums: _Sums) -> Expression | None:
    """An expression with its sums of the product replaced; None where one is not linear."""
    if isinstance(value, Apply):
        if value.op in SUMS and sums.read_in(value):
            inner = _linear(value.operands[0], sums)
            factor = sums.factors[value.op]
            return (
                inner if inner is None or factor == 1.0 else Apply("mul", (inner, Number(factor)))
            )
        operands = [_replaced_in(one, sums) for one in value.operands]
        if any(one is None for one in operands):
            return None
        return replace(value, operands=tuple(one for one in operands if one is not None))
    if isinstance(value, Reshape):
        inner = _replaced_in(value.operand, sums)
        return None if inner is None else replace(value, operand=inner)
    return value


def _linear(value: Expression, sums: _Sums) -> Expression | None:
    """What the sum of a linear function of the product is; None where it is not linear."""
    match value:
        case Name():
            return sums.total if value.name == sums.name else None
        case Apply(op="neg", operands=(x,)):
            inner = _linear(x, sums)
            return None if inner is None else Apply("neg", (inner,))
        case Apply(op="add" | "sub" | "mul" | "div" as op, operands=(x, y)):
            first, second = sums.read_in(x), sums.read_in(y)
        case _:
            return None
    if second and (first or op == "div"):
        return None
    each = []
    for one, reads in ((x, first), (y, second)):
        if reads:
            each.append(_linear(one, sums))
        elif op in ("mul", "div"):
            each.append(one)
        elif isinstance(one, Number):
            each.append(Number(one.value * sums.ones))
        else:
            each.append(sums.added(one))
    left, right = each
    return None if left is None or right is None else Apply(op, (left, right))


def _is_per_row(kind: Type) -> bool:
    """Whether a value has one element for each row, or one in all."""
    return not kind.shape or kind.shape[-1] == 1


def _is_known_per_row(line: Assign, body: Sequence[Assign], known: Mapping[str, Type]) -> bool:
    """Whether all that a line reads outside of sums has one element for each row."""
    own = {one.name for one in body}

    def fits(value: Expression) -> bool:
        if isinstance(value, Name):
            return value.name in own or value.name not in known or _is_per_row(known[value.name])
        if isinstance(value, Reshape):
            return fits(value.operand)
        return not isinstance(value, Apply) or value.op == "sum" or all(map(fits, value.operands))

    return fits(line.value)


def _is_same_for_rows(kind: Type) -> bool:
    """Whether a value repeats along the dimension before the last."""
    return len(kind.shape) < 2 or kind.shape[-2] == 1


def _replaced(
    program: Program,
    product: Library,
    stages: Sequence[Stage | Library],
    known: Mapping[str, Type],
) -> Program:
    """The program with other stages in the place of the product's reader, and no product."""
    place = _only_reader(program, product.name)
    assert place is not None
    kept = (*program.stages[:place], *stages, *program.stages[place + 1 :])
    kept = tuple(stage for stage in kept if stage is not product)
    views = {name for name, _ in turned(program, known)}
    return without_unread(replace(program, stages=kept), views)
