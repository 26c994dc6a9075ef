"""What a candidate's process may do: the rules, putting them in force, and saying so in words.

Three levels. `process` holds everywhere: own session, deadlines, SIGKILL of the whole tree,
watchdog, resource limits, allow-listed environment, private caches, capped output. `basic` adds
Landlock, a seccomp filter and the loss of capabilities, as far as the kernel has them. `strict`
puts the fork server in a bubblewrap container besides. It keeps accidents and reward hacking in;
the graphics driver's own interface stays reachable, so it is no wall against a determined attacker.

Standard library only, because it runs before torch is imported.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelpro.judge import landlock, limits, privileges, seccomp

LEVELS = ("process", "basic", "strict")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
# What the NVIDIA driver opens for writing; it names its threads in /proc/self/task/*/comm, and
# cuInit fails where that is refused. Its shared memory between processes lies in /dev/shm.
CUDA_DEVICES = ("nvidia*", "dxg", "dri")
CUDA_SHARED_MEMORY = "/dev/shm"
OWN_THREADS = "/proc/self/task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What one process is confined to.

    Attributes:
        scratch: the only folder that it may write to.
        device: torch's name of the device: `cpu` or `cuda`.
        file_bytes: largest file that it may write.
        memory_bytes: memory that it may take.
        landlock: whether to use Landlock.
        seccomp: whether to use a seccomp filter.
        capabilities: mask of the capabilities that it keeps.
    """

    scratch: Path
    device: str
    file_bytes: int
    memory_bytes: int
    landlock: bool = True
    seccomp: bool = True
    capabilities: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """One thing that confined processes were seen to be kept from, or not.

    Attributes:
        name: what is protected.
        ok: whether a confined process tried and failed.
        detail: what was tried, or what went through.
        remedy: what to do about it; empty when nothing needs doing.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def confine(rules: Rules) -> None:
    """Put the rules in force in this process, for good; it must have one thread.

    Raises:
        LandlockError: the kernel offers Landlock but refused a call.
        OSError: a resource limit cannot be set.
    """
    on_cuda = rules.device == "cuda"
    limits.apply(
        file_bytes=rules.file_bytes,
        memory_bytes=rules.memory_bytes,
        address_space=not on_cuda,
    )
    privileges.drop(platform.machine(), rules.capabilities)
    abi = 0
    if rules.landlock:
        writable = [rules.scratch, *map(Path, DEVICES)]
        if on_cuda:
            writable += [path for name in CUDA_DEVICES for path in Path("/dev").glob(name)]
            writable.append(Path(CUDA_SHARED_MEMORY))
        abi = landlock.restrict(writable, [Path(OWN_THREADS)])
    if rules.seccomp:
        seccomp.install(unix_sockets=on_cuda, landlock_abi=abi)


def in_words(level: str, protections: Sequence[Protection]) -> str:
    """The sentence for a verdict: the level, what was seen to hold, and what was not."""
    held = [p.name for p in protections if p.ok]
    open_ = [p.name for p in protections if not p.ok]
    words = f"{level}: own session, deadlines, killed with descendants"
    if held:
        words += f"; tried and refused: {', '.join(held)}"
    return words + (f"; not in force: {', '.join(open_)}" if open_ else "")


def to_plain(protections: Sequence[Protection]) -> list[dict[str, Any]]:
    """As JSON values."""
    return [asdict(protection) for protection in protections]


def from_plain(values: Sequence[Mapping[str, Any]]) -> list[Protection]:
    """From JSON values."""
    return [Protection(**value) for value in values]
