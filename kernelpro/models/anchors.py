"""Grounded instructions (STARK): a place marked in the source, and edits that keep to it.

A plan repeats the parent's source with one pair of anchors, each a comment of the language that
stands there, and its advice as comments between them. Code may change what lies between, and
whatever else the plan names: `includes` (the lines that include or import) or functions, such as
the one that launches the kernel. Everything else must stay, line by line; blanks at the ends of
lines do not count.
"""

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

BEGIN = "<<<IMPROVE BEGIN>>>"
END = "<<<IMPROVE END>>>"
INCLUDES = "includes"
MAX_NAMES = 3
"""So many further places may a plan name. Own choice: more is no single change."""

_COMMENT = {True: ("//", "/*"), False: ("#",)}
_INCLUDE = re.compile(r"\s*(#\s*include\b|import\b|from\s+[\w.]+\s+import\b|using\b|//|#|$)")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


class AnchorError(ValueError):
    """A plan's anchors or an edit are not as agreed; the message is for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounded:
    """A parent's source with the places that may change.

    Attributes:
        lines: the parent's lines, without blanks at their ends.
        begin: index of the first line between the anchors.
        end: index behind the last.
        advice: comments that the plan put between them.
        text: the parent's source with anchors and advice, as the code role sees it.
        includes: indices of lines that include or import, if the plan names them.
        functions: further ranges of lines that may change.
    """

    lines: tuple[str, ...]
    begin: int
    end: int
    advice: str
    text: str
    includes: frozenset[int] = frozenset()
    functions: tuple[tuple[int, int], ...] = ()


def read(parent: str, planned: str, names: Sequence[str] = ()) -> Grounded:
    """The places that a plan marks in a parent's source.

    Raises:
        AnchorError: the anchors are not right, the plan changed code, or a name is not there.
    """
    old, new = _lines(parent), _lines(planned)
    marks = [
        [n for n, line in enumerate(new) if mark in line and _other(mark) not in line]
        for mark in (BEGIN, END)
    ]
    if any(len(found) != 1 for found in marks):
        raise AnchorError(
            f"the source must have one line with {BEGIN} and one with {END}, but has "
            f"{len(marks[0])} and {len(marks[1])}"
        )
    first, last = marks[0][0], marks[1][0]
    if first >= last:
        raise AnchorError(f"{BEGIN} must come before {END}")
    inside = _inside_strings(new)
    if inside[first] != inside[last]:
        raise AnchorError("both anchors must lie in the same text: the kernel's, or Python's")
    place = inside[first]
    for n in (first, last):
        if not new[n].lstrip().startswith(_COMMENT[place is not None]):
            raise AnchorError(
                f"line {n + 1}: an anchor must be a comment of the language that stands there: "
                f"`{'//' if place is not None else '#'} {BEGIN if n == first else END}`"
            )
    before, after = new[:first], new[last + 1 :]
    end = len(old) - len(after)
    if old[:first] != before or end < first or old[end:] != after:
        where = _first_difference(old[:first] + old[max(end, first) :], before + after)
        raise AnchorError(
            f"a plan must repeat the source unchanged around its anchors, but {where}; code is "
            "changed by the code role alone"
        )
    advice = []
    kept = old[first:end]
    for line in new[first + 1 : last]:
        if kept and line == kept[0]:
            kept = kept[1:]
        elif not line or line.lstrip().startswith(_COMMENT[place is not None]):
            advice.append(line.strip())
        else:
            raise AnchorError(
                f"a plan adds comments alone between its anchors, but found `{line.strip()[:80]}`"
            )
    if kept:
        raise AnchorError(
            f"the plan leaves out `{kept[0].strip()[:80]}` between its anchors; it must repeat "
            "the source"
        )
    includes, functions = _named(old, names)
    return Grounded(
        lines=tuple(old),
        begin=first,
        end=end,
        advice="\n".join(line for line in advice if line),
        text="\n".join(new) + "\n",
        includes=includes,
        functions=functions,
    )


def check_edit(ground: Grounded, answer: str) -> str:
    """The answer without anchors, if it keeps to the places that may change.

    Raises:
        AnchorError: it changes something else; says where.
    """
    lines = _lines("\n".join(ln for ln in answer.splitlines() if BEGIN not in ln and END not in ln))
    position = 0
    segments = _frozen(ground)
    for number, (start, stop) in enumerate(segments):
        wanted = list(ground.lines[start:stop])
        found: int | None
        if start == 0:
            found = 0 if lines[: len(wanted)] == wanted else None
        elif stop == len(ground.lines) and number == len(segments) - 1:
            found = len(lines) - len(wanted)
            found = found if found >= position and lines[found:] == wanted else None
        else:
            found = _find(lines, wanted, position)
        gap = lines[position:found] if found is not None else []
        if found is None:
            raise AnchorError(_outside(ground, lines))
        if start and _is_includes(ground, start - 1) and not all(map(_INCLUDE.match, gap)):
            raise AnchorError(
                f"between the includes only includes and imports may be added; "
                f"{_outside(ground, lines)}"
            )
        position = found + len(wanted)
    if segments and segments[-1][1] == len(ground.lines) and position != len(lines):
        raise AnchorError(_outside(ground, lines))
    return "\n".join(lines) + "\n"


def function_range(lines: list[str], name: str) -> tuple[int, int] | None:
    """Index of a function's first line and of the line behind its last; None if it is not there.

    Args:
        lines: of the source.
        name: of a function of Python (`Class.method` too) or C++.
    """
    return _python_function(lines, name) or _c_function(lines, name)


def _free(ground: Grounded) -> set[int]:
    """Indices of the parent's lines that may change."""
    free = set(range(ground.begin, ground.end)) | ground.includes
    for first, behind in ground.functions:
        free |= set(range(first, behind))
    return free


def _frozen(ground: Grounded) -> list[tuple[int, int]]:
    """Ranges of lines that must stay, parted where something may change."""
    free = _free(ground)
    segments: list[tuple[int, int]] = []
    start: int | None = None
    for n in range(len(ground.lines) + 1):
        stays = n < len(ground.lines) and n not in free
        if start is not None and (not stays or n == ground.begin):
            segments.append((start, n))
            start = None
        if start is None and stays:
            start = n
    return segments


def _is_includes(ground: Grounded, line: int) -> bool:
    inside = ground.begin <= line < ground.end
    return line in ground.includes and not inside and ground.begin != line + 1


def _outside(ground: Grounded, lines: list[str]) -> str:
    """Say what an answer changed that was to stay."""
    free = _free(ground)
    matcher = difflib.SequenceMatcher(None, ground.lines, lines, autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind == "equal":
            continue
        touched = [n for n in range(i1, i2) if n not in free]
        if touched or (i1 == i2 and not {i1, i1 - 1} & free and i1 != ground.begin):
            n = touched[0] if touched else i1
            old = ground.lines[n].strip()[:80] if n < len(ground.lines) else "the end"
            new = lines[j1].strip()[:80] if j1 < j2 else "nothing"
            return (
                f"the edit goes outside the anchors: at line {n + 1} of the source, `{old}` "
                f"became `{new}`"
            )
    return "the edit goes outside the anchors"


def _named(
    lines: list[str], names: Sequence[str]
) -> tuple[frozenset[int], tuple[tuple[int, int], ...]]:
    """Lines of the places that a plan names besides its anchors."""
    if len(names) > MAX_NAMES:
        raise AnchorError(f"a plan may name {MAX_NAMES} further places, but names {len(names)}")
    includes: frozenset[int] = frozenset()
    ranges: list[tuple[int, int]] = []
    for name in names:
        if name == INCLUDES:
            found = re.compile(r"\s*(#\s*include\b|import\b|from\s+[\w.]+\s+import\b)")
            includes = frozenset(n for n, line in enumerate(lines) if found.match(line))
        elif not _NAME.fullmatch(name):
            raise AnchorError(f"`{name[:60]}` is neither `{INCLUDES}` nor the name of a function")
        elif (place := function_range(lines, name)) is None:
            raise AnchorError(f"the source has no function `{name[:60]}`")
        else:
            ranges.append(place)
    return includes, tuple(sorted(ranges))


def _python_function(lines: list[str], name: str) -> tuple[int, int] | None:
    owner, _, last = name.rpartition(".")
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None
    for node in ast.walk(tree):
        inside = [node] if not owner else []
        if owner and isinstance(node, ast.ClassDef) and node.name == owner:
            inside = list(node.body)
        for one in inside:
            if isinstance(one, ast.FunctionDef) and one.name == last and one.end_lineno:
                start = min([one.lineno, *(d.lineno for d in one.decorator_list)])
                return start - 1, one.end_lineno
    return None


def _c_function(lines: list[str], name: str) -> tuple[int, int] | None:
    """Range of a function of C++ by its braces; comments and strings with braces mislead it."""
    head = re.compile(rf"^[\w\s:*&<>,\"\[\]]*\b{re.escape(name)}\s*\(")
    for n, line in enumerate(lines):
        if not head.match(line):
            continue
        depth, opened = 0, False
        for m in range(n, len(lines)):
            for character in lines[m]:
                if character == "{":
                    depth, opened = depth + 1, True
                elif character == "}":
                    depth -= 1
                elif character == ";" and not opened:
                    break
            if opened and depth <= 0:
                return n, m + 1
            if not opened and lines[m].rstrip().endswith(";"):
                break
    return None


def _inside_strings(lines: list[str]) -> list[int | None]:
    """For each line the first line of the string that it lies in; None for lines of Python."""
    inside: list[int | None] = [None] * len(lines)
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
            if token.type == tokenize.STRING and token.start[0] < token.end[0]:
                for n in range(token.start[0], token.end[0]):
                    inside[n] = token.start[0]
    except (tokenize.TokenError, SyntaxError, IndentationError) as error:
        raise AnchorError(f"the source with anchors is no Python: {error}") from None
    return inside


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _find(lines: list[str], wanted: list[str], start: int) -> int | None:
    for n in range(start, len(lines) - len(wanted) + 1):
        if lines[n : n + len(wanted)] == wanted:
            return n
    return None


def _first_difference(old: list[str], new: list[str]) -> str:
    for n, (a, b) in enumerate(zip(old, new, strict=False)):
        if a != b:
            return f"line {n + 1}, `{a.strip()[:80]}`, became `{b.strip()[:80]}`"
    return f"{len(old)} lines became {len(new)}"


def _other(mark: str) -> str:
    return END if mark == BEGIN else BEGIN
