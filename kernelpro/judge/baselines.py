"""What candidates are timed against: the reference run eagerly, or compiled by torch."""

from kernelpro.errors import JudgeError

# Name on the command line -> name in results, and torch.compile's mode (None: not compiled).
KINDS: dict[str, tuple[str, str | None]] = {
    "eager": ("eager", None),
    "compile": ("torch.compile", "default"),
    "max-autotune": ("torch.compile max-autotune", "max-autotune"),
}
COMPILE_DEADLINE_S = (
    600.0  # for a compiled baseline's first call; tuning a large product takes minutes
)


def asked(text: str) -> tuple[str, ...]:
    """The kinds named in a comma-separated list; eager is always the first of them.

    Raises:
        JudgeError: an unknown kind.
    """
    kinds = [name.strip() for name in text.split(",") if name.strip()]
    for name in kinds:
        if name not in KINDS:
            raise JudgeError(f"no baseline is called {name!r}; there are {', '.join(KINDS)}")
    return ("eager", *(name for name in dict.fromkeys(kinds) if name != "eager"))


def in_results(kind: str) -> str:
    """How results name a kind."""
    return KINDS[kind][0]


def kind_of(name: str) -> str:
    """The kind that results name so; `eager` for a name of an older version."""
    return next((kind for kind, (shown, _) in KINDS.items() if shown == name), "eager")
