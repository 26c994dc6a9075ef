"""Records as short JSON values: what recurs in a memory file is told once and then numbered.

A packed value is plain JSON in which

- a record leaves out the fields that hold their empty default: none, false, zero, no text, no item;
- a record or mapping may be `[n, value, ...]`: shared entry `n` lists the names of its values;
- a text of several lines is a list of its lines, and a text or line may be the number of a shared
  one;
- metrics are `[m, value, ...]`: entry `m` is name, unit, how and note of the value after it.

An entry is shared when it comes up for the second time, the first few at once. Reading goes by the
records' type hints, so a number in place of a text is never taken for anything else.
"""

import types
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from numbers import Integral, Real
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from kernelpro.records import Candidate, Metric

Entry: TypeAlias = str | tuple[str, ...]
"""What can be shared: a text, the names of a record's or mapping's values, or all of a metric but
its value."""

SHORTEST = 6
"""Texts of fewer characters are not worth a number. Own choice."""

AT_ONCE = 512
"""So many entries are shared when they first come up: most of what the first steps hold comes up
again. Own choice."""

SEEN_AT_MOST = 4096
"""So many latest entries are known to have come up once; a bound on the writer's memory. A step has
some hundred. Own choice."""

Reader: TypeAlias = Callable[[Any, Sequence[Entry]], Any]


class Packer:
    """Packs records for one file and numbers what it shares.

    What a failed write would have shared is taken back with `undo`.
    """

    def __init__(self, shared: Sequence[Entry] = ()) -> None:
        """Go on after the entries that the file shares already."""
        self._numbers = {entry: number for number, entry in enumerate(shared)}
        self._seen: OrderedDict[Entry, None] = OrderedDict()
        self._new: list[Entry] = []

    def pack(
        self, value: Any, without: frozenset[str] = frozenset(), *, named: bool = False
    ) -> Any:
        """Return a value packed.

        Args:
            value: a record, or what records hold.
            without: fields of the record that are left out.
            named: give the record as an object, whose names are not shared.
        """
        if isinstance(value, str):
            return value.value if isinstance(value, Enum) else self._text(value)
        if is_dataclass(value) and not isinstance(value, type):
            names, values = [], []
            for name, empty in empty_defaults(type(value)):
                item = getattr(value, name)
                if name in without or (empty is not MISSING and item == empty):
                    continue
                names.append(name)
                literal = name == "source" and isinstance(value, Candidate)
                values.append(item if literal else self.pack(item))
            if named:
                return dict(zip(names, values, strict=True))
            return self._named(tuple(names), values)
        if isinstance(value, Mapping):
            if value and all(isinstance(item, Metric) for item in value.values()):
                return self._metrics(value)
            return self._named(tuple(value), [self.pack(item) for item in value.values()])
        if isinstance(value, tuple | list):
            return [self.pack(item) for item in value]
        if isinstance(value, Real) and not isinstance(value, int | float):  # numpy's, say
            return int(value) if isinstance(value, Integral) else float(value)
        return value

    def new(self) -> list[Entry]:
        """Return what was shared since the last `keep` or `undo`: the next numbers' entries."""
        return list(self._new)

    def keep(self) -> None:
        """The new entries are on disk."""
        self._new.clear()

    def undo(self) -> None:
        """The new entries did not get to disk."""
        for entry in self._new:
            del self._numbers[entry]
        self._new.clear()

    def _number(self, entry: Entry) -> int | None:
        if (number := self._numbers.get(entry)) is not None:
            return number
        if entry in self._seen or len(self._numbers) < AT_ONCE:
            self._seen.pop(entry, None)
            self._new.append(entry)
            return self._numbers.setdefault(entry, len(self._numbers))
        self._seen[entry] = None
        if len(self._seen) > SEEN_AT_MOST:
            self._seen.popitem(last=False)
        return None

    def _text(self, text: str) -> Any:
        if "\n" in text:
            return [self._line(line) for line in text.split("\n")]
        return self._line(text)

    def _line(self, text: str) -> str | int:
        number = self._number(text) if len(text) >= SHORTEST else None
        return text if number is None else number

    def _named(self, names: tuple[str, ...], values: list[Any]) -> Any:
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"names must be texts, but found {names!r:.80}")
        number = self._number(names) if names else None
        return dict(zip(names, values, strict=True)) if number is None else [number, *values]

    def _metrics(self, metrics: Mapping[str, Metric]) -> list[Any]:
        packed: list[Any] = []
        for name, metric in metrics.items():
            entry = (name, metric.unit, metric.how, metric.note)
            number = self._number(entry)
            packed += [list(entry) if number is None else number, self.pack(metric.value)]
        return packed


def unpack(hint: Any, value: Any, shared: Sequence[Entry]) -> Any:
    """Rebuild what `Packer.pack` made `value` of.

    Args:
        hint: its type.
        value: the packed value.
        shared: all entries that came up in the file so far.

    Raises:
        ValueError: it does not fit the hint, or names an entry that is not there.
        TypeError: a field that has no default is missing.
    """
    return reader(hint)(value, shared)


@cache
def reader(hint: Any) -> Reader:
    """Return the function that unpacks values of a type."""
    if hint in (str, float, int, bool):
        return {str: _text, float: _float, int: _int, bool: _bool}[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        return _record_reader(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value, shared: hint(value)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (present,) = (arg for arg in args if arg is not types.NoneType)
        inner = reader(present)
        return lambda value, shared: None if value is None else inner(value, shared)
    if origin is tuple:
        return _tuple_reader(args)
    if origin is not None and issubclass(origin, Mapping):
        return _metrics if args[1] is Metric else _mapping_reader(args[1])
    raise TypeError(f"no record of a search memory holds {hint}")


@cache
def empty_defaults(cls: type) -> tuple[tuple[str, Any], ...]:
    """Each field of a record with its default where that is an empty value, else MISSING."""
    found = []
    for field in fields(cls):
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        empty = default is not MISSING and not default
        found.append((field.name, default if empty else MISSING))
    return tuple(found)


def _record_reader(cls: type) -> Reader:
    hints = get_type_hints(cls)
    readers: dict[str, Reader] = {}  # made when first used: a record may hold its own kind

    def reader_of(name: str) -> Reader:
        if name not in readers:
            if name not in {field.name for field in fields(cls)}:
                raise ValueError(f"{cls.__name__} has no field {name!r}")
            readers[name] = reader(hints[name])
        return readers[name]

    in_order: dict[tuple[str, ...], list[Reader]] = {}  # most of a kind have the same fields

    def read(value: Any, shared: Sequence[Entry]) -> Any:
        if isinstance(value, dict):
            return cls(**{name: reader_of(name)(item, shared) for name, item in value.items()})
        names = _names_of(cls.__name__, value, shared)
        if (known := in_order.get(names)) is None:
            known = in_order[names] = [reader_of(name) for name in names]
        items = [one(item, shared) for one, item in zip(known, value[1:], strict=True)]
        return cls(**dict(zip(names, items, strict=True)))

    return read


def _tuple_reader(args: tuple[Any, ...]) -> Reader:
    readers = [reader(arg) for arg in args if arg is not Ellipsis]
    any_length = args[-1] is Ellipsis

    def read(value: Any, shared: Sequence[Entry]) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"a list expected, but found {value!r:.80}")
        if any_length:
            return tuple([readers[0](item, shared) for item in value])
        if len(value) != len(readers):
            raise ValueError(f"{len(readers)} items expected, but found {value!r:.80}")
        return tuple([read(item, shared) for read, item in zip(readers, value, strict=True)])

    return read


def _mapping_reader(hint: Any) -> Reader:
    inner = reader(hint)

    def read(value: Any, shared: Sequence[Entry]) -> Any:
        if not isinstance(value, dict):
            value = _with_names("a mapping", value, shared)
        return {name: inner(item, shared) for name, item in value.items()}

    return read


def _with_names(what: str, value: Any, shared: Sequence[Entry]) -> dict[str, Any]:
    return dict(zip(_names_of(what, value, shared), value[1:], strict=True))


def _names_of(what: str, value: Any, shared: Sequence[Entry]) -> tuple[str, ...]:
    """The names of a list's values, of which the first is the names' number."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{what} must be an object or a list, but is {value!r:.80}")
    names = _entry(value[0], shared)
    if isinstance(names, str) or len(names) != len(value) - 1:
        raise ValueError(f"{what} has {len(value) - 1} values, but its names are {names!r:.80}")
    return names


def _metrics(value: Any, shared: Sequence[Entry]) -> dict[str, Metric]:
    if value == {}:
        return {}
    if not isinstance(value, list) or len(value) % 2:
        raise ValueError(f"a list of pairs expected, but found {value!r:.80}")
    found = {}
    for place in range(0, len(value), 2):
        entry = value[place]
        if not isinstance(entry, list):
            entry = _entry(entry, shared)
        if isinstance(entry, str) or len(entry) != 4:
            raise ValueError(f"name, unit, how and note expected, but found {entry!r:.80}")
        name, unit, how, note = entry
        number = value[place + 1]
        found[name] = Metric(
            value=None if number is None else _float(number, shared), unit=unit, how=how, note=note
        )
    return found


def _entry(number: Any, shared: Sequence[Entry]) -> Entry:
    if type(number) is not int or not 0 <= number < len(shared):
        raise ValueError(f"number of a shared entry below {len(shared)} expected, not {number!r}")
    return shared[number]


def _text(value: Any, shared: Sequence[Entry]) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join([_text(line, shared) for line in value])
    text = _entry(value, shared)
    if not isinstance(text, str):
        raise ValueError(f"a text expected, but shared entry {value} is {text!r:.80}")
    return text


def _float(value: Any, shared: Sequence[Entry]) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise ValueError(f"float expected, but found {value!r:.80}")


def _int(value: Any, shared: Sequence[Entry]) -> int:
    if type(value) is int:
        return value
    raise ValueError(f"int expected, but found {value!r:.80}")


def _bool(value: Any, shared: Sequence[Entry]) -> bool:
    if type(value) is bool:
        return value
    raise ValueError(f"bool expected, but found {value!r:.80}")
