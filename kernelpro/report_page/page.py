"""Makes the report's file: static parts escaped, data in an island that cannot be script.

Nothing in a memory file can become markup or script. Texts in the page itself are escaped; all
other data is JSON whose `<`, `>` and `&` are written as escapes, in an element that no browser
runs; scripts set text, never markup; and the policy lets nothing run but the one script whose hash
it names, and nothing load at all.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from kernelpro.errors import MemoryFormatError
from kernelpro.report_page.facts import search_facts
from kernelpro.runs import Recorded

SCRIPTS = (
    "elements.js",
    "unpack.js",
    "difference.js",
    "tree.js",
    "outline.js",
    "map.js",
    "charts.js",
    "roofline.js",
    "step.js",
    "overview.js",
    "start.js",
)
"""Scripts of the page in their order; together they are one function."""

_SLOT = re.compile(r"\{\{(\w+)\}\}")


def page(searches: Sequence[Recorded], *, live: bool = False) -> str:
    """Return the whole page.

    Args:
        searches: one or more; the page shows the first and lists the others.
        live: whether the page asks its own server for news; never for a file.

    Raises:
        MemoryFormatError: a number in it is beyond what can be computed with.
    """
    facts = [_facts(recorded) for recorded in searches]
    script = _script()
    style = _part("page.css")
    name = searches[0].header.problem.name if len(searches) == 1 else f"{len(searches)} searches"
    return _filled(
        {
            "title": _escaped(f"{name}: kernelpro report"),
            "policy": _policy(script, style, live=live),
            "live": "true" if live else "false",
            "style": style,
            "told": "\n".join(map(_told, facts)),
            "island": island(facts),
            "script": script,
        }
    )


def _facts(recorded: Recorded) -> dict[str, Any]:
    try:
        return search_facts(recorded)
    except (ArithmeticError, ValueError) as error:
        raise MemoryFormatError(
            f"{recorded.file} holds a value that no search writes ({error}); expected finite times "
            "and counts"
        ) from error


def island_of(searches: Sequence[Recorded]) -> str:
    """Return what the page shows of searches, as `island` writes it."""
    return island(map(_facts, searches))


def island(facts: Iterable[dict[str, Any]]) -> str:
    """Return plain values as JSON in ASCII that can stand inside any HTML element."""
    text = json.dumps(
        {"searches": list(facts)}, separators=(",", ":"), allow_nan=False, ensure_ascii=True
    )
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _told(facts: dict[str, Any]) -> str:
    """The result in words, for a reader without scripts; the script replaces it."""
    parts = [f"<h2>{_escaped(facts['headline'])}</h2>"]
    for title, lines in (("Why", facts["why"]), ("What holds it back", facts["holds"])):
        if lines:
            items = "".join(f"<li>{_escaped(line)}</li>" for line in lines)
            parts.append(f"<h3>{title}</h3><ul>{items}</ul>")
    return "".join(parts)


def _filled(values: dict[str, str]) -> str:
    """Fill the template in one pass, so that no value is searched for slots."""
    return _SLOT.sub(lambda slot: values[slot[1]], _part("page.html"))


def _escaped(text: str) -> str:
    """Escape a text for HTML; what no file can hold (lone surrogates, NUL) becomes a mark."""
    safe = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    return html.escape(safe)


def _script() -> str:
    parts = "\n".join(_part(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _policy(script: str, style: str, *, live: bool) -> str:
    """The content security policy: one script, one style, no other source of anything."""
    rules = [
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if live:
        rules.append("connect-src 'self'")
    return "; ".join(rules)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _part(name: str) -> str:
    return (resources.files("kernelpro.report_page") / name).read_text(encoding="utf-8")
