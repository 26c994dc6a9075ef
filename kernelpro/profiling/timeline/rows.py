"""Rows of the event table as plain numpy columns: the facts of one call cost milliseconds so."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelpro.profiling.timeline.intervals import Spans

if TYPE_CHECKING:
    import pandas as pd


class Rows:
    """Some rows of an event table; its columns are those of `events.COLUMNS`.

    `rows["name"]` is a column, `rows.where(mask)` are the rows that a mask of truth values or
    places chooses, in the order of the places.
    """

    __slots__ = ("_columns", "_length")

    def __init__(self, columns: Mapping[str, NDArray[Any]], length: int) -> None:
        self._columns = columns
        self._length = length

    @classmethod
    def of(cls, table: "pd.DataFrame") -> "Rows":
        """The rows of an event table."""
        columns = {str(name): table[name].to_numpy() for name in table.columns}
        return cls(columns, len(table))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    @property
    def lengths(self) -> NDArray[np.float64]:
        """Duration of each, in microseconds."""
        lengths: NDArray[np.float64] = self["end_us"] - self["start_us"]
        return lengths

    @property
    def spans(self) -> Spans:
        """Start and end of each; they may overlap."""
        return np.column_stack((self["start_us"], self["end_us"]))

    @property
    def total_us(self) -> float:
        """Sum of the durations."""
        return float(self.lengths.sum())

    def where(self, chosen: NDArray[Any]) -> "Rows":
        """The rows that a mask or places choose."""
        columns = {name: values[chosen] for name, values in self._columns.items()}
        return Rows(columns, len(next(iter(columns.values()))))

    def of_kind(self, *kinds: str) -> "Rows":
        """The rows of any of the kinds."""
        return self.where(self.has("kind", kinds))

    def has(self, name: str, values: Any) -> NDArray[np.bool_]:
        """Which rows have one of the values in a column of words or whole numbers."""
        known = frozenset(values)
        return np.array([value in known for value in self[name].tolist()], dtype=bool)

    def with_column(self, name: str, values: NDArray[Any]) -> "Rows":
        """The same rows with one more column."""
        return Rows({**self._columns, name: values}, self._length)

    def tuples(self, *names: str) -> list[tuple[Any, ...]]:
        """Values of some columns, row by row, as plain Python objects."""
        return list(zip(*(self[name].tolist() for name in names), strict=True))
