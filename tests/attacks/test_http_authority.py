"""Keys that no longer open anything or open less, and headers that say two things."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from contextlib import closing

import pytest

from tests.attacks.target import (
    STREAM,
    Answer,
    Target,
    attacked,
    build_head,
    create_key,
    run_keys_command,
    until,
)
from trimtab_serve.channels.http.sse import CALLER_CHECK_INTERVAL_S

pytestmark = pytest.mark.process

SESSIONS = "/v1/agents/helper/sessions"
ROOM = f"{SESSIONS}/room"
WRONG_KEYS_PER_MINUTE = 20


@pytest.fixture(scope="module")
def own_target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys") / "agent"
    folder.mkdir()
    with attacked(folder) as made:
        store = folder / "sessions"
        made.keys["reader"] = create_key(store, "reader", "--tenant", "acme", "--role", "read")
        of_another_agent = ("--tenant", "acme", "--role", "admin", "--agent", "other")
        made.keys["limited"] = create_key(store, "limited", *of_another_agent)
        made.ask("Hello.", "room")
        yield made


@pytest.fixture
def target(own_target: Target):
    yield own_target
    assert own_target.request("GET", "/healthz", key=None).status == 200
    assert own_target.request("GET", "/v1/agents").status == 200


def test_a_stream_ends_with_its_key(target: Target):
    """Whoever was let in once must not read on after the key was revoked, or has expired."""
    store = target.folder / "sessions"
    key = create_key(store, "former", "--tenant", "acme", "--role", "read")
    with target.connect() as wire, wire.makefile("rb") as reader:
        wire.sendall(build_head("GET", f"{ROOM}/events?after=0", key))
        while b"turn.finished" not in reader.readline():
            pass
        run_keys_command(store, "revoke", "former")
        time.sleep(CALLER_CHECK_INTERVAL_S)
        target.ask("Nobody else hears OCELOT.", "room")
        rest = reader.read()
    assert b"OCELOT" not in rest
    assert b"event: reconnect" in rest

    brief = create_key(store, "brief", "--tenant", "acme", "--role", "read")
    with closing(sqlite3.connect(store / ".server/server.db", isolation_level=None)) as database:
        change = "UPDATE api_keys SET expires_at = ? WHERE name = 'brief'"
        database.execute(change, [time.time() + 1])
    with target.connect() as wire, wire.makefile("rb") as reader:
        wire.sendall(build_head("GET", f"{ROOM}/events", brief))
        assert b"event: reconnect" in reader.read()


def test_a_header_that_decides_is_there_once(target: Target):
    """A proxy may look at the first of two keys, and the server at the last."""
    for name, value in (
        ("Authorization", f"Bearer {target.keys['acme']}"),
        ("Idempotency-Key", "second"),
        ("Content-Type", "text/plain"),
        ("Origin", "http://127.0.0.1"),
    ):
        first = {"Idempotency-Key": "first", "Origin": "http://127.0.0.1"}
        head = build_head(
            "POST", f"{ROOM}/messages", target.keys["guest"], body=b'{"text":"x"}', named=first
        )
        start, _, body = head.partition(b"\r\n\r\n")
        for doubled in (name, name.lower()):
            sent = start + f"\r\n{doubled}: {value}\r\n\r\n".encode() + body
            assert target.exchange(sent).is_problem(400), name


def test_no_spelling_of_a_request_makes_more_of_a_key_that_reads(target: Target):
    overrides = {
        "X-HTTP-Method-Override": "DELETE",
        "X-HTTP-Method": "DELETE",
        "X-Method-Override": "DELETE",
        "X-Original-URL": "/v1/tenant/export",
        "X-Rewrite-URL": "/v1/tenant/export",
    }
    before = target.request("GET", f"{ROOM}/history").body
    for method, path in (
        ("DELETE", ROOM),
        ("DELETE", f"{ROOM}?"),
        ("DELETE", f"{ROOM};x=1"),
        ("DELETE", f"{ROOM}/"),
        ("DELETE", f"/{ROOM}"),
        ("DELETE", f"{SESSIONS}//room"),
        ("DELETE", f"{SESSIONS}/%72oom"),
        ("DELETE", "/V1/agents/helper/sessions/room"),
        ("delete", ROOM),
        ("HEAD", ROOM),
        ("OPTIONS", ROOM),
        ("GET", f"{ROOM}/fork"),
        ("POST", f"{ROOM}/fork"),
        ("POST", f"{ROOM}/stop"),
        ("POST", f"{ROOM}/events"),
        ("GET", "/v1/tenant/export"),
        ("GET", "/v1/tenant/export/"),
        ("GET", "/v1/users/anna/export"),
        ("GET", "/v1/%75sers/anna/export"),
        ("GET", "http://127.0.0.1/v1/tenant/export"),
        ("GET", "/v1/erasures"),
    ):
        answer = target.request(method, path, key="reader", named=overrides)
        assert answer.status in (403, 404, 405), (method, path, answer)
    assert target.request("GET", ROOM, key="reader", named=overrides).status == 200
    assert target.request("GET", f"{ROOM}?_method=DELETE", key="reader").is_problem(422)
    assert target.request("GET", f"{ROOM}/history").body == before


def test_a_key_for_one_agent_does_not_learn_what_was_erased_of_others(target: Target):
    target.ask("Hello.", "short")
    assert target.request("DELETE", f"{SESSIONS}/short").status in (200, 204)
    assert target.request("GET", "/v1/erasures?session=helper/short").document["erasures"]
    for query in ("", "?session=helper/short", "?user=anna", "?limit=1"):
        assert target.request("GET", f"/v1/erasures{query}", key="limited").is_problem(403)
    assert target.request("GET", "/v1/tenant/export", key="limited").is_problem(403)
    erased = target.request("DELETE", "/v1/tenant", key="limited", body={"confirm": "acme"})
    assert erased.is_problem(403)


def test_what_a_forwarding_header_says_is_an_address_or_nothing(target: Target):
    """It goes into the log, and is remembered for ten thousand callers."""
    for said in ("\x1b[2JFORGED-LINE", "9" * 30_000, "fe80::1%\x1b[2JFORGED-LINE", "FORGED-LINE"):
        statuses = [guess(target, said).status for _ in range(WRONG_KEYS_PER_MINUTE + 5)]
        # Those that are no address count as one.
        assert statuses[-1] == 429
    assert guess(target, "8" * 30_000).status == 429
    target.request("GET", ROOM, X_Request_ID="after-the-forged")
    until(lambda: next_log_line(target).get("request_id") == "after-the-forged")
    told = json.dumps(target.server.heard)
    assert "more than 20 requests a minute" in told
    assert "FORGED-LINE" not in told
    assert "9" * 50 not in told


def test_whoever_comes_by_a_proxy_is_slowed_by_the_address_that_the_proxy_adds(target: Target):
    """What a caller writes before it does not count; who is on this machine can write all of it."""
    statuses = [guess(target, f"10.1.{n}.1, 203.0.113.9").status for n in range(30)]
    assert statuses.count(401) == WRONG_KEYS_PER_MINUTE
    assert target.request("GET", "/v1/agents", X_Forwarded_For="203.0.113.9").status == 200
    statuses = [guess(target, f"2001:db8:5:5::{n}").status for n in range(30)]
    assert statuses.count(401) == WRONG_KEYS_PER_MINUTE
    # Not held: from this machine, without a proxy, each guess has an address of its own.
    assert {guess(target, f"10.2.{n}.1").status for n in range(30)} == {401}


def test_the_page_that_describes_the_api_runs_nothing_and_tells_of_nobody(target: Target):
    for path in ("/docs", "/openapi.json"):
        answer = target.request("GET", path, key=None)
        assert answer.status == 200
        for word in (b"acme", b"helper", b"room", target.keys["acme"].encode()):
            assert word not in answer.body, (path, word)
        assert answer.body == target.request("GET", path).body
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
    page = target.request("GET", "/docs", key=None).body.decode()
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", page)
    for path in ("/docs?%3Cscript%3E=1", "/docs/%3Cscript%3E", "/openapi.json?callback=x"):
        answer = target.request("GET", path)
        assert answer.status in (404, 422)
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_known_idempotency_key_is_one_users_one_sessions_and_one_tenants(target: Target):
    said = {"text": "Yes.", "key": "vote", "user": "anna"}
    first = target.request("POST", f"{SESSIONS}/votes/messages", body=said, Accept=STREAM)
    assert first.status == 200
    again = target.request("POST", f"{SESSIONS}/votes/messages", body=said)
    assert again.document["duplicate"] is True
    for other in ({**said, "user": "bob"}, {"text": "Yes.", "key": "vote"}):
        answer = target.request("POST", f"{SESSIONS}/votes/messages", body=other)
        assert answer.is_problem(422)
        assert answer.document["type"].endswith("idempotency-key-reused")
    for path, key in (("other-votes", "acme"), ("votes", "operator")):
        other = {**said, "text": "No."}
        answer = target.request("POST", f"{SESSIONS}/{path}/messages", key=key, body=other)
        assert answer.document["duplicate"] is False
    for key in ("vo\u0301te", "v\uff4fte", "vote\u200b"):
        answer = target.request("POST", f"{SESSIONS}/votes/messages", body={**said, "key": key})
        assert answer.is_problem(422)


def test_when_a_key_was_used_is_known_after_the_server_has_ended(own_target: Target):
    """The last test of this server: it is written when the server ends."""
    assert own_target.request("GET", "/v1/agents").status == 200
    own_target.server.end()
    listed = json.loads(run_keys_command(own_target.folder / "sessions", "list", "--json"))
    used = {key["name"]: key["last_used"] for key in listed}
    assert used["acme"] is not None
    assert used["prometheus"] is None


def guess(target: Target, forwarded_for: str) -> Answer:
    head = build_head("GET", "/v1/agents", "tt_guess", X_Forwarded_For=forwarded_for)
    return target.exchange(head, "GET")


def next_log_line(target: Target) -> dict[str, object]:
    line = target.server.lines.get(timeout=60)
    assert line is not None
    target.server.heard.append(line)
    return line
