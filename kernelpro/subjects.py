"""Candidate files that people hand in: Python with `class ModelNew`, or a program's text."""

import re
from pathlib import Path

from kernelpro.errors import KernelproError
from kernelpro.records import Candidate, Problem

PROGRAM = re.compile(r"\s*(#[^\n]*\n\s*)*@(cpu|cuda)\b")
"""How a program in the kernel language begins; no Python candidate does."""


def read(candidate: str | Path, problem: Problem) -> Candidate:
    """Read a candidate file; from a program its Python file is written.

    Args:
        candidate: the file.
        problem: what it must compute.

    Raises:
        KernelproError: it cannot be read, or is a program that does not fit the problem.
    """
    path = Path(candidate)
    source = text_of(path)
    if PROGRAM.match(source):
        source = expanded(source, problem, str(path))
    return Candidate(source=source, language=language_of(source), author=str(path))


def text_of(path: Path) -> str:
    """Read a text file.

    Raises:
        KernelproError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KernelproError(f"candidate {path} cannot be read: {error}") from error


def expanded(program: str, problem: Problem, name: str) -> str:
    """Write the candidate that a program describes.

    Args:
        program: its text.
        problem: what it must compute.
        name: of the file, for messages.

    Raises:
        KernelproError: the text is no program, or not one for the problem.
    """
    from kernelpro.language import writer
    from kernelpro.language.parse import ProgramError, parse

    try:
        return writer.write_program(problem, parse(program))
    except ProgramError as error:
        place = f"{name}:{error.line}:{error.column}" if error.line else name
        raise KernelproError(f"{place}: {error.reason}") from error


def language_of(source: str) -> str:
    """Guess what a candidate's kernels are written in, from the names that it uses."""
    for pattern, language in (
        (r"\bCPP_SOURCE\b", "cpp"),
        (r"\bCUDA_SOURCE\b|\bRawModule\b|\bRawKernel\b|\bload_inline\b", "cuda"),
        (r"\bimport triton\b|\bfrom triton\b", "triton"),
    ):
        if re.search(pattern, source):
            return language
    return "torch"
