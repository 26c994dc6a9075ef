"""Writes docs/errors.md: every sentence that kernelpro refuses something with, read off its source.

python -m tests.error_sentences
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "errors.md"

HEAD = """# Error sentences

What kernelpro cannot use it refuses in one sentence on standard error, with exit status 2: what was
expected, what was found, what to do. Nothing is lost by it: a search's finished steps are on disk.
This page lists every such sentence by the file that says it, so that a search for some of its words
finds where it comes from; `...` stands for what differs from case to case. [faq.md](faq.md) says
more about those that people meet. A candidate's failure is no error: [verdicts.md](verdicts.md).

The page is made from the source by `python -m tests.error_sentences`, and a test holds it to it.
"""


def page() -> str:
    """The page's text."""
    files = sorted((ROOT / "kernelpro").rglob("*.py"))
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    known = errors(trees.values())
    parts = [HEAD]
    for file, tree in trees.items():
        found = list(dict.fromkeys(sentences(tree, known)))
        if found:
            about = (ast.get_docstring(tree) or "").partition("\n")[0]
            parts.append(f"## {file.relative_to(ROOT)}\n\n{about}\n")
            parts.append("\n".join(f"- {sentence}" for sentence in found) + "\n")
    return "\n".join(parts)


def errors(trees) -> set[str]:
    """Names of KernelproError and all classes that are made from it."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    known = {"KernelproError"}
    while more := {name for name, above in bases.items() if above & known} - known:
        known |= more
    return known


def sentences(tree: ast.Module, known: set[str]) -> Iterator[str]:
    """The sentences of a file, in order; one that is made elsewhere is left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
            for argument in node.args[:1]:
                text = " ".join(_text(argument).split())
                if text.replace("...", "").strip(" :;,."):
                    yield text


def _text(node: ast.expr) -> str:
    """What a message says, with `...` for whatever is computed."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body, orelse=other):
            return " / ".join(part for part in (_text(body), _text(other)) if part != "...")
        case _:
            return "..."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
