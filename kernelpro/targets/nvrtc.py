"""Compile CUDA C++ to a cubin with NVRTC, through CuPy, in a process of its own.

A compiler that hangs or crashes on a candidate's source takes only that process with it, and the
search's own process needs neither CuPy nor a CUDA context. The options are those that
`cupy.RawModule` adds, so that what compiles here compiles there. Run as a module, this file is that
process: one JSON request a line on stdin, one JSON answer a line on stdout.
"""

import base64
import contextlib
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from kernelpro.errors import TargetError

_HEADER_BYTES = 64  # of a 64-bit ELF file
START_S = 60.0  # CuPy's import on a slow disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU and the versions that a cubin for it depends on.

    Of one that is not here, name and driver are empty.
    """

    name: str
    arch: str
    cupy: str
    nvrtc: str
    driver: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What NVRTC made of a source: a cubin, or the reasons why not."""

    ok: bool
    log: str
    cubin: bytes = field(default=b"", repr=False)


class Compiler:
    """Client of the compiling process, which is started when first needed and after a crash."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Start nothing yet.

        Args:
            environment: variables of the process besides ours, such as which card it is to see.
        """
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def device(self, arch: str = "") -> Device:
        """Describe the first visible GPU, or one of an architecture, which need not be here.

        Args:
            arch: such as `90`; empty for the visible one.

        Raises:
            TargetError: CuPy cannot be imported, or sees no GPU; or NVRTC does not compile for
                that architecture.
        """
        answer = self._ask({"ask": "device", "arch": arch}, START_S)
        if answer is None or "error" in answer:
            words = answer["error"] if answer else "the compiling process ended"
            wanted = f"compile for sm_{arch}" if arch else "use a GPU"
            raise TargetError(f"CuPy cannot {wanted} here: {words}")
        return Device(**answer["device"])

    def compile(
        self, source: str, options: tuple[str, ...], arch: str, deadline_s: float
    ) -> Compiled:
        """Compile source for one architecture, such as `90`.

        A process that does not answer in time is killed, which is a failure of the source.
        """
        request = {"ask": "compile", "source": source, "options": options, "arch": arch}
        answer = self._ask(request, deadline_s + (START_S if self._process is None else 0.0))
        if answer is None:
            return Compiled(
                ok=False,
                log=f"error: NVRTC crashed, or did not end in {deadline_s:.0f} s, on this source",
            )
        if "error" in answer:
            raise TargetError(f"NVRTC cannot be used through CuPy: {answer['error']}")
        cubin = base64.b64decode(answer["cubin"])
        return Compiled(ok=bool(answer["ok"]), log=answer["log"], cubin=cubin)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._process = None

    def _ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any] | None:
        """Send a request and return the answer, or None when the process died or was killed."""
        with self._lock:
            for _ in range(2):  # a process that died before it was asked is no answer
                try:
                    process = self._running()
                    assert process.stdin is not None
                    assert process.stdout is not None
                    process.stdin.write(json.dumps(request).encode() + b"\n")
                    process.stdin.flush()
                    answer: dict[str, Any] = json.loads(_line(process.stdout, deadline_s))
                    return answer
                except TimeoutError:
                    self.close()
                    return None
                except (OSError, EOFError):
                    self.close()
            return None

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "kernelpro.targets.nvrtc"]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, **self._environment},
            start_new_session=True,
        )
        return self._process


def _line(stream: IO[bytes], deadline_s: float) -> bytes:
    """Read up to a line's end.

    Raises:
        EOFError: the stream ended.
        TimeoutError: the deadline passed.
    """
    end = time.monotonic() + deadline_s
    read = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not read.endswith(b"\n"):
            if not selector.select(max(0.0, end - time.monotonic())):
                raise TimeoutError
            part = os.read(stream.fileno(), 1 << 20)
            if not part:
                raise EOFError
            read += part
    return bytes(read)


# --- the compiling process --------------------------------------------------------------------


def serve() -> None:
    """Answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    for line in sys.stdin:
        request = json.loads(line)
        try:
            device = request["ask"] == "device"
            answer = _describe(request["arch"]) if device else _compile(request)
        except Exception as error:
            words = str(error).strip().splitlines() or [""]
            answer = {"error": f"{type(error).__name__}: {words[0][:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _describe(arch: str) -> dict[str, Any]:
    import cupy
    from cupy_backends.cuda.libs import nvrtc

    version = ".".join(map(str, nvrtc.getVersion()))
    name = driver = ""
    if not arch:
        # Properties and versions are read without a context, so the GPU's memory stays free.
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        name, driver = properties["name"].decode(), str(cupy.cuda.runtime.driverGetVersion())
        arch = f"{properties['major']}{properties['minor']}"
    elif int(arch) not in (known := nvrtc.getSupportedArchs()):
        there = ", ".join(f"sm_{each}" for each in sorted(known))
        raise ValueError(f"NVRTC {version} knows {there} alone")
    return {
        "device": {
            "name": name,
            "arch": arch,
            "cupy": cupy.__version__,
            "nvrtc": version,
            "driver": driver,
        }
    }


def _compile(request: dict[str, Any]) -> dict[str, Any]:
    import cupy  # loads NVRTC's library for the bindings below
    from cupy_backends.cuda.libs import nvrtc

    # What cupy.RawModule adds to the caller's options, in its order (CuPy 13 and 14).
    options = (
        *cupy._core.core.assemble_cupy_compiler_options(tuple(request["options"])),
        "-ftz=true",
        f"-arch=sm_{request['arch']}",
        "--device-as-default-execution-space",
        "-Xptxas=-v",  # ours: registers, spills and shared memory into the log
    )
    program = nvrtc.createProgram(request["source"], "kernel.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, options)
            ok, cubin = True, whole(nvrtc.getCUBIN(program))
        except nvrtc.NVRTCError:
            ok, cubin = False, b""
        log = nvrtc.getProgramLog(program).strip("\0\n ")
    finally:
        nvrtc.destroyProgram(program)
    return {"ok": ok, "log": log, "cubin": base64.b64encode(cubin).decode()}


def whole(cubin: bytes) -> bytes:
    """The cubin with the byte that CuPy takes off its end as if it were the end of a text.

    The file ends with one of its two tables, whose places and sizes its header tells; the last
    byte is the highest of an entry's size or alignment, which is 0. The driver loads a cubin
    without it, and what disassembles one does not.
    """
    if len(cubin) < _HEADER_BYTES:
        return cubin
    segments, sections = struct.unpack_from("<QQ", cubin, 0x20)
    segment, segment_count, section, section_count = struct.unpack_from("<HHHH", cubin, 0x36)
    end = max(segments + segment * segment_count, sections + section * section_count)
    return cubin + b"\0" if len(cubin) == end - 1 else cubin


if __name__ == "__main__":
    serve()
