"""Several candidates under way at once: proposers, compilers and the device each go on meanwhile.

Proposers are asked in threads of their own, builds run in a pool, and each device is a single
thread, so that nothing is measured beside anything else on it. Choices, steps and the tree belong
to the event loop alone. Each step keeps what its choice rested on, so that it can be checked
afterwards.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kernelpro.errors import SettingsError
from kernelpro.records import Candidate, Choice, Proposal
from kernelpro.search.bench import Measured
from kernelpro.search.brief import was_asked
from kernelpro.search.budget import NOTHING_LEFT, Reason
from kernelpro.search.tree import Node
from kernelpro.search.utilisation import COMPILERS

if TYPE_CHECKING:
    from kernelpro.search.loop import Search, Stopwatch

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many candidates are under way at once; the table `[search]` of kernelpro.toml.

    Attributes:
        jobs: candidates between the choice of their parent and their step in the tree, at most.
        most_waiting: when so many are written but not measured yet, no further parent is chosen:
            what waits was chosen without the feedback of what is before it. Each device after the
            first adds two: the one that it measures and the one that it measures next.
    """

    jobs: int = 1
    most_waiting: int = 4

    def __post_init__(self) -> None:
        for name in ("jobs", "most_waiting"):
            value = getattr(self, name)
            if value < 1:
                raise SettingsError(f"search setting {name} must be 1 or more, but is {value}")


class Overlap:
    """Runs a search with several candidates under way."""

    def __init__(self, search: "Search") -> None:
        self._search = search
        self._over: tuple[Reason, str] | None = None
        self._measuring: dict[str, asyncio.Event] = {}  # by the candidates' ids
        self._waiting = 0
        self._exhausted: list[tuple[int, Choice]] = []  # since the last step
        self._closed = sum(len(node.step.exhausted) for node in search.tree)

    def run(self) -> tuple[Reason, str]:
        """Search until the end; candidates that are under way by then are finished.

        Raises:
            KernelproError: the bench cannot work, or the memory file cannot be written.
            KeyboardInterrupt: after Ctrl-C, which drops what is under way.
        """
        return asyncio.run(self._run())

    async def _run(self) -> tuple[Reason, str]:
        jobs = self._search.pace.jobs
        self._changed = asyncio.Event()
        pools = [ThreadPoolExecutor(n) for n in (jobs, jobs, self._search.slots)]
        self._askers, self._compilers, self._device = pools
        lanes = [asyncio.create_task(self._lane()) for _ in range(jobs)]
        try:
            await asyncio.gather(*lanes)
        finally:
            for lane in lanes:
                lane.cancel()
            for pool in pools:  # after Ctrl-C nobody waits for what still runs in them
                pool.shutdown(wait=False, cancel_futures=True)
        return self._over or NOTHING_LEFT

    async def _lane(self) -> None:
        while (chosen := await self._choose()) is not None:
            await self._take(*chosen)

    async def _choose(self) -> "tuple[Node, Choice, Proposal, Stopwatch] | None":
        """Wait until a parent may be chosen, and choose it; None when the search is over."""
        search, tree = self._search, self._search.tree
        while self._over is None:
            if (end := search.end()) is not None:
                self._over = end
            elif self._may_choose():
                watch = search.stopwatch()
                if (node := search.policy.select(tree)) is not None:
                    choice = Choice(steps=len(tree), closed=self._closed, under_way=tree.under_way)
                    proposal = search.brief(node, self._measuring)
                    tree.begin(node.index)
                    watch.lap("select")
                    return node, choice, proposal, watch
                if not tree.under_way:
                    self._over = NOTHING_LEFT
            if self._over is None:
                await self._changed.wait()
        self._tell()  # others may be waiting for a change that will not come
        return None

    def _may_choose(self) -> bool:
        search = self._search
        begun = len(search.tree) - 1 + len(search.tree.under_way)
        most_waiting = search.pace.most_waiting + 2 * (search.slots - 1)
        return self._waiting < most_waiting and search.budget.iterations_left(begun) != 0

    async def _take(
        self, node: Node, choice: Choice, proposal: Proposal, watch: "Stopwatch"
    ) -> None:
        """Take one choice to its step, or close the node that nobody has a candidate for."""
        search, tree = self._search, self._search.tree
        candidate = await self._in(self._askers, search.propose, proposal)
        # Lanes that ask at the same time may be told the same. Each round ends with another lane's
        # candidate, of which there are only so many; who insists on a tried one is not asked again.
        while candidate is not None and candidate.id not in proposal.tried:
            known = self._measuring.keys() | tree.first_with.keys()
            if candidate.id not in known:
                break
            proposal = replace(proposal, tried=proposal.tried | known)
            candidate = await self._in(self._askers, search.propose, proposal)
        watch.lap("propose")
        if candidate is None:
            tree.end(node.index)
            if not node.closed:
                tree.close(node.index)
                self._exhausted.append((node.index, choice))
                self._closed += 1
            self._tell()
            return
        candidate, refused = search.gate(candidate)
        while refused is None and (twin := self._measuring.get(candidate.id)) is not None:
            await twin.wait()
            candidate, refused = search.gate(candidate)
        watch.lap("gate")
        measured = refused or await self._measure(candidate, watch)
        tree.end(node.index)
        exhausted, self._exhausted = self._exhausted, []
        search.remember(
            candidate,
            measured,
            node.index,
            watch.phases_s,
            exhausted=tuple(index for index, _ in exhausted),
            choice=choice,
            exhausted_choices=tuple(each for _, each in exhausted),
            asked=was_asked(proposal),
        )
        if refused is None:
            self._measuring.pop(candidate.id).set()
        self._tell()

    async def _measure(self, candidate: Candidate, watch: "Stopwatch") -> Measured:
        def prepare() -> None:
            with self._search.usage.busy(COMPILERS):
                self._search.bench.prepare(candidate)
            watch.restart()

        def evaluate() -> Measured:
            watch.lap("wait")
            return self._search.evaluate(candidate)

        self._measuring[candidate.id] = asyncio.Event()
        self._waiting += 1
        try:
            await self._in(self._compilers, prepare)
            return await self._in(self._device, evaluate)
        finally:
            self._waiting -= 1

    async def _in(self, pool: Executor, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

    def _tell(self) -> None:
        """Wake the lanes that wait for something to change."""
        self._changed.set()
        self._changed = asyncio.Event()
