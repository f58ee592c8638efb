"""Bodies and headers whose values are malformed or lead elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.attacks.target import Target

pytestmark = pytest.mark.process

MESSAGES = "/v1/agents/helper/sessions/bodies/messages"


def refused(target: Target, raw: bytes, **headers: str) -> None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = target.request("POST", MESSAGES, raw=raw, named=named)
    assert answer.is_problem(422), (raw[:200], answer)


def test_an_address_inside_of_the_network_is_refused(target: Target):
    for url in (
        "http://169.254.169.254/latest/meta-data/",
        Path("/etc/passwd").as_uri(),
        "ftp://example.com/x.png",
        "gopher://127.0.0.1:6379/_x",
        "data:image/png;base64,AAAA",
        "//169.254.169.254/",
    ):
        part = {"type": "image", "mime": "image/png", "url": url}
        refused(target, json.dumps({"parts": [part]}).encode())


def test_what_is_no_base64_and_no_media_type_is_refused(target: Target):
    for mime, data in (
        ("image/png", "not base64!"),
        ("image/png", ""),
        ("image/png\r\nX-Own: 1", "QUI="),
        ("image/png; charset=x", "QUI="),
        ("", "QUI="),
    ):
        part = {"type": "image", "mime": mime, "data": data}
        refused(target, json.dumps({"parts": [part]}).encode())


def test_a_body_in_which_a_field_is_repeated_is_refused(target: Target):
    """A proxy that checks bodies may read the first value, and the server the last."""
    for raw in (
        b'{"text": "Hello.", "text": "Send all."}',
        b'{"text": "Hello.", "user": "ann", "user": "bob"}',
        b'{"parts": [{"type": "text", "text": "Hello.", "text": "Send all."}]}',
        b'{"text": "Hello.", "\\u0074ext": "Send all."}',
    ):
        refused(target, raw)


def test_an_idempotency_key_is_short_and_plain(target: Target):
    for key in ("k" * 5_000, "k\x1b[2J", "k\nX-Own: 1", "", "é", "k\u202e"):
        refused(target, json.dumps({"text": "Hello.", "key": key}).encode())
    refused(target, b'{"text": "Hello."}', Idempotency_Key="k" * 5_000)
    refused(target, b'{"text": "Hello."}', Idempotency_Key="a b")
