"""The family of search policies: what each can do, and how one is chosen by name.

A policy is a frozen dataclass of its settings in a file of its own; none knows another. Plugins
add theirs through the hook `policies`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Protocol

from kernelpro.errors import SettingsError
from kernelpro.search.best_of_n import BestOfN
from kernelpro.search.epsilon_greedy import EpsilonGreedy
from kernelpro.search.greedy import Greedy
from kernelpro.search.map_elites import MapElites
from kernelpro.search.mcts import Mcts
from kernelpro.search.random_walk import RandomWalk
from kernelpro.search.tree import Node, Tree
from kernelpro.settings import resolve


class Policy(Protocol):
    """Where to grow the tree next."""

    name: ClassVar[str]

    def select(self, tree: Tree) -> Node | None:
        """Return the node to make the next candidate from; None when there is none left.

        The answer follows from the tree and the policy's settings alone: asked again, also after
        the tree was read back from disk, it is the same. It is not a closed node.
        """
        ...


_ALL: tuple[type[Policy], ...] = (Mcts, EpsilonGreedy, Greedy, BestOfN, MapElites, RandomWalk)
POLICIES: Mapping[str, type[Policy]] = {cls.name: cls for cls in _ALL}


def by_name(
    name: str, flags: Mapping[str, Any] | None = None, others: Iterable[type] = ()
) -> Policy:
    """Make a policy with settings from `[NAME]` of kernelpro.toml, environment and flags.

    Args:
        name: the policy's.
        flags: settings that were given on the command line.
        others: policies that plugins gave.

    Raises:
        SettingsError: there is no such policy or setting, or a setting has no sense.
    """
    return resolve(name, _policy_class(name, others), flags)


def describe(policy: Policy) -> dict[str, Any]:
    """Return name and settings of a policy as plain values: what `restore` takes."""
    return {"name": policy.name, **asdict(policy)}  # type: ignore[call-overload]  # a dataclass


def restore(description: Mapping[str, Any], others: Iterable[type] = ()) -> Policy:
    """Make the policy that `describe` described; a setting that it lacks takes its default.

    Args:
        description: name and settings.
        others: policies that plugins gave.

    Raises:
        SettingsError: the description is not of a policy that this version has.
    """
    settings = dict(description)
    cls = _policy_class(str(settings.pop("name", "")), others)
    try:
        return cls(**settings)
    except TypeError as error:
        raise SettingsError(
            f"recorded settings of policy {cls.name!r} do not fit: {error}"
        ) from None


def _policy_class(name: str, others: Iterable[type]) -> type[Policy]:
    known = {**{cls.name: cls for cls in others}, **POLICIES}  # type: ignore[attr-defined]
    if name not in known:
        raise SettingsError(f"there is no policy {name!r}; choose one of {', '.join(known)}")
    return known[name]
