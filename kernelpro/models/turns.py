"""One proposal, turn by turn: plan, then code; debug for a failed parent; or one call for all.

An answer that is not as agreed is sent back once, with what is wrong with it. If the second one is
not either, the proposal is a failure: a candidate that is refused with that reason, so that the
tree, the memory file and later prompts know of it.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelpro.models import anchors, keys, lookups, parts, prompt, sources
from kernelpro.models.exchange import Answer, Call, Message
from kernelpro.models.prompt import Prompt
from kernelpro.models.tape import Talk
from kernelpro.records import Candidate, Proposal

if TYPE_CHECKING:
    from kernelpro.models.workflow import Team

NO_CANDIDATE = "# No candidate:"
"""How the source of a failure begins that left no code."""

LOOKING = ("plan", "code")
"""Roles that may look things up; debug has its evidence."""

NO_PROFILE = "Nothing more is known of it."
"""What `read_profile` gives where the prompt has it all, or the parent was not profiled."""

REPEATED_CHARACTERS = 60_000
"""So much of an answer is repeated to the model when it is sent back. Own choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A candidate, and why it is refused before it is built, or empty."""

    candidate: Candidate
    refused: str = ""


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


class Run:
    """One proposal: its talk, turn by turn."""

    def __init__(self, team: "Team", talk: Talk, proposal: Proposal, direction: str) -> None:
        self.team, self.talk, self.proposal, self.direction = team, talk, proposal, direction
        self.turn = 0
        self.instruction = ""  # the plan's
        self.read: list[str] = []  # files that were looked up
        self.reactive = proposal.held_back is not None
        self.told = False  # the parent's profile, which later prompts of the talk then have

    def make(self) -> Made:
        """Go through the turns; raises what `Team.answer` does."""
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
        self.instruction = f"```\n{ground.text}```\nAdvice: {advice}\nMay also change: {places}."

        def checked_code(fields: Mapping[str, Any]) -> dict[str, Any]:
            source = _text(fields)
            return {"source": source if whole else anchors.check_edit(ground, source)}

        rationale = title if title == advice else f"{title}: {advice}"
        try:
            code = self._ask(self._prompt("code"), checked_code)
        except Failure as failure:
            return self._failed(f"{title}: {failure}", failure.source, inspired)
        return Made(candidate=self._candidate(code["source"], rationale, "code", inspired))

    def _prompt(self, form: str) -> Prompt:
        return prompt.build(
            form,
            self.proposal,
            self.team.settings,
            direction=self.direction,
            instruction=self.instruction,
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
            answer, more = self._answer(asked, more)
            if answer.stop == "refusal":
                raise Failure(f"the model refused: {answer.text[:300] or 'no reason given'}")
            if answer.stop == "overrun":
                raise Failure(f"the model was cut off, since {answer.text[:300]}")
            try:
                if answer.arguments is None:
                    raise Fault(_unreadable(answer))
                if answer.tool in lookups.NAMES:
                    raise Fault("no more can be looked up; fill in the form")
                fields = dict(answer.arguments)
                if isinstance(fields.get("source"), str):
                    source = fields["source"]
                return {**fields, **check(fields)}
            except (Fault, anchors.AnchorError) as fault:
                reason = str(fault)
            if attempt == 0:
                more = (
                    *more,
                    Message(role="assistant", parts=(_repeated(answer),)),
                    Message(
                        role="user",
                        parts=(f"This cannot be used: {reason}. Answer once more, as agreed.",),
                    ),
                )
        raise Failure(reason, source)

    def _answer(
        self, asked: Prompt, more: tuple[Message, ...]
    ) -> tuple[Answer, tuple[Message, ...]]:
        """The answer to a prompt, once the role has looked up what it wanted to; and the turns."""
        settings, tree = self.team.settings, self.team.library_for(self.proposal.problem)
        tools = (
            *(lookups.TOOLS if tree is not None else ()),
            *((lookups.PROFILE,) if self.reactive else ()),
        )
        rounds = settings.tool_rounds if tree is not None else 0
        rounds += self.reactive and not self.told
        made = sum(message.call is not None for message in more)
        while True:
            free = asked.role in LOOKING and made < rounds
            request = asked.request(settings, more, lookups=tools, free=free)
            answer = self.team.answer(self.talk, self.turn, request)
            self.turn += 1
            # A tape that is replayed has looked up what it has, whatever is at hand now.
            if not (
                answer.tool in lookups.NAMES
                and answer.arguments is not None
                and answer.stop == "done"
                and (free or self.team.replaying)
            ):
                return answer, more
            made += 1
            name = answer.call or f"call-{made}"
            call = Call(id=name, tool=answer.tool, arguments=answer.arguments)
            found = None
            if call.tool == lookups.PROFILE.name:
                found = self._profile(asked)  # in a replay too: what follows rests on it
            if (text := self._looked_up(name)) is None:
                text = found or lookups.run(tree, call, settings.lookup_characters)
            if path := lookups.read_by(call, text):
                self.read.append(_clean(path))
            more = (
                *more,
                Message(role="assistant", parts=(), call=call),
                Message(role="user", parts=(text,), result_of=name),
            )

    def _profile(self, shown: Prompt) -> str:
        """Ask for the parent's profile: what the prompt would have said of it besides."""
        self.proposal, self.told = self.proposal.ask(), True
        return prompt.beyond(self._prompt(shown.form), shown) or NO_PROFILE

    def _looked_up(self, name: str) -> str | None:
        """What a look-up gave when it was made, if the tape has it; None where it has not."""
        if self.turn < len(self.talk.exchanges):
            last = self.talk.exchanges[self.turn].messages[-1]
            if last.get("result_of") == name:
                return "\n".join(last["parts"])
        return None

    def _candidate(self, source: str, rationale: str, role: str, inspired: str = "") -> Candidate:
        text = sources.unfolded(_clean(source))
        return Candidate(
            source=text,
            language=_language(text),
            rationale=lookups.with_read(_clean(rationale), self.read),
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
