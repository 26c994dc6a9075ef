"""What a search's calls used and cost, by role, and the budgets that they must keep.

A call begins only while what was spent, and what the calls in flight may yet cost at worst, is
below every budget; so a budget is exceeded by no more than the call that was let in last.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelpro.errors import ModelError
from kernelpro.models.exchange import Request, Usage
from kernelpro.models.prices import Prices


class Spent(ModelError):
    """A budget is used up; the message says which."""


@dataclass(slots=True)
class Account:
    """What one role has used with one model.

    Attributes:
        calls: calls that were answered.
        failed: calls that were not.
        read: tokens of prompts, those of the cache included.
        cached: those that were read from the provider's cache.
        written: tokens of answers.
        cost: US dollars; None when the model has no price.
        estimated: whether a part of it was estimated, since the provider did not report it.
    """

    calls: int = 0
    failed: int = 0
    read: int = 0
    cached: int = 0
    written: int = 0
    cost: float | None = None
    estimated: bool = False


@dataclass(slots=True)
class Ledger:
    """The accounts of a search; safe to use from several threads.

    Attributes:
        prices: what tokens cost.
        max_cost: US dollars; 0 is no limit.
        max_tokens: in and out together; 0 is no limit.
        ttl: how long cached tokens are kept, which decides their price.
        unpriced: models whose table price does not hold.
        accounts: by role and model.
    """

    prices: Prices
    max_cost: float = 0.0
    max_tokens: int = 0
    ttl: str = "5m"
    unpriced: set[str] = field(default_factory=set)
    accounts: dict[tuple[str, str], Account] = field(default_factory=dict)
    _reserved: list[tuple[float, int]] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def cost(self) -> float:
        """US dollars of all calls whose model has a price."""
        return sum(account.cost or 0.0 for account in self.accounts.values())

    @property
    def tokens(self) -> int:
        """Tokens of all calls."""
        return sum(account.read + account.written for account in self.accounts.values())

    def price_of(self, model: str, usage: Usage) -> float | None:
        """US dollars of one call; None when the model has no price."""
        price = self.prices.of(model)
        if price is None or (model in self.unpriced and not self.prices.is_own(model)):
            return None
        return price.cost(usage, self.ttl)

    def require_price(self, model: str) -> None:
        """Refuse a budget in dollars for a model whose price is not known.

        Raises:
            ModelError: there is such a budget and no price.
        """
        if self.max_cost > 0 and self.price_of(model, Usage()) is None:
            raise ModelError(
                f"--max-cost needs the price of {model}, which no price file has for this server; "
                "add it to a file that [models] prices names, or give --max-tokens"
            )

    def charge(self, role: str, model: str, usage: Usage, *, answered: bool) -> None:
        """Add one call."""
        with self._changed:
            account = self.accounts.setdefault((role, model), Account())
            account.calls += answered
            account.failed += not answered
            account.read += usage.read
            account.cached += usage.cache_read_tokens
            account.written += usage.output_tokens
            account.estimated |= usage.estimated and usage.total > 0
            cost = self.price_of(model, usage)
            if cost is not None:
                account.cost = (account.cost or 0.0) + cost

    @contextlib.contextmanager
    def admitted(self, model: str, request: Request) -> Iterator[None]:
        """Let a call in, or wait until those in flight have shown what they cost.

        Raises:
            Spent: a budget is used up.
        """
        worst = Usage(input_tokens=request.estimated_tokens, output_tokens=request.max_tokens)
        claim = (self.price_of(model, worst) or 0.0, worst.total)
        with self._changed:
            while (word := self._full(len(self._reserved) > 0)) is not None:
                if word:
                    raise Spent(word)
                self._changed.wait()
            self._reserved.append(claim)
        try:
            yield
        finally:
            with self._changed:
                self._reserved.remove(claim)
                self._changed.notify_all()

    def spent(self) -> str | None:
        """Say which budget is used up; None while none is."""
        return self._full(False)

    def _full(self, busy: bool) -> str | None:
        """Why no call may begin; empty where one may once those in flight have ended."""
        cost, tokens = self.cost, self.tokens
        if 0 < self.max_cost <= cost:
            return f"${cost:.4f} of --max-cost ${self.max_cost:g} are spent"
        if 0 < self.max_tokens <= tokens:
            return f"{tokens} of --max-tokens {self.max_tokens} are used"
        if busy:
            cost += sum(claim[0] for claim in self._reserved)
            tokens += sum(claim[1] for claim in self._reserved)
            if 0 < self.max_cost <= cost or 0 < self.max_tokens <= tokens:
                return ""
        return None

    def sentences(self) -> list[str]:
        """What was used, a line for each role and model."""
        lines = []
        for (role, model), account in sorted(self.accounts.items()):
            about = "about " if account.estimated else ""
            calls = "call" if account.calls == 1 else "calls"
            line = (
                f"{role} ({model}): {account.calls} {calls}"
                + (f" and {account.failed} that failed" if account.failed else "")
                + f", {about}{account.read:,} tokens read ({account.cached:,} from the cache), "
                f"{account.written:,} written"
            )
            if account.cost is None:
                line += "; no price is known for it here, so tokens alone are counted"
            else:
                dated = "your prices" if self.prices.is_own(model) else self._table()
                line += f", {about}${account.cost:.4f} ({dated})"
            lines.append(line)
        return lines

    def _table(self) -> str:
        return f"prices of {self.prices.dated}"
