"""What commands do with a problem that may be a folder of problems: one after another."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from kernelpro.errors import KernelproError

T = TypeVar("T")


def each(name: str, work: Callable[[str], T]) -> Iterator[tuple[str, T | KernelproError]]:
    """Do something with a problem, or with each of a folder; one that fails stops no other.

    Args:
        name: a bundled problem's name, a .py file, or a folder of such files.
        work: what to do with one problem, given by name or path.

    Yields:
        The name or path, and what the work gave or why it could not be done.

    Raises:
        KernelproError: there is no such problem; or it is the only one, and the work failed.
    """
    from kernelpro.problems import files

    places = files(name)
    for place in places:
        try:
            yield place, work(place)
        except KernelproError as error:
            if len(places) == 1:
                raise
            yield place, error
