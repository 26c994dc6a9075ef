"""Candidates' sources as models see them: the C++ loader is one line, and is put back.

The loader is some 40 lines that every C++ candidate contains so that it stands alone; no model
needs to read or repeat them.
"""

import ast
import functools
from pathlib import Path

from kernelpro import targets

MARKER = "# [load_cpp: kernelpro puts the loader's text here]"


def folded(source: str) -> str:
    """The source with the loader's text as one line."""
    return source.replace(_loader(), MARKER + "\n")


def unfolded(source: str) -> str:
    """The source that stands alone: the marker's first line becomes the loader's text."""
    lines = source.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.strip() == MARKER:
            lines[number] = _loader()
            return "".join(lines)
    return source


def kernel_text(source: str) -> tuple[str, int]:
    """The C++ or CUDA text in a candidate's file, and the number of lines before its first.

    The longest text that a name of the module is given; empty, with 0, where there is none.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return "", 0
    best: tuple[str, int] = ("", 0)
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            value = node.value
            if (
                isinstance(value, ast.Constant)
                and isinstance(value.value, str)
                and len(value.value) > len(best[0])
            ):
                best = value.value, value.lineno - 1
    return best


@functools.cache
def _loader() -> str:
    text = Path(targets.__path__[0], "cpp_loader.py").read_text(encoding="utf-8")
    first = ast.parse(text).body[1]  # behind the docstring
    return "".join(text.splitlines(keepends=True)[first.lineno - 1 :])
