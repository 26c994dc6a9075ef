"""Monte-Carlo tree search: upper confidence bounds, progressive widening, asymmetric branching."""

import math
from dataclasses import dataclass
from typing import ClassVar

from kernelpro.errors import SettingsError
from kernelpro.search.tree import Node, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Mcts:
    """Descend by value plus bonus; stop at a node that has fewer children than it has earned.

    KernelPro (arXiv 2606.26453) names the parts but publishes no constants; each one here is a
    choice of this project: `explore`, `best_weight` and `widen` from recorded schedule spaces
    (results/spaces/README.md), the others from a coarse comparison on computed spaces of 720 points
    with 150 steps each. Rewards are taken as the reward hook gives them (a log speed-up by default)
    and divided by the highest so far, so that `explore` has one meaning for every problem; 0 and
    below count as no better than the baseline. There is no randomness: of equals the earliest step
    wins. Candidates under way count as visits worth 0 (virtual loss, Chaslot et al., 2008).

    Attributes:
        explore: weight of the bonus sqrt(log(parent's visits) / visits). UCB1 (Auer et al., 2002)
            has sqrt(2) for any reward in 0..1; a search of some tens of steps needs much less,
            since the kernels that it must tell apart at the end differ by some hundredths.
        best_weight: share of a branch's best reward in its value; the rest is its mean. The mean
            alone (0) punishes a branch for having been tried in depth, and what is looked for is
            one kernel, not a good average.
        widen: a node that worked may have ceil(widen * visits ** widen_power) children.
        widen_failed: the same factor for a node that failed. Smaller: nodes that work earn more.
        widen_power: exponent of progressive widening (Coulom, 2007; 1/2 is its common value).
        failed_children: most children of a node that failed, in all: a few attempts to repair it.
        patience: a branch whose latest so many steps all failed or did not raise its best is a
            dead end, once they are also `stale_share` of all its steps. It is passed over while
            there is anything else to expand, and never takes the root with it: a published task
            took 43 failures before its first valid kernel.
        stale_share: see patience; it gives a branch that was worth a long search a longer trial.
    """

    name: ClassVar[str] = "mcts"

    explore: float = 0.01
    best_weight: float = 1.0
    widen: float = 4.0
    widen_failed: float = 0.5
    widen_power: float = 0.5
    failed_children: int = 2
    patience: int = 20
    stale_share: float = 0.5

    def __post_init__(self) -> None:
        for field, least, most in (
            ("explore", 0.0, math.inf),
            ("best_weight", 0.0, 1.0),
            ("widen", 0.0, math.inf),
            ("widen_failed", 0.0, math.inf),
            ("widen_power", 0.0, 1.0),
            ("failed_children", 0, math.inf),
            ("patience", 1, math.inf),
            ("stale_share", 0.0, 1.0),
        ):
            value = getattr(self, field)
            if not (least <= value <= most and math.isfinite(value)):
                raise SettingsError(
                    f"mcts setting {field} must be a number within {least}..{most}, "
                    f"but is {value!r}"
                )

    def select(self, tree: Tree) -> Node | None:
        """Return the node to make the next candidate from; None when every node is closed.

        On its way it closes failed nodes that already have all the children they may have.
        """
        while tree.root.open:
            node = tree.root
            while not self.may_widen(tree, node):
                live, stale = self._most_promising(tree, node)
                if live is None and not self._spent(tree, node):
                    return node
                branch = live or stale
                if branch is None:
                    tree.close(node.index)
                    break
                node = branch
            else:
                return node
        return None

    def may_widen(self, tree: Tree, node: Node) -> bool:
        """Whether the node has earned one more child by its visits."""
        if self._spent(tree, node):
            return False
        factor = self.widen if node.worked else self.widen_failed
        earned = math.ceil(factor * math.pow(_visits(node), self.widen_power))
        return tree.begun_count(node.index) < earned

    def is_dead_end(self, node: Node) -> bool:
        """Whether the branch has gone on for too long without getting better."""
        stale = node.stale
        return (
            stale >= self.patience
            and stale >= self.stale_share * node.visits
            and node.step.parent is not None
        )

    def _spent(self, tree: Tree, node: Node) -> bool:
        return node.closed or (
            not node.worked and tree.child_count(node.index) >= self.failed_children
        )

    def _most_promising(self, tree: Tree, parent: Node) -> tuple[Node | None, Node | None]:
        """The open branch of highest bound among those that are no dead ends, and among those."""
        scale = 1.0 / tree.highest if tree.highest > 0.0 else 0.0
        for_mean, for_best = scale * (1.0 - self.best_weight), scale * self.best_weight
        log_visits = math.log(_visits(parent))
        found: list[Node | None] = [None, None]
        highest = [-math.inf, -math.inf]
        for child in parent.children:  # plain code: it runs for each child of a large tree's root
            if not child.open:
                continue
            visits = child.visits + child.under_way
            bound = self.explore * math.sqrt(log_visits / visits)
            if child.total > 0.0:
                bound += for_mean * child.total / visits
            if child.best > 0.0:
                bound += for_best * child.best
            if bound > highest[dead := self.is_dead_end(child)]:
                found[dead], highest[dead] = child, bound
        return found[0], found[1]


def _visits(node: Node) -> int:
    return node.visits + node.under_way
