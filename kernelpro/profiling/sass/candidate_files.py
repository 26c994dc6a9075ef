"""Find the machine code that a candidate's own tools left in its process' cache folders.

`collect` runs in the candidate's process, whose environment says where Triton, Inductor and torch's
extensions keep what they build (see the CUDA target's worker_environment).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE_LIMIT = 32  # own: newest files that are worth a look
FOLDERS = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "load_inline",
}
_SUFFIXES = (".cubin", ".so")


def collect(call: Callable[[], object]) -> dict[str, Any]:
    """Paths of cubins and shared objects, newest first, with the tool that made them.

    The candidate has run before, so it is not called again.

    Returns:
        `files`: list of `path`, `kind` (`triton`, `inductor`, `load_inline`) and `bytes`;
        `folders`: the folders that were looked through.
    """
    found = []
    folders = []
    for variable, kind in FOLDERS.items():
        folder = os.environ.get(variable, "")
        if not folder or not Path(folder).is_dir():
            continue
        folders.append(folder)
        for path in Path(folder).rglob("*"):
            if path.suffix not in _SUFFIXES:
                continue
            try:
                state = path.stat()
            except OSError:
                continue  # another process of the same cache removed it
            if not path.is_file() or _launcher(path):
                continue
            found.append((state.st_mtime, str(path), kind, state.st_size))
    found.sort(reverse=True)
    return {
        "files": [
            {"path": path, "kind": kind, "bytes": size}
            for _, path, kind, size in found[:FILE_LIMIT]
        ],
        "folders": folders,
    }


def _launcher(path: Path) -> bool:
    """Whether it is host code that Triton builds to launch kernels: no GPU code is in it."""
    name = path.name
    return path.suffix == ".so" and name.startswith(("__triton_launcher", "cuda_utils", "launcher"))
