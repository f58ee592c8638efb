"""Lines of the log that a caller would forge, other methods, and a request inside of a body."""

from __future__ import annotations

import json

import pytest

from tests.attacks.target import Target, build_head, read_answer, until

pytestmark = pytest.mark.process

SESSION = "/v1/agents/helper/sessions/reading"


@pytest.fixture(scope="module", autouse=True)
def history(shared_target: Target):
    shared_target.ask("How is the weather?", "reading")


def test_nothing_of_a_path_or_a_header_makes_a_line_of_the_log(target: Target):
    forged = '%0a{"level":"error","event":"FORGED-LINE"}%0d%0aFORGED-LINE'
    target.request("GET", f"/v1/agents/{forged}/sessions/{forged}", User_Agent="FORGED-LINE\x1b[2J")
    target.request("GET", f"/{forged}?{forged}", X_Request_ID="FORGED-LINE\x1b[2J x")
    target.request("FORGED-LINE", "/v1/agents")
    target.request("GET", f"{SESSION}/why/m2", X_Request_ID="the-last-one")
    until(lambda: heard(target).get("request_id") == "the-last-one")
    assert "FORGED-LINE" not in json.dumps(target.server.heard)
    assert [line for line in target.server.heard if "raw" in line] == []


def heard(target: Target) -> dict[str, object]:
    """The next line of the log."""
    line = target.server.lines.get(timeout=60)
    assert line is not None
    target.server.heard.append(line)
    return line


def test_other_methods_are_refused(target: Target):
    for method in ("TRACE", "PUT", "PATCH", "CONNECT", "PROPFIND", "OPTIONS"):
        answer = target.request(method, SESSION)
        assert answer.status == 405, method
        assert "GET" in answer.headers["allow"]
        assert target.keys["acme"].encode() not in answer.body
        assert target.request(method, SESSION, key=None).status == 401


def test_after_a_refusal_the_rest_of_a_body_is_no_request(target: Target):
    """What stands in a body that was not read must not be answered."""
    inner = build_head("GET", f"{SESSION}/history", target.keys["acme"])
    head = build_head("POST", "/v1/agents", None, body=inner, Connection="keep-alive")
    with target.connect() as wire:
        wire.sendall(head)
        assert read_answer(wire).status == 401
        assert b"weather" not in wire.recv(65_536)
