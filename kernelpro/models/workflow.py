"""The team of models behind a search: who is asked, what it may cost, and what is kept of it.

A proposal's own turns are in `turns`.
"""

import threading
from collections.abc import Mapping

from kernelpro.code_search.library import Library
from kernelpro.errors import ModelError
from kernelpro.models import parts, prompt
from kernelpro.models.exchange import Answer, Request
from kernelpro.models.ledger import Ledger, Spent
from kernelpro.models.prompt import TooLong
from kernelpro.models.providers import Provider, retries
from kernelpro.models.providers.failures import ProviderError
from kernelpro.models.settings import ROLES, ModelSettings
from kernelpro.models.tape import Talk, Tape
from kernelpro.models.turns import NO_CANDIDATE, Made, Run
from kernelpro.records import Problem, Proposal


class NotRecorded(ModelError):
    """A replayed tape has no answer here."""


class Team:
    """The models of a search and all that they share; safe to use from several threads.

    Attributes:
        ended: why no model is asked any more, or empty.
        notes: sentences about proposals that could not be made.
        ledger: what was used.
    """

    def __init__(
        self,
        models: Mapping[str, str],
        providers: Mapping[str, Provider],
        settings: ModelSettings,
        ledger: Ledger,
        tape: Tape | None = None,
        library: Library | None = None,
    ) -> None:
        """Put a team together.

        Args:
            models: name of each role's model.
            providers: how to ask it, by that name; empty for a replay.
            settings: limits and pauses.
            ledger: the budgets.
            tape: what is replayed; a search that asks models is given its own by `keep_on`.
            library: a tree of sources that roles may look things up in.
        """
        self.ended = ""
        self.notes: list[str] = []
        self.ledger = ledger
        self._models = models
        self._providers = providers
        self._settings = settings
        self._tape = tape
        self._library = library
        self._busy: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    @property
    def replaying(self) -> bool:
        """Whether answers come from a tape alone."""
        return not self._providers

    def keep_on(self, tape: Tape) -> None:
        """Use this tape from now on, and count what is on it."""
        self._tape = tape
        for exchange in tape.exchanges:
            self.ledger.charge(exchange.role, exchange.model, exchange.answer.usage, answered=True)
        for role, model, usage in tape.failed:
            self.ledger.charge(role, model, usage, answered=False)

    def close(self) -> None:
        """Release the tape and the connections."""
        for provider in self._providers.values():
            provider.close()
        if self._tape is not None:
            self._tape.close()
        if self._library is not None:
            self._library.close()

    def propose(self, proposal: Proposal) -> Made | None:
        """Make the next candidate; None when none can be made from this parent, or at all."""
        assert self._tape is not None
        if proposal.parent.source.startswith(NO_CANDIDATE):
            return None
        talk = self._tape.talk(
            proposal.seed, proposal.parent.id, proposal.tried, replaying=self.replaying
        )
        if self.ended and not talk.exchanges:
            return None
        direction = self._direction(proposal)
        try:
            made = Run(self, talk, proposal, direction).make()
        except NotRecorded as error:
            self._note(str(error))
            return None
        except TooLong as error:
            self._note(str(error))
            return None
        except (Spent, ProviderError) as error:
            self.ended = str(error)
            return None
        finally:
            with self._lock:
                self._busy[proposal.parent.id].remove(direction)
        if not self.replaying:
            self._tape.record_made(talk, made.candidate.id)
        return made

    def model(self, role: str) -> str:
        """Name of a role's model."""
        return self._models.get(role, "tape")

    def answer(self, talk: Talk, turn: int, request: Request) -> Answer:
        """The answer to a request: from the tape if it is there, else from the model.

        Raises:
            Spent: a budget is used up.
            ProviderError: the model cannot be asked.
            NotRecorded: the tape that is replayed ends here.
        """
        assert self._tape is not None
        if turn < len(talk.exchanges) and talk.exchanges[turn].role == request.role:
            return talk.exchanges[turn].answer
        if self.replaying:
            raise NotRecorded(
                f"tape {self._tape.path} has no answer of role {request.role} for a proposal from "
                f"candidate {talk.parent}; nothing is made from it"
            )
        del talk.exchanges[turn:]  # of another role: the talk goes on anew from here
        tape, model = self._tape, self.model(request.role)

        def failed(error: ProviderError) -> None:
            self.ledger.charge(request.role, model, error.usage, answered=False)
            tape.record_failure(request.role, model, error.usage, str(error))
            if word := self.ledger.spent():
                raise Spent(word)

        with self.ledger.admitted(model, request):
            answer = retries.ask(self._providers[model], request, self._settings, failed)
            tape.record(talk, request, model, answer)
            self.ledger.charge(request.role, model, answer.usage, answered=True)
        return answer

    def library_for(self, problem: Problem) -> Library | None:
        """The tree to look things up in; CUTLASS is of no use to a problem on a CPU."""
        library = self._library
        if library is None or not self._settings.tool_rounds:
            return None
        return library if problem.target == "cuda" or library.settings.root else None

    def form(self, talk: Talk, proposal: Proposal) -> str:
        """Which template a proposal begins with; a recorded talk goes on as it began."""
        if talk.exchanges:
            first = talk.exchanges[0].role
            return "single" if first == "code" else first
        return prompt.first_role(proposal, self._settings.workflow)

    @property
    def settings(self) -> ModelSettings:
        """Limits and pauses."""
        return self._settings

    def _direction(self, proposal: Proposal) -> str:
        """The first direction that no other call from the same parent is on right now."""
        ways = parts.directions(proposal) or [""]
        with self._lock:
            busy = self._busy.setdefault(proposal.parent.id, [])
            way = next((w for w in ways if w not in busy), ways[0])
            busy.append(way)
        return way

    def _note(self, sentence: str) -> None:
        with self._lock:
            if sentence not in self.notes:
                self.notes.append(sentence)


def models_of(default: str, settings: ModelSettings) -> dict[str, str]:
    """Name of each role's model."""
    return {role: settings.model(role, default) for role in ROLES}
