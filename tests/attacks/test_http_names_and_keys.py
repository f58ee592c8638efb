"""Names that lead elsewhere, and a file of keys that is broken, over a real socket."""

from __future__ import annotations

import pytest

from tests.attacks.target import Target

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
