"""From `--proposer` to a team: `model:anthropic/NAME`, `model:openai/NAME` or `tape:FILE`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernelpro.code_search.library import Library
from kernelpro.code_search.settings import CodeSearchSettings, tree
from kernelpro.errors import ModelError
from kernelpro.models import prices, prompt, providers
from kernelpro.models.ledger import Ledger
from kernelpro.models.settings import ModelSettings
from kernelpro.models.tape import Tape, beside
from kernelpro.models.workflow import Team, models_of
from kernelpro.settings import resolve

LANGUAGE = "language"
"""The built-in proposer, which needs no model."""

_OF_THIS_RUN = (
    "max_cost",
    "max_tokens",
    "prices",
    "anthropic_url",
    "openai_url",
    "cache_ttl",
    "retries",
    "retry_first_s",
    "retry_most_s",
    "idle_s",
    "answer_s",
    "answer_bytes",
)


def check(proposer: str) -> str:
    """The proposer's name, if there can be such a one.

    Raises:
        ModelError: it is none of the three kinds.
    """
    kind, _, rest = proposer.partition(":")
    if proposer != LANGUAGE and not (kind in ("model", "tape") and rest):
        raise ModelError(
            "a proposer is language, model:anthropic/NAME, model:openai/NAME or tape:FILE, but "
            f"found {proposer!r}"
        )
    if kind == "model":
        providers.split(rest)
    return proposer


def team(proposer: str, settings: ModelSettings) -> Team | None:
    """The team that a proposer's name asks for; None for the built-in proposer. Sends nothing.

    Raises:
        KernelproError: a package, key, price or tape is missing; says what to do.
    """
    kind, _, rest = check(proposer).partition(":")
    if proposer == LANGUAGE:
        return None
    ledger = Ledger(
        prices=prices.load(settings.prices),
        max_cost=settings.max_cost,
        max_tokens=settings.max_tokens,
        ttl=settings.cache_ttl,
    )
    if kind == "tape":
        path = Path(rest)
        if not path.name.endswith(".tape.jsonl") and beside(path).is_file():
            path = beside(path)
        return Team({}, {}, settings, ledger, Tape(path, writing=False))
    prompt.check_templates()
    models = models_of(rest, settings)
    asked = {name: providers.connect(name, settings) for name in _used(models, settings)}
    ledger.unpriced |= {name for name, provider in asked.items() if not provider.priced}
    for name in asked:
        ledger.require_price(name)
    return Team(models, asked, settings, ledger, library=_library(settings))


def used(path: Path, settings: ModelSettings) -> Ledger:
    """What the calls on a tape used; nothing where there is no tape.

    Raises:
        KernelproError: it is damaged, or a price file is.
    """
    ledger = Ledger(prices=prices.load(settings.prices), ttl=settings.cache_ttl)
    if path.exists():
        tape = Tape(path, writing=False)
        for each in tape.exchanges:
            ledger.charge(each.role, each.model, each.answer.usage, answered=True)
        for role, model, usage in tape.failed:
            ledger.charge(role, model, usage, answered=False)
    return ledger


def kept(settings: ModelSettings) -> dict[str, Any]:
    """The settings that decide what prompts say: kept with a search, for it to go on alike."""
    return {k: v for k, v in asdict(settings).items() if k not in _OF_THIS_RUN}


def _library(settings: ModelSettings) -> Library | None:
    """The tree of sources that roles may look things up in, if there is one."""
    chosen = resolve("code_search", CodeSearchSettings)
    there = settings.tool_rounds > 0 and tree(chosen) is not None
    return Library(chosen) if there else None


def _used(models: dict[str, str], settings: ModelSettings) -> list[str]:
    roles = ("code", "debug") if settings.workflow == "single" else tuple(models)
    return sorted({models[role] for role in roles})
