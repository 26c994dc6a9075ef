"""The live page: loopback only, by its token only, and it follows the file."""

import json
import threading
import urllib.error
import urllib.request

import pytest

from kernelpro.cli import main
from kernelpro.report_page.server import Server
from tests.report_page.grown import written


@pytest.fixture
def growing(small, tmp_path):
    """A memory file of the first five steps of a real search, and its server."""
    file = tmp_path / "growing.jsonl"
    file.write_bytes(b"".join(written(small.header, small.steps[:6])[:-1]))
    server = Server(file)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield file, server
    server.close()
    thread.join()


def ask(address, **headers):
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


def test_page_and_facts_follow_the_file(growing, small):
    file, server = growing
    status, body, headers = ask(server.address)
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    assert b"connect-src 'self'" in body
    status, body, headers = ask(f"{server.address}facts.json")
    assert len(json.loads(body)["searches"][0]["nodes"]) == 5
    tag = headers["ETag"]
    assert ask(f"{server.address}facts.json", **{"If-None-Match": tag})[0] == 304
    with file.open("ab") as end:
        last = written(small.header, small.steps[:6])[-1]
        end.write(last + b'{"step": {"ind')  # a line half written
    status, body, _ = ask(f"{server.address}facts.json", **{"If-None-Match": tag})
    assert (status, len(json.loads(body)["searches"][0]["nodes"])) == (200, 6)


def test_only_the_token_on_a_loopback_name_answers(growing):
    file, server = growing
    root = server.address.rsplit("/", 2)[0]
    for path in ("/", "/facts.json", "/x/", f"/x/{file.name}", "//", "/../../etc/passwd"):
        assert ask(root + path)[0] == 404
    assert ask(f"{server.address}{file.name}")[0] == 404
    assert ask(f"{server.address}../growing.jsonl")[0] == 404
    assert ask(server.address, Host="evil.example:80")[0] == 404
    assert server.address.startswith("http://127.0.0.1:")
    request = urllib.request.Request(server.address, data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    refused.value.close()
    assert refused.value.code == 501


def test_damage_while_it_is_served_is_said_and_not_served(growing):
    file, server = growing
    with file.open("ab") as end:
        end.write(b"broken\n")
    status, body, _ = ask(f"{server.address}facts.json")
    assert status == 503
    assert b"line 7: damaged" in body


def test_what_cannot_be_served_is_a_sentence(tmp_path, capsys, growing):
    _, server = growing
    port = server.address.split(":")[2].split("/")[0]
    assert main(["serve", str(tmp_path / "nosuch.jsonl")]) == 2
    assert main(["serve", str(growing[0]), "--port", port]) == 2
    assert main(["serve", str(growing[0]), "--port", "99999"]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 3
    assert "give another --port" in errors
