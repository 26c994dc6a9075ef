"""Record the calls that a candidate makes into its C++ library: functions, values and buffers.

Runs in the candidate's own process. A call through ctypes passes addresses, whose buffers are
found among the live tensors; what they hold before the call is written to files. With that the
library can be run again without Python or torch.
"""

import contextlib
import ctypes
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MOST_CALLS = 64
MOST_BYTES = 192 << 20  # of all buffers together: each is written to the scratch folder once

# ctypes' simple types by the letter of struct's format characters, with the same type's name in C.
_C_TYPES = {
    "b": "signed char", "B": "unsigned char", "h": "short", "H": "unsigned short", "i": "int",
    "I": "unsigned int", "l": "long", "L": "unsigned long", "q": "long long",
    "Q": "unsigned long long", "f": "float", "d": "double", "?": "_Bool",
}  # fmt: skip
_POINTERS = ("P", "z", "Z")


class _Unrecordable(Exception):
    """A call cannot be repeated elsewhere; the text says why."""


def record(call: Callable[[], object], library: str, folder: str) -> dict[str, Any]:
    """Run call once and write down what it asks of a library.

    Args:
        call: runs the candidate once.
        library: path of the shared library.
        folder: where buffers are written, as `buffer0`, `buffer1` ...

    Returns:
        `calls`: for each, `function` and `arguments`, each `[C type, value as text]` or
        `["pointer", buffer's number or -1 for null, offset in bytes]`; `buffers`: their sizes in
        bytes; `reason`: why there is nothing, or empty.
    """
    call()
    loaded = [
        item
        for item in gc.get_objects()
        if issubclass(type(item), ctypes.CDLL) and _same(str(item._name), library)
    ]
    if not loaded:
        return _nothing("the candidate's library is not called through ctypes")
    recorder = _Recorder(Path(folder))
    try:
        with contextlib.ExitStack() as stack:
            for handle in loaded:
                stack.enter_context(_watching(handle, recorder))
            call()
    except _Unrecordable as error:
        return _nothing(str(error))
    except OSError as error:
        return _nothing(f"its buffers could not be written: {error}")
    if not recorder.calls:
        return _nothing("the candidate's call does not reach its library through ctypes")
    return {"calls": recorder.calls, "buffers": recorder.sizes, "reason": ""}


def _nothing(why: str) -> dict[str, Any]:
    return {"calls": [], "buffers": [], "reason": why}


def _same(name: str, library: str) -> bool:
    return bool(name) and Path(name).resolve() == Path(library).resolve()


@contextlib.contextmanager
def _watching(library: ctypes.CDLL, recorder: "_Recorder") -> Iterator[None]:
    """Have the recorder told of each call of a library's functions, before it is made."""
    kind: Any = library._FuncPtr  # each library has a type of its own for its functions
    original = kind.__call__

    def told(function: Any, *arguments: Any) -> Any:
        recorder.note(function, arguments)
        return original(function, *arguments)

    kind.__call__ = told
    try:
        yield
    finally:
        del kind.__call__  # the type inherits ctypes' own again


class _Recorder:
    """Turns calls into text, and writes each buffer that they point into once."""

    def __init__(self, folder: Path) -> None:
        self.calls: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self._folder = folder
        self._known: list[tuple[int, int]] = []  # start and size of each buffer written so far

    def note(self, function: Any, arguments: tuple[Any, ...]) -> None:
        """Write down one call, whose arguments are as Python gave them."""
        if len(self.calls) == MOST_CALLS:
            raise _Unrecordable(f"one call of the module calls its library over {MOST_CALLS} times")
        name = function.__name__
        types = function.argtypes or ()
        spelled = [
            self._argument(value, types[k] if k < len(types) else None, f"argument {k} of {name}")
            for k, value in enumerate(arguments)
        ]
        self.calls.append({"function": name, "arguments": spelled})

    def _argument(self, value: Any, kind: Any, what: str) -> list[Any]:
        letter = getattr(kind, "_type_", None) if kind is not None else None
        if not isinstance(letter, str):  # no declared type, or a pointer to another type
            letter = "P" if kind is not None else _letter(value)
        plain = getattr(value, "value", value)
        if letter in _POINTERS:
            return self._pointer(_address(value, plain, what), what)
        if letter not in _C_TYPES or not isinstance(plain, int | float):
            raise _Unrecordable(f"{what} is {value!r:.60}, which cannot be passed from C")
        if letter in "fd":
            return [_C_TYPES[letter], float(plain).hex()]
        # As ctypes does: what does not fit is cut to the type's width.
        return [_C_TYPES[letter], str(int(_simple(letter)(plain).value))]

    def _pointer(self, address: int, what: str) -> list[Any]:
        if not address:
            return ["pointer", -1, 0]
        for number, (start, size) in enumerate(self._known):
            if start <= address < start + size:
                return ["pointer", number, address - start]
        found = _buffer(address)
        if found is None:
            raise _Unrecordable(f"{what} points into no live tensor, so its size is not known")
        start, size = found
        if sum(self.sizes) + size > MOST_BYTES:
            raise _Unrecordable(f"the buffers are larger than {MOST_BYTES >> 20} MiB together")
        data = (ctypes.c_char * size).from_address(start)
        (self._folder / f"buffer{len(self.sizes)}").write_bytes(memoryview(data))
        self._known.append(found)
        self.sizes.append(size)
        return ["pointer", len(self.sizes) - 1, address - start]


def _letter(value: Any) -> str:
    """Format letter of what ctypes passes for a value when no type was declared."""
    if value is None or isinstance(value, bytes | ctypes.Array):
        return "P"
    if isinstance(value, int):
        return "i"
    letter = getattr(value, "_type_", "P")
    return letter if isinstance(letter, str) else "P"


def _simple(letter: str) -> Any:
    kinds = (
        ctypes.c_byte, ctypes.c_ubyte, ctypes.c_short, ctypes.c_ushort, ctypes.c_int,
        ctypes.c_uint, ctypes.c_long, ctypes.c_ulong, ctypes.c_longlong, ctypes.c_ulonglong,
        ctypes.c_bool,
    )  # fmt: skip
    return next(kind for kind in kinds if getattr(kind, "_type_", "") == letter)


def _address(value: Any, plain: Any, what: str) -> int:
    if plain is None:
        return 0
    if isinstance(plain, int):
        return plain
    if isinstance(value, ctypes.Array):
        return ctypes.addressof(value)
    if isinstance(value, ctypes._Pointer):
        return ctypes.cast(value, ctypes.c_void_p).value or 0
    raise _Unrecordable(f"{what} is {value!r:.60}, whose address is not known")


def _buffer(address: int) -> tuple[int, int] | None:
    """Start and size of the storage of a live tensor, or of a ctypes array, that holds it."""
    import torch

    for item in gc.get_objects():
        kind = type(item)
        # Other kinds, such as the fake tensors of a trace, may have no memory at all.
        if kind in (torch.Tensor, torch.nn.Parameter) and item.device.type == "cpu":
            with contextlib.suppress(RuntimeError, NotImplementedError):
                storage = item.untyped_storage()
                if storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes():
                    return storage.data_ptr(), storage.nbytes()
        elif issubclass(kind, ctypes.Array):
            start = ctypes.addressof(item)
            if start <= address < start + ctypes.sizeof(item):
                return start, ctypes.sizeof(item)
    return None
