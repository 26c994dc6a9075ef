"""Run a problem file in KernelBench's format: its module, its inputs, and what is wrong with it.

Knows no target and no judge; what it makes lives on the CPU, or wherever torch's default device is.
"""

import contextlib
import io
import linecache
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernelpro.errors import ProblemError
from kernelpro.records import Problem

SHAPE = (
    "a problem file defines `class Model(torch.nn.Module)`, `get_inputs()` and, where the "
    "constructor takes arguments, `get_init_inputs()`"
)


class ProblemModule:
    """A problem file after it was run, with its size constants replaced.

    Attributes:
        name: the problem's name, for messages.
        namespace: the file's globals; `get_init_inputs` is always there.
    """

    def __init__(self, name: str, source: str, sizes: Mapping[str, int]) -> None:
        self.name = name
        self.namespace = _execute(name, source)
        self.resize(sizes)
        model = self.namespace.get("Model")
        if not isinstance(model, type) or not issubclass(model, torch.nn.Module):
            found = "no Model" if model is None else f"Model = {_shown(model)}"
            raise ProblemError(f"{name} has {found}; {SHAPE}")
        if not callable(self.namespace.get("get_inputs")):
            raise ProblemError(f"{name} has no function get_inputs(); {SHAPE}")
        self.namespace.setdefault("get_init_inputs", list)

    def resize(self, sizes: Mapping[str, int]) -> None:
        """Replace integer constants of the file, which its functions read when they are called.

        Raises:
            ProblemError: the file has no such integer constant.
        """
        for constant, size in sizes.items():
            if type(self.namespace.get(constant)) is not int:
                has = ", ".join(integer_constants(self.namespace)) or "none"
                raise ProblemError(
                    f"{self.name} has no integer constant {constant!r} whose value a size could "
                    f"replace; its integer constants: {has}"
                )
            self.namespace[constant] = size

    def init_arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of Model's constructor.

        `get_init_inputs()` gives a list of positional arguments, a dict of keyword arguments, or
        `{"args": [...], "kwargs": {...}}`.

        Raises:
            ProblemError: it raises, or returns something else.
        """
        with self._running("get_init_inputs()"):
            given = self.namespace["get_init_inputs"]()
        if isinstance(given, dict):
            if given and given.keys() <= {"args", "kwargs"}:
                return list(given.get("args", ())), dict(given.get("kwargs", {}))
            return [], dict(given)
        if isinstance(given, list | tuple):
            return list(given), {}
        raise ProblemError(
            f"{self.name}: get_init_inputs() must return a list of positional arguments or a dict "
            f"of keyword arguments, but returned {_shown(given)}"
        )

    def model(self, seed: int) -> torch.nn.Module:
        """Construct the module as KernelBench does: seed, arguments, seed again, Model(...).

        It is used as the file builds it: in training mode unless the file says otherwise.

        Raises:
            ProblemError: the constructor raises.
        """
        torch.manual_seed(seed)
        positional, named = self.init_arguments()
        torch.manual_seed(seed)
        with self._running("Model(...)"):
            made: torch.nn.Module = self.namespace["Model"](*positional, **named)
        return made

    def inputs(self, seed: int) -> list[Any]:
        """Arguments of `forward`, in order: tensors and plain values.

        Raises:
            ProblemError: get_inputs() raises, or does not return a list.
        """
        torch.manual_seed(seed)
        with self._running("get_inputs()"):
            given = self.namespace["get_inputs"]()
        if not isinstance(given, list | tuple):
            raise ProblemError(
                f"{self.name}: get_inputs() must return a list of forward's arguments, but "
                f"returned {_shown(given)}"
            )
        return list(given)

    def call(self, model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
        """Run `forward` once without gradients and return its output tensors, in order.

        Raises:
            ProblemError: forward raises, or returns anything but tensors.
        """
        with self._running("forward(...) on the inputs of get_inputs()"), torch.no_grad():
            result = model(*inputs)
        return flatten(self.name, result)

    @contextlib.contextmanager
    def _running(self, what: str) -> Iterator[None]:
        try:
            with _silence():
                yield
        except Exception as error:
            raise ProblemError(f"{self.name}: {what} raised {describe(error)}") from error
        except SystemExit as error:
            raise ProblemError(
                f"{self.name}: {what} ended the program with exit status {error.code}; "
                "a problem file must not exit"
            ) from error


def essentials(problem: Problem) -> dict[str, Any]:
    """What another process needs to rebuild a problem: `Problem(**essentials(problem))`."""
    names = ("name", "origin", "source", "target", "precision")
    return {name: getattr(problem, name) for name in names} | {"sizes": dict(problem.sizes)}


def instantiate(problem: Problem) -> ProblemModule:
    """Run a loaded problem's source, with its sizes, in this process.

    Raises:
        ProblemError: the source does not run; the message says why.
    """
    return ProblemModule(problem.name, problem.source, problem.sizes)


def flatten(name: str, result: Any) -> list[torch.Tensor]:
    """Output tensors of forward's result: a tensor, or a tuple, list or dict of tensors.

    Raises:
        ProblemError: anything else, such as nested structures.
    """
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, Mapping):
        items = list(result.values())
    elif isinstance(result, list | tuple):
        items = list(result)
    else:
        items = []
    if not items:
        raise ProblemError(
            f"{name}: forward must return a tensor, or a tuple, list or dict of tensors, but "
            f"returned {_shown(result)}"
        )
    for position, item in enumerate(items):
        if not isinstance(item, torch.Tensor):
            raise ProblemError(
                f"{name}: forward must return tensors side by side, but item {position} of its "
                f"{type(result).__name__} is {_shown(item)}; return a flat tuple of tensors"
            )
    return items


def describe(error: BaseException) -> str:
    """An exception's type and the first line of its message, at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def integer_constants(namespace: Mapping[str, Any]) -> list[str]:
    """Names of the module-level integers, the constants that sizes may replace."""
    return sorted(
        name for name, value in namespace.items() if type(value) is int and name[0] != "_"
    )


def _execute(name: str, source: str) -> dict[str, Any]:
    """Run source as a module of its own and return its globals."""
    filename = f"<problem {name}>"
    try:
        code = compile(source, filename, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f" in line {error.lineno}" if error.lineno else ""
        raise ProblemError(f"{name} is not valid Python: {error.msg}{line}") from error
    except ValueError as error:  # a null character
        raise ProblemError(f"{name} is not valid Python: {error}") from error
    module = types.ModuleType(f"kernelpro_problem_{name}")
    module.__file__ = filename
    # Dataclasses look their module up, and torch's scripting looks for the source's lines.
    sys.modules[module.__name__] = module
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    try:
        with _silence():
            exec(code, module.__dict__)
    except Exception as error:
        where = _line(error, filename)
        raise ProblemError(
            f"{name} raised {describe(error)} while it was imported{where}"
        ) from error
    except SystemExit as error:
        raise ProblemError(
            f"{name} ended the program with exit status {error.code} while it was imported; a "
            "problem file must only define things"
        ) from error
    return module.__dict__


def _line(error: BaseException, filename: str) -> str:
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line else ""


def _shown(value: Any) -> str:
    """A value for a message: a constant itself, anything else by its type."""
    plain = value is None or isinstance(value, bool | int | float | str)
    kind = "Tensor" if isinstance(value, torch.Tensor) else type(value).__name__
    return repr(value)[:60] if plain else f"a {kind}"


class _Nowhere(io.TextIOBase):
    """A stream that forgets what is written to it."""

    def write(self, text: str) -> int:
        return len(text)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drop what the file prints, so that it cannot garble a command's own output."""
    with contextlib.redirect_stdout(_Nowhere()), contextlib.redirect_stderr(_Nowhere()):
        yield
