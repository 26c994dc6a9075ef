"""What a candidate must leave as it found it in its own process: functions, switches, modes.

Nothing here protects the judge, which shares no memory with a candidate; it tells one that computes
from one that patches what it takes for a harness, and it notices what would let work be done after
the clock has stopped (a replaced `Tensor.copy_`, a dispatch mode left on). Functions that installed
packages replace themselves, as importing torch's compiler does, are no tampering.

Reasons: `tampering` (a function was replaced), `precision_switch` (a global switch allows less
precision), `global_state` (a default type, device, mode or stream was left changed).
"""

import builtins
import gc
import importlib
import inspect
import json
import os
import socket
import sys
import sysconfig
import time
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelpro.judge import switches

# Namespaces whose functions are compared by identity, Python ones by their code too.
_MODULES = (
    "torch",
    "torch.cuda",
    "torch.cuda.streams",
    "torch.linalg",
    "torch.nn.functional",
    "torch.autograd",
    "torch.random",
    "torch.testing",
    "torch.special",
    "numpy",
)
_STANDARD = (builtins, time, gc, inspect, json, os, socket)
_CLASSES = (
    torch.Tensor,
    torch.nn.Module,
    torch.nn.Parameter,
    torch.nn.Linear,
    torch.nn.LayerNorm,
    torch.nn.Conv2d,
    torch.cuda.Event,
    torch.cuda.Stream,
    torch.Generator,
    torch.no_grad,
)
# torch's own operators under the worker's hand when it takes a result: an override of these could
# compute after the clock has stopped.
_OPERATORS = (
    "aten::copy_",
    "aten::view",
    "aten::detach",
    "aten::clone",
    "aten::empty.memory_format",
)
_KEYS = ("CPU:", "CUDA:", "AutogradCPU:", "AutogradCUDA:", "PythonDispatcher:", "Python:")
# Python's own attributes of modules and classes, which are no functions of anybody's.
_IGNORED = frozenset(
    f"__{name}__"
    for name in (
        *("doc", "dict", "weakref", "builtins", "loader", "spec", "file", "cached", "name"),
        *("path", "annotations", "abstractmethods"),
    )
) | {"_abc_impl"}

_trusted_roots: tuple[str, ...] = tuple(
    {
        os.path.realpath(folder) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (folder := sysconfig.get_path(name))
    }
    | {os.path.realpath(Path(torch.__file__).parents[1]) + os.sep}
)
_realpath = os.path.realpath


def is_installed(filename: str) -> bool:
    """Tell whether code of this file came with Python or an installed package."""
    return filename.startswith("<frozen ") or _realpath(filename).startswith(_trusted_roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that a candidate left changed: a machine-readable reason and what it was."""

    reason: str
    what: str


class Snapshot:
    """The state of a process before a candidate runs in it."""

    def __init__(self) -> None:
        owners: list[Any] = [importlib.import_module(name) for name in _MODULES]
        owners += _STANDARD
        classes = {base: None for cls in _CLASSES for base in cls.__mro__ if base is not object}
        self._namespaces = [(owner, _functions_in(owner)) for owner in (*owners, *classes)]
        self._codes = [
            (owner, name, value, code)
            for owner, functions in self._namespaces
            for name, value in functions.items()
            if (code := getattr(value, "__code__", None)) is not None
        ]
        self._levels = switches.levels()
        self._state = _state()
        self._kernels = _kernels()
        self._allowed = 0

    def begin(self, allowed: int) -> None:
        """A candidate comes now: take the switches as they are set for it.

        Args:
            allowed: the loosest level of a precision switch that it may set.
        """
        self._levels = switches.levels()
        self._state = _state()
        self._allowed = allowed

    def changes(self) -> list[Change]:
        """List what is not as it was, worst first."""
        found = [
            Change(reason="tampering", what=f"{_name(owner)}.{name}")
            for owner, functions in self._namespaces
            for name in _replaced(owner, functions)
        ]
        found += [
            Change(reason="tampering", what=f"the code of {_name(owner)}.{name}")
            for owner, name, value, code in self._codes
            if value.__code__ is not code
        ]
        if _kernels() != self._kernels:
            found.append(Change(reason="tampering", what="torch's own operators (torch.library)"))
        found += [
            Change(reason="precision_switch", what=name)
            for name, level in switches.levels().items()
            if level > max(self._levels.get(name, 0), self._allowed)
        ]
        found += [
            Change(reason="global_state", what=f"{name}: {value}")
            for name, value in _state().items()
            if value != self._state.get(name)
        ]
        return found


def _functions_in(owner: Any) -> dict[str, Any]:
    """Functions and classes of a module; all attributes of a class but Python's own."""
    return {
        name: value
        for name, value in vars(owner).items()
        if name not in _IGNORED and (isinstance(owner, type) or callable(value))
    }


def _replaced(owner: Any, before: Mapping[str, Any]) -> list[str]:
    """Names whose function somebody but an installed package replaced, removed or shadowed."""
    now = vars(owner)
    names = [name for name, value in before.items() if now.get(name) is not value]
    if isinstance(owner, type) and len(now) > len(before):
        bases = owner.__mro__[1:]
        names += [
            name
            for name in now.keys() - before.keys() - _IGNORED
            if any(name in vars(base) for base in bases)
        ]
    return [name for name in names if not _is_installed_function(now.get(name))]


def _name(owner: Any) -> str:
    module = getattr(owner, "__module__", "")
    name = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", "?")
    return f"{module}.{name}" if module and isinstance(owner, type) else str(name)


def _is_installed_function(value: Any) -> bool:
    """Tell whether a function or class is defined in an installed package's file."""
    while isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)
        return is_installed(getattr(module, "__file__", None) or "/")
    code = getattr(value, "__code__", None)
    return isinstance(code, types.CodeType) and is_installed(code.co_filename)


def _state() -> dict[str, str]:
    state = {
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(getattr(torch, "get_default_device", lambda: "cpu")()),
        "gradients enabled": str(torch.is_grad_enabled()),
        "inference mode": str(torch.is_inference_mode_enabled()),
        "autocast on cpu": str(torch.is_autocast_enabled("cpu")),
        "autocast on cuda": str(torch.is_autocast_enabled("cuda")),
        "function modes": str(torch._C._len_torch_function_stack()),
        "dispatch modes": str(torch._C._len_torch_dispatch_stack()),
        "trace function": repr(sys.gettrace()),
        "profile function": repr(sys.getprofile()),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's own gap
        state["current stream"] = str(torch.cuda.current_stream().cuda_stream)
    else:
        state["current stream"] = "0"
    return state


def _kernels() -> tuple[str, ...]:
    """What torch's dispatcher would call for the operators above on the devices at hand."""
    lines = []
    for operator in _OPERATORS:
        try:
            table = torch._C._dispatch_dump_table(operator)
        except RuntimeError:
            continue
        lines += [line for line in table.splitlines() if line.startswith(_KEYS)]
    return tuple(lines)
