"""Names of C++ symbols as people write them: through c++filt, or for simple ones without it."""

import re
import shutil
import subprocess
from collections.abc import Sequence

LIMIT_S = 10.0

_BUILTIN = {
    "v": "void", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long",
    "x": "long long", "y": "unsigned long long", "f": "float", "d": "double",
}  # fmt: skip
_LITERAL = re.compile(r"^L[a-z](n?\d+)E")


def demangled(symbols: Sequence[str]) -> list[str]:
    """The names in the same order; a symbol that cannot be read stays as it is."""
    if not any(symbol.startswith("_Z") for symbol in symbols):
        return list(symbols)
    tool = shutil.which("c++filt") or shutil.which("cu++filt")
    if tool:
        try:
            done = subprocess.run(
                [tool], input="\n".join(symbols), capture_output=True, text=True,
                timeout=LIMIT_S, check=True,
            )  # fmt: skip
            names = done.stdout.splitlines()
            if len(names) == len(symbols):
                return names
        except (OSError, subprocess.SubprocessError):
            pass  # the own reading below is good enough for names
    return [plain(symbol) for symbol in symbols]


def plain(symbol: str) -> str:
    """Read scopes, name and template arguments of builtin types; parameters are left out."""
    if not symbol.startswith("_Z"):
        return symbol
    rest = symbol[2:]
    nested = rest.startswith("N")
    rest = rest[1:] if nested else rest
    parts: list[str] = []
    while rest:
        if match := re.match(r"\d+", rest):
            size = int(match[0])
            name = rest[match.end() : match.end() + size]
            parts.append("(anonymous namespace)" if name.startswith("_GLOBAL__N") else name)
            rest = rest[match.end() + size :]
        elif rest.startswith("I") and parts:
            arguments, rest = _arguments(rest[1:])
            if arguments is None:
                break
            parts[-1] += f"<{', '.join(arguments)}>"
        else:
            break
        if not nested and not rest.startswith("I"):
            break
    return "::".join(parts) or symbol


def _arguments(rest: str) -> tuple[list[str] | None, str]:
    """Template arguments up to the closing E, or None where one is not simple."""
    found = []
    while rest and not rest.startswith("E"):
        if match := _LITERAL.match(rest):
            found.append(match[1].replace("n", "-"))
            rest = rest[match.end() :]
        elif rest[0] in _BUILTIN:
            found.append(_BUILTIN[rest[0]])
            rest = rest[1:]
        elif match := re.match(r"\d+", rest):
            size = int(match[0])
            found.append(rest[match.end() : match.end() + size])
            rest = rest[match.end() + size :]
        else:
            return None, rest
    return found, rest[1:]
