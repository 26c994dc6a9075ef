import contextlib
import json
import socket
import threading

import pytest

from kernelpro.judge.channel import Channel, Failure, Garbage, Gone, Hung, Raised


@contextlib.contextmanager
def worker_that(answer):
    """A channel whose other end sends what answer makes of each request."""
    ours, theirs = socket.socketpair()

    def serve():
        with theirs, contextlib.suppress(OSError):
            while data := theirs.recv(1 << 16):
                reply = answer(data)
                if reply is None:
                    return
                theirs.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    channel = Channel(ours)
    try:
        yield channel
    finally:
        channel.close()
        thread.join(5)


def honest(extra):
    def answer(data):
        return json.dumps({"nonce": json.loads(data)["nonce"], **extra}).encode() + b"\n"

    return answer


def test_an_honest_reply_is_returned():
    with worker_that(honest({"a": 1})) as channel:
        assert channel.request("call", 5.0, set=0)["a"] == 1


@pytest.mark.parametrize(
    "reply",
    [
        b"\n",
        b"hello\n",
        b"[1, 2]\n",
        b"{}\n",
        b'{"nonce": "0123456789abcdef"}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
        b"9" * 5000 + b"\n",
    ],
)
def test_a_reply_that_is_none_is_garbage(reply):
    with worker_that(lambda data: reply) as channel, pytest.raises(Garbage):
        channel.request("call", 5.0)


def test_a_reply_that_does_not_end_is_cut_off():
    with (
        worker_that(lambda data: b"x" * (1 << 20)) as channel,
        pytest.raises(Garbage, match="more"),
    ):
        channel.request("call", 5.0, limit=1 << 16)


def test_a_malformed_error_is_garbage_and_a_proper_one_is_told():
    with worker_that(honest({"error": 7})) as channel, pytest.raises(Garbage):
        channel.request("call", 5.0)
    proper = {"types": ["ValueError", "Exception"], "text": "no", "trace": "line 1"}
    with worker_that(honest({"error": proper})) as channel:
        with pytest.raises(Raised) as caught:
            channel.request("call", 5.0)
        assert caught.value.types[0] == "ValueError"


def test_silence_is_a_hang_and_a_closed_channel_is_an_end():
    with worker_that(lambda data: b"") as channel, pytest.raises(Hung):
        channel.request("call", 0.05)
    with worker_that(lambda data: None) as channel, pytest.raises(Gone):
        channel.request("call", 5.0)


def test_a_timed_call_counts_only_with_the_right_byte():
    with worker_that(lambda data: b"d") as channel:
        assert channel.timed(b"g", 5.0) > 0
    with worker_that(lambda data: b"?") as channel, pytest.raises(Garbage):
        channel.timed(b"g", 5.0)
    with worker_that(lambda data: b"") as channel, pytest.raises(Hung):
        channel.timed(b"g", 0.05)
    with worker_that(lambda data: None) as channel, pytest.raises(Failure):
        channel.timed(b"g", 5.0)
