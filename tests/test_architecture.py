"""Imports go one way; ALLOWED is the whole rule."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kernelpro

ROOT = Path(kernelpro.__file__).parent
# Each part, with the kernelpro modules that it may import besides its own.
ALLOWED = {
    "errors": set(),
    "records": {"errors"},
    "serial": set(),
    "durable": set(),
    "settings": {"errors"},
    "hookspecs": {"records"},
    "__init__": {
        "errors",
        "hookspecs",
        "records",
        "api",
        "recordings",
    },  # names only; loaded when first used
    "problems": {"errors", "records", "settings"},
    "targets": {"code_search", "errors", "records", "settings"},
    "judge": {"", "errors", "records", "serial", "settings", "targets", "problems"},
    "ranking": {"records"},
    "profiling": {"", "errors", "records", "hookspecs", "ranking", "settings", "targets"},
    "energy": {"errors"},
    "language": {"errors", "records", "problems", "targets"},
    "search": {"durable", "errors", "ranking", "records", "serial", "settings"},
    "lessons": {
        "errors",
        "language",
        "ranking",
        "records",
        "search",  # memory files, from which lessons are read
        "serial",
        "settings",
    },
    "code_search": {"errors", "settings"},
    "exemplars": set(),
    "models": {
        "code_search",
        "durable",
        "errors",
        "exemplars",
        "lessons",  # what kind of problem it is
        "ranking",
        "records",
        "serial",
        "settings",
        "targets",
    },
    "preview": {"errors", "models", "ranking", "records", "search", "settings"},
    "plugins": {"", "energy", "profiling", "language", "models"},  # and the public API
    "testing": {"hookspecs", "records"},
    "manager": {"", "errors", "hookspecs", "records"},
    "isolation": {"errors", "hookspecs", "manager", "records"},
    "report": {"records"},
    "export": {"errors", "records", "report"},
    "focus": {"records"},
    "shape_dispatch": {"errors", "records"},
    "report_page": {"errors", "ranking", "records", "report", "runs"},
    "runs": {"", "errors", "objective", "records", "search", "winners"},
    "scoring": {"errors", "export", "records", "runs"},
    "subjects": {"errors", "language", "records"},
    "spaces": {
        "",
        "errors",
        "judge",
        "language",
        "problems",
        "records",
        "search",
        "serial",
        "targets",
    },
    "doctor": {"", "models", "profiling", "targets"},
    "builds": {"records"},
    "objective": {"errors", "records"},
    "weighing": {"energy", "errors", "judge", "records", "settings"},
    "bench": {
        "builds",
        "errors",
        "isolation",
        "judge",
        "objective",
        "problems",
        "profiling",
        "records",
        "search",
        "targets",
        "weighing",
    },
    "slots": {
        "",
        "bench",
        "builds",
        "errors",
        "isolation",
        "judge",
        "manager",
        "objective",
        "profiling",
        "records",
        "search",
        "serial",
        "settings",
        "targets",
    },
}
JOINS_ALL = {
    *(
        "ablations",
        "agents",
        "api",
        "cli",
        "energy_runs",
        "recordings",
        "run_check",
        "reevaluate",
        "start",
        "suite",
    ),
    *("winners", "__main__"),
}


def imported(path):
    """Yield the kernelpro parts that a file imports; '' is kernelpro itself."""
    parts = {p.stem for p in ROOT.iterdir()}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("kernelpro."):
            below = str(node.module).split(".")[1:]
            yield from below[:1] or {a.name if a.name in parts else "" for a in node.names}
        elif isinstance(node, ast.Import):
            for name in (a.name.split(".") for a in node.names if a.name.startswith("kernelpro")):
                yield name[1] if len(name) > 1 else ""


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_part_imports_only_what_lies_below_it(part):
    files = [ROOT / f"{part}.py"] if (ROOT / f"{part}.py").exists() else (ROOT / part).rglob("*.py")
    for file in files:
        assert set(imported(file)) - {part} <= ALLOWED[part], file


def test_every_part_has_a_rule():
    parts = {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert parts == set(ALLOWED) | JOINS_ALL


def test_package_and_parser_load_no_heavy_module():
    heavy = ("torch", "pandas", "numpy", "networkx", "cupy", "anthropic", "rich")
    code = (
        "import sys, kernelpro, kernelpro.records, kernelpro.hookspecs, kernelpro.cli as c;"
        "c.build_parser();"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent
    )
    assert done.stdout.strip() == "[]"
