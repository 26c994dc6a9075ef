"""Run a compiler on source that is not trusted: deadline, memory limit, short words."""

import contextlib
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

# A source may include /proc/self/environ: the compiler sees these variables and no others.
PASSED_ON = ("PATH", "HOME", "LANG", "SDKROOT", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")
PASSED_ON_PREFIXES = ("LD_", "CPATH", "C_INCLUDE", "CPLUS_INCLUDE", "CUDA", "CONDA_", "CCACHE_")
DEADLINE_S = 180.0
MEMORY_KIB = 8 << 20  # of address space, for each process of the compiler
LOG_CHARACTERS = 2000

# What a candidate may ask of g++ or clang++: code generation, language, macros, warnings. Not what
# runs programs, loads plugins, or reads and writes other files.
_FLAG = re.compile(
    r"-O\w*|-[fm][\w=,.+-]+|-std=[\w+]+|-[DU]\w+(=.*)?|-W[\w=+-]+|-g[0-3]?|-w|-pthread"
)
_REFUSED = re.compile(
    r"-f(plugin|use-ld|dump|profile|auto-profile|offload|save|callgraph|stack-usage|test-coverage|"
    r"module|working|sanitize|diagnostics|record|modules|pass-plugin|time-trace|crash|debug)|-mllvm|-W[alp],"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """How a compiler's run ended: `log` is what it said, shortened."""

    ok: bool
    log: str


def refused_flag(flags: tuple[str, ...]) -> str | None:
    """The first flag that a candidate may not use, or None."""
    for flag in flags:
        if not _FLAG.fullmatch(flag) or _REFUSED.match(flag):
            return flag
    return None


def compile_text(
    command: list[str], source: str, work: Path, *, deadline_s: float = DEADLINE_S
) -> Compiled:
    """Run command with source on its standard input; kill the whole group at the deadline.

    Args:
        work: folder of this run alone; the compiler's own temporary files go there too.
    """
    log = work / "log"
    limited = ["sh", "-c", f'ulimit -v {MEMORY_KIB} && exec "$@"', "sh", *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            limited,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**_environment(), "TMPDIR": str(work), "LC_ALL": "C"},
            cwd=work,
            start_new_session=True,
        )
        try:
            process.communicate(source.encode(), timeout=deadline_s)
        except subprocess.TimeoutExpired:
            return Compiled(ok=False, log=f"error: the compiler did not end in {deadline_s:.0f} s")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with log.open("rb") as written:
        words = written.read(1 << 20).decode(errors="replace")
    if process.returncode < 0:
        words += f"\nerror: the compiler ended by signal {-process.returncode}"
    return Compiled(ok=process.returncode == 0, log=shorten(words))


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }


def shorten(log: str, limit: int = LOG_CHARACTERS) -> str:
    """Keep the lines that name an error and the two below each; all lines where none does."""
    lines = log.splitlines()
    kept = sorted(
        {
            n + below
            for n, line in enumerate(lines)
            if "error" in line.lower()
            for below in range(3)
            if n + below < len(lines)
        }
    )
    text = "\n".join(lines[n] for n in kept) if kept else log.strip()
    return text if len(text) <= limit else text[: limit - 4].rstrip() + " ..."
