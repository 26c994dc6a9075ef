"""Targets: what a candidate's kernels are built for and run on, and what that machine can do."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from kernelpro.errors import TargetError
from kernelpro.records import Build, Candidate, Machine

NAMES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a target can be used here.

    Attributes:
        ok: True when it can.
        reason: what is missing, without a full stop; empty when ok.
        remedy: what to do about it, likewise.
    """

    ok: bool
    reason: str = ""
    remedy: str = ""


class Target(Protocol):
    """One kind of device, with its language and compiler."""

    @property
    def name(self) -> str:
        """`cpu` or `cuda`."""
        ...

    @property
    def device(self) -> str:
        """torch's name of the device that both sides of a comparison run on."""
        ...

    @property
    def language(self) -> str:
        """What kernels are written in: `cpp` or `cuda`."""
        ...

    def availability(self) -> Availability:
        """Look whether this machine has what the target needs; builds and measures nothing."""
        ...

    def build(self, candidate: Candidate, architecture: str = "") -> Build | None:
        """Compile a candidate's declared source ahead of its run, or find it in the cache.

        None means that it declares none that can be read without running it. A source that the
        compiler refuses is a value, `Build(ok=False)`.

        Args:
            candidate: what to build.
            architecture: label of the GPU that it is for, such as `sm_90`, which need not be
                here (see `Machine.architecture`); empty for this machine's own device.

        Raises:
            TargetError: there is no compiler, none for that architecture, or no folder to build in.
        """
        ...

    def machine(self) -> Machine:
        """What the device can do; measured once on this machine and then remembered.

        Raises:
            TargetError: the device cannot be measured.
        """
        ...

    def worker_environment(self, scratch: Path) -> dict[str, str]:
        """Environment variables that a candidate's process needs beside the judge's own.

        Args:
            scratch: folder that the process may write to.
        """
        ...


def get(name: str) -> Target:
    """The target of that name; `auto` is `cuda` where it can be used, else `cpu`.

    Raises:
        TargetError: there is no such target.
    """
    if name == "auto":
        name = "cuda" if _cuda().availability().ok else "cpu"
    if name == "cpu":
        return _cpu()
    if name == "cuda":
        return _cuda()
    raise TargetError(f"no target is called {name!r}; choose one of cpu, cuda, auto")


@cache
def _cpu() -> Target:
    from kernelpro.targets.cpu import CpuTarget

    return CpuTarget()


@cache
def _cuda() -> Target:
    from kernelpro.targets.cuda import CudaTarget

    return CudaTarget()
