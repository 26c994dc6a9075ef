"""Both providers, through the real packages, against servers that behave badly."""

import contextlib
import threading
import time

import pytest

from kernelpro.errors import ModelError
from kernelpro.models import keys, providers
from kernelpro.models.exchange import Message, Request
from kernelpro.models.providers import retries
from kernelpro.models.providers.failures import ProviderError
from kernelpro.models.roles import TOOLS
from tests.models.conftest import KEY
from tests.models.servers import Broken, Endless, Say, Server, Status

pytest.importorskip("anthropic", reason="needs the package anthropic: pip install -e .[dev]")
pytest.importorskip("openai", reason="needs the package openai: pip install -e .[dev]")

REQUEST = Request(
    role="code",
    shared=("rules", "problem"),
    messages=(Message(role="user", parts=("the parent", "this child")),),
    tools=TOOLS,
    tool="write_kernel",
    max_tokens=1000,
    temperature=0.1,
)
GOOD = Say(arguments={"source": "x = 1\n"}, read=10, cached=90, written=7)
both = pytest.mark.parametrize("protocol", ["anthropic", "openai"])


def asked(server, settings):
    """Ask once with retries; the answer and the failures on the way."""
    failures: list[ProviderError] = []
    provider = providers.connect(f"{server.protocol}/some-model", settings)
    with contextlib.closing(provider):
        return retries.ask(provider, REQUEST, settings, failures.append), failures


def in_turn(*replies):
    return lambda body, number: replies[min(number, len(replies) - 1)]


@both
def test_a_form_is_read_with_its_usage(protocol, quick):
    with Server(protocol, in_turn(GOOD)) as server:
        answer, failures = asked(server, quick(server))
    assert answer.arguments == {"source": "x = 1\n"}
    assert (answer.stop, answer.model, failures) == ("done", "scripted", [])
    assert (answer.usage.input_tokens, answer.usage.cache_read_tokens) == (10, 90)
    assert (answer.usage.output_tokens, answer.usage.estimated) == (7, False)
    assert server.bodies[0]["stream"] is True


def test_the_shared_prefix_is_marked_for_the_cache_and_no_temperature_is_sent(quick):
    with Server("anthropic", in_turn(GOOD)) as server:
        asked(server, quick(server))
    body = server.bodies[0]
    assert [b["cache_control"]["type"] for b in body["system"]] == ["ephemeral"] * 2
    parent, child = body["messages"][0]["content"]
    assert "cache_control" in parent
    assert "cache_control" not in child
    assert "temperature" not in body
    assert body["tool_choice"] == {"type": "tool", "name": "write_kernel"}


def test_a_model_that_takes_no_temperature_is_asked_without(quick):
    def script(body, number):
        if "temperature" in body:
            return Status(code=400, message="temperature is not supported with this model")
        return GOOD

    with Server("openai", script) as server:
        answer, _ = asked(server, quick(server))
    assert answer.arguments
    assert ["temperature" in body for body in server.bodies] == [True, False]


@both
@pytest.mark.parametrize(
    "bad",
    [
        Status(code=429, headers={"retry-after": "0.05"}),
        Status(code=529, kind="overloaded_error"),
        Status(code=503),
        Say(arguments={"source": "x" * 300}, cut=True),
        Broken(kind="overloaded_error"),
        Broken(),
    ],
    ids=["429", "529", "503", "cut", "error event", "no JSON"],
)
def test_what_a_busy_or_broken_server_left_unanswered_is_asked_again(protocol, bad, quick):
    with Server(protocol, in_turn(bad, bad, GOOD)) as server:
        answer, failures = asked(server, quick(server))
    assert answer.arguments == {"source": "x = 1\n"}
    assert len(failures) == 2
    assert all(failure.again for failure in failures)


@both
def test_retry_after_is_waited_for(protocol, quick):
    bad = Status(code=429, headers={"retry-after": "0.15"})
    with Server(protocol, in_turn(bad, GOOD)) as server:
        began = time.monotonic()
        _, (failure,) = asked(server, quick(server))
    assert failure.wait_s == pytest.approx(0.15)
    assert time.monotonic() - began >= 0.15


@both
def test_a_server_that_asks_to_wait_too_long_ends_the_tries(protocol, quick):
    bad = Status(code=429, headers={"retry-after": "3600"})
    with Server(protocol, in_turn(bad)) as server, pytest.raises(ProviderError, match="3600 s"):
        asked(server, quick(server))
    assert len(server.bodies) == 1


@both
def test_tries_end(protocol, quick):
    with Server(protocol, in_turn(Status(code=500))) as server:
        with pytest.raises(ProviderError, match=r"status 500.*\(4 tries\)"):
            asked(server, quick(server))
        assert len(server.bodies) == 4


@both
def test_a_wrong_key_is_not_tried_again_and_never_repeated(protocol, quick):
    bad = Status(code=401, message=f"invalid key {KEY}")
    with Server(protocol, in_turn(bad)) as server:
        with pytest.raises(ProviderError, match="check the key") as caught:
            asked(server, quick(server))
        assert len(server.bodies) == 1
    assert KEY not in str(caught.value)
    assert keys.REDACTED in str(caught.value)


@both
def test_a_server_that_says_nothing_is_given_up(protocol, quick):
    with Server(protocol, in_turn(Say(wait_s=0.4))) as server:
        settings = quick(server, idle_s=0.05, retries=1)
        with pytest.raises(ProviderError, match=r"2 tries"):
            asked(server, settings)


@both
@pytest.mark.parametrize(
    ("reply", "limits", "why"),
    [
        (Endless(), {"answer_bytes": 50_000}, "longer than 50000 bytes"),
        (Endless(every_s=0.02, bytewise=True), {"answer_s": 0.2}, "longer than 0.2 s"),
    ],
    ids=["endless", "slow drip"],
)
def test_an_answer_is_neither_endless_nor_for_ever_slow(protocol, reply, limits, why, quick):
    with Server(protocol, in_turn(reply)) as server:
        answer, failures = asked(server, quick(server, **limits))
        assert len(server.bodies) == 1
    assert answer.stop == "overrun"
    assert why in answer.text
    assert answer.usage.estimated
    assert failures == []


@both
def test_refusals_and_unreadable_forms_are_answers(protocol, quick):
    replies = [Say(text="I will not.", stop="refusal"), Say(form='{"source": "x')]
    with Server(protocol, in_turn(*replies)) as server:
        refusal, _ = asked(server, quick(server))
        half, _ = asked(server, quick(server))
    assert (refusal.stop, refusal.arguments, refusal.text) == ("refusal", None, "I will not.")
    assert (half.stop, half.arguments) == ("done", None)


@both
def test_a_server_without_tool_calls_may_answer_in_text(protocol, quick):
    texts = ('{"source": "a"}', 'So:\n```json\n{"source": "b"}\n```', "So:\n```python\nc\n```\n")
    with Server(protocol, in_turn(*(Say(text=text, usage=False) for text in texts))) as server:
        found = [asked(server, quick(server))[0] for _ in texts]
    assert [a.arguments for a in found] == [{"source": "a"}, {"source": "b"}, {"source": "c\n"}]
    assert protocol == "anthropic" or all(answer.usage.estimated for answer in found)


@both
def test_a_key_that_a_server_repeats_is_removed(protocol, quick):
    with Server(protocol, in_turn(Say(arguments={"source": f"k = '{KEY}'"}))) as server:
        answer, _ = asked(server, quick(server))
    assert answer.arguments == {"source": f"k = '{keys.REDACTED}'"}


def test_siblings_wait_until_the_first_call_has_filled_the_cache(quick):
    running, most = 0, 0
    lock = threading.Lock()

    def script(body, number):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running if number < 2 else 0)
        if number == 0:
            time.sleep(0.1)
        with lock:
            running -= 1
        return GOOD

    with Server("anthropic", script) as server:
        provider = providers.connect("anthropic/some-model", quick(server))
        threads = [threading.Thread(target=provider.ask, args=(REQUEST,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        provider.close()
    assert len(server.bodies) == 4
    assert most == 1  # the second call came when the first had been answered


def test_the_environments_proxy_is_used(monkeypatch, quick):
    with Server("openai", in_turn(GOOD)) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
        settings = quick(openai_url="http://models.invalid/v1")
        with contextlib.closing(providers.connect("openai/x", settings)) as provider:
            answer = provider.ask(REQUEST)
    assert answer.arguments
    assert server.headers[0]["host"] == "models.invalid"


def test_keys_are_needed_where_they_are(monkeypatch, quick):
    for name in keys.VARIABLES.values():
        monkeypatch.delenv(name)
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY is not set"):
        providers.connect("anthropic/some-model", quick())
    with pytest.raises(ModelError, match="OPENAI_API_KEY is not set"):
        providers.connect("openai/some-model", quick())
    assert providers.connect("openai/local", quick(openai_url="http://127.0.0.1:9/v1"))


@pytest.mark.parametrize("name", ["some-model", "anthropic/", "google/x", "/x"])
def test_a_model_has_a_company_and_a_name(name, quick):
    with pytest.raises(ModelError, match="anthropic/NAME or openai/NAME"):
        providers.connect(name, quick())


def test_hidden_keys_are_found_and_not_inherited(monkeypatch):
    import os
    import subprocess
    import sys
    from pathlib import Path

    code = (
        "import os; from kernelpro.models import keys; keys.hide();"
        "own = open('/proc/self/environ').read();"
        "print(keys.find('anthropic')[1], 'ANTHROPIC_API_KEY' in os.environ, 'sk-sec' in own)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(keys.__file__).parents[2],
        env=dict(os.environ),
    )
    assert done.stdout.split() == ["environment", "False", "False"]
