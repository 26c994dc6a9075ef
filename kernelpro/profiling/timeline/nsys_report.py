"""Read a report of Nsight Systems (.nsys-rep): an installed nsys exports it to SQLite."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from kernelpro.profiling.timeline import nsys
from kernelpro.profiling.timeline.events import Timeline, TimelineError

EXPORT_SECONDS = 300.0


def read(path: str | Path, program: str | None = None) -> Timeline:
    """Export a `.nsys-rep` with an installed nsys, and read that.

    Args:
        path: the report.
        program: path of nsys; looked for on PATH when it is left out.

    Raises:
        TimelineError: there is no nsys, it cannot read the report, or the report has no events.
    """
    path = Path(path)
    if not path.is_file():
        raise TimelineError(f"{path} cannot be read: there is no such file")
    program = program or shutil.which("nsys")
    if program is None:
        raise TimelineError(
            f"{path} is a report of Nsight Systems, which only nsys itself can open, and nsys is "
            f"not installed; export it where it is: nsys export --type sqlite {path.name}"
        )
    with tempfile.TemporaryDirectory(prefix="kernelpro-nsys-") as folder:
        target = Path(folder) / "timeline.sqlite"
        command = [program, "export", "--type", "sqlite", "--output", str(target), str(path)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=EXPORT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise TimelineError(f"{path} cannot be exported with {program}: {error}") from error
        if not target.is_file():
            words = (done.stderr or done.stdout).strip().splitlines()
            raise TimelineError(
                f"{path} cannot be exported with {program} (status {done.returncode}): "
                f"{words[-1] if words else 'it says nothing'}"
            )
        return nsys.read(target)
