"""The CPU target: C++ through g++ or clang++ with OpenMP, loaded with ctypes."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from kernelpro.errors import TargetError
from kernelpro.records import Build, Candidate, Machine
from kernelpro.settings import cache_folder
from kernelpro.targets import Availability, declared, elf, peaks
from kernelpro.targets.cache import Store
from kernelpro.targets.compiler import compile_text, refused_flag
from kernelpro.targets.cpp_loader import CPP_DEFAULT_FLAGS, cpp_plan

INSTALL = "apt install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora), or set CXX"
PEAK_FLAGS = ("-O3", "-march=native", "-fopenmp", "-std=c++17")
PEAK_DEADLINE_S = 120.0
PEAK_ROUNDS = 9
# A shared machine's bandwidth halves for seconds at a time, and a peak must not be set too low.
PEAK_RUNS = 3
PEAK_PAUSE_S = 0.5
BUSY_SHARE = 0.5  # own: of the processors, in the load average of the last minute
# STREAM's rule: each array at least four times the last-level cache.
ARRAY_CACHES = 4
ARRAY_LIMIT_SHARE = 16  # own: the three arrays together take at most 3/16 of free memory


class CpuTarget:
    """This machine's processor."""

    name = "cpu"
    device = "cpu"
    language = "cpp"

    def __init__(self) -> None:
        self._machine: Machine | None = None

    def availability(self) -> Availability:
        """Look for a C++ compiler."""
        if _compiler() is None:
            return Availability(ok=False, reason="there is no C++ compiler", remedy=INSTALL)
        return Availability(ok=True)

    def build(self, candidate: Candidate, architecture: str = "") -> Build | None:
        """Compile the candidate's CPP_SOURCE with its CPP_FLAGS, as its own load_cpp would.

        It is for this machine's processor, whatever the architecture.
        """
        found = declared.literals(candidate.source, ("CPP_SOURCE", "CPP_FLAGS"))
        source, flags = found.get("CPP_SOURCE"), found.get("CPP_FLAGS", CPP_DEFAULT_FLAGS)
        if not isinstance(source, str) or not isinstance(flags, tuple):
            return None
        if (flag := refused_flag(flags)) is not None:
            return Build(
                ok=False,
                log=f"error: CPP_FLAGS holds {flag!r}; only flags of code generation, language, "
                "macros and warnings may be used",
            )
        return build_cpp(source, flags)

    def machine(self) -> Machine:
        """Memory bandwidth, FMA rates and the cost of a parallel region, with all threads."""
        if self._machine is not None:
            return self._machine
        count = threads()
        known = identity(count, sorted(os.sched_getaffinity(0)))
        self._machine = peaks.remembered(self.name, known, lambda: _measure(count))
        return self._machine

    def worker_environment(self, scratch: Path) -> dict[str, str]:
        """Where load_cpp finds what build made. Threads and allocator are the judge's to set."""
        return {"KERNELPRO_CPP_CACHE": str(_folder())}


def identity(count: int, cores: Sequence[int]) -> dict[str, str]:
    """What peaks measured with so many threads on these processors depend on."""
    return {
        "device": _processor(),
        "threads": str(count),
        "compiler": _compiler_line(),
        "cpus": ",".join(map(str, cores)),
    }


def build_cpp(source: str, flags: tuple[str, ...] = CPP_DEFAULT_FLAGS) -> Build:
    """Compile C++ into the cache that load_cpp reads, under the key that load_cpp uses.

    Raises:
        TargetError: there is no compiler, or the cache cannot be written.
    """
    began = time.perf_counter()
    library, command = _plan(source, flags)
    store = Store(_folder())
    path, log = store.find(library.name), ""
    cached = path is not None
    if path is None:
        with store.workspace() as work:
            made = work / "made.so"
            done = compile_text([*command, "-o", str(made)], source, work)
            if not done.ok:
                seconds = time.perf_counter() - began
                return Build(ok=False, key=library.stem, log=done.log, seconds=seconds)
            path, log = store.keep(made, library.name), done.log
    try:
        machine_code = elf.code_hash(path.read_bytes())
    except ValueError:
        path.unlink(missing_ok=True)  # the disk lost a part of it
        return build_cpp(source, flags)
    return Build(
        ok=True,
        key=library.stem,
        binary=str(path),
        machine_code=machine_code,
        log=log,
        seconds=0.0 if cached else time.perf_counter() - began,
        cached=cached,
    )


def threads() -> int:
    """Threads that a process may use here: torch's number, at most the processors it may run on."""
    import torch

    return max(1, min(torch.get_num_threads(), len(os.sched_getaffinity(0))))


def _folder() -> Path:
    given = os.environ.get("KERNELPRO_CPP_CACHE")
    return Path(given).absolute() if given else (cache_folder() / "cpp").absolute()


def _plan(source: str, flags: tuple[str, ...]) -> tuple[Path, list[str]]:
    try:
        return cpp_plan(source, flags)
    except RuntimeError as error:
        raise TargetError(f"there is no C++ compiler; {INSTALL}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise TargetError(f"the C++ compiler does not run ({error}); {INSTALL}") from error


def _compiler() -> str | None:
    names = (os.environ.get("CXX") or "g++", "g++", "clang++")
    return next((path for path in map(shutil.which, names) if path), None)


def _compiler_line() -> str:
    _, command = _plan("", ())
    answer = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.partition("\n")[0].strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    import platform

    return platform.processor() or platform.machine()


def _last_level_cache_bytes() -> int:
    """Sum of the last-level caches that the allowed processors share; 0 when unknown."""
    found: dict[tuple[int, str], int] = {}
    for cpu in os.sched_getaffinity(0):
        for index in Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*"):
            try:
                kind = (index / "type").read_text().strip()
                level = int((index / "level").read_text())
                shared = (index / "shared_cpu_list").read_text().strip()
                size = (index / "size").read_text().strip()
            except (OSError, ValueError):
                continue
            if kind in ("Unified", "Data") and size.endswith("K"):
                found[level, shared] = int(size[:-1]) << 10
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last)


def _measure(count: int) -> Machine:
    """Compile cpu_peaks.cpp and run it in a process of its own."""
    cache_bytes = _last_level_cache_bytes()
    load = os.getloadavg()[0]
    busy = load > BUSY_SHARE * (os.cpu_count() or 1)
    limit = psutil.virtual_memory().available // ARRAY_LIMIT_SHARE
    array_bytes = min(max(ARRAY_CACHES * cache_bytes, 64 << 20), limit)
    source = (Path(__file__).parent / "cpu_peaks.cpp").read_text(encoding="utf-8")
    _, command = _plan("", PEAK_FLAGS)
    environment = {**os.environ, "OMP_NUM_THREADS": str(count), "OMP_DYNAMIC": "false"}
    with Store(cache_folder() / "peaks").workspace() as work:
        program = work / "cpu_peaks"
        building = [command[0], *PEAK_FLAGS, "-x", "c++", "-", "-o", str(program)]
        done = compile_text(building, source, work)
        if not done.ok:
            raise TargetError(
                f"{command[0]} cannot build a C++ program with OpenMP, which kernels need: "
                f"{done.log[:300]}"
            )
        command = [str(program), str(array_bytes // 8), str(PEAK_ROUNDS)]
        runs = []
        for run in range(PEAK_RUNS):
            if run:
                time.sleep(PEAK_PAUSE_S)
            runs.append(_run_peaks(command, environment))
    measured = {name: max(run[name] for run in runs) for name in runs[0]}
    measured["launch_us"] = min(run["launch_us"] for run in runs)
    kernels = {name: measured[name] for name in ("read", "triad", "triad_streamed")}
    return Machine(
        target="cpu",
        device=_processor(),
        threads=count,
        # The largest, since a bound must not be beaten by a kernel that only reads, or that
        # writes past the caches.
        bandwidth_bytes_per_s=max(kernels.values()),
        flops_per_s={name: measured[name] for name in ("float32", "float64")},
        cache_bytes=cache_bytes,
        launch_us=measured["launch_us"],
        facts={
            "compiler": _compiler_line(),
            "array_bytes": str(array_bytes),
            **({peaks.BUSY: f"load average {load:.2f} before measuring"} if busy else {}),
            **{f"bandwidth_{name}_bytes_per_s": f"{rate:.4g}" for name, rate in kernels.items()},
        },
    )


def _run_peaks(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    try:
        ran = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PEAK_DEADLINE_S,
            check=True,
        )
        measured: dict[str, float] = json.loads(ran.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise TargetError(f"the processor's peaks cannot be measured: {error}") from error
    return measured
