"""Where a finding points in a candidate's source: the function to put anchors around."""

import ast
import re
from collections.abc import Iterable

from kernelpro.models.anchors import BEGIN, END, AnchorError, Grounded, function_range, read
from kernelpro.records import Diagnosis

FORWARD = ("ModelNew.forward", "Model.forward")
_KERNEL = re.compile(r'(?:extern "C"|__global__)[^;{}()]*?(\w+)\s*\(')


def suggested(source: str, diagnoses: Iterable[Diagnosis]) -> tuple[Grounded, str] | None:
    """The source with anchors where the first finding points that names a function of it.

    Where none does, around the kernel that Python calls; around `forward` where there is none, as
    in the reference.

    Returns:
        The anchored source, and the finding's detector or empty; None where nothing fits, such as
        in a source that is no Python.
    """
    lines = source.splitlines()
    wanted: list[tuple[str, str, str]] = []
    for found in diagnoses:
        advice = found.actions[0].instruction if found.actions else found.bottleneck
        for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", f"{found.where} {found.kernel}")):
            wanted.append((name, found.detector, advice))
    wanted += [(name, "", "") for name in (*_KERNEL.findall(source), *FORWARD)]
    for name, detector, advice in wanted:
        if (place := function_range(lines, name)) is not None:
            try:
                return read(source, _anchored(source, lines, *place, advice)), detector
            except AnchorError:
                continue
    return None


def _anchored(source: str, lines: list[str], first: int, behind: int, advice: str) -> str:
    mark = "//" if _in_text(source, first) else "#"
    blank = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    head = [f"{blank}{mark} {BEGIN}"]
    if advice:
        head.append(f"{blank}{mark} {' '.join(advice.split())}")
    return "\n".join(
        [*lines[:first], *head, *lines[first:behind], f"{blank}{mark} {END}", *lines[behind:]]
    )


def _in_text(source: str, line: int) -> bool:
    """Whether a line, counted from 0, lies in a string of several lines."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.lineno - 1 < line < (node.end_lineno or 0)
        for node in ast.walk(tree)
    )
