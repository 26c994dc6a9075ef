"""Reads in a baseline's process what torch.compile's Inductor chose: which operators, run how.

Of Triton kernels the autotuners that Inductor loaded are asked; C++ kernels are read from the
modules that it wrote, since nothing else tells of them once they are built. Inductor's modules are
imported where they are used only, and whatever is missing there becomes a note, never an error: a
baseline is timed whether it can be read or not.
"""

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

MOST_KERNELS = 64
"""So many kernels of a module are told of at most; bounds what a memory file holds. Own choice."""

AXES = ("x", "y", "z", "r0_", "r1_")
KINDS = {
    "PERSISTENT_REDUCTION": "persistent reduction",
    "REDUCTION": "looped reduction",
    "POINTWISE": "pointwise",
}
"""Name of a `HeuristicType` -> kind of kernel (torch/_inductor/runtime/hints.py)."""

_LOOP = re.compile(
    r"^( *)for\(int64_t (\w+)=static_cast<int64_t>\(0L\); \w+<static_cast<int64_t>\((\d+)L\); "
    r"\w+\+=static_cast<int64_t>\((\d+)L\)\)"
)
_THREADS = re.compile(r"#pragma omp parallel(?: num_threads\((\d+)\))?\s*$", re.MULTILINE)


def chosen() -> dict[str, Any]:
    """Return the kernels that this process compiled so far, and what could not be read of them.

    Returns:
        `kernels`: the fields of a `CompiledKernel` each; `note`: why there are fewer, or empty.
    """
    try:
        found, notes = _kernels(_written())
    except Exception as error:  # of another torch: anything may be missing or called otherwise
        return {
            "kernels": [],
            "note": f"Inductor of torch {torch.__version__} cannot be read: "
            f"{type(error).__name__}: {error}"[:500],
        }
    if len(found) > MOST_KERNELS:
        notes.append(f"{len(found) - MOST_KERNELS} more kernels are left out")
    if not found and not notes:
        notes.append("Inductor wrote no kernel of its own")
    return {"kernels": with_splits(found)[:MOST_KERNELS], "note": "; ".join(notes)[:1000]}


def _written() -> list[Any]:
    """Modules that Inductor wrote and that call kernels, oldest first."""
    from torch._inductor.codecache import PyCodeCache

    return [module for module in PyCodeCache.modules if callable(getattr(module, "call", None))]


def _kernels(modules: Iterable[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    found: list[dict[str, Any]] = []
    notes: list[str] = []
    seen: set[int] = set()
    for module in modules:
        for value in list(vars(module).values()):
            if not _is_autotuner(value) or id(value) in seen:
                continue
            seen.add(id(value))
            try:
                found.append(triton_kernel(value))
            except Exception as error:  # one kernel that cannot be read hides no other
                name = getattr(getattr(value, "fn", None), "__name__", "a kernel")
                notes.append(f"{name} cannot be read: {type(error).__name__}: {error}")
        source = Path(module.__file__).read_text(encoding="utf-8")
        for name, text in cpp_sources(source):
            if (kernel := cpp_kernel(name, text, torch.get_num_threads())) is None:
                notes.append(f"no loop of {name} has a size that is known")
            else:
                found.append(kernel)
    return found, notes


def _is_autotuner(value: Any) -> bool:
    """Whether this is a `CachingAutotuner`, without importing Triton where there is none."""
    return any(cls.__name__ == "CachingAutotuner" for cls in type(value).__mro__)


# --- Triton -----------------------------------------------------------------------------------


def triton_kernel(autotuner: Any) -> dict[str, Any]:
    """Return what a `CachingAutotuner` tells of its kernel.

    Args:
        autotuner: of torch/_inductor/runtime/triton_heuristics.py, once its kernel has run. Then
            its one launcher has the configuration that won; before, one of one is as good.

    Raises:
        ValueError: more than one configuration is left, or the sizes are not told.
    """
    name = autotuner.fn.__name__
    launchers = list(autotuner.launchers)
    configs = list(autotuner.configs or ())  # None once they are compiled
    if len(launchers) == 1:
        config = launchers[0].config
    elif not launchers and len(configs) == 1:
        config = configs[0]
    else:
        raise ValueError(
            f"one launcher expected, but found {len(launchers)} of {len(configs)} "
            "configurations; call the compiled module first"
        )
    hints = autotuner.size_hints
    if not isinstance(hints, Mapping):
        raise ValueError(f"sizes by axis expected, but found {hints!r:.80}")
    sizes = {axis: int(hints[axis]) for axis in AXES if axis in hints}
    source = str(getattr(autotuner.fn, "src", ""))
    sizes |= _exact(source, sizes)
    # A block that is no argument of the kernel is written into it: a whole row, or one of them.
    choices = {
        f"{axis.upper()}BLOCK": 1 << (size - 1).bit_length() if axis.startswith("r") else 1
        for axis, size in sizes.items()
    }
    choices |= {key: value for key, value in config.kwargs.items() if type(value) is int}
    choices |= {"num_warps": int(config.num_warps), "num_stages": int(config.num_stages)}
    if "online_softmax" in source:
        choices["online"] = 1
    heuristic = str(getattr(autotuner.heuristic_type, "name", autotuner.heuristic_type))
    kind = KINDS.get(heuristic, heuristic.lower().replace("_", " "))
    if choices.get("RSPLIT", 1) > 1:
        kind = "split reduction"
    elif "RSPLIT_SIZE" in choices:
        kind = "reduction along both axes"
    return {
        "name": name,
        "kind": kind,
        "operators": list(operators(name)),
        "sizes": sizes,
        "choices": choices,
        "tuned": bool(getattr(config, "found_by_coordesc", False))
        or int(getattr(autotuner, "autotune_time_taken_ns", 0)) > 0,
    }


def _exact(source: str, axes: Iterable[str]) -> dict[str, int]:
    """Sizes that a kernel says: hints are rounded up, and a static size is written into it."""
    found = {}
    for axis in axes:
        if told := re.search(rf"^\s*{axis}numel = (\d+)\s*$", source, re.MULTILINE):
            found[axis] = int(told[1])
    return found


def with_splits(kernels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Name as split the reductions whose results a later kernel reduces to fewer.

    Inductor shares a row among blocks by two kernels of the same operators: the first has as many
    rows as there are parts of all rows, the second joins the parts of each.
    """
    found = []
    for place, kernel in enumerate(kernels):
        parts = max((_parts(kernel, after) for after in kernels[place + 1 :]), default=0)
        if parts:
            kernel = {
                **kernel,
                "kind": "split reduction",
                "choices": {**kernel["choices"], "parts": parts},
            }
        found.append(kernel)
    return found


def _parts(first: Mapping[str, Any], second: Mapping[str, Any]) -> int:
    """In how many parts the first kernel reduces what the second joins; 0 if it does not."""
    one, two = first["sizes"], second["sizes"]
    reductions = {"persistent reduction", "looped reduction"}
    if (
        {first["kind"], second["kind"]} <= reductions
        and set(one) == set(two) == {"x", "r0_"}
        and one["x"] == two["x"] * two["r0_"]
        and two["r0_"] > 1
        and set(first["operators"]) & set(second["operators"])
    ):
        return int(two["r0_"])
    return 0


# --- C++ --------------------------------------------------------------------------------------


def cpp_sources(module: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each C++ kernel in a module that Inductor wrote.

    Args:
        module: its text, in which a kernel is `NAME = async_compile.cpp_pybinding([...], TEXT)`.
    """
    for node in ast.parse(module).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        target, call = node.targets[0], node.value
        if not (isinstance(target, ast.Name) and isinstance(call.func, ast.Attribute)):
            continue
        texts = [
            each.value
            for each in (*call.args, *(keyword.value for keyword in call.keywords))
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        if call.func.attr.startswith("cpp") and texts:
            yield target.id, texts[-1]


def cpp_kernel(name: str, text: str, threads: int) -> dict[str, Any] | None:
    """Return what the text of a C++ kernel tells of it; None where it has no loop of known size.

    Args:
        name: the kernel's.
        text: as `CppKernel` of torch/_inductor/codegen/cpp.py writes it.
        threads: that torch uses, for a parallel region that says no number.
    """
    nests = list(_nests(text))
    if not nests:
        return None
    largest = max(nests, key=lambda nest: math.prod(size for size, _, _ in nest.values()))
    region = _THREADS.search(text)
    choices = {
        "lanes": max(step for nest in nests for _, step, _ in nest.values()),
        "threads": int(region[1] or threads) if region else 1,
        "nests": len(nests),
    }
    if "local_buffer_data" in text:
        choices["buffer"] = 1
    return {
        "name": name,
        # Accumulators are what a reduction adds to, and nothing else has any.
        "kind": "looped reduction" if "tmp_acc" in text else "pointwise",
        "operators": list(operators(name)),
        "sizes": {variable: size for variable, (size, _, _) in largest.items()},
        "choices": choices,
        "tuned": False,
    }


def _nests(text: str) -> Iterator[dict[str, tuple[int, int, int]]]:
    """Yield each innermost loop with those around it: variable -> size, step, indentation."""
    around: dict[str, tuple[int, int, int]] = {}
    inner = False
    for line in text.splitlines():
        if (loop := _LOOP.match(line)) is None:
            continue
        indent = len(loop[1])
        kept = {name: each for name, each in around.items() if each[2] < indent}
        if around and len(kept) < len(around) and inner:
            yield around
        around = {**kept, loop[2]: (int(loop[3]), int(loop[4]), indent)}
        inner = True
    if around:
        yield around


# --- names ------------------------------------------------------------------------------------


def operators(name: str, known: Callable[[str], bool] | None = None) -> tuple[str, ...]:
    """Return the ATen operators that a kernel's name lists.

    Names are joined by the sign that they have inside too, so the longest ones that are known are
    taken; a rest that is none is one name.

    Args:
        name: such as `triton_per_fused_add_native_layer_norm_0`.
        known: whether there is an operator of a name; torch is asked by default.
    """
    listed = re.search(r"_fused_(.*?)_?\d*$", name)
    words = listed[1].split("_") if listed else []
    known = known or (lambda each: hasattr(torch.ops.aten, each))
    found: list[str] = []
    place = 0
    while place < len(words):
        for end in range(len(words), place, -1):
            each = "_".join(words[place:end])
            if each and known(each):
                break
        else:
            found.append("_".join(words[place:]))
            break
        found.append(each)
        place = end
    return tuple(found)
