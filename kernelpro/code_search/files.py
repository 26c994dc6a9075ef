"""The files of a tree: which are searched, what part they play, and how one is read safely."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernelpro.errors import CodeSearchError

HEADERS = frozenset({".h", ".hpp", ".cuh", ".hxx", ".inl", ".inc"})
SOURCES = frozenset({".cu", ".cpp", ".cc", ".cxx", ".c", ".py"})
TEXTS = frozenset({".md", ".rst"})
SEARCHED = HEADERS | SOURCES | TEXTS

HEADER, EXAMPLE, TEXT, TEST, TOOL = "header", "example", "text", "test", "tool"
WEIGHT = {HEADER: 1.0, EXAMPLE: 0.8, TEXT: 0.65, TEST: 0.5, TOOL: 0.4}
"""What a hit is worth by the part that its file plays. Own choice of numbers; the order is that of
use: the public header says what there is, an example how it is used."""
DETAIL = 0.85
"""Of a header below a folder `detail` or `impl`, which nobody includes by name."""

_TESTS = frozenset({"test", "tests", "unit", "testing"})
_EXAMPLES = frozenset({"example", "examples", "tutorial", "tutorials", "sample", "samples"})
_TOOLS = frozenset(
    {"tool", "tools", "util", "utils", "benchmark", "benchmarks", "profiler", "scripts", "python"}
)
_SKIPPED = frozenset({"__pycache__", "node_modules", "build"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that is searched: its path inside the tree, bytes, and time of change."""

    path: str
    size: int
    changed_ns: int


def role(path: str) -> str:
    """The part that a file plays, by its path: header, example, text, test or tool."""
    pure = PurePosixPath(path)
    folders = {part.lower() for part in pure.parts[:-1]}
    name = pure.name.lower()
    if folders & _TESTS or name.startswith("test_"):
        return TEST
    if folders & _EXAMPLES:
        return EXAMPLE
    if pure.suffix in TEXTS:
        return TEXT
    if pure.suffix in HEADERS and "include" in folders and "tools" not in folders:
        return HEADER
    if folders & _TOOLS or pure.suffix not in HEADERS:
        return TOOL
    return HEADER


def weight(path: str) -> float:
    """What a hit in this file is worth, 0..1."""
    part = role(path)
    inner = part == HEADER and {"detail", "impl"} & set(PurePosixPath(path).parts)
    return WEIGHT[part] * (DETAIL if inner else 1.0)


def sources(root: Path, most_bytes: int) -> list[Source]:
    """Every file that is searched, by path; hidden folders and links are left out."""
    found = sorted(_walk(root, "", most_bytes), key=lambda source: source.path)
    if not found:
        kinds = " ".join(sorted(SEARCHED))
        raise CodeSearchError(
            f"{root} has no source files ({kinds}); name the folder of a tree of sources"
        )
    return found


def fingerprint(found: list[Source]) -> str:
    """What changes when any file that is searched does: 16 hex digits."""
    digest = hashlib.sha256()
    for source in found:
        digest.update(f"{source.path}\0{source.size}\0{source.changed_ns}\n".encode())
    return digest.hexdigest()[:16]


def version(root: Path) -> str:
    """The tree's own version: its commit, or what CUTLASS's version.h says; empty if neither."""
    head = root / ".git" / "HEAD"
    try:
        text = head.read_text(encoding="utf-8").strip()
        if text.startswith("ref: "):
            name = text.removeprefix("ref: ")
            file = root / ".git" / name
            if file.is_file():
                return f"commit {file.read_text(encoding='utf-8').strip()[:12]}"
            for line in (root / ".git" / "packed-refs").read_text(encoding="utf-8").splitlines():
                if line.endswith(f" {name}"):
                    return f"commit {line[:12]}"
        elif len(text) >= 40:
            return f"commit {text[:12]}"
    except (OSError, UnicodeDecodeError):
        pass
    try:
        lines = (root / "include" / "cutlass" / "version.h").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    numbers = [
        line.split()[2]
        for part in ("MAJOR", "MINOR", "PATCH")
        for line in lines.splitlines()
        if line.startswith(f"#define CUTLASS_{part} ")
    ]
    return f"CUTLASS {'.'.join(numbers)}" if len(numbers) == 3 else ""


def text_of(root: Path, path: str, most_bytes: int) -> str:
    """The text of a file of the tree, and of no other file whatever the path says.

    Args:
        root: the tree, resolved.
        path: inside the tree, with `/`; links are followed as long as they stay in the tree.
        most_bytes: a larger file is refused.

    Raises:
        CodeSearchError: there is no such file in the tree, or it is no text, or too large.
    """
    shown = f"{path!r:.200}"
    if not path or "\0" in path or PurePosixPath(path).is_absolute():
        raise CodeSearchError(
            f"a path inside the tree expected, such as a/b.hpp, but found {shown}"
        )
    missing = CodeSearchError(f"the tree has no file {shown}; search_code gives paths")
    try:
        # Not even a file's being there is told of what lies outside.
        real = Path(os.path.realpath(root / path))
        if not real.is_relative_to(root):
            raise missing
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(real, flags)
    except (OSError, ValueError):
        raise missing from None
    try:
        state = os.fstat(descriptor)
        opened = Path(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        # The second holds where a folder became a link meanwhile.
        if not stat.S_ISREG(state.st_mode) or not opened.is_relative_to(root):
            raise missing
        if state.st_size > most_bytes:
            raise CodeSearchError(
                f"{shown} has {state.st_size} bytes; at most {most_bytes} are read ([code_search] "
                "file_bytes)"
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            raw = file.read(most_bytes)
    except OSError as error:
        raise CodeSearchError(f"{shown} cannot be read: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
    if b"\0" in raw[:8192]:
        raise CodeSearchError(f"{shown} is no text; read a source file")
    return raw.decode(errors="replace")


def _walk(root: Path, inside: str, most_bytes: int) -> Iterator[Source]:
    try:
        entries = list(os.scandir(root / inside))
    except OSError as error:
        if not inside:
            raise CodeSearchError(f"cannot read {root}: {error.strerror or error}") from error
        return
    for entry in entries:
        path = f"{inside}{entry.name}"
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(root, f"{path}/", most_bytes)
            elif entry.is_file(follow_symlinks=False):
                dot = entry.name.rfind(".")
                if dot > 0 and entry.name[dot:] in SEARCHED:
                    state = entry.stat(follow_symlinks=False)
                    if state.st_size <= most_bytes:
                        yield Source(path=path, size=state.st_size, changed_ns=state.st_mtime_ns)
        except OSError:
            continue  # it went away meanwhile
