"""OpenAI's chat completions through the package openai, always streamed.

vLLM, Ollama, llama.cpp and others speak the same protocol; `[models] openai_url` names them. A
server may ignore the forced tool call or leave the usage out; both are handled.
"""

import json
import os
from typing import TYPE_CHECKING, Any

from kernelpro.errors import ModelError
from kernelpro.models import keys
from kernelpro.models.exchange import Answer, Message, Request, Usage, estimate_tokens
from kernelpro.models.providers.failures import (
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
    from openai.types.chat import ChatCompletionChunk

URL = "https://api.openai.com/v1"


class OpenAIChat:
    """One model behind OpenAI's protocol."""

    def __init__(self, name: str, model: str, settings: ModelSettings) -> None:
        """Make the client; see `connect`."""
        try:
            import openai
        except ImportError:
            raise ModelError(
                f"{name} needs the package openai; run `pip install 'kernelpro[openai]'`"
            ) from None
        key, _ = keys.find("openai")
        url = settings.openai_url or os.environ.get("OPENAI_BASE_URL") or URL
        if not key and url == URL:
            raise ModelError(
                f"{name} needs a key, but OPENAI_API_KEY is not set; set it, keep it in the "
                "system's keyring as kernelpro/OPENAI_API_KEY, or name a server of your own by "
                "[models] openai_url"
            )
        self.name = name
        self.priced = url == URL
        self._model = model
        self._own_server = url != URL
        self._temperature = True
        self._client = openai.OpenAI(
            api_key=key or "none",
            base_url=url,
            max_retries=0,  # `retries` does it, for cut streams too
            http_client=client(settings, url),
        )

    def ask(self, request: Request, /) -> Answer:
        """Ask once; again without a temperature where the model takes none.

        Raises:
            ProviderError: no whole answer came.
        """
        import openai

        if self._temperature and request.temperature is not None:
            try:
                return self._ask(request, {"temperature": request.temperature})
            except ProviderError as error:
                cause = error.__cause__
                if not (isinstance(cause, openai.BadRequestError) and "temperature" in str(cause)):
                    raise
                self._temperature = False
        return self._ask(request, {})

    def _ask(self, request: Request, more: dict[str, Any]) -> Answer:
        import httpx2
        import openai

        heard = _Heard()
        arguments = {**self._arguments(request), **more}
        try:
            with self._client.chat.completions.create(stream=True, **arguments) as stream:
                for chunk in stream:
                    heard.take(chunk)
        except Overrun as error:
            return heard.cut_off(request, str(error))
        except openai.APIStatusError as error:
            raise of_status(
                self.name, error.status_code, str(error.message), error.response.headers
            ) from error
        except (openai.APIError, httpx2.HTTPError) as error:
            raise unreached(self.name, error, heard.lost(request)) from error
        except (ValueError, AttributeError, TypeError) as error:  # chunks are not validated
            raise garbled(self.name, error, heard.lost(request)) from error
        if not heard.ended:
            raise cut_off(self.name, heard.lost(request))
        return heard.answer(request)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _arguments(self, request: Request) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "\n\n".join(request.shared)}
        ]
        messages += map(_message, request.messages)
        limit = "max_tokens" if self._own_server else "max_completion_tokens"
        return {
            "model": self._model,
            "messages": messages,
            limit: request.max_tokens,
            "stream_options": {"include_usage": True},
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": dict(tool.schema),
                    },
                }
                for tool in request.tools
            ],
            "tool_choice": (
                "required"
                if request.free
                else {"type": "function", "function": {"name": request.tool}}
            ),
            **({"parallel_tool_calls": False} if request.free else {}),
        }


def _message(message: Message) -> dict[str, Any]:
    """A message as the protocol has it."""
    text = "\n\n".join(message.parts)
    if message.result_of:
        return {"role": "tool", "tool_call_id": message.result_of, "content": text}
    if (call := message.call) is None:
        return {"role": message.role, "content": text}
    function = {"name": call.tool, "arguments": json.dumps(dict(call.arguments))}
    made = {"id": call.id, "type": "function", "function": function}
    return {"role": message.role, "content": text or None, "tool_calls": [made]}


class _Heard:
    """What a stream has said so far."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._form: list[str] = []
        self._tool = ""
        self._call = ""
        self._refusal = False
        self._stop = ""
        self._model = ""
        self._usage: Usage | None = None

    @property
    def ended(self) -> bool:
        return bool(self._stop)

    def take(self, chunk: "ChatCompletionChunk") -> None:
        self._model = chunk.model or self._model
        if chunk.usage is not None:
            details = chunk.usage.prompt_tokens_details
            cached = (details.cached_tokens or 0) if details is not None else 0
            self._usage = Usage(
                input_tokens=max(0, chunk.usage.prompt_tokens - cached),
                output_tokens=chunk.usage.completion_tokens,
                cache_read_tokens=cached,
            )
        for choice in (chunk.choices or ())[:1]:
            if choice.delta.content:
                self._text.append(choice.delta.content)
            if choice.delta.refusal:
                self._refusal = True
                self._text.append(choice.delta.refusal)
            for call in choice.delta.tool_calls or ():
                if call.index in (0, None) and call.function:
                    self._tool = self._tool or call.function.name or ""
                    self._call = self._call or call.id or ""
                    self._form.append(call.function.arguments or "")
            self._stop = choice.finish_reason or self._stop

    def answer(self, request: Request) -> Answer:
        arguments, text = read_form("".join(self._form), "".join(self._text), request.tool)
        stop = {"length": "length", "content_filter": "refusal"}.get(self._stop, "done")
        return Answer(
            stop="refusal" if self._refusal else stop,
            arguments=arguments,
            text=text,
            usage=self._usage or self.lost(request),
            model=keys.redact(self._model),
            tool=keys.redact(self._tool),
            call=keys.redact(self._call),
        )

    def cut_off(self, request: Request, why: str) -> Answer:
        return Answer(stop="overrun", text=why, usage=self.lost(request))

    def lost(self, request: Request) -> Usage:
        """An estimate: this protocol reports only at the end."""
        written = estimate_tokens("".join(self._text) + "".join(self._form))
        begun = bool(self._model or written)
        return self._usage or Usage(
            input_tokens=request.estimated_tokens if begun else 0,
            output_tokens=written,
            estimated=True,
        )
