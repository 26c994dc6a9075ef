"""Compile C++ with the system's compiler and load it with ctypes, once for each source and machine.

Self-contained: needs the standard library and g++ or clang++. The library's name is a hash of all
that decides its code, so a cache that several machines share stays right.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CPP_DEFAULT_FLAGS = (
    "-O3", "-march=native", "-fopenmp", "-std=c++17", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip


def cpp_plan(source: str, flags: tuple[str, ...]) -> tuple[Path, list[str]]:
    """Path of the library, and the command that makes it from source on stdin, less `-o FILE`."""
    names = (os.environ.get("CXX") or "g++", "g++", "clang++")
    compiler = next((path for path in map(shutil.which, names) if path), None)
    if compiler is None:
        raise RuntimeError("no C++ compiler: install g++ (Debian, Ubuntu) or gcc-c++ (Fedora)")
    answer = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    lines = set(Path("/proc/cpuinfo").read_text().splitlines())
    cpu = sorted(ln for ln in lines if ln.startswith(("model name", "flags", "Features", "CPU")))
    words = [source, *flags, compiler, answer.stdout.partition("\n")[0], *cpu]
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
    cache = os.environ.get("KERNELPRO_CPP_CACHE") or Path("~/.cache/kernelpro/cpp").expanduser()
    return Path(cache, f"{key}.so"), [compiler, *flags, "-shared", "-fPIC", "-x", "c++", "-"]


def load_cpp(source: str, flags: tuple[str, ...] = CPP_DEFAULT_FLAGS) -> ctypes.CDLL:
    """Load the library, after compiling it if the cache lacks it."""
    library, command = cpp_plan(source, flags)
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder, "made.so")
            command += ["-o", str(made)]
            done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
            if done.returncode:
                raise RuntimeError(f"the compiler refused it:\n{done.stderr.decode()[:2000]}")
            made.replace(library)  # whole or not at all, whoever else builds it
    return ctypes.CDLL(str(library))
