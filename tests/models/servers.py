"""Real HTTP servers on loopback that speak the two protocols, well and badly, as scripted."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Say:
    """A streamed answer.

    Attributes:
        arguments: fields of the form; None for an answer in text.
        form: the form's JSON as it is written, in place of arguments.
        text: text beside it.
        stop: the protocol's own reason to stop.
        read: tokens read that were not cached.
        written: tokens written.
        cached: tokens read from the cache.
        wait_s: pause before the first byte.
        cut: whether the connection is closed in the middle.
        usage: whether usage is reported.
        tool: which tool it calls; empty for the one that is asked for.
    """

    arguments: dict[str, Any] | None = None
    form: str | None = None
    text: str = ""
    stop: str = ""
    read: int = 100
    written: int = 50
    cached: int = 0
    wait_s: float = 0.0
    cut: bool = False
    usage: bool = True
    tool: str = ""

    @property
    def json(self) -> str:
        return self.form if self.form is not None else json.dumps(self.arguments)

    @property
    def fills_form(self) -> bool:
        return self.form is not None or self.arguments is not None


@dataclass(frozen=True, kw_only=True)
class Status:
    """An error answer."""

    code: int
    kind: str = "error"
    message: str = "no"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A stream with an error event in it (`kind`), or with something that is no JSON."""

    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Endless:
    """A stream that never ends: pieces of text, or single bytes of one event, at a pace."""

    piece: str = "a" * 1000
    every_s: float = 0.0
    bytewise: bool = False


Reply = Say | Status | Broken | Endless
Script = Callable[[dict[str, Any], int], Reply]


class Server:
    """One scripted server; use as a context manager.

    Attributes:
        bodies: JSON of each request, oldest first.
        headers: their headers.
    """

    def __init__(self, protocol: str, script: Script) -> None:
        self.protocol, self.script = protocol, script
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._lock = threading.Lock()
        self._open = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer._lock:
                    number = len(outer.bodies)
                    outer.bodies.append(body)
                    outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                reply = outer.script(body, number)
                self.close_connection = True
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    outer.send(self, reply, body)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self._thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        address = f"http://127.0.0.1:{self.http.server_address[1]}"
        return address if self.protocol == "anthropic" else f"{address}/v1"

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._open = False
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()

    def send(self, handler: BaseHTTPRequestHandler, reply: Reply, body: dict[str, Any]) -> None:
        if isinstance(reply, Status):
            error = {"type": reply.kind, "message": reply.message}
            text = json.dumps({"type": "error", "error": error}).encode()
            handler.send_response(reply.code)
            handler.send_header("content-type", "application/json")
            handler.send_header("content-length", str(len(text)))
            for name, value in reply.headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(text)
            return
        if isinstance(reply, Say):
            time.sleep(reply.wait_s)
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        speak = _anthropic if self.protocol == "anthropic" else _openai
        tool = body["tool_choice"]
        if isinstance(reply, Say) and reply.tool:
            name = reply.tool
        elif self.protocol == "anthropic":
            name = tool["name"]
        else:
            name = tool["function"]["name"]
        for event in speak(reply, name):
            if not self._open:
                return
            handler.wfile.write(event)
            handler.wfile.flush()
            if isinstance(reply, Endless):
                time.sleep(reply.every_s)


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _pieces(text: str) -> list[str]:
    size = max(1, -(-len(text) // 3))
    return [text[n : n + size] for n in range(0, len(text), size)]


def _anthropic(reply: Reply, tool: str) -> Iterator[bytes]:
    said = reply if isinstance(reply, Say) else Say()
    start_usage: dict[str, Any] = {
        "input_tokens": said.read,
        "output_tokens": 1,
        "cache_read_input_tokens": said.cached,
        "cache_creation_input_tokens": 0,
    }
    message: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": start_usage,
    }
    yield _event("message_start", message=message)
    yield _event("ping")
    block: dict[str, Any] = {"type": "text", "text": ""}
    yield _event("content_block_start", index=0, content_block=block)

    def text(piece: str) -> bytes:
        delta = {"type": "text_delta", "text": piece}
        return _event("content_block_delta", index=0, delta=delta)

    if isinstance(reply, Broken):
        if reply.kind:
            yield _event("error", error={"type": reply.kind, "message": "busy"})
        else:
            yield b"event: content_block_delta\ndata: {not json\n\n"
        return
    if isinstance(reply, Endless):
        while True:
            event = text(reply.piece)
            if reply.bytewise:
                yield from (event[n : n + 1] for n in range(len(event) - 2))
            else:
                yield event
        return
    yield from map(text, _pieces(said.text))
    yield _event("content_block_stop", index=0)
    if said.fills_form:
        block = {"type": "tool_use", "id": "t", "name": tool, "input": {}}
        yield _event("content_block_start", index=1, content_block=block)
        for number, piece in enumerate(_pieces(said.json)):
            if said.cut and number == 1:
                return
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield _event("content_block_delta", index=1, delta=delta)
        yield _event("content_block_stop", index=1)
    stop = said.stop or ("tool_use" if said.fills_form else "end_turn")
    end = {"stop_reason": stop, "stop_sequence": None}
    yield _event("message_delta", delta=end, usage={"output_tokens": said.written})
    yield _event("message_stop")


def _openai(reply: Reply, tool: str) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any], stop: str | None = None, **more: Any) -> bytes:
        value = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "scripted",
            "choices": [{"index": 0, "delta": delta, "finish_reason": stop}],
            **more,
        }
        return f"data: {json.dumps(value)}\n\n".encode()

    yield chunk({"role": "assistant", "content": ""})
    if isinstance(reply, Broken):
        yield (
            b'data: {"error": {"message": "busy", "type": "server_error"}}\n\n'
            if reply.kind
            else b"data: {not json\n\n"
        )
        return
    if isinstance(reply, Endless):
        while True:
            event = chunk({"content": reply.piece})
            if reply.bytewise:
                yield from (event[n : n + 1] for n in range(len(event) - 2))
            else:
                yield event
        return
    said = reply if isinstance(reply, Say) else Say()
    key = "refusal" if said.stop == "refusal" else "content"
    for piece in _pieces(said.text):
        yield chunk({key: piece})
    if said.fills_form:
        for number, piece in enumerate(_pieces(said.json)):
            if said.cut and number == 1:
                return
            call: dict[str, Any] = {"index": 0, "function": {"arguments": piece}}
            if not number:
                call |= {"id": "t", "type": "function"}
                call["function"]["name"] = tool
            yield chunk({"tool_calls": [call]})
    stop = {"refusal": "stop"}.get(said.stop, said.stop)
    yield chunk({}, stop or ("tool_calls" if said.fills_form else "stop"))
    if said.usage:
        usage = {
            "prompt_tokens": said.read + said.cached,
            "completion_tokens": said.written,
            "total_tokens": said.read + said.cached + said.written,
            "prompt_tokens_details": {"cached_tokens": said.cached},
        }
        yield chunk({}, choices=[], usage=usage)
    yield b"data: [DONE]\n\n"
