"""What passes between a role and a model: a request, an answer, and what it used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CHARACTERS_PER_TOKEN = 3.5
"""Bytes of UTF-8 that make a token in the estimates of prompts. Own choice: prose has about 4,
source code about 3; what a provider reports is used wherever there is a report."""


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has; an estimate, and always shown as one."""
    return -int(-len(text.encode(errors="replace")) // CHARACTERS_PER_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, in the four classes that are priced apart.

    Attributes:
        input_tokens: read at the full price.
        output_tokens: written.
        cache_write_tokens: read and put into the provider's cache.
        cache_read_tokens: read from that cache.
        estimated: whether the provider did not report all of them.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        """All tokens, in and out."""
        return self.read + self.output_tokens

    @property
    def read(self) -> int:
        """All tokens of the prompt."""
        return self.input_tokens + self.cache_write_tokens + self.cache_read_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A form that an answer is written into.

    Attributes:
        name: lower case with underscores.
        description: what the form is for.
        schema: JSON schema of its fields.
    """

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A model's call of a tool.

    Attributes:
        id: the provider's name of it.
        tool: name of the tool.
        arguments: its fields.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of the talk; of its parts all but the last are the same for siblings.

    Attributes:
        role: `user` or `assistant`.
        parts: its texts.
        call: the look-up that the assistant makes in it, or None.
        result_of: id of the look-up whose result the parts are, or empty.
    """

    role: str
    parts: tuple[str, ...]
    call: Call | None = None
    result_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a role asks of a model.

    Attributes:
        role: `plan`, `code` or `debug`.
        shared: blocks that are the same in all prompts of a search; a provider may cache them.
        messages: the talk so far; the last one is the user's.
        tools: all forms, the same in all prompts.
        tool: name of the one to fill in.
        free: whether another one may be called before it, to look something up.
        max_tokens: longest answer.
        temperature: None where it is not to be sent.
    """

    role: str
    shared: tuple[str, ...]
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    tool: str
    max_tokens: int
    free: bool = False
    temperature: float | None = None

    @property
    def estimated_tokens(self) -> int:
        """About how many tokens the prompt has."""
        texts = [*self.shared, *(part for message in self.messages for part in message.parts)]
        return sum(map(estimate_tokens, texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model said.

    Attributes:
        stop: why it ended: `done`, `length` (token limit), `refusal`, or `overrun` (it was longer
            or slower than is allowed, and was cut off here).
        arguments: fields of the form; None when it filled in none that can be read.
        text: what it said beside the form, or the form's unreadable text.
        usage: tokens.
        model: the model that answered, as the provider names it.
        tool: name of the tool that it called; empty where the protocol did not say.
        call: the provider's name of that call, or empty.
    """

    stop: str
    arguments: Mapping[str, Any] | None = None
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    tool: str = ""
    call: str = ""
