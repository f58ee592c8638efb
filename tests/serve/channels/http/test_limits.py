"""What holds for every request: its size, its pace, its form and where it comes from."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.serve.channels.http.running_apps import MESSAGES, house, problem
from trimtab_serve.channels.http import api_route
from trimtab_serve.queue.rate_limit import CallerRateLimiter

pytestmark = pytest.mark.anyio


async def exchange(url: str, raw: bytes) -> tuple[int, bytes]:
    """What is answered to raw bytes: the status and the body."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(raw)
    await writer.drain()
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    body = await reader.readexactly(size)
    writer.close()
    return int(head.split()[1]), body


def post(*headers: str, body: bytes = b"") -> bytes:
    lines = [f"POST {MESSAGES} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


async def test_a_body_that_is_too_large_is_refused_by_what_it_says_of_itself():
    async with house(serve={"max_body_bytes": 1_000}) as served:
        status, body = await exchange(served.url, post("Content-Length: 1001"))
        assert (status, json.loads(body)["type"]) == (413, "urn:trimtab:problem:content-too-large")


async def test_a_body_that_is_too_large_is_refused_as_it_comes():
    chunk = b"3e8\r\n" + b" " * 1_000 + b"\r\n"
    async with house(serve={"max_body_bytes": 1_500}) as served:
        status, body = await exchange(
            served.url, post("Transfer-Encoding: chunked", body=chunk * 2)
        )
        assert status == 413
        assert "the limit is 1,500" in json.loads(body)["detail"]


async def test_a_refusal_before_the_body_has_come_ends_the_connection():
    """What comes of it later would be taken for a request."""
    async with house() as served:
        host, port = served.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        raw = post("Content-Length: 100").replace(b"Host: 127.0.0.1", b"Host: evil.example")
        writer.write(raw)
        told = await asyncio.wait_for(reader.read(), 10)
        assert told.startswith(b"HTTP/1.1 403 ")
        assert b"connection: close" in told
        writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for_forever(monkeypatch):
    monkeypatch.setattr(api_route, "BODY_TIMEOUT_S", 0.05)
    async with house() as served:
        status, body = await exchange(served.url, post("Content-Length: 20", body=b"{"))
        assert (status, json.loads(body)["type"]) == (408, "urn:trimtab:problem:request-timeout")


async def test_each_key_has_a_pace_of_its_own():
    who = [{"key_name": "fast"}, {"key_name": "slow"}]
    async with (
        house(keys=True, who=who, serve={"requests_per_minute": 1}) as served,
        served.http("slow") as slow,
        served.http("fast") as fast,
    ):
        answers = [await slow.get("/v1/agents") for _ in range(11)]
        assert [each.status_code for each in answers] == [200] * 10 + [429]
        told = problem(answers[-1], 429, "too-many-requests")
        assert "rate limit of key slow exceeded: 1 requests a minute" in told["detail"]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert (await fast.get("/v1/agents")).status_code == 200
        assert (await slow.get("/healthz")).status_code == 200


def test_a_pace_lets_through_what_it_says_and_no_more():
    now = 0.0
    pace = CallerRateLimiter(120, clock=lambda: now)
    assert [pace.take_or_retry_after_s("a") for _ in range(20)] == [0.0] * 20
    assert pace.take_or_retry_after_s("a") == pytest.approx(0.5)
    taken = 0
    for _ in range(600):
        now += 0.1
        taken += pace.take_or_retry_after_s("a") == 0.0
    assert taken == 120


async def test_pages_of_elsewhere_get_nothing_unless_they_are_named():
    async with house() as served, served.http() as http:
        page = {"Origin": "https://app.example.com"}
        answer = await http.get("/v1/agents", headers=page)
        problem(answer, 403, "forbidden")
        assert "access-control-allow-origin" not in answer.headers
        asks = {**page, "Access-Control-Request-Method": "POST"}
        assert (await http.options(MESSAGES, headers=asks)).status_code == 403
        elsewhere = ("http://127.0.0.1.evil.example", "http://[", "null", "://")
        for origin in (*elsewhere, served.url.removeprefix("http://")):
            answer = await http.get("/v1/agents", headers={"Origin": origin})
            problem(answer, 403, "forbidden")
            said = await http.post(MESSAGES, json={"text": "Forged."}, headers={"Origin": origin})
            problem(said, 403, "forbidden")
        assert await served.service.store.sessions() == []
        own = {"Origin": served.url}
        assert (await http.get("/v1/agents", headers=own)).status_code == 200
    named = {"allowed_origins": ["https://app.example.com"]}
    async with house(serve=named) as served, served.http() as http:
        answer = await http.get("/v1/agents", headers=page)
        assert answer.headers["access-control-allow-origin"] == page["Origin"]
        assert (await http.options(MESSAGES, headers=asks)).status_code == 200
        other = {"Origin": "https://evil.example.com"}
        problem(await http.get("/v1/agents", headers=other), 403, "forbidden")


async def test_without_keys_a_name_that_is_not_this_machine_is_refused():
    """A page whose name is made to point here must not reach what is here."""
    async with house() as served, served.http() as http:
        answer = await http.get("/v1/agents", headers={"Host": "evil.example.com"})
        problem(answer, 403, "forbidden")


FORGED = b'{"text": "Forged."}'
REFUSALS: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("GET", "/nowhere", {}, 404, "not-found"),
    ("GET", "/v1/agents/", {}, 404, "not-found"),
    ("PUT", "/v1/agents", {}, 405, "method-not-allowed"),
    ("HEAD", "/v1/agents", {}, 405, "method-not-allowed"),
    ("GET", "/v1/agents/nobody/sessions", {}, 404, "not-found"),
    ("GET", "/v1/agents?what=1", {}, 422, "invalid-request"),
    ("GET", "/v1/agents/helper/sessions?limit=x", {}, 422, "invalid-request"),
    ("GET", "/v1/agents/helper/sessions?limit=0", {}, 422, "invalid-request"),
    ("GET", "/v1/agents/helper/sessions?limit=1&limit=2", {}, 422, "invalid-request"),
    ("GET", "/v1/agents/helper/sessions?after=%ff", {}, 422, "invalid-request"),
    ("GET", "/v1/agents", {"content": b"body"}, 422, "invalid-request"),
    ("POST", MESSAGES, {"content": b"{}"}, 415, "unsupported-media-type"),
    ("POST", MESSAGES, {"data": {"text": "x"}}, 415, "unsupported-media-type"),
    ("POST", MESSAGES, {"json": [1]}, 422, "invalid-request"),
]


async def test_every_refusal_is_a_problem_document():
    async with house() as served, served.http() as http:
        for method, path, sent, status, kind in REFUSALS:
            answer = await http.request(method, path, **sent)
            if method == "HEAD":
                assert (answer.status_code, answer.content) == (status, b"")
            else:
                problem(answer, status, kind)
            assert "GET" in answer.headers.get("allow", "GET")
        assert await served.service.store.sessions() == []


async def test_a_form_of_a_web_page_is_refused():
    """A browser sends these to any server without asking first."""
    async with house() as served, served.http() as http:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            answer = await http.post(MESSAGES, content=FORGED, headers={"Content-Type": kind})
            problem(answer, 415, "unsupported-media-type")
        assert await served.service.store.sessions() == []


DEEP = b"[" * 100_000 + b"]" * 100_000
DIGITS = b"9" * 500_000
NO_JSON = [
    b"{",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b'{"text": NaN}',
    b'{"text": "\xff\xfe"}',
    b'{"text": "\\ud800"}',
    DEEP,
    b'{"parts": ' + DEEP + b"}",
    b'{"text": ' * 100_000,
    b'{"text": ' + DIGITS + b"}",
    b'{"text": "x", "key": ' + DIGITS + b"}",
    b'{"text": 1e' + DIGITS + b"}",
]


async def test_what_is_no_json_is_refused():
    async with house() as served, served.http() as http:
        headers = {"Content-Type": "application/json"}
        for raw in NO_JSON:
            answer = await http.post(MESSAGES, content=raw, headers=headers)
            problem(answer, 422, "invalid-request")
        assert await served.service.store.sessions() == []
