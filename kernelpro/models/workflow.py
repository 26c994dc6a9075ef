"""How a candidate comes about: plan, then code; debug for a failed parent; or one call for all.

An answer that is not as agreed is sent back once, with what is wrong with it. If the second one is
not either, the proposal is a failure: a candidate that is refused with that reason, so that the
tree, the memory file and later prompts know of it.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelpro.errors import ModelError
from kernelpro.models import anchors, keys, parts, prompt, sources
from kernelpro.models.exchange import Answer, Message, Request
from kernelpro.models.ledger import Ledger, Spent
from kernelpro.models.prompt import Prompt, TooLong
from kernelpro.models.providers import Provider, retries
from kernelpro.models.providers.failures import ProviderError
from kernelpro.models.settings import ROLES, ModelSettings
from kernelpro.models.tape import Talk, Tape
from kernelpro.records import Candidate, Proposal

NO_CANDIDATE = "# No candidate:"
"""How the source of a failure begins that left no code."""

REPEATED_CHARACTERS = 60_000
"""So much of an answer is repeated to the model when it is sent back. Own choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A candidate, and why it is refused before it is built, or empty."""

    candidate: Candidate
    refused: str = ""


class NotRecorded(ModelError):
    """A replayed tape has no answer here."""


class Fault(Exception):
    """An answer is not as agreed; the message is for the model."""


class Failure(Exception):
    """A talk came to nothing.

    Attributes:
        source: what the model wrote last, or empty.
    """

    def __init__(self, reason: str, source: str = "") -> None:
        super().__init__(reason)
        self.source = source


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
    ) -> None:
        """Put a team together.

        Args:
            models: name of each role's model.
            providers: how to ask it, by that name; empty for a replay.
            settings: limits and pauses.
            ledger: the budgets.
            tape: what is replayed; a search that asks models is given its own by `keep_on`.
        """
        self.ended = ""
        self.notes: list[str] = []
        self.ledger = ledger
        self._models = models
        self._providers = providers
        self._settings = settings
        self._tape = tape
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
        """Release the tape."""
        if self._tape is not None:
            self._tape.close()

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
            made = _Run(self, talk, proposal, direction).make()
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


class _Run:
    """One proposal: its talk, turn by turn."""

    def __init__(self, team: Team, talk: Talk, proposal: Proposal, direction: str) -> None:
        self.team, self.talk, self.proposal, self.direction = team, talk, proposal, direction
        self.turn = 0

    def make(self) -> Made:
        form = self.team.form(self.talk, self.proposal)
        try:
            if form == "plan":
                return self._planned()
            fields = self._ask(self._prompt(form), lambda fields: {"source": _text(fields)})
            said = _said(fields, "cause" if form == "debug" else "note", 600)
            rationale = f"repair: {said}" if form == "debug" else said or self.direction
            role = "debug" if form == "debug" else "code"
            inspired = "" if form == "debug" else self._finding_in(self.direction)
            return Made(candidate=self._candidate(fields["source"], rationale, role, inspired))
        except Failure as failure:
            return self._failed(str(failure), failure.source)

    def _planned(self) -> Made:
        whole = self.proposal.node == 0 or self.proposal.parent.author == "reference"
        parent = sources.folded(self.proposal.parent.source)

        def checked_plan(fields: Mapping[str, Any]) -> dict[str, Any]:
            names = fields.get("may_also_change") or []
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise Fault("may_also_change must be a list of names")
            return {"ground": anchors.read(parent, _text(fields), names), "names": names}

        try:
            plan = self._ask(self._prompt("plan"), checked_plan)
        except Failure as failure:
            return self._failed(str(failure), "")  # what a plan writes is no candidate
        ground: anchors.Grounded = plan["ground"]
        advice = _said(plan, "advice", 2000) or ground.advice
        title = _said(plan, "title", 120) or advice
        finding = _said(plan, "finding", 80)
        known = {d.detector for d in self.proposal.diagnoses}
        inspired = finding if finding in known else ""
        places = ", ".join(plan["names"]) or "nothing else"
        instruction = f"```\n{ground.text}```\nAdvice: {advice}\nMay also change: {places}."

        def checked_code(fields: Mapping[str, Any]) -> dict[str, Any]:
            source = _text(fields)
            return {"source": source if whole else anchors.check_edit(ground, source)}

        rationale = title if title == advice else f"{title}: {advice}"
        try:
            code = self._ask(self._prompt("code", instruction), checked_code)
        except Failure as failure:
            return self._failed(f"{title}: {failure}", failure.source, inspired)
        return Made(candidate=self._candidate(code["source"], rationale, "code", inspired))

    def _prompt(self, form: str, instruction: str = "") -> Prompt:
        return prompt.build(
            form,
            self.proposal,
            self.team.settings,
            direction=self.direction,
            instruction=instruction,
        )

    def _ask(
        self, asked: Prompt, check: Callable[[Mapping[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """The form's fields with what the check makes of them; sent back once.

        Raises:
            Failure: neither answer is as agreed, or there will be none.
        """
        more: tuple[Message, ...] = ()
        source = ""
        for attempt in range(2):
            answer = self.team.answer(self.talk, self.turn, asked.request(self.team.settings, more))
            self.turn += 1
            if answer.stop == "refusal":
                raise Failure(f"the model refused: {answer.text[:300] or 'no reason given'}")
            if answer.stop == "overrun":
                raise Failure(f"the model was cut off, since {answer.text[:300]}")
            try:
                if answer.arguments is None:
                    raise Fault(_unreadable(answer))
                fields = dict(answer.arguments)
                if isinstance(fields.get("source"), str):
                    source = fields["source"]
                return {**fields, **check(fields)}
            except (Fault, anchors.AnchorError) as fault:
                reason = str(fault)
            if attempt == 0:
                more = (
                    Message(role="assistant", parts=(_repeated(answer),)),
                    Message(
                        role="user",
                        parts=(f"This cannot be used: {reason}. Answer once more, as agreed.",),
                    ),
                )
        raise Failure(reason, source)

    def _candidate(self, source: str, rationale: str, role: str, inspired: str = "") -> Candidate:
        text = sources.unfolded(_clean(source))
        return Candidate(
            source=text,
            language=_language(text),
            rationale=_clean(rationale),
            author=self._author(role),
            inspired_by=inspired,
        )

    def _author(self, role: str) -> str:
        recorded = [e.model for e in self.talk.exchanges if e.role == role]
        return recorded[-1] if recorded else self.team.model(role)

    def _failed(self, reason: str, source: str, inspired: str = "") -> Made:
        """A candidate that is refused; its source is its own, so that it repeats no other."""
        reason = _clean(keys.redact(reason))
        role = self.talk.exchanges[-1].role
        candidate = self._candidate(
            source or f"{NO_CANDIDATE} {reason.splitlines()[0]}\n# Step seed: {self.talk.seed}\n",
            f"{parts.FAILED_TALK}{reason}",
            role,
            inspired,
        )
        return Made(candidate=candidate, refused=reason)

    def _finding_in(self, direction: str) -> str:
        found = re.match(r"Act on finding (\w+):", direction)
        return found[1] if found else ""


def models_of(default: str, settings: ModelSettings) -> dict[str, str]:
    """Name of each role's model."""
    return {role: settings.model(role, default) for role in ROLES}


def _text(fields: Mapping[str, Any]) -> str:
    source = fields.get("source")
    if not isinstance(source, str) or not source.strip():
        raise Fault("the field `source` must hold the whole text of the file")
    return _clean(source)


def _said(fields: Mapping[str, Any], name: str, limit: int) -> str:
    value = fields.get(name)
    return _clean(" ".join(value.split()))[:limit] if isinstance(value, str) else ""


def _clean(text: str) -> str:
    """The text as a file can hold it."""
    return text.encode(errors="replace").decode().replace("\0", "?")


def _repeated(answer: Answer) -> str:
    text = json.dumps(dict(answer.arguments)) if answer.arguments is not None else answer.text
    return text[:REPEATED_CHARACTERS] or "(nothing)"


def _unreadable(answer: Answer) -> str:
    if answer.stop == "length":
        return "the answer was cut off at its token limit; be shorter"
    return "the answer fills in no form, or one that is no JSON object"


def _language(source: str) -> str:
    if "CPP_SOURCE" in source:
        return "cpp"
    if "CUDA_SOURCE" in source or "RawModule" in source or "load_inline" in source:
        return "cuda"
    return "triton" if re.search(r"^\s*import triton", source, re.MULTILINE) else "torch"
