"""Run a candidate's C++ library under callgrind, on the calls it was seen to make, and read counts.

It runs in a process below the candidate's own, as confined as that is, without Python and torch.
Counts of instructions are exact. Cache misses and mispredicted branches are those of callgrind's
own model (two levels, least recently used), never measured. OpenMP runs on one thread.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpro.errors import KernelproError
from kernelpro.profiling.cpu import calls as recording

TIER = "cpu.callgrind"
"""Asked for among the metrics' names, it has callgrind run: seconds, not for each step."""

LIMIT_S = 120.0
COMPILER_LIMIT_S = 30.0
LINE_BYTES = 64

_TYPES = frozenset((
    "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long",
    "unsigned long", "long long", "unsigned long long", "float", "double", "_Bool",
))  # fmt: skip
_NUMBER = re.compile(r"-?(\d+|0x[01]\.[0-9a-f]+p[+-]\d+|inf|nan)")

_HEAD = """\
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void stop(const char *what) {
  fprintf(stderr, "%s\\n", what);
  exit(1);
}

static char *buffer(const char *path, size_t size) {
  char *data = aligned_alloc(64, (size + 63) / 64 * 64);
  FILE *file = fopen(path, "rb");
  if (!data || !file || fread(data, 1, size, file) != size) stop("a buffer cannot be read");
  fclose(file);
  return data;
}

static void *function(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) stop(dlerror());
  return found;
}

int main(int count, char **words) {
  if (count != 2) stop("expected the path of the library");
  void *library = dlopen(words[1], RTLD_NOW);
  if (!library) stop(dlerror());
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What callgrind counted inside the recorded functions.

    Attributes:
        events: sums by callgrind's names: `Ir` instructions, `D1mr` and `D1mw` misses of the first
            level, `DLmr` and `DLmw` of the last, `Bc` and `Bcm` branches and mispredicted ones.
        executed: how often each instruction of the library ran, by its address in the file.
        cache: callgrind's description of the last level that it modelled.
    """

    events: Mapping[str, int]
    executed: Mapping[int, int] = field(default_factory=dict)
    cache: str = ""


def collect(call: Callable[[], object], library: str, cache_bytes: int) -> dict[str, Any]:
    """Record the calls of the candidate's library and repeat them under callgrind.

    Args:
        call: runs the candidate once.
        library: path of its shared library.
        cache_bytes: size of the last-level cache to model; 0 for what callgrind finds.

    Returns:
        `events`, `executed` (addresses are its keys, in hexadecimal) and `cache`, as in `Counts`;
        `reason`: why there is nothing, or empty.
    """
    if why := available():
        return {"reason": why}
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            seen = recording.record(call, library, name)
            if seen["reason"]:
                return {"reason": seen["reason"]}
            found = run(Path(library), seen["calls"], seen["buffers"], folder, cache_bytes)
    except OSError as error:
        return {"reason": f"no files can be written beside the candidate: {error}"}
    if isinstance(found, str):
        return {"reason": found}
    executed = {f"{address:#x}": times for address, times in found.executed.items()}
    return {
        "events": dict(found.events), "executed": executed, "cache": found.cache, "reason": ""
    }  # fmt: skip


def counts(answer: Mapping[str, Any]) -> Counts:
    """What `collect` returned as counts.

    Raises:
        KernelproError: it gave a reason instead.
    """
    if answer["reason"]:
        raise KernelproError(str(answer["reason"])[:300])
    return Counts(
        events={str(name): int(value) for name, value in answer["events"].items()},
        executed={int(where, 16): int(times) for where, times in answer["executed"].items()},
        cache=str(answer["cache"])[:80],
    )


def available() -> str:
    """Why callgrind cannot be used here, or empty."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed (package valgrind)"
    if _compiler() is None:
        return "there is no C compiler to build the driver (package gcc)"
    return ""


def driver(calls: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> str:
    """C source of a program that makes the recorded calls on the buffers in its folder.

    Raises:
        ValueError: the record is malformed.
    """
    lines = [_HEAD]
    for number, size in enumerate(sizes):
        lines.append(f'  char *b{number} = buffer("buffer{number}", {int(size)}UL);')
    for call in calls:
        types, values = [], []
        for argument in call["arguments"]:
            kind, value = _spelled(argument, len(sizes))
            types.append(kind)
            values.append(value)
        name = _symbol(call["function"])
        signature = ", ".join(types) or "void"
        lines.append(
            f'  ((void (*)({signature}))function(library, "{name}"))({", ".join(values)});'
        )
    return "\n".join([*lines, "  return 0;", "}", ""])


def _spelled(argument: Sequence[Any], buffers: int) -> tuple[str, str]:
    """An argument's type and value in C; checked, as it comes from the candidate's process."""
    kind = argument[0]
    if kind == "pointer":
        number, offset = int(argument[1]), int(argument[2])
        if not -1 <= number < buffers or offset < 0:
            raise ValueError(f"there is no buffer {number}")
        return "void *", f"b{number} + {offset}" if number >= 0 else "(void *)0"
    value = str(argument[1])
    if kind not in _TYPES or not _NUMBER.fullmatch(value):
        raise ValueError(f"{argument!r:.60} is no argument of a C function")
    value = value.replace("inf", "INFINITY").replace("nan", "NAN")
    # The least long has no literal of its own in C: its digits alone overflow.
    return kind, "(-9223372036854775807L - 1)" if value == str(-(1 << 63)) else value


def _symbol(name: object) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name):
        raise ValueError(f"{name!r:.60} is no C function's name")
    return name


def run(
    library: Path, calls: Sequence[Mapping[str, Any]], sizes: Sequence[int], folder: Path,
    cache_bytes: int = 0,
) -> Counts | str:  # fmt: skip
    """Build the driver in folder, where the buffers are, run it, and read what was counted.

    Args:
        library: the candidate's shared library.
        calls: what `calls.record` saw.
        sizes: the buffers' sizes in bytes.
        folder: holds `buffer0` ...; the driver and callgrind's output go there too.
        cache_bytes: size of the last-level cache to model; 0 for what callgrind finds.

    Returns:
        The counts, or a sentence that says why there are none.
    """
    if why := available():
        return why
    try:
        (folder / "driver.c").write_text(driver(calls, sizes), encoding="utf-8")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return f"the record of the candidate's calls is malformed: {error}"
    build = [_compiler() or "cc", "-O1", "driver.c", "-o", "built", "-ldl", "-lm"]
    if failure := _quietly(build, folder, COMPILER_LIMIT_S, {}):
        return f"the driver could not be built: {failure}"
    _executable(folder / "built", folder / "driver")
    functions = sorted({_symbol(call["function"]) for call in calls})
    command = [
        "valgrind", "--tool=callgrind", "--cache-sim=yes", "--branch-sim=yes", "--dump-instr=yes",
        "--dump-line=no", "--compress-pos=no", "--compress-strings=no", "--collect-atstart=no",
        "--callgrind-out-file=counts", *(f"--toggle-collect={name}" for name in functions),
        *_cache(cache_bytes), "./driver", str(library),
    ]  # fmt: skip
    # One thread: the functions' own threads would run outside of what is toggled.
    environment = {"OMP_THREAD_LIMIT": "1", "OMP_NUM_THREADS": "1"}
    if failure := _quietly(command, folder, LIMIT_S, environment):
        return f"callgrind failed: {failure}"
    try:
        return read((folder / "counts").read_text(encoding="utf-8", errors="replace"), library)
    except OSError as error:
        return f"callgrind wrote no counts: {error}"


def _executable(built: Path, program: Path) -> None:
    """Copy to a file that may be executed from the start: a confined linker cannot change modes."""
    descriptor = os.open(program, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700)
    with os.fdopen(descriptor, "wb") as file:
        file.write(built.read_bytes())


def _cache(size: int) -> list[str]:
    """Option for the last level: the largest power of two within its size, 16 ways."""
    if size < 1 << 20:
        return []
    return [f"--LL={1 << (size.bit_length() - 1)},16,{LINE_BYTES}"]


def _compiler() -> str | None:
    return next((path for path in map(shutil.which, ("gcc", "cc", "clang")) if path), None)


def _quietly(
    command: Sequence[str], folder: Path, limit_s: float, environment: Mapping[str, str]
) -> str:
    """Run a command; empty when it did its work, else its last words."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {limit_s:g} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    if "unhandled instruction" in done.stderr or done.returncode == -4:
        return "the library has instructions that valgrind does not know (AVX-512, for one)"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return (lines[-1] if lines else f"exit status {done.returncode}")[:200]


def read(text: str, library: Path) -> Counts | str:
    """Read callgrind's output, written with instruction addresses and without compression."""
    names: list[str] = []
    totals: dict[str, int] = {}
    executed: dict[int, int] = {}
    mine = inside_call = False
    cache = ""
    for line in text.splitlines():
        if line.startswith("events: "):
            names = line.split()[1:]
        elif line.startswith(("summary: ", "totals: ")):
            # Costs that are zero at the end of the line are left out.
            values = [int(word) for word in line.split()[1:]]
            totals = {**dict.fromkeys(names, 0), **dict(zip(names, values, strict=False))}
        elif line.startswith("desc: LL cache: "):
            cache = line.removeprefix("desc: LL cache: ")
        elif line.startswith("ob="):
            mine = line[3:] == str(library)
        elif line.startswith("calls="):
            inside_call = True  # the next line is what the callee cost, which is counted there
        elif line.startswith("0x"):
            words = line.split()
            if mine and not inside_call and len(words) > 1:
                address = int(words[0], 16)
                executed[address] = executed.get(address, 0) + int(words[1])
            inside_call = False
    if not totals or not totals.get("Ir"):
        return "callgrind counted nothing inside the recorded functions"
    return Counts(events=totals, executed=executed, cache=cache)
