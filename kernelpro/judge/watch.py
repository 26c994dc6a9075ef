"""Watches what a candidate's own code asks of Python while it runs, by audit events.

Runs in the worker. Python tells an audit hook of calls that matter, however the name that was
called was spelt. An event counts against a candidate only when its own code caused it: torch,
Triton and compilers look at frames, start processes and write files all the time. What is seen
explains a verdict; what must not happen is prevented by the confinement, not here.

Reasons: `introspection`, `tampering`, `network`, `install`, `process`, `filesystem`, `secrets`,
`harness`.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path, PurePath
from types import FrameType
from typing import Any

from kernelpro.judge.tampering import Change, is_installed

MOST_CHANGES = 20
_AF_UNIX = 1
_SECRET_FILES = ("/environ", "/mem", "/auxv")
_INSTALLERS = frozenset(("pip", "ensurepip", "conda"))
_INSTALL_PROGRAMS = frozenset(
    ("pip", "pip3", "conda", "mamba", "uv", "apt", "apt-get", "dnf", "yum", "curl", "wget", "ssh")
)
_LOOKING = frozenset(
    (
        "sys._getframe",
        "sys._current_frames",
        "sys._current_exceptions",
        "gc.get_objects",
        "gc.get_referrers",
        "gc.get_referents",
    )
)
_DELETING = frozenset(("os.remove", "os.rmdir", "os.rename", "shutil.rmtree", "os.truncate"))
_WATCHED = (
    _LOOKING
    | _DELETING
    | {
        "sys.settrace",
        "sys.setprofile",
        "object.__setattr__",
        "object.__getattr__",
        "socket.__new__",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "os.killpg",
        "signal.pthread_kill",
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "open",
        "import",
    }
)
_FRAMES = frozenset(("tb_frame", "gi_frame", "cr_frame", "ag_frame"))
# Through these a candidate looks at frames; other modules of Python that do so have their reasons.
_LOOKERS = ("inspect.py", "traceback.py")


class Watch:
    """Collects what a candidate's code did; `start` cannot be undone in this process."""

    def __init__(self, folder: str) -> None:
        self.changes: list[Change] = []
        self._folder = os.path.realpath(folder) + os.sep
        self._frame: Callable[[int], FrameType] = sys._getframe
        self._busy = False

    def start(self) -> None:
        """Install the hook."""
        sys.addaudithook(self._event)

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _WATCHED or self._busy:
            return
        self._busy = True
        try:
            change = self._judge(event, arguments)
            if change is None or change in self.changes:
                return
            if len(self.changes) < MOST_CHANGES:
                self.changes.append(change)
        except Exception:
            # A strange argument of a strange call; the call itself goes on.
            return
        finally:
            self._busy = False

    def _judge(self, event: str, arguments: tuple[Any, ...]) -> Change | None:
        if event == "open":
            path = str(arguments[0])
            if not (path.startswith("/proc/") and path.endswith(_SECRET_FILES)):
                return None
            return self._by_candidate("secrets", f"opened {path}")
        if event == "import":
            name = str(arguments[0])
            if name.partition(".")[0] in _INSTALLERS:
                return self._by_candidate("install", f"imported {name}")
            if name.startswith("kernelpro.judge") or name == "__main__":
                return self._by_candidate("harness", f"imported {name}")
            return None
        if event in _LOOKING:
            return self._by_candidate("introspection", f"called {event}", looking=True)
        if event in ("sys.settrace", "sys.setprofile"):
            return self._by_candidate("tampering", f"called {event}")
        if event == "object.__getattr__":
            if arguments[1] not in _FRAMES or not self._is_direct():
                return None
            return Change(reason="introspection", what=f"read {arguments[1]}")
        if event == "object.__setattr__":
            return self._replaced_code(arguments)
        if event.startswith("socket."):
            if event == "socket.__new__" and int(arguments[1]) == _AF_UNIX:
                return None
            return self._by_candidate("network", f"called {event}")
        if event in _DELETING:
            path = os.path.realpath(os.fspath(arguments[0]))
            if isinstance(path, bytes):
                path = os.fsdecode(path)
            if path.startswith(self._folder):
                return None
            return self._by_candidate("filesystem", f"called {event} outside its folder")
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            return self._started(event, arguments)
        return self._by_candidate("process", f"called {event}")

    def _replaced_code(self, arguments: tuple[Any, ...]) -> Change | None:
        owner, name = arguments[0], str(arguments[1])
        code = getattr(owner, "__code__", None)
        if name != "__code__" or code is None or not is_installed(code.co_filename):
            return None
        return self._by_candidate("tampering", f"replaced the code of {owner.__qualname__}")

    def _started(self, event: str, arguments: tuple[Any, ...]) -> Change | None:
        """Compilers are started by honest candidates; installers and downloaders are not."""
        if event == "os.system":
            words = os.fsdecode(arguments[0]).split()
        else:
            given = arguments[1]
            items = given.split() if isinstance(given, str | bytes) else list(given)
            words = [os.fsdecode(item) for item in items]
        first = PurePath(words[0]).name if words else ""
        installs = first in _INSTALL_PROGRAMS or (
            first.startswith("python") and bool(_INSTALLERS.intersection(words))
        )
        if not installs:
            return None
        return self._by_candidate("install", f"started {' '.join(words)[:80]}")

    def _is_direct(self) -> bool:
        """Tell whether the candidate's own code caused an event, with nothing in between."""
        return _is_candidates(self._frame(3).f_code.co_filename)

    def _by_candidate(self, reason: str, what: str, *, looking: bool = False) -> Change | None:
        """Make a change of an event whose nearest code outside Python's own is the candidate's."""
        frame: FrameType | None = self._frame(3)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith("<frozen ") or name == __file__:
                frame = frame.f_back
                continue
            standard = is_installed(name) and "site-packages" not in name
            passes = name.endswith(_LOOKERS) if looking else standard
            if not passes:
                return Change(reason=reason, what=what) if _is_candidates(name) else None
            frame = frame.f_back
        return None


def _is_candidates(filename: str) -> bool:
    """Tell whether code of this file is neither Python's, an installed package's nor ours."""
    return not (is_installed(filename) or os.path.realpath(filename).startswith(_HERE))


_HERE = os.path.realpath(Path(__file__).parents[1]) + os.sep
