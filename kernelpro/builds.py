"""Builds of a search's candidates: made ahead of need, and equal machine code noticed."""

import ast
import hashlib
import threading
import time
from collections.abc import Callable, Iterable

from kernelpro.records import Build, Candidate, Evaluation, Outcome, Step


class BuildLost(Exception):
    """A candidate could not be built, which is not its fault; the words say what was seen."""


class Builds:
    """What was built for the candidates of one search; safe to use from threads."""

    def __init__(self, build: Callable[[Candidate, str], Build | None]) -> None:
        """Choose who builds.

        Args:
            build: gives a candidate's build for an architecture (empty for this machine's own), or
                None where it builds itself when loaded.
        """
        self._build = build
        self._ahead: dict[tuple[str, str], tuple[Build | None, float]] = {}
        self._seen: dict[str, str] = {}
        self._lock = threading.Lock()

    def remember(self, steps: Iterable[Step]) -> None:
        """Know the machine code of earlier steps of a resumed search."""
        for step in steps:
            build = step.evaluation.build
            if build is not None and build.machine_code:
                key = _behaviour(step.candidate.source, build.machine_code)
                self._seen.setdefault(key, step.candidate.id)

    def prepare(self, candidate: Candidate, architecture: str = "") -> None:
        """Build ahead of `take`."""
        built = self._made(candidate, architecture)
        with self._lock:
            self._ahead[candidate.id, architecture] = built

    def take(self, candidate: Candidate, architecture: str = "") -> tuple[Build | None, float]:
        """The candidate's build and how many seconds it took; built now if it was not ahead."""
        with self._lock:
            built = self._ahead.pop((candidate.id, architecture), None)
        return built or self._made(candidate, architecture)

    def refused(self, candidate: Candidate, build: Build | None) -> Evaluation | None:
        """What there is to say of a candidate that needs no judging, or None."""
        if build is None:
            return None
        if not build.ok:
            return Evaluation(
                outcome=Outcome.COMPILE_ERROR, message=_shorten(build.log), build=build
            )
        if build.machine_code:
            key = _behaviour(candidate.source, build.machine_code)
            with self._lock:
                first = self._seen.setdefault(key, candidate.id)
            if first != candidate.id:
                return Evaluation(
                    outcome=Outcome.DUPLICATE,
                    message=f"same machine code and same Python as candidate {first}",
                    build=build,
                )
        return None

    def _made(self, candidate: Candidate, architecture: str) -> tuple[Build | None, float]:
        began = time.perf_counter()
        build = self._build(candidate, architecture)
        return build, time.perf_counter() - began


def _shorten(log: str, limit: int = 600) -> str:
    """Keep the first lines that name an error, up to limit characters."""
    lines = [line for line in log.splitlines() if "error" in line.lower()] or log.splitlines()
    return "\n".join(lines)[:limit]


def _behaviour(source: str, machine_code: str) -> str:
    """Hash of all that decides how a candidate runs: machine code, and Python without its words.

    Comments, docstrings and the text of compiled sources do not count.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return hashlib.sha256((source + machine_code).encode()).hexdigest()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            node.value = ""
    text = ast.unparse(tree) + machine_code
    return hashlib.sha256(text.encode()).hexdigest()
