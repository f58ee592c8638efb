"""Parameters, handles and places that nobody should ask for, and requests by the hundred."""

from __future__ import annotations

import json
import time

import pytest

from tests.attacks.target import Target, build_head, read_answer, read_answers, until

pytestmark = pytest.mark.process

SESSION = "/v1/agents/helper/sessions/reading"


@pytest.fixture(scope="module", autouse=True)
def history(shared_target: Target):
    shared_target.ask("How is the weather?", "reading")


@pytest.mark.parametrize("limit", ["999999999", "-1", "0", "1e3", "٣", "9" * 5_000, "1;drop"])
def test_a_page_has_a_limit(target: Target, limit: str):
    path = f"{SESSION}/history?limit={limit}".encode().decode("latin-1")
    assert target.request("GET", path).status in (400, 422)


def test_sql_in_a_parameter_is_text(target: Target):
    for text in ("'%20OR%20'1'='1", "x';DROP%20TABLE%20trimtab.events;--", "%25", "_"):
        answer = target.request("GET", f"/v1/agents/helper/sessions?after={text}&limit=1000")
        assert answer.status == 200
        assert b"secret" not in answer.body
        assert target.request("GET", f"{SESSION}/search?q={text}").status == 200
    assert target.request("GET", f"{SESSION}/history").status == 200


def test_a_search_for_brackets_takes_no_time(target: Target):
    for text in ("(" * 500, "[" * 500, "(a+)+" * 100, "%5c" * 300, "%22" * 500):
        begun = time.monotonic()
        assert target.request("GET", f"{SESSION}/search?q={text}").status == 200
        assert time.monotonic() - begun < 10


def test_an_absurd_handle_is_refused(target: Target):
    for handle in ("m-1", "m99999999999999999999", "m1e9", "m", "..", "m0x1", "r1.99999999999"):
        for verb in ("recall", "why"):
            answer = target.request("GET", f"{SESSION}/{verb}/{handle}")
            assert answer.status in (404, 422), (verb, handle, answer)
        body = {"handle": handle}
        assert target.request("POST", f"{SESSION}/erase", body=body).status in (404, 422)
    assert b"weather" in target.request("GET", f"{SESSION}/history").body


def test_a_place_that_is_none_is_refused(target: Target):
    for place in ("x", "-1", "1.2.3.4", "1e3", "9" * 19, "1;2", "../x"):
        assert target.request("GET", f"{SESSION}/events", Last_Event_ID=place).is_problem(422)
        assert target.request("GET", f"{SESSION}/events?after={place}").is_problem(422)


def test_whoever_has_read_further_than_the_log_goes_is_told(target: Target):
    """After a restore to an earlier moment, a reader would wait for what he believes to have."""
    end = target.request("GET", SESSION).document["position"]
    for place in (f"{end + 1}", "999999", "999999.57"):
        with target.connect() as wire, wire.makefile("rb") as reader:
            head = build_head("GET", f"{SESSION}/events", target.keys["acme"], Last_Event_ID=place)
            wire.sendall(head)
            frame = list[str]()
            while not any(line.startswith("event: ") for line in frame):
                frame.append(reader.readline().decode().strip())
                assert ": keepalive" not in frame, "nothing but signs of life"
            frame.append(reader.readline().decode().strip())
        assert frame[-3:-1] == [f"id: {end}", "event: stream.reset"]
        assert json.loads(frame[-1].removeprefix("data: ")) == {"unknown_id": place}


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


def test_two_hundred_requests_in_one_go_are_answered_in_their_order(target: Target):
    key, count = target.keys["acme"], 200
    heads = [
        build_head("GET", SESSION, key, X_Request_ID=f"r{number}", Connection="keep-alive")
        for number in range(count)
    ]
    with target.connect() as wire:
        wire.sendall(b"".join(heads))
        answers = list(read_answers(wire, count))
    assert {answer.status for answer in answers} == {200}
    assert [answer.headers["x-request-id"] for answer in answers] == [
        f"r{number}" for number in range(count)
    ]


def test_after_a_refusal_the_rest_of_a_body_is_no_request(target: Target):
    """What stands in a body that was not read must not be answered."""
    inner = build_head("GET", f"{SESSION}/history", target.keys["acme"])
    head = build_head("POST", "/v1/agents", None, body=inner, Connection="keep-alive")
    with target.connect() as wire:
        wire.sendall(head)
        assert read_answer(wire).status == 401
        assert b"weather" not in wire.recv(65_536)
