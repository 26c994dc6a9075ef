"""What tokens cost: the packaged table, prices.json in the configuration folder, and a named file.

Later ones win, model by model. A model without a price is counted in tokens alone.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from kernelpro.errors import SettingsError
from kernelpro.models.exchange import Usage
from kernelpro.settings import config_folder

FILE = "prices.json"
_DATED = re.compile(r"-20\d{6}$|-20\d\d-\d\d-\d\d$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for a million tokens of each class.

    Attributes:
        input: read.
        output: written.
        cache_read: read from the provider's cache; negative: as input.
        cache_write: put into the cache for five minutes; negative: as input.
        cache_write_1h: likewise for an hour; negative: as cache_write.
        above_tokens: prompts of more tokens are dearer; 0: none are.
        above_input: factor of their tokens read.
        above_output: factor of their tokens written.
    """

    input: float
    output: float
    cache_read: float = -1.0
    cache_write: float = -1.0
    cache_write_1h: float = -1.0
    above_tokens: int = 0
    above_input: float = 1.0
    above_output: float = 1.0

    def cost(self, usage: Usage, ttl: str = "5m") -> float:
        """US dollars of one call."""
        read = self.cache_read if self.cache_read >= 0 else self.input
        write = self.cache_write if self.cache_write >= 0 else self.input
        if ttl == "1h" and self.cache_write_1h >= 0:
            write = self.cache_write_1h
        dear = 0 < self.above_tokens < usage.read
        prompt = (
            usage.input_tokens * self.input
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * write
        )
        written = usage.output_tokens * self.output
        if dear:
            prompt, written = prompt * self.above_input, written * self.above_output
        return (prompt + written) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices by model.

    Attributes:
        dated: the day that the packaged table is of, or `your own` where another file gave one.
        by_model: price by the model's name.
        own: names whose price another file than the packaged one gave.
    """

    dated: str
    by_model: Mapping[str, Price]
    own: frozenset[str] = frozenset()

    def of(self, name: str) -> Price | None:
        """A model's price, by its name with or without the company and a date; None if unknown."""
        model = name.partition("/")[2] or name
        for key in (name, model, _DATED.sub("", model)):
            if key in self.by_model:
                return self.by_model[key]
        return None

    def is_own(self, name: str) -> bool:
        """Whether the user gave the price."""
        return bool(self.own & {name, name.partition("/")[2]})


def load(named: str = "") -> Prices:
    """The price table.

    Args:
        named: a file of the user's, or empty.

    Raises:
        SettingsError: a file cannot be read or holds something else; the message names it.
    """
    packaged = Path(__file__).with_name(FILE)
    dated, by_model = _read(packaged)
    own: set[str] = set()
    kept = config_folder() / FILE
    for path in (*((kept,) if kept.is_file() else ()), *((Path(named),) if named else ())):
        _, more = _read(path)
        by_model |= more
        own |= more.keys()
    return Prices(dated=dated, by_model=by_model, own=frozenset(own))


def _read(path: Path) -> tuple[str, dict[str, Price]]:
    names = {f.name for f in fields(Price)}
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        found = {}
        for model, entry in table["models"].items():
            if unknown := sorted(entry.keys() - names):
                raise ValueError(f"{model} has no {unknown[0]!r}")
            if any(isinstance(v, bool) or not isinstance(v, int | float) for v in entry.values()):
                raise ValueError(f"a price of {model} is no number")
            found[str(model)] = Price(**entry)
        return str(table.get("dated", "")), found
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingsError(
            f'price file {path} must be JSON like {{"models": {{"NAME": {{"input": 2.0, '
            f'"output": 10.0}}}}}}, in dollars for a million tokens, but: {error!r:.150}'
        ) from None
