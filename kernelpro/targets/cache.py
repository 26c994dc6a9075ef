"""A content-addressed store of built files, safe under parallel builds and kill -9.

A file appears whole or not at all: it is made in a folder of its own inside the store and then
renamed. What a killed build leaves is swept away later, and so is what was not used for longest
when the store outgrows its limit.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kernelpro.errors import TargetError

LIMIT_BYTES = 2 << 30
LEFTOVER_S = 3600.0  # no build takes that long, so an older work folder has no owner
_PREFIX = "tmp"


class Store:
    """One folder of files named by their content's key.

    Attributes:
        folder: where the files are.
        limit_bytes: size that the store is cut back to, once in each process.
    """

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._swept = False

    def path(self, name: str) -> Path:
        """Where the file of that name is or will be."""
        return self.folder / name

    def find(self, name: str) -> Path | None:
        """Path of a file that is there, marked as used now; None when it is not there."""
        path = self.path(name)
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError:
            return path if path.is_file() else None  # a store that this user may only read
        return path

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give a new folder on the store's own disk, removed at the end.

        Raises:
            TargetError: the store's folder cannot be made or written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self.folder))
        except OSError as error:
            raise TargetError(
                f"the cache folder {self.folder} cannot be written ({error.strerror}); set "
                "KERNELPRO_CACHE to a folder that can"
            ) from error
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def keep(self, made: Path, name: str) -> Path:
        """Move a file from a workspace into the store, replacing one of the same name."""
        path = self.path(name)
        made.replace(path)
        if not self._swept:
            self._swept = True
            self.sweep()
        return path

    def write(self, name: str, content: bytes) -> Path:
        """Store content under name."""
        with self.workspace() as work:
            made = work / "made"
            made.write_bytes(content)
            return self.keep(made, name)

    def sweep(self) -> None:
        """Remove leftovers of killed builds, and the least recently used beyond the limit."""
        now = time.time()
        files: list[tuple[float, int, Path]] = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):  # another process sweeps too
                status = path.stat()
                if path.is_dir():
                    if path.name.startswith(_PREFIX) and now - status.st_mtime > LEFTOVER_S:
                        shutil.rmtree(path, ignore_errors=True)
                else:
                    files.append((status.st_mtime, status.st_size, path))
        excess = sum(size for _, size, _ in files) - self.limit_bytes
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            excess -= size
