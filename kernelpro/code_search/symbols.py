"""Names that a source file defines, by its lines: no parser, so that every header can be read.

A C++ declaration is known by the shape of its line, which is right for code that is written as
CUTLASS is: one declaration begins a line, calls inside bodies are indented.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

TYPE, FUNCTION, ALIAS, MACRO, CONSTANT = "type", "function", "alias", "macro", "constant"

INDENT = 4
"""Most blanks before a declaration: a member of a class in a namespace that is not indented."""

_TYPE = re.compile(
    r"^\s*(?:template\s*<.*>\s*)?(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+"
    r"(?:alignas\s*\([^)]*\)\s*|[A-Z_]+(?:\([^)]*\))?\s+)*([A-Za-z_]\w*)\s*(?:[<:{]|final\b|$)"
)
_ALIAS = re.compile(r"^\s*(?:template\s*<.*>\s*)?using\s+([A-Za-z_]\w*)\s*(?:=|$)")
_MACRO = re.compile(r"^\s*#\s*define\s+([A-Za-z_]\w*)")
_CONSTANT = re.compile(r"^\s*(?:static\s+|inline\s+)*constexpr\s+[\w:<>, ]+\s([A-Za-z_]\w*)\s*[={]")
_FUNCTION = re.compile(r"^( *)((?:[\w:<>,&*\[\]]+\s+)*[&*]*)([A-Za-z_]\w*)\s*\(")
_RESULT = re.compile(r"^(?!return\b|#)[\w\s:<>,&*()]*[\w>&*]$")
"""A line above a name that can be its result type and qualifiers."""
_PYTHON = re.compile(r"^\s*(?:async\s+)?(def|class)\s+([A-Za-z_]\w*)")
_NO_FUNCTION = frozenset(
    {"if", "for", "while", "switch", "return", "sizeof", "alignof", "decltype", "static_assert"}
    | {"assert", "catch", "else", "do", "throw", "new", "delete", "defined", "operator", "noexcept"}
    | {"requires", "using", "typedef", "case", "goto", "alignas", "__align__", "__attribute__"}
    | {"void", "bool", "char", "int", "unsigned", "long", "short", "float", "double", "auto"}
    | {"const", "constexpr", "explicit", "__launch_bounds__", "asm", "volatile"}
)
_NO_CALLER = (
    _NO_FUNCTION
    - {"void", "bool", "char", "int", "unsigned", "long", "short"}
    - {
        *("float", "double", "auto", "const", "constexpr", "explicit", "__launch_bounds__"),
        *("volatile", "requires", "__attribute__", "__align__", "alignas"),
    }
)
"""Words before a name that make it no declaration."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name, what kind of thing it is, and its line from 1."""

    name: str
    kind: str
    line: int


def symbols(path: str, text: str) -> Iterator[Symbol]:
    """Names that a file defines, in order; of prose there are none."""
    if path.endswith((".md", ".rst")):
        return
    lines = text.splitlines()
    if path.endswith(".py"):
        for number, line in enumerate(lines, start=1):
            if found := _PYTHON.match(line):
                yield Symbol(found[2], TYPE if found[1] == "class" else FUNCTION, number)
        return
    before = ""
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith(("//", "*", "/*")):
            continue
        if declared := _one(line, before):
            yield Symbol(*declared, number)
        before = text


def parts(name: str) -> list[str]:
    """The words of a name, in lower case: `make_tiled_copy`, `TiledMma`, `SM90_TMA_LOAD`."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return [word.lower() for word in words]


def _one(line: str, above: str) -> tuple[str, str] | None:
    if "#" in line and (found := _MACRO.match(line)):
        return found[1], MACRO
    if found := _TYPE.match(line):
        return None if line.rstrip().endswith(";") else (found[1], TYPE)
    if "using" in line and (found := _ALIAS.match(line)):
        return found[1], ALIAS
    if "constexpr" in line and (found := _CONSTANT.match(line)):
        return found[1], CONSTANT
    if "(" in line and (found := _FUNCTION.match(line)):
        before, name = found[2].split(), found[3]
        if len(found[1]) > INDENT or name in _NO_FUNCTION or set(before) & _NO_CALLER:
            return None
        if not before and (line.rstrip().endswith(";") or not _RESULT.search(above)):
            return None  # a call, or an argument
        return name, FUNCTION
    return None
