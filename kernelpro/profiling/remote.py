"""Run a collector's function in the candidate's process, and distrust what comes back.

The candidate shares that process, so an answer may be malformed or missing. Either is a value, a
sentence that says why, never an exception: one odd candidate must not stop a collector.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from kernelpro.errors import KernelproError
from kernelpro.hookspecs import Session
from kernelpro.records import Metric

T = TypeVar("T")


def ask(
    session: Session,
    function: str,
    arguments: Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], T],
) -> tuple[T | None, str]:
    """Run `module:function` in the candidate's process and read its answer.

    Returns:
        What read made of the answer and an empty string, or None and why there is nothing.
    """
    try:
        return read(session.collect(function, arguments)), ""
    except KernelproError as error:
        return None, str(error)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        return None, f"{function} gave a malformed answer: {type(error).__name__}: {error}"


def absent(names: Iterable[str], why: str) -> dict[str, Metric]:
    """The same absent metric under each of the names."""
    return {name: Metric(value=None, how="absent", note=why) for name in names}
