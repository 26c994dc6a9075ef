"""Anthropic's Messages API through the package anthropic, always streamed.

Read from the package (2.14): no temperature; `usage` has four classes of tokens; a form is filled
in by a forced tool call, whose arguments come in pieces of JSON.
"""

import os
import threading
from typing import TYPE_CHECKING, Any

from kernelpro.errors import ModelError
from kernelpro.models import keys
from kernelpro.models.exchange import Answer, Request, Usage, estimate_tokens
from kernelpro.models.providers.failures import (
    BUSY,
    ProviderError,
    cut_off,
    garbled,
    of_status,
    unreached,
)
from kernelpro.models.providers.forms import read_form
from kernelpro.models.providers.wire import Overrun, client
from kernelpro.models.settings import ModelSettings

if TYPE_CHECKING:
    from anthropic.types import RawMessageStreamEvent

URL = "https://api.anthropic.com"

CACHED_PARTS = 2
"""Blocks of a message that are marked for the cache; with the two shared ones the protocol's
limit of four marks holds."""


class AnthropicMessages:
    """One model of Anthropic's."""

    def __init__(self, name: str, model: str, settings: ModelSettings) -> None:
        """Make the client; see `connect`."""
        try:
            import anthropic
        except ImportError:
            raise ModelError(
                f"{name} needs the package anthropic; run `pip install 'kernelpro[anthropic]'`"
            ) from None
        key, _ = keys.find("anthropic")
        if not key:
            raise ModelError(
                f"{name} needs a key, but ANTHROPIC_API_KEY is not set; set it, or keep it in the "
                "system's keyring as kernelpro/ANTHROPIC_API_KEY"
            )
        url = settings.anthropic_url or os.environ.get("ANTHROPIC_BASE_URL") or URL
        self.name = name
        self.priced = url == URL
        self._model = model
        self._ttl = settings.cache_ttl
        self._client = anthropic.Anthropic(
            api_key=key,
            base_url=url,
            max_retries=0,  # `retries` does it, for cut streams too
            http_client=client(settings, url),
        )
        self._warm: dict[tuple[str, ...], threading.Event] = {}
        self._lock = threading.Lock()

    def ask(self, request: Request, /) -> Answer:
        """Ask once; of several first calls with one prefix the others wait for the first to begin.

        A prefix can be read from the cache only after one call with it has begun to answer.

        Raises:
            ProviderError: no whole answer came.
        """
        with self._lock:
            first = request.shared not in self._warm
            begun = self._warm.setdefault(request.shared, threading.Event())
        if not first:
            begun.wait()
        try:
            return self._ask(request, begun)
        finally:
            begun.set()

    def _ask(self, request: Request, begun: threading.Event) -> Answer:
        import anthropic
        import httpx2

        heard = _Heard()
        try:
            with self._client.messages.create(stream=True, **self._arguments(request)) as stream:
                for event in stream:
                    begun.set()
                    heard.take(event)
        except Overrun as error:
            return heard.cut_off(request, str(error))
        except anthropic.APIStatusError as error:
            kind = _kind(error.body)
            if error.status_code < 400:  # an error event in the middle of a stream
                raise ProviderError(
                    f"{self.name} broke off with {kind or error}",
                    again=kind in BUSY,
                    usage=heard.lost(request),
                ) from error
            raise of_status(
                self.name, error.status_code, str(error.message), error.response.headers
            ) from error
        except (anthropic.APIError, httpx2.HTTPError) as error:
            raise unreached(self.name, error, heard.lost(request)) from error
        except ValueError as error:
            raise garbled(self.name, error, heard.lost(request)) from error
        if not heard.ended:
            raise cut_off(self.name, heard.lost(request))
        return heard.answer(request)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _arguments(self, request: Request) -> dict[str, Any]:
        mark = {"type": "ephemeral", "ttl": self._ttl}
        messages = []
        for number, message in enumerate(request.messages):
            blocks: list[dict[str, Any]] = [{"type": "text", "text": p} for p in message.parts]
            if message.result_of:
                about = {"type": "tool_result", "tool_use_id": message.result_of}
                blocks = [{**about, "content": blocks}]
            if (call := message.call) is not None:
                inputs = {"id": call.id, "name": call.tool, "input": dict(call.arguments)}
                blocks.append({"type": "tool_use", **inputs})
            if number == 0:
                for block in blocks[:-1][:CACHED_PARTS]:
                    block["cache_control"] = mark
            messages.append({"role": message.role, "content": blocks})
        shared = [{"type": "text", "text": t, "cache_control": mark} for t in request.shared]
        return {
            "model": self._model,
            "max_tokens": request.max_tokens,
            "system": shared,
            "messages": messages,
            "tools": [
                {"name": t.name, "description": t.description, "input_schema": dict(t.schema)}
                for t in request.tools
            ],
            "tool_choice": (
                {"type": "any", "disable_parallel_tool_use": True}
                if request.free
                else {"type": "tool", "name": request.tool}
            ),
        }


class _Heard:
    """What a stream has said so far."""

    def __init__(self) -> None:
        self.ended = False
        self._text: list[str] = []
        self._form: list[str] = []
        self._call: tuple[int, str, str] | None = None  # the first: its block, name and id
        self._stop = ""
        self._model = ""
        self._usage: dict[str, int] = {}

    def take(self, event: "RawMessageStreamEvent") -> None:
        if event.type == "message_start":
            self._model = event.message.model or ""
            self._count(event.message.usage)
        elif event.type == "content_block_start":
            if event.content_block.type == "tool_use" and self._call is None:
                self._call = (event.index, event.content_block.name, event.content_block.id)
        elif event.type == "content_block_delta":
            if event.delta.type == "text_delta":
                self._text.append(event.delta.text)
            elif event.delta.type == "input_json_delta" and (
                self._call is None or self._call[0] == event.index
            ):
                self._form.append(event.delta.partial_json)
        elif event.type == "message_delta":
            self._stop = event.delta.stop_reason or self._stop
            self._count(event.usage)
        elif event.type == "message_stop":
            self.ended = True

    def answer(self, request: Request) -> Answer:
        arguments, text = read_form("".join(self._form), "".join(self._text), request.tool)
        stop = {"refusal": "refusal", "max_tokens": "length"}.get(self._stop, "done")
        usage = self._reported()
        _, tool, call = self._call or (0, "", "")
        return Answer(
            stop=stop,
            arguments=arguments,
            text=text,
            usage=usage,
            model=keys.redact(self._model),
            tool=keys.redact(tool),
            call=keys.redact(call),
        )

    def cut_off(self, request: Request, why: str) -> Answer:
        return Answer(stop="overrun", text=why, usage=self.lost(request))

    def lost(self, request: Request) -> Usage:
        """What a call without an end used: what was reported, and an estimate of the rest."""
        if not self._usage:
            return Usage(estimated=True)  # the server had not begun
        reported = self._reported()
        written = estimate_tokens("".join(self._text) + "".join(self._form))
        return Usage(
            input_tokens=reported.input_tokens,
            output_tokens=max(reported.output_tokens, written),
            cache_write_tokens=reported.cache_write_tokens,
            cache_read_tokens=reported.cache_read_tokens,
            estimated=True,
        )

    def _count(self, usage: Any) -> None:
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
        ):
            value = getattr(usage, name, None)
            if isinstance(value, int) and value >= 0:
                self._usage[name] = value

    def _reported(self) -> Usage:
        return Usage(
            input_tokens=self._usage.get("input_tokens", 0),
            output_tokens=self._usage.get("output_tokens", 0),
            cache_write_tokens=self._usage.get("cache_creation_input_tokens", 0),
            cache_read_tokens=self._usage.get("cache_read_input_tokens", 0),
            estimated="output_tokens" not in self._usage,
        )


def _kind(body: object) -> str:
    """Name of the kind of an error event."""
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("type", ""))[:60] if isinstance(error, dict) else ""
