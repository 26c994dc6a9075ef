"""Look at this machine: which targets, compilers, profilers and keys it has, and what to do about
the rest. Compiles nothing, measures nothing and changes nothing."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpro.models import keys

SELFTEST_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked for.

    Attributes:
        group: `target`, `compiler`, `profiler`, `package`, `sandbox`, `key`.
        name: what was looked for.
        ok: whether it is there and usable.
        detail: version or place; when not ok, what is missing.
        remedy: what to do about it; empty when nothing needs doing.
        needed: False when kernelpro works without it.
    """

    group: str
    name: str
    ok: bool
    detail: str = ""
    remedy: str = ""
    needed: bool = False


def examine() -> list[Finding]:
    """Look for everything that kernelpro can use."""
    return [
        *_targets(),
        *_compilers(),
        *_profilers(),
        *_packages(),
        *_sandbox(),
        *_keys(),
    ]


def _targets() -> list[Finding]:
    from kernelpro import targets

    found = []
    for name in ("cpu", "cuda"):
        target = targets.get(name)
        state = target.availability()
        found.append(
            Finding(
                group="target",
                name=name,
                ok=state.ok,
                detail=state.reason or f"builds {target.language} kernels",
                remedy=state.remedy,
                needed=name == "cpu",
            )
        )
    return found


def _compilers() -> list[Finding]:
    rows = (
        ("g++", "apt install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora)"),
        ("clang++", "optional: apt install clang"),
        ("nvcc", "optional: install the CUDA toolkit; kernels through NVRTC need none"),
    )
    found = [_tool("compiler", name, remedy) for name, remedy in rows]
    return found


def _profilers() -> list[Finding]:
    rows = (
        ("objdump", "apt install binutils; without it instruction-level findings are missing"),
        ("ncu", "optional: install Nsight Compute"),
        ("nsys", "optional: install Nsight Systems; torch.profiler serves instead"),
        ("compute-sanitizer", "optional: comes with the CUDA toolkit"),
        ("valgrind", "optional: apt install valgrind; counts instructions exactly"),
        ("llvm-mca", "optional: apt install llvm; rates of a CPU kernel's hot loop"),
    )
    found = [_tool("profiler", name, remedy) for name, remedy in rows]
    found += [_disassembler(), _nsight_python()]
    found.append(_counters())
    return found


def _disassembler() -> Finding:
    """Whether GPU machine code can be read: nvdisasm is often not on PATH but beside torch."""
    from kernelpro.profiling.sass import tools
    from kernelpro.profiling.sass.errors import SassError

    try:
        path = str(tools.find("nvdisasm"))
    except SassError as error:
        return Finding(
            group="profiler",
            name="nvdisasm",
            ok=False,
            detail=str(error).partition(";")[0],
            remedy="optional: pip install nvidia-cuda-nvdisasm; reads GPU machine code",
        )
    return Finding(group="profiler", name="nvdisasm", ok=True, detail=path)


def _nsight_python() -> Finding:
    """Whether NVIDIA's nsight-python could be used here; kernelpro runs ncu itself."""
    from kernelpro.profiling.counters import ncu

    try:
        why = ncu.nsight_python()
    except ncu.NcuError as error:
        why = str(error)
    remedy = "optional: kernelpro runs ncu itself and needs no nsight-python"
    return Finding(
        group="profiler",
        name="nsight-python",
        ok=not why,
        detail=why or "ncu is new enough for it",
        remedy=remedy if why else "",
    )


def _counters() -> Finding:
    """Whether the driver lets a user read hardware counters."""
    parameters = Path("/proc/driver/nvidia/params")
    name = "GPU hardware counters"
    if not parameters.is_file():
        return Finding(
            group="profiler", name=name, ok=False, detail="no NVIDIA driver on this machine"
        )
    locked = "RmProfilingAdminOnly: 1" in parameters.read_text(errors="replace")
    if locked and os.geteuid() != 0:
        return Finding(
            group="profiler",
            name=name,
            ok=False,
            detail="the driver keeps them for the administrator",
            remedy="load the driver with NVreg_RestrictProfilingToAdminUsers=0, or run as root",
        )
    return Finding(group="profiler", name=name, ok=True, detail="readable by this user")


def _packages() -> list[Finding]:
    rows = (
        ("torch", "pip install torch", True),
        ("numpy", "pip install numpy", True),
        ("networkx", "pip install networkx", True),
        ("pandas", "pip install pandas", True),
        ("pluggy", "pip install pluggy", True),
        ("rich", "pip install rich", True),
        ("psutil", "pip install psutil", True),
        ("anthropic", "pip install 'kernelpro[anthropic]' (for Anthropic's models)", False),
        (
            "openai",
            "pip install 'kernelpro[openai]' (for OpenAI's protocol, local servers too)",
            False,
        ),
        ("mcp", "pip install 'kernelpro[mcp]' (for agents: serve --mcp)", False),
        ("cupy", "pip install 'kernelpro[gpu]' (for an NVIDIA GPU)", False),
        ("pynvml", "pip install 'kernelpro[gpu]' (for an NVIDIA GPU)", False),
        ("ncu_report", "optional: pip install 'kernelpro[profile]'; reads .ncu-rep files", False),
        ("triton", "comes with a CUDA build of torch; only Triton candidates need it", False),
    )
    found = []
    for name, remedy, needed in rows:
        there = importlib.util.find_spec(name) is not None
        found.append(
            Finding(
                group="package",
                name=name,
                ok=there,
                detail=_version(name) if there else "not installed",
                remedy="" if there else remedy,
                needed=needed,
            )
        )
    return found


def _version(module: str) -> str:
    from importlib import metadata

    for name in metadata.packages_distributions().get(module, ()):
        return metadata.version(name)
    return "installed"


def _sandbox() -> list[Finding]:
    """What confines a candidate here, tried by a process that is confined like one."""
    linux = sys.platform.startswith("linux")
    found = [
        Finding(
            group="sandbox",
            name="process",
            ok=linux,
            detail="one process for each candidate, deadlines, watchdog, SIGKILL of all it started"
            if linux
            else f"needs Linux, but this is {sys.platform}",
            remedy="" if linux else "run kernelpro on Linux",
            needed=True,
        )
    ]
    if not linux:
        return found
    machine = _selftest()
    if machine is None:
        trouble = "the test of the confinement did not end"
        return [*found, Finding(group="sandbox", name="confinement", ok=False, detail=trouble)]
    abi = machine["landlock_abi"]
    found += [
        Finding(
            group="sandbox",
            name="landlock",
            ok=machine["landlock"],
            detail=f"the kernel offers ABI {abi}" if abi else "the kernel offers none",
            remedy="use Linux 5.13 or later (6.12 for all of it) with landlock in its lsm= list",
        ),
        Finding(
            group="sandbox",
            name="seccomp",
            ok=machine["seccomp"],
            detail="system calls are filtered" if machine["seccomp"] else "no filter can be set",
            remedy="use a kernel with CONFIG_SECCOMP_FILTER on x86-64 or arm64",
        ),
    ]
    for each in machine["protections"]:
        found.append(
            Finding(
                group="sandbox",
                name=each["name"],
                ok=each["ok"],
                detail=each["detail"],
                remedy=each["remedy"],
            )
        )
    strict = machine["strict_trouble"]
    found.append(
        Finding(
            group="sandbox",
            name="strict",
            ok=not strict,
            detail=strict or "bubblewrap works; isolation = 'strict' in [judge] uses it",
            remedy="optional: apt install bubblewrap, where user namespaces are allowed",
        )
    )
    return found


def _selftest() -> dict[str, Any] | None:
    import kernelpro

    root = str(Path(kernelpro.__file__).resolve().parents[1])
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "kernelpro.judge.selftest"],
            env={**os.environ, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            timeout=SELFTEST_DEADLINE_S,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return found


def _keys() -> list[Finding]:
    found = []
    for company, name in keys.VARIABLES.items():
        key, where = keys.find(company)
        detail = f"found in the {where}" if key else "not set; the built-in proposer needs no key"
        found.append(Finding(group="key", name=name, ok=bool(key), detail=detail))
    return found


def _tool(group: str, name: str, remedy: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(group=group, name=name, ok=False, detail="not on PATH", remedy=remedy)
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
        lines = [line for line in answer.stdout.splitlines() if any(c.isdigit() for c in line)]
        detail = f"{path}: {lines[0].strip()[:80]}" if lines else path
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(
            group=group, name=name, ok=False, detail=f"{path} does not run: {error}", remedy=remedy
        )
    return Finding(group=group, name=name, ok=True, detail=detail)
