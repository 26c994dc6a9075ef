"""Where a search goes on and what is told of it, from its memory file alone; loads no torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from kernelpro.agents.asks import Ask
from kernelpro.errors import LessonsError
from kernelpro.lessons.recall import Recalled
from kernelpro.manager import create_plugin_manager
from kernelpro.models.settings import ModelSettings
from kernelpro.records import Choice, Proposal, Step
from kernelpro.search.brief import Feedback, Lessons, brief, no_lessons
from kernelpro.search.format import Contents, Header
from kernelpro.search.policy import restore
from kernelpro.search.tree import Node, Tree
from kernelpro.serial import decode
from kernelpro.settings import resolve


def grown(steps: Sequence[Step], waiting: Sequence[Ask]) -> Tree:
    """The tree with the open tasks under way in it."""
    tree = Tree(steps)
    for ask in waiting:
        tree.begin(ask.node)
    return tree


def choice(tree: Tree) -> Choice:
    """What a choice of a node rests on now."""
    closed = sum(len(node.step.exhausted) for node in tree)
    return Choice(steps=len(tree), closed=closed, under_way=tree.under_way)


def policy(header: Header) -> Any:
    """The search's policy with its recorded settings."""
    # Built-in plugins give no policy, and loading them would load torch.
    from kernelpro.isolation import Hooks

    plugins = Hooks(*create_plugin_manager(builtins=False))
    return restore(header.settings.get("policy", {"name": "mcts"}), plugins.policies())


def feedback(header: Header) -> Feedback:
    """What the search tells of profiles."""
    return Feedback(header.settings.get("feedback", Feedback.FINDINGS))


def told(header: Header, tree: Tree, node: Node) -> Proposal:
    """What is told, from what the memory file alone says."""
    root = tree.root.step.classification
    settings = header.settings
    return brief(
        tree,
        node,
        problem=header.problem,
        machine=header.machine,
        seed=header.seed,
        sol_us=root.sol_us if root is not None else 0.0,
        feedback=feedback(header),
        lessons=_lessons(settings.get("lessons") or {}),
    )


def _lessons(recorded: Mapping[str, Any]) -> Lessons:
    if not recorded:
        return no_lessons
    try:
        return decode(Recalled, recorded["recalled"]).told
    except (KeyError, ValueError, TypeError) as error:
        raise LessonsError(
            f"the memory file's header does not say what lessons its search was told ({error}); "
            "start a new search"
        ) from error


def models(found: Contents) -> ModelSettings:
    """Limits of prompts, which tasks keep too."""
    return resolve("models", ModelSettings, found.header.settings.get("models"))
