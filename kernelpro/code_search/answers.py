"""What a search or a reading found, as plain values and as text: for people, models and agents."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kernelpro.code_search.library import Excerpt, Hit, Library


def hits(library: Library, found: Sequence[Hit]) -> dict[str, Any]:
    """Places as plain values."""
    return {"tree": library.tree_version, "hits": [asdict(hit) for hit in found]}


def hits_text(library: Library, found: Sequence[Hit]) -> str:
    """Places as text, each with its snippet."""
    blocks = []
    for hit in found:
        symbol = f", {hit.symbol}" if hit.symbol else ""
        head = f"{hit.path}:{hit.first}-{hit.last} ({hit.role}{symbol})"
        blocks.append("\n".join([head, *(f"    {line}" for line in hit.snippet.splitlines())]))
    where = f" of {library.tree_version}" if library.tree_version else ""
    return "\n\n".join(blocks) or f"nothing{where} has these words; try fewer, or a symbol's name"


def excerpt(found: Excerpt) -> dict[str, Any]:
    """Lines of a file as plain values."""
    return asdict(found)


def excerpt_text(found: Excerpt) -> str:
    """Lines of a file, and how to read on."""
    if found.last >= found.lines:
        return found.text
    return (
        f"{found.text}\n[lines {found.first}-{found.last} of {found.lines}; read on from "
        f"{found.path}:{found.last + 1}]"
    )
