"""A secret of this process is shown to nobody, even if a provider repeats it in an error."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.testing import ScriptedProvider
from trimtab_serve.agent import agent as module
from trimtab_serve.agent.config.spec import ModelSpec
from trimtab_serve.agent.secret_values import build_secret_mask
from trimtab_serve.process.logging_setup import (
    JsonLogFormatter,
    SecretLogFilter,
    TextLogFormatter,
)

KEY = "k3y-of-the-operator-0123456789"
ENVIRON = {
    "MY_TOKEN": "t0ken-of-somebody",
    "QUEUE": "amqp://user:p4ssw0rd@queue.example.com/x",
    "SHORT_KEY": "abc",
    "HOME": "/srv/ada",
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"wrong key {KEY}", "wrong key …"),
        (f"{KEY}{KEY} {KEY}", "…… …"),
        (f"cut at {KEY[:20]}", "cut at …"),
        (f"cut at {KEY[:20]}…", "cut at ……"),
        ("Bearer t0ken-of-somebody!", "Bearer …!"),
        ("p4ssw0rd at queue.example.com", "… at queue.example.com"),
        ("sk-ant-api03-abcdefghijklmnop is wrong", "… is wrong"),
        ("abc in /srv/ada", "abc in /srv/ada"),
        ("k3y-of-the-o, k3y-of-the", "…, k3y-of-the"),
    ],
)
def test_secrets_are_masked_and_other_words_stay(text: str, shown: str):
    assert build_secret_mask(ENVIRON, KEY, None)(text) == shown


def quote_key(offset: int) -> str:
    return base64.b64encode(b"user:!"[:offset] + KEY.encode() + b"?").decode()


@pytest.mark.parametrize(
    "quoted",
    [
        *(quote_key(0), quote_key(1), quote_key(2), quote_key(5)),
        *(KEY.encode().hex(), KEY.encode().hex().upper()),
        *(KEY[3:-3], KEY[-12:], f"{KEY[:5]}\n{KEY[5:]}"),
    ],
)
def test_parts_and_encodings_of_a_secret_are_masked(quoted: str):
    shown = build_secret_mask({}, KEY)(f"no: {quoted}")
    assert shown.startswith("no: ")
    assert "…" in shown
    assert len(shown) <= 15


@pytest.mark.parametrize("write", [quote_plus, json.dumps, lambda key: quote(key, safe="").lower()])
def test_an_escaped_secret_is_masked(write: Callable[[str], str]):
    key = 'p/4:"w ö\\r/d+?='
    assert len(build_secret_mask({"A_KEY": key})(write(key))) <= 3


def test_of_the_address_of_a_database_only_the_password_is_masked():
    address = "postgresql://ada:p4ssw0rd-of-ada@db.example.com:5432/trimtab"
    mask = build_secret_mask({"DATABASE_URL": address})
    assert mask("no answer of db.example.com:5432") == "no answer of db.example.com:5432"
    assert "p4s" not in mask(f"{address} and {address[:22]}")


@pytest.mark.anyio
async def test_an_error_of_a_provider_does_not_repeat_the_key(monkeypatch):
    failure = ProviderFailureDetails(
        kind="auth", message=f"key {KEY} of {ENVIRON['MY_TOKEN']} is unknown", status=401
    )
    scripted = ScriptedProvider("anthropic", [failure])
    monkeypatch.setattr(module, "create_provider", lambda *_, **__: scripted)
    model = ModelSpec(name="claude-sonnet-4-5", api_key=KEY)
    provider = module._build_provider(model, ENVIRON)
    request = {
        "model": model.name,
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi."}],
    }
    with pytest.raises(ProviderError) as caught:
        async for _ in provider.send(request):
            pass
    assert str(caught.value) == "auth (HTTP 401): key … of … is unknown"
    assert caught.value.failure.status == 401
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_log_line_shows_neither_secrets_nor_codes_for_the_terminal():
    record = logging.makeLogRecord(
        {
            "name": "trimtab.x",
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "msg": "failed: %s",
            "args": (f"{KEY} \x1b]0;title\x07\x9b2J\u202e\r\n12:00:00 all is well\x85ok\u2028end",),
            "why": f"because of {KEY}",
        }
    )
    assert SecretLogFilter(build_secret_mask({}, KEY)).filter(record)
    text = TextLogFormatter().format(record)
    first, *rest = text.split("\n")
    assert first.endswith("WARNING failed: … \\x1b]0;title\\x07\\x9b2J\\u202e")
    assert rest == ["  12:00:00 all is well", "  ok", "  end"]
    line = JsonLogFormatter().format(record)
    assert KEY not in line
    assert "because of \\u2026" in line
