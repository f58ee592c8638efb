"""Names that lead elsewhere, sessions of others, and keys that are none, over a real socket."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest
from typer.testing import CliRunner

from tests.attacks.target import Target, create_key, until
from trimtab.cli.app import app

pytestmark = pytest.mark.process

SESSIONS = "/v1/agents/helper/sessions"
HOSTILE_NAMES = (
    "..",
    ".",
    "%2e%2e",
    "..%2f..%2fx",
    "..%5c..%5cx",
    "..%252f..%252fx",
    "%00",
    "x%00.jsonl",
    ".queue",
    ".schedules",
    ".deleted",
    "~",
    "~root",
    "-rf",
    "--help",
    "%F0%9F%98%80",
    "a" * 300,
    "default%2fhelper%2fsecret",
    "C:%5cx",
    "con%0d%0a",
    "x%20y",
    "%ff%fe",
    "*",
    "$(touch x)".replace(" ", "%20"),
)
WRONG_KEYS = (
    "",
    "Bearer",
    "Bearer tt_wrong",
    "Bearer null",
    "Bearer *",
)


def test_hostile_session_names_open_nothing_and_write_nothing(target: Target):
    before = target.files()
    for name in HOSTILE_NAMES:
        for method, path, body in (
            ("POST", f"{SESSIONS}/{name}/messages", {"text": "Hello."}),
            ("POST", f"{SESSIONS}/{name}/fork", {"name": "fine"}),
            ("GET", f"{SESSIONS}/{name}/history", None),
            ("DELETE", f"{SESSIONS}/{name}", None),
        ):
            answer = target.request(method, path, body=body)
            assert answer.status in (404, 405), (method, path, answer)
            assert b"ZEBRA" not in answer.body
    assert target.files() == before


def test_a_line_break_in_a_path_is_refused(target: Target):
    for path in (f"{SESSIONS}/one\r\nX-Own: 1", f"{SESSIONS}/one\nX", f"{SESSIONS}/\0"):
        answer = target.request("GET", path)
        assert answer.status == 400, path
        assert "x-own" not in answer.headers


def test_a_session_of_another_tenant_is_like_one_that_nobody_has(target: Target):
    for path in ("", "/history", "/context", "/recall/m2", "/search?q=ZEBRA", "/events?after=0"):
        foreign = target.request("GET", f"{SESSIONS}/secret{path}")
        unknown = target.request("GET", f"{SESSIONS}/nobody{path}")
        assert foreign.is_problem(404)
        assert foreign.body.replace(b"secret", b"nobody") == unknown.body
    assert target.request("DELETE", f"{SESSIONS}/secret").is_problem(404)
    kept = target.request("GET", f"{SESSIONS}/secret/history", key="operator")
    assert b"ZEBRA" in kept.body


def test_an_encoded_slash_leads_to_no_other_tenant(target: Target):
    for path in (
        f"{SESSIONS}/..%2f..%2fdefault%2fhelper%2fsecret/history",
        f"{SESSIONS}/%2e%2e/%2e%2e/default/helper/sessions/secret/history",
        "/v1/agents/default%2fhelper/sessions/secret/history",
        "/v1/agents/..%2fdefault%2fhelper/sessions/secret/history",
        f"{SESSIONS}/x/../secret/history",
        f"/{SESSIONS}/secret/history",
    ):
        assert target.request("GET", path).is_problem(404), path


def test_a_fork_stays_in_its_tenant(target: Target):
    target.ask("Hello.", "mine")
    before = target.files()
    for name in ("../../default/helper/x", "default/helper/x", "..", "a\\b", "a\0b", ""):
        answer = target.request("POST", f"{SESSIONS}/mine/fork", body={"name": name})
        assert answer.is_problem(422), name
        assert answer.document["errors"][0]["field"] == "name"
    assert target.files() == before


def test_nobody_retries_what_failed_for_another_tenant(target: Target):
    told = target.ask('simulate: {"fault": "not_found", "repeat": 9}', "failed", key="operator")
    assert "event: turn.failed" in told
    path = "/v1/dead-letters/helper/failed/retry"
    assert target.request("POST", path, body={}).is_problem(404)
    assert target.request("POST", "/v1/dead-letters/retry", body={}).document == {"sessions": 0}
    dead = target.request("GET", "/v1/dead-letters", key="operator").body
    assert b"failed" in dead
    assert b"failed" not in target.request("GET", "/v1/dead-letters").body


def test_without_a_key_that_is_known_nothing_is_answered(target: Target):
    for given in WRONG_KEYS:
        answer = target.request("GET", "/v1/agents", key=None, Authorization=given)
        assert answer.is_problem(401), given
        assert answer.headers["content-type"] == "application/problem+json"
    assert target.request("GET", f"{SESSIONS}/secret/history", key=None).is_problem(401)


def test_what_the_file_of_keys_holds_opens_nothing(target: Target):
    kept = json.loads((target.folder / "keys.json").read_text())["keys"]
    digest = next(each["sha256"] for each in kept if each["name"] == "acme")
    assert digest == hashlib.sha256(target.keys["acme"].encode()).hexdigest()
    for given in (digest, f"tt_{digest}", digest.upper()):
        answer = target.request("GET", "/v1/agents", key=None, Authorization=f"Bearer {given}")
        assert answer.is_problem(401)


def test_a_key_in_the_address_or_as_a_password_opens_nothing(target: Target):
    key = target.keys["acme"]
    basic = base64.b64encode(f"acme:{key}".encode()).decode()
    for name in ("key", "api_key", "access_token", "token"):
        assert target.request("GET", f"/v1/agents?{name}={key}", key=None).is_problem(401)
    for given in (f"Basic {basic}", key, f"Token {key}"):
        assert target.request("GET", "/v1/agents", key=None, Authorization=given).is_problem(401)
    for header in ("X-API-Key", "Cookie", "Proxy-Authorization"):
        assert target.request("GET", "/v1/agents", key=None, named={header: key}).is_problem(401)


def test_nobody_is_let_in_for_saying_that_he_is_on_this_machine(target: Target):
    for header in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Forwarded-Host", "X-Client-IP"):
        for place in ("127.0.0.1", "for=127.0.0.1", "localhost"):
            answer = target.request("GET", "/v1/agents", key=None, named={header: place})
            assert answer.is_problem(401), (header, place)


def test_a_tenants_key_reads_no_metrics(target: Target):
    assert target.request("GET", "/metrics").is_problem(403)
    assert target.request("GET", "/metrics", key="operator").is_problem(403)
    assert b"trimtab_" in target.request("GET", "/metrics", key="prometheus").body


def test_a_key_for_metrics_reads_and_deletes_no_session(target: Target):
    for method, path, body in (
        ("GET", f"{SESSIONS}/secret/history", None),
        ("GET", SESSIONS, None),
        ("GET", "/v1/agents", None),
        ("GET", "/v1/dead-letters", None),
        ("DELETE", f"{SESSIONS}/secret", None),
        ("POST", f"{SESSIONS}/secret/messages", {"text": "Hello."}),
        ("POST", f"{SESSIONS}/secret/erase", {"handle": "m2"}),
    ):
        assert target.request(method, path, key="prometheus", body=body).is_problem(403), path
    kept = target.request("GET", f"{SESSIONS}/secret/history", key="operator")
    assert b"ZEBRA" in kept.body


def test_a_revoked_key_opens_nothing_without_a_restart(target: Target):
    file = target.folder / "keys.json"
    target.keys["gone"] = create_key(file, "gone", "--tenant", "acme")
    until(lambda: target.request("GET", "/v1/agents", key="gone").status == 200)
    done = CliRunner().invoke(app, ["keys", "revoke", "gone", "--file", str(file)])
    assert done.exit_code == 0, done.output
    assert target.request("GET", "/v1/agents", key="gone").is_problem(401)
    assert target.request("GET", "/v1/agents").status == 200


def test_with_a_broken_file_of_keys_the_last_good_one_stays_in_force(target: Target):
    file = target.folder / "keys.json"
    good = file.read_bytes()
    try:
        for broken in (b"", b"{", b'{"version": 1, "keys": [{"name": "x"}]}', b"\xff\xfe"):
            file.write_bytes(broken)
            assert target.request("GET", "/v1/agents").status == 200
            answer = target.request("GET", "/v1/agents", key=None, Authorization="Bearer x")
            assert answer.is_problem(401)
    finally:
        file.write_bytes(good)
    assert target.request("GET", "/v1/agents").status == 200
