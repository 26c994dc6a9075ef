"""The strict level: the fork server in a bubblewrap container, where `bwrap` works.

Beside what Landlock does, the user's home, /tmp and /dev/shm are empty there, the whole file system
is read-only but the scratch folder, and there is no network device but a private loopback. Process
numbers stay the machine's, so that the judge can watch and kill. Standard library only.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from kernelpro.judge.confinement import CUDA_DEVICES

DEADLINE_S = 10.0
HIDDEN = ("/tmp", "/var/tmp", "/home", "/root", "/run/user")


def command(scratch: Path, visible: Iterable[Path], *, device: str) -> list[str]:
    """What to put before a program to run it inside.

    Args:
        scratch: the only folder that is writable.
        visible: folders and files to be read even where they lie in a hidden place.
        device: torch's name of the device: `cpu` or `cuda`.
    """
    words = ["bwrap", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--bind", "/proc", "/proc"]
    if device == "cuda":
        for name in CUDA_DEVICES:
            for node in sorted(Path("/dev").glob(name)):
                words += ["--dev-bind", str(node), str(node)]
    home = str(Path.home())
    hidden = [*HIDDEN, *([] if home.startswith(HIDDEN) or home == "/" else [home])]
    for folder in hidden:
        if Path(folder).is_dir():
            words += ["--tmpfs", folder]
    for path in dict.fromkeys(path.resolve() for path in visible):
        if path.exists() and str(path).startswith(tuple(f"{folder}/" for folder in hidden)):
            words += ["--ro-bind", str(path), str(path)]
    return [*words, "--bind", str(scratch), str(scratch), "--"]


def python_folders() -> list[Path]:
    """Where this Python and its packages lie."""
    return [Path(folder) for folder in (sys.prefix, sys.base_prefix, *sys.path) if folder]


def trouble() -> str:
    """Why the strict level cannot be used here; empty when it can.

    Runs a program inside that looks for a file in a hidden folder and writes to the root.
    """
    if shutil.which("bwrap") is None:
        return "bwrap is not on PATH"
    with (
        tempfile.TemporaryDirectory(prefix="kernelpro-", dir="/tmp") as scratch,
        tempfile.NamedTemporaryFile(prefix="kernelpro-", dir="/tmp") as canary,
    ):
        attack = (
            f"test ! -e '{canary.name}' && echo > '{scratch}/x' && ! echo > '{canary.name}.x/y'"
        )
        try:
            done = subprocess.run(
                [*command(Path(scratch), [], device="cpu"), "/bin/sh", "-c", attack],
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"bwrap does not run: {error}"
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["a hidden file was seen"])[0]
        return f"bwrap does not work here: {words[:200]}"
    return ""
