"""Stands in for torch's load_inline and load in a candidate's process, and builds light.

Installed before the candidate's code runs. What the light headers (targets/light.py) do not build
or cannot load goes, unchanged, to torch's own function, whose errors alone count. What
is not sure to mean the same goes there at once. The compilers run where the candidate's own would:
in its confined process, in its scratch folder, under the judge's deadline for loading.
"""

import functools
import importlib.util
import inspect
import os
import re
import shlex
import sysconfig
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelpro.targets import light
from kernelpro.targets.light import Extension, LightBuildError, Toolchain

MOST_RECORDS = 20
WHY_CHARACTERS = 200
_SAYS = re.compile(r"error[: ]|undefined|cannot find", re.IGNORECASE)
# Arguments that may have any value here; all others must be left at their defaults.
_INLINE = frozenset(
    (
        *("name", "cpp_sources", "cuda_sources", "functions", "extra_cflags", "extra_cuda_cflags"),
        *("extra_ldflags", "extra_include_paths", "build_directory", "verbose", "with_cuda"),
        *("with_pytorch_error_handling", "keep_intermediates", "use_pch", "no_implicit_headers"),
    )
)
_FILES = frozenset(
    (
        *("name", "sources", "extra_cflags", "extra_cuda_cflags", "extra_ldflags", "verbose"),
        *("extra_include_paths", "build_directory", "with_cuda", "keep_intermediates"),
    )
)


class LightBuild:
    """The stand-ins of one process, and what they did.

    Attributes:
        records: for each extension its `name`, the `headers` (`light` or `torch`) that it was built
            with, the `seconds` that took, and `why` not the light ones.
    """

    def __init__(self, cpp_extension: ModuleType) -> None:
        self.records: list[dict[str, Any]] = []
        self._torch = cpp_extension
        self._load_inline: Callable[..., Any] = cpp_extension.load_inline
        self._load: Callable[..., Any] = cpp_extension.load
        self._loaded: dict[Path, ModuleType] = {}
        self._standard = _standard(cpp_extension)

    def install(self) -> None:
        """Put the stand-ins where candidates look for load_inline and load."""
        self._torch.load_inline = self._stand_in(  # type: ignore[attr-defined]  # torch's module
            self._load_inline, _INLINE, _of_texts
        )
        self._torch.load = self._stand_in(  # type: ignore[attr-defined]  # torch's module
            self._load, _FILES, _of_files
        )

    def _stand_in(
        self,
        original: Callable[..., Any],
        known: frozenset[str],
        read: Callable[[Mapping[str, Any]], Extension],
    ) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                arguments = _arguments(signature, known, args, kwargs)
                extension = read(arguments)
                module = self._import(extension)
            except LightBuildError as error:
                why = _reason(str(error))
            except Exception as error:  # an odd argument, a library that does not load
                why = _reason(f"{type(error).__name__}: {error}")
            else:
                self._record(extension.name, "light", began, "")
                return module
            try:
                return original(*args, **kwargs)
            finally:
                name = kwargs.get("name", args[0] if args else "")
                self._record(str(name), "torch", began, why)

        return stand_in

    def _import(self, extension: Extension) -> ModuleType:
        root = os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions"
        library = light.build(extension, self._toolchain(extension), Path(root) / "light")
        if library not in self._loaded:
            spec = importlib.util.spec_from_file_location(extension.name, library)
            if spec is None or spec.loader is None:
                raise LightBuildError(f"{library} is no module")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self._loaded[library] = module
        return self._loaded[library]

    def _toolchain(self, extension: Extension) -> Toolchain:
        own = self._torch
        compiler = os.environ.get("CXX") or "c++"
        include = sysconfig.get_paths()["include"]
        if not extension.with_cuda:
            return Toolchain(compiler=compiler, standard=self._standard, python_include=include)
        home = own.CUDA_HOME
        if not home:
            raise LightBuildError("there is no CUDA toolkit")
        return Toolchain(
            compiler=compiler,
            standard=self._standard,
            python_include=include,
            nvcc=os.environ.get("PYTORCH_NVCC") or str(Path(home, "bin", "nvcc")),
            cuda_home=str(home),
            host_compiler=os.environ.get("CC") or "",
            nvcc_flags=(
                *own.COMMON_NVCC_FLAGS,
                *own._get_cuda_arch_flags(list(extension.cuda_cflags)),
            ),
        )

    def _record(self, name: str, headers: str, began: float, why: str) -> None:
        if len(self.records) < MOST_RECORDS:
            seconds = round(time.perf_counter() - began, 3)
            record = {"name": name[:80], "headers": headers, "seconds": seconds, "why": why}
            self.records.append(record)


def _arguments(
    signature: inspect.Signature, known: frozenset[str], args: Any, kwargs: Any
) -> Mapping[str, Any]:
    """What was asked for, by name.

    Raises:
        LightBuildError: it is more than a light build does.
    """
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        if name not in known and value != signature.parameters[name].default:
            raise LightBuildError(f"{name}={value!r} is for torch's own function")
    name = bound.arguments["name"]
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise LightBuildError("the name is no identifier")
    return bound.arguments


def _of_texts(given: Mapping[str, Any]) -> Extension:
    """Lay out the sources as torch's load_inline does."""
    cpp, cuda = _texts(given["cpp_sources"]), _texts(given.get("cuda_sources"))
    if not given.get("no_implicit_headers"):
        cpp.insert(0, "#include <torch/extension.h>")
        types, cuda_header, runtime = "torch/types.h", "cuda.h", "cuda_runtime.h"
        if cuda:
            cuda[:0] = [f"#include <{header}>" for header in (types, cuda_header, runtime)]
    functions = given.get("functions")
    if isinstance(functions, str):
        functions = [functions]
    if functions is not None:
        cpp.append("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {")
        documented = functions if isinstance(functions, dict) else {f: f for f in functions}
        cpp += [f'm.def("{f}", {f}, "{words}");' for f, words in documented.items()]
        cpp.append("}")
    sources = [("main.cpp", "\n".join(cpp))]
    if cuda:
        sources.append(("cuda.cu", "\n".join(cuda)))
    return _extension(given, sources, "")


def _of_files(given: Mapping[str, Any]) -> Extension:
    """Read the sources of torch's load."""
    paths = [Path(path) for path in _texts(given["sources"])]
    folders = {str(path.absolute().parent) for path in paths}
    if len(folders) != 1:
        raise LightBuildError("the sources lie in several folders")
    sources = [(path.name, path.read_text(encoding="utf-8")) for path in paths]
    if any(re.search(r'^\s*#\s*include\s*"', text, re.MULTILINE) for _, text in sources):
        # A header beside the sources is not part of the hash by which a build is found again.
        raise LightBuildError("a source includes a file beside it")
    return _extension(given, sources, folders.pop())


def _extension(given: Mapping[str, Any], sources: list[tuple[str, str]], folder: str) -> Extension:
    has_cuda = any(name.endswith((".cu", ".cuh")) for name, _ in sources)
    with_cuda = has_cuda if given.get("with_cuda") is None else bool(given["with_cuda"])
    return Extension(
        name=given["name"],
        sources=tuple(sources),
        folder=folder,
        cflags=_flags(given.get("extra_cflags")),
        cuda_cflags=_flags(given.get("extra_cuda_cflags")),
        ldflags=_flags(given.get("extra_ldflags")),
        include_paths=tuple(filter(None, _texts(given.get("extra_include_paths")))),
        with_cuda=with_cuda,
    )


def _flags(value: Any) -> tuple[str, ...]:
    """Flags as a shell reads them, through which torch hands them to the compiler."""
    return tuple(flag for text in _texts(value) for flag in shlex.split(text))


def _texts(value: Any) -> list[str]:
    """A string or a sequence of them, as a new list.

    Raises:
        LightBuildError: it is neither.
    """
    if value is None:
        return []
    items = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(item, str) for item in items):
        raise LightBuildError("an argument is no text")
    return items


def _standard(cpp_extension: ModuleType) -> str:
    """The C++ standard that this torch compiles extensions for, as a flag."""
    text = Path(str(cpp_extension.__file__)).read_text(encoding="utf-8")
    found = re.search(r"['\"](-std=c\+\+\d\d)['\"]", text)
    return found[1] if found else "-std=c++17"


def _reason(log: str) -> str:
    """The first line that names an error, shortened."""
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["no reason was given"]
    named = [line for line in lines if _SAYS.search(line)]
    return (named or lines)[0][:WHY_CHARACTERS]


def in_words(records: object) -> dict[str, str]:
    """What a candidate's process says of its extensions, for the verdict's evidence.

    Args:
        records: as in `LightBuild.records`, but not to be believed.
    """
    told = {}
    for record in records[:MOST_RECORDS] if isinstance(records, list) else ():
        if not isinstance(record, dict) or not isinstance(record.get("seconds"), float):
            continue
        light_ones = record.get("headers") == "light"
        headers = "kernelpro's light headers" if light_ones else "torch's own headers"
        words = f"built with {headers} in {record['seconds']:.1f} s"
        why = "" if light_ones else str(record.get("why", ""))[:WHY_CHARACTERS]
        name = str(record.get("name", ""))[:80]
        told[f"extension {name}"] = words + (f"; the light ones: {why}" if why else "")
    return told


def concerns(source: str) -> bool:
    """Whether a candidate's source names torch's module; importing it takes half a second."""
    return "cpp_extension" in source


def install() -> LightBuild:
    """Import torch.utils.cpp_extension and put the stand-ins into it."""
    import torch.utils.cpp_extension

    stand_ins = LightBuild(torch.utils.cpp_extension)
    stand_ins.install()
    return stand_ins
