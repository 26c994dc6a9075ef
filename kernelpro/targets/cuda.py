"""The CUDA target: CUDA C++ through NVRTC and CuPy, on torch's tensors."""

import dataclasses
import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import weakref
from functools import cached_property
from pathlib import Path

from kernelpro.code_search import files
from kernelpro.code_search import settings as sources
from kernelpro.code_search.settings import CodeSearchSettings
from kernelpro.errors import TargetError
from kernelpro.records import Build, Candidate, Machine
from kernelpro.settings import cache_folder, resolve
from kernelpro.targets import Availability, declared, elf, peaks
from kernelpro.targets.cache import Store
from kernelpro.targets.compiler import DEADLINE_S, shorten
from kernelpro.targets.nvrtc import Compiler, Device

PEAK_DEADLINE_S = 180.0
OWN_FROM = 90  # architectures with instructions of their own, for which code must name them: sm_90a
# NVRTC options that a candidate may declare: none that makes it write files or run for ever.
_OPTION = re.compile(
    r"-{1,2}(std=c\+\+\d\d|arch=sm_\d+a|"
    r"[DUI].+|use_fast_math|fmad=\w+|ftz=\w+|prec-(div|sqrt)=\w+|lineinfo|"
    r"generate-line-info|maxrregcount=\d+|restrict|extra-device-vectorization|default-device|"
    r"device-as-default-execution-space|Xptxas=-[\w=,]+|ptxas-options=-[\w=,]+|"
    r"(no-)?(source-include|display-error-number)|disable-warnings|w|minimal|"
    r"define-macro=.+|undefine-macro=.+|include-path=.+)"
)


class CudaTarget:
    """The first NVIDIA GPU that is visible."""

    name = "cuda"
    device = "cuda"
    language = "cuda"

    def __init__(self, compiler: Compiler | None = None) -> None:
        self._compiler = compiler or Compiler()
        self._machine: Machine | None = None
        self._others: dict[str, Device] = {}  # by architecture, such as `90`
        weakref.finalize(self, self._compiler.close)

    def availability(self) -> Availability:
        """Look whether torch sees a GPU and CuPy imports."""
        import torch

        if not torch.cuda.is_available():
            if torch.version.cuda is None:
                return Availability(
                    ok=False,
                    reason=f"torch {torch.__version__} was built without CUDA",
                    remedy="install a CUDA build of torch on a machine with an NVIDIA GPU",
                )
            return Availability(
                ok=False,
                reason="torch sees no NVIDIA GPU",
                remedy="check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES",
            )
        try:
            importlib.import_module("cupy")
        except Exception as error:  # a broken installation raises more than ImportError
            words = (str(error).strip().splitlines() or [type(error).__name__])[0]
            major = str(torch.version.cuda).partition(".")[0]
            return Availability(
                ok=False,
                reason=f"CuPy cannot be imported: {words}",
                remedy=f"pip install cupy-cuda{major}x",
            )
        return Availability(ok=True)

    def build(self, candidate: Candidate, architecture: str = "") -> Build | None:
        """Compile the candidate's CUDA_SOURCE with its CUDA_OPTIONS to a cubin in the cache.

        The candidate compiles its source again when it is loaded; this build finds errors before a
        process is spent on it, and tells equal machine code, registers and spills. For an
        architecture that is named no GPU is needed here.
        """
        names = ("CUDA_SOURCE", "CUDA_OPTIONS", "CUTLASS_SOURCE")
        found = declared.literals(candidate.source, names)
        source, options = found.get("CUDA_SOURCE"), found.get("CUDA_OPTIONS", ())
        if not isinstance(source, str) or not isinstance(options, tuple):
            return None
        for option in options:
            if not _OPTION.fullmatch(option):
                return Build(
                    ok=False,
                    log=f"error: CUDA_OPTIONS holds {option!r}; only options of language, macros, "
                    "include paths and code generation may be used, each with its value after =",
                )
            wanted = re.search(r"arch=sm_(\d+)a", option)
            if wanted is None:
                continue
            if wanted[1] != (arch := self._built_for(architecture).arch):
                return Build(
                    ok=False,
                    log=f"error: CUDA_OPTIONS holds {option!r}, but this GPU is sm_{arch}; code "
                    "for an architecture's own instructions runs on no other",
                )
        made = build_cuda(self._compiler, self._built_for(architecture), source, options)
        return _beside(made, found.get("CUTLASS_SOURCE"))

    def _built_for(self, architecture: str) -> Device:
        arch = architecture.removeprefix("sm_")
        if not arch:
            return self._device
        if arch not in self._others:
            self._others[arch] = self._compiler.device(arch)
        return self._others[arch]

    @cached_property
    def _device(self) -> Device:
        return self._compiler.device()

    def machine(self) -> Machine:
        """Memory bandwidth, arithmetic peaks by path, L2 size and the cost of a launch."""
        if self._machine is not None:
            return self._machine
        import torch

        state = self.availability()
        if not state.ok:
            raise TargetError(f"target 'cuda' cannot be used: {state.reason}; {state.remedy}")
        identity = {
            "device": self._device.name,
            "driver": self._device.driver,
            "cupy": self._device.cupy,
            "torch": str(torch.__version__),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        }
        machine = peaks.remembered(self.name, identity, _measure)
        # Not remembered with the peaks: it can be installed at any time.
        facts = {**machine.facts, "cutlass": cutlass_here(self._device.arch)}
        self._machine = dataclasses.replace(machine, facts=facts)
        return self._machine

    def worker_environment(self, scratch: Path) -> dict[str, str]:
        """Keep every cache of a candidate's tools in the folder that it may write to.

        CuPy keeps none: it remembers the folder of the process that imported it, which workers
        are forked from, and may not write there. Extensions that a candidate builds with nvcc are
        built for this GPU, its own instructions among them, and find CUTLASS's headers.
        """
        folders = {
            variable: str(scratch / folder)
            for variable, folder in (
                ("TRITON_CACHE_DIR", "triton"),
                ("TORCH_EXTENSIONS_DIR", "torch_extensions"),
                ("CUDA_CACHE_PATH", "cuda"),
                ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
            )
        }
        tree = sources.tree(resolve("code_search", CodeSearchSettings))
        return {
            **folders,
            "CUPY_CACHE_IN_MEMORY": "1",
            **nvcc_environment(self._device.arch, tree),
        }


def nvcc_environment(arch: str, tree: Path | None) -> dict[str, str]:
    """What nvcc and torch's extension builder are told of the GPU and of CUTLASS.

    Args:
        arch: of the GPU, such as `90`.
        tree: CUTLASS's sources; None, or a tree without its headers: they are not offered.
    """
    capability = f"{arch[:-1]}.{arch[-1:]}"
    told = {"TORCH_CUDA_ARCH_LIST": f"{capability}a" if int(arch) >= OWN_FROM else capability}
    folders = (tree / "include", tree / "tools" / "util" / "include") if tree is not None else ()
    if folders and (folders[0] / "cute").is_dir() and " " not in str(tree):
        included = [f"-I{folder}" for folder in folders if folder.is_dir()]
        # CuTe's constexpr functions run on both sides.
        told["NVCC_PREPEND_FLAGS"] = " ".join([*included, "--expt-relaxed-constexpr"])
    return told


def cutlass_here(arch: str) -> str:
    """Say which CUTLASS candidates can be compiled with; empty without it, nvcc or ninja.

    Args:
        arch: of the GPU, such as `90`.
    """
    from torch.utils import cpp_extension

    tree = sources.tree(resolve("code_search", CodeSearchSettings))
    if tree is None or "NVCC_PREPEND_FLAGS" not in nvcc_environment(arch, tree):
        return ""
    nvcc = os.environ.get("PYTORCH_NVCC") or Path(cpp_extension.CUDA_HOME or "", "bin", "nvcc")
    if shutil.which(str(nvcc)) is None or not cpp_extension.is_ninja_available():
        return ""
    return files.version(tree) or "of unknown version"


def _beside(build: Build, other: object) -> Build:
    """A build whose candidate has kernels of nvcc's too: their source is part of its identity."""
    if not isinstance(other, str) or not build.machine_code:
        return build
    code = hashlib.sha256(f"{build.machine_code}\0{other}".encode()).hexdigest()
    return dataclasses.replace(build, machine_code=code[: len(build.machine_code)])


def build_cuda(
    compiler: Compiler,
    device: Device,
    source: str,
    options: tuple[str, ...],
    *,
    deadline_s: float = DEADLINE_S,
) -> Build:
    """Compile CUDA C++ for a device, or find it in the cache."""
    began = time.perf_counter()
    words = (source, *options, device.arch, device.nvrtc, device.cupy, "whole tables")
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
    store = Store(cache_folder() / "cuda")
    path, note = store.find(f"{key}.cubin"), store.find(f"{key}.log")
    if path is not None and note is not None:
        try:
            code = elf.code_hash(path.read_bytes())
            log = note.read_text(encoding="utf-8")
            return _build(key, path, code, log, 0.0, cached=True)
        except (OSError, ValueError):
            pass  # swept away or damaged since it was found: compiled again
    done = compiler.compile(source, options, device.arch, deadline_s)
    seconds = time.perf_counter() - began
    if not done.ok:
        return Build(ok=False, key=key, log=shorten(done.log), seconds=seconds)
    store.write(f"{key}.log", done.log.encode())
    path = store.write(f"{key}.cubin", done.cubin)
    return _build(key, path, elf.code_hash(done.cubin), done.log, seconds, cached=False)


def _build(key: str, path: Path, code: str, log: str, seconds: float, *, cached: bool) -> Build:
    return Build(
        ok=True,
        key=key,
        binary=str(path),
        machine_code=code,
        log=_warnings(log),
        seconds=seconds,
        cached=cached,
        resources=resources(log),
    )


def resources(log: str) -> dict[str, float]:
    """What ptxas reports of a cubin's kernels; of several kernels the largest."""
    patterns = {
        "registers": r"Used (\d+) registers",
        "shared_bytes": r"(\d+) bytes smem",
        "stack_bytes": r"(\d+) bytes stack frame",
        "spill_store_bytes": r"(\d+) bytes spill stores",
        "spill_load_bytes": r"(\d+) bytes spill loads",
    }
    found: dict[str, float] = {}
    for name, pattern in patterns.items():
        if values := [float(value) for value in re.findall(pattern, log)]:
            found[name] = max(values)
    if "spill_store_bytes" in found:
        found["spill_bytes"] = found["spill_store_bytes"] + found.get("spill_load_bytes", 0.0)
    if "registers" in found:
        found.setdefault("shared_bytes", 0.0)  # ptxas does not mention what is not used
    return found


def _warnings(log: str) -> str:
    """The log without ptxas' report of resources."""
    return shorten("\n".join(x for x in log.splitlines() if not x.startswith("ptxas")))


def _measure() -> Machine:
    """Run cuda_peaks in a process of its own, whose GPU memory is free again when it ends."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "kernelpro.targets.cuda_peaks"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PEAK_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TargetError(
            f"the GPU's peaks were not measured in {PEAK_DEADLINE_S:.0f} s; is another process "
            "using it?"
        ) from error
    if ran.returncode != 0:
        words = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        raise TargetError(f"the GPU's peaks cannot be measured: {words}")
    return Machine(**json.loads(ran.stdout.splitlines()[-1]))
