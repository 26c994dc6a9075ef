"""Turn records into plain JSON values and back, checked against their type hints."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from numbers import Integral, Real
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def encode(value: Any) -> Any:
    """Return value as dicts, lists and scalars that json can write."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Real) and not isinstance(value, int | float):  # such as numpy's float32
        return int(value) if isinstance(value, Integral) else float(value)
    return value


def decode(cls: type[T], value: Any) -> T:
    """Rebuild an instance of cls from what encode made of it.

    A field that the value lacks takes its default, so that files of older versions stay readable.

    Raises:
        ValueError: an unknown field, or a value that the type hint does not allow.
        TypeError: a field without a default is missing.
    """
    result: T = _decode(cls, value)
    return result


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _decode(hint: Any, value: Any) -> Any:
    if hint is Any:
        return value
    if isinstance(hint, type) and is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ValueError(f"{hint.__name__} must be an object, but is {value!r:.80}")
        hints = _hints(hint)
        if unknown := value.keys() - {f.name for f in fields(hint)}:
            raise ValueError(f"{hint.__name__} has no field {sorted(unknown)}")
        return hint(**{name: _decode(hints[name], item) for name, item in value.items()})
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (present,) = (arg for arg in args if arg is not types.NoneType)
        return None if value is None else _decode(present, value)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{hint} must be a list, but is {value!r:.80}")
        inner = args[:1] * len(value) if args[-1] is Ellipsis else args
        if len(inner) != len(value):
            raise ValueError(f"{hint} must have {len(inner)} items, but has {len(value)}")
        return tuple(_decode(item_hint, item) for item_hint, item in zip(inner, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ValueError(f"{hint} must be an object, but is {value!r:.80}")
        return {key: _decode(args[1], item) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and (
        not isinstance(value, hint) or (hint is int and isinstance(value, bool))
    ):
        raise ValueError(f"{hint.__name__} expected, but found {value!r:.80}")
    return value
