"""Find and run NVIDIA's disassembler and object reader, from a wheel or from a toolkit."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from kernelpro.profiling.sass.errors import SassError

LIMIT_S = 60.0

_PACKAGES = {"nvdisasm": "nvidia-cuda-nvdisasm", "cuobjdump": "nvidia-cuda-cuobjdump"}
TOOLKIT = Path("/usr/local/cuda/bin")  # where NVIDIA's installer puts it
_RELEASE = re.compile(r"\bV(\d+)\.(\d+)\.(\d+)")


def find(tool: str) -> Path:
    """Path of the newest installed `nvdisasm` or `cuobjdump`.

    Raises:
        SassError: there is none.
    """
    return every(tool)[0]


@cache
def every(tool: str) -> tuple[Path, ...]:
    """Paths of all installed ones, the newest first.

    Raises:
        SassError: there is none.
    """
    found = {path.resolve(): release(path) for path in _places(tool)}
    if not found:
        raise SassError(
            f"{tool} was not found; install it with `pip install {_PACKAGES[tool]}`, or put the "
            "CUDA toolkit's bin folder on PATH"
        )
    return tuple(sorted(found, key=lambda path: found[path], reverse=True))


@cache
def release(path: Path) -> tuple[int, ...]:
    """The version that a tool prints, such as (13, 5, 37); (0,) when it prints none."""
    try:
        words = run(path, ["--version"], limit_s=10.0)
    except SassError:
        return (0,)
    match = _RELEASE.search(words)
    return tuple(int(part) for part in match.groups()) if match else (0,)


def run(
    tool: Path, arguments: Sequence[str], *, folder: Path | None = None, limit_s: float = LIMIT_S
) -> str:
    """Run a tool and return what it prints.

    Raises:
        SassError: it cannot be started, fails, or does not end in time.
    """
    try:
        done = subprocess.run(
            [str(tool), *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SassError(f"{tool.name} did not end within {limit_s:g} s") from None
    except OSError as error:
        raise SassError(f"{tool} cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise SassError(f"{tool.name} failed with status {done.returncode}: {words[0][:200]}")
    return done.stdout.decode(errors="replace")


def _places(tool: str) -> Iterator[Path]:
    folders = [
        folder
        for root in dict.fromkeys(map(Path, sys.path))
        for folder in (*sorted(root.glob("nvidia/*/bin")), root / "triton/backends/nvidia/bin")
    ]
    for program in (tool, "nvcc"):
        if found := shutil.which(program):
            folders.append(Path(found).resolve().parent)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            folders.append(Path(home) / "bin")
    folders.append(TOOLKIT)
    for folder in folders:
        path = folder / tool
        if path.is_file() and os.access(path, os.X_OK):
            yield path
