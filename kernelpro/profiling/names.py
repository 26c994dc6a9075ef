"""One spelling for a kernel's name, so that timeline, counters and machine code can be joined."""

import re

LIMIT = 120  # characters that are kept of a name

_PREFIX = re.compile(r"^(void|int|float|double|bool|auto)\s+")


def short(name: str) -> str:
    """A demangled name without return type and parameter list, cut to 120 characters.

    Template arguments stay, since they tell instances apart: `void f<int>(float*)` is `f<int>`.
    """
    text = " ".join(name.split())
    text = _PREFIX.sub("", text)
    depth = 0
    for place, letter in enumerate(text):
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth -= 1
        elif letter == "(" and depth == 0 and not text.startswith("(anonymous", place):
            text = text[:place]
            break
    return text.strip()[:LIMIT]
