"""Natural loops of a control-flow graph: jumps back to a block that dominates the jump's own."""

from collections.abc import Iterable, Mapping, Sequence


def natural_loops(
    following: Mapping[int, Sequence[int]], roots: Iterable[int]
) -> dict[int, set[int]]:
    """Find the loops; blocks that no root leads to are left out.

    Args:
        following: for each block the blocks that may run next.
        roots: blocks at which the code is entered.

    Returns:
        The blocks of each loop, its header among them, by the header.
    """
    entries = set(roots)
    order = _reverse_postorder(following, entries)
    rank = {block: place for place, block in enumerate(order)}
    before: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for target in following[block]:
            before[target].append(block)
    dominator = _dominators(order, rank, before, entries)
    loops: dict[int, set[int]] = {}
    for block in order:
        for header in following[block]:
            above = block
            while above != -1 and rank[above] > rank[header]:
                above = dominator[above]
            if above != header:
                continue
            body, waiting = loops.setdefault(header, {header}), [block]
            while waiting:
                current = waiting.pop()
                if current not in body:
                    body.add(current)
                    waiting.extend(before[current])
    return loops


def _reverse_postorder(following: Mapping[int, Sequence[int]], roots: set[int]) -> list[int]:
    order: list[int] = []
    seen: set[int] = set()
    for root in sorted(roots):
        stack = [(root, iter(following[root]))] if root not in seen else []
        seen.add(root)
        while stack:
            block, targets = stack[-1]
            target = next((target for target in targets if target not in seen), None)
            if target is None:
                order.append(block)
                stack.pop()
            else:
                seen.add(target)
                stack.append((target, iter(following[target])))
    return order[::-1]


def _dominators(
    order: Sequence[int], rank: Mapping[int, int], before: Mapping[int, list[int]], roots: set[int]
) -> dict[int, int]:
    """Immediate dominators (Cooper, Harvey, Kennedy); -1 stands for the root above all roots."""
    found: dict[int, int] = dict.fromkeys(roots, -1)

    def meet(one: int, other: int) -> int:
        while one != other:
            if -1 in (one, other):
                return -1
            if rank[one] > rank[other]:
                one = found[one]
            else:
                other = found[other]
        return one

    changed = True
    while changed:
        changed = False
        for block in order:
            if block in roots:
                continue
            known = [previous for previous in before[block] if previous in found]
            new = known[0]
            for previous in known[1:]:
                new = meet(new, previous)
            if found.get(block) != new:
                found[block] = new
                changed = True
    return found
