"""Build torch extensions with our own light headers instead of torch's own.

torch/extension.h takes g++ 55 s and nvcc 194 s to read (2-core machine, torch 2.13, CUDA 13.0); the
headers in light_headers/ declare what kernels' host code uses of it and take a small part of that
(benchmarks/load_inline.py). Whoever calls this builds with torch's own headers whatever does not
build here: the light ones are a part of torch's interface, and what they refuse may well be right.
"""

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HEADERS = Path(__file__).parent / "light_headers"
LOG_BYTES = 1 << 16

# Standard headers that torch/extension.h brings along and sources use without including them; each
# costs 0.1 to 0.5 s, so only what a source seems to use is added.
STANDARD = {
    "algorithm": r"std::(sort|stable_sort|nth_element|partial_sort|copy\w*|fill\w*|transform|"
    r"lower_bound|upper_bound|m(ax|in)_element|reverse|any_of|all_of|none_of|find\w*|count\w*|"
    r"generate|unique\b|rotate|clamp|minmax\w*|remove_if|shuffle)",
    "chrono": r"std::chrono",
    "complex": r"std::complex",
    "cstdlib": r"\b(malloc|free|aligned_alloc|posix_memalign|getenv|abort)\s*\(",
    "functional": r"std::(function|plus|less|greater|hash|bind|ref)\b",
    "iostream": r"std::(cout|cerr|endl|ostream)",
    "map": r"std::(multi)?map\b",
    "memory": r"std::(unique_ptr|shared_ptr|make_unique|make_shared|weak_ptr)",
    "mutex": r"std::(mutex|lock_guard|unique_lock|once_flag|call_once|scoped_lock)",
    "numeric": r"std::(accumulate|iota|inner_product|partial_sum|reduce|gcd|lcm)\b",
    "set": r"std::(multi)?set\b",
    "sstream": r"std::\w*stringstream",
    "thread": r"std::(thread|this_thread)",
    "unordered_map": r"std::unordered_map",
    "unordered_set": r"std::unordered_set",
}


class LightBuildError(Exception):
    """An extension does not build with the light headers; the text is what the tools said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What `load` and `load_inline` of torch.utils.cpp_extension are asked for.

    Attributes:
        name: of the Python module.
        sources: file names and their texts; a name that ends in .cu goes to nvcc.
        folder: where relative includes of the sources are looked for; empty for none.
        cflags: for the C++ compiler, in the caller's order.
        cuda_cflags: for nvcc.
        ldflags: for the linker.
        include_paths: folders.
        with_cuda: whether the CUDA runtime is linked.
    """

    name: str
    sources: tuple[tuple[str, str], ...]
    folder: str = ""
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    with_cuda: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The programs and what torch would tell them.

    Attributes:
        compiler: the C++ compiler.
        standard: of C++, as a flag.
        python_include: folder of Python.h.
        nvcc: empty where there is none.
        cuda_home: the CUDA toolkit's folder; empty where there is none.
        host_compiler: what nvcc is to use for host code; empty for its own choice.
        nvcc_flags: torch's own for every extension, those of the architecture among them.
    """

    compiler: str
    standard: str
    python_include: str
    nvcc: str = ""
    cuda_home: str = ""
    host_compiler: str = ""
    nvcc_flags: tuple[str, ...] = ()


def build(extension: Extension, toolchain: Toolchain, store: Path) -> Path:
    """Compile, link and return the library's path; at once where the store has it.

    Args:
        extension: what to build.
        toolchain: with what.
        store: folder of built extensions, by a hash of all that decides their code.

    Raises:
        LightBuildError: a tool refused it, or cannot be started.
    """
    place = store / key(extension, toolchain)
    library = place / f"{extension.name}.so"
    if library.is_file():
        return library
    try:
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tmp", dir=store) as made:
            work = Path(made)
            objects = _compile(extension, toolchain, work)
            command = [toolchain.compiler, *map(str, objects), "-shared", "-Wl,-Bsymbolic"]
            command += extension.ldflags
            if extension.with_cuda:
                command += [f"-L{toolchain.cuda_home}/{lib}" for lib in ("lib64", "lib")]
                command.append("-lcudart")
            _finish([_start([*command, "-o", f"{extension.name}.so"], work, "link")])
            place.mkdir(exist_ok=True)
            (work / library.name).replace(library)  # whole or not at all
    except OSError as error:
        raise LightBuildError(str(error)) from error
    return library


def key(extension: Extension, toolchain: Toolchain) -> str:
    """Hash of all that decides an extension's code, but what its sources include."""
    words = [repr(extension), repr(toolchain), _headers_hash(), _versions(toolchain)]
    if any("native" in flag for flag in extension.cflags + extension.cuda_cflags):
        lines = set(Path("/proc/cpuinfo").read_text().splitlines())
        words += sorted(x for x in lines if x.startswith(("model name", "flags", "Features")))
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def implied_headers(text: str) -> list[str]:
    """Standard headers that a source uses, by its text, and that torch's would have brought."""
    return [header for header, pattern in STANDARD.items() if re.search(pattern, text)]


def _compile(extension: Extension, toolchain: Toolchain, work: Path) -> list[Path]:
    """Compile all sources side by side; return the object files."""
    running, objects = [], []
    for number, (name, text) in enumerate(extension.sources):
        stem = f"{number}-{Path(name).stem}"
        source = work / f"{stem}{Path(name).suffix}"
        source.write_text(text, encoding="utf-8")
        objects.append(work / f"{stem}.o")
        common = [f"-DTORCH_EXTENSION_NAME={extension.name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        common += [f"-I{path}" for path in extension.include_paths]
        if extension.folder:
            common += [f"-I{extension.folder}"]
        common += ["-isystem", str(HEADERS), "-isystem", toolchain.python_include]
        for header in implied_headers(text):
            common += ["-include", header]
        if source.suffix == ".cu":
            command = _nvcc_command(extension, toolchain, common)
        else:
            if extension.with_cuda:
                common += ["-isystem", f"{toolchain.cuda_home}/include"]
            command = [toolchain.compiler, *common, "-fPIC", toolchain.standard]
            command += [*_plain_symbols(toolchain.compiler), *extension.cflags]
        command += ["-c", source.name, "-o", objects[-1].name]
        running.append(_start(command, work, stem))
    _finish(running)
    return objects


def _nvcc_command(extension: Extension, toolchain: Toolchain, common: list[str]) -> list[str]:
    if not toolchain.nvcc:
        raise LightBuildError("there is no nvcc")
    command = [toolchain.nvcc, *common, *toolchain.nvcc_flags, "--compiler-options", "-fPIC"]
    if toolchain.host_compiler:
        command += ["-ccbin", toolchain.host_compiler]
    command += extension.cuda_cflags
    if not any(flag.startswith(("-std=", "--std")) for flag in extension.cuda_cflags):
        command.append(toolchain.standard)
    for flag in _plain_symbols(toolchain.host_compiler or "g++"):
        command += ["-Xcompiler", flag]
    return command


def _plain_symbols(compiler: str) -> list[str]:
    """Keep two extensions of one process from sharing statics; only GNU's compiler would do so."""
    return [] if "clang" in Path(compiler).name else ["-fno-gnu-unique"]


def _start(command: Sequence[str], work: Path, name: str) -> tuple[subprocess.Popen[bytes], Path]:
    log = work / f"{name}.log"
    with log.open("wb") as output:
        return (
            subprocess.Popen(
                command,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ),
            log,
        )


def _finish(running: list[tuple[subprocess.Popen[bytes], Path]]) -> None:
    """Wait for all of them.

    Raises:
        LightBuildError: one failed.
    """
    failed = ""
    try:
        for process, log in running:
            if process.wait() and not failed:
                with log.open("rb") as written:
                    words = written.read(LOG_BYTES).decode(errors="replace").strip()
                failed = words or f"a compiler ended with status {process.returncode}"
    finally:
        for process, _ in running:
            with contextlib.suppress(OSError):
                process.kill()
            process.wait()
    if failed:
        raise LightBuildError(failed)


@cache
def _headers_hash() -> str:
    files = sorted(path for path in HEADERS.rglob("*") if path.is_file())
    content = b"\0".join(path.read_bytes() for path in files)
    return hashlib.sha256(content).hexdigest()


@cache
def _versions(toolchain: Toolchain) -> str:
    """What the compilers say of themselves."""
    lines = []
    for program in filter(None, (toolchain.compiler, toolchain.nvcc, toolchain.host_compiler)):
        try:
            asked = subprocess.run(
                [program, "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
            lines.append(asked.stdout.decode(errors="replace"))
        except OSError as error:
            raise LightBuildError(str(error)) from error
    return os.linesep.join(lines)
