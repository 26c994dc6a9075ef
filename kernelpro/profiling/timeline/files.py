"""Open a recorded timeline, whatever tool wrote it."""

from pathlib import Path

from kernelpro.profiling.timeline import kineto, nsys, nsys_report
from kernelpro.profiling.timeline.events import Timeline, TimelineError

ENDINGS = (".json", ".json.gz", ".sqlite", ".sqlite3", ".db", ".nsys-rep", ".qdrep")


def is_timeline(path: str | Path) -> bool:
    """Whether the name is one that timelines have."""
    return str(path).lower().endswith(ENDINGS)


def read(path: str | Path) -> Timeline:
    """Read a trace of torch's profiler, or an export or report of Nsight Systems.

    The ending of the name decides; of a name with none of `ENDINGS` the first bytes do.

    Raises:
        TimelineError: the file cannot be read, or is no timeline.
    """
    path = Path(path)
    name = path.name.lower()
    if name.endswith((".nsys-rep", ".qdrep")):
        return nsys_report.read(path)
    try:
        with path.open("rb") as file:
            head = file.read(len(nsys.HEADER))
    except OSError as error:
        raise TimelineError(f"{path} cannot be read: {error}") from error
    if head == nsys.HEADER or name.endswith((".sqlite", ".sqlite3", ".db")):
        return nsys.read(path)
    return kineto.read(path)
