"""Requests that nobody makes by accident: each is refused, and the next one is answered."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from tests.server.channels.http.running_apps import EVENTS, MESSAGES, house, problem

pytestmark = pytest.mark.anyio

HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"
POST = f"POST {MESSAGES} HTTP/1.1\r\n".encode() + HOST + JSON


async def send_raw(url: str, raw: bytes) -> tuple[int, bytes]:
    """The status of the first answer, and all that came until the connection was closed or a
    second had passed."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    found = b""
    try:
        writer.write(raw)
        async with asyncio.timeout(1):
            while more := await reader.read(65_536):
                found += more
    except (TimeoutError, ConnectionResetError):
        pass
    finally:
        writer.close()
    return int(found.split()[1]) if found else 0, found


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /v1/agents\r\nX: y HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /v1/ag\0ents HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
        (POST + b"Content-Length: 2\r\nContent-Length: 30\r\n\r\n{}", 400),
        (POST + b"Content-Length: 99999999999\r\n\r\n", 413),
        (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 20_000 + b"\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n", 400),
        (b"GET /" + b"y" * 200_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"TRACE /v1/agents HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (b"PUT /v1/agents HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n", 405),
        (b"EVIL1 /v1/agents HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403),
    ],
    ids=range(15),
)
async def test_a_request_that_is_none_is_refused_and_the_next_one_answered(raw, status):
    async with house() as served, served.http() as http:
        found, answer = await send_raw(served.url, raw)
        # A peer that is still writing may see the reset before the answer.
        assert found == status or (not found and len(raw) > 100_000), answer[:300]
        assert (await http.get("/healthz")).status_code == 200
        assert await served.service.store.sessions() == []


async def test_a_request_that_hides_in_the_body_of_another_is_not_read():
    hidden = b"GET /v1/agents HTTP/1.1\r\n" + HOST + b"\r\n"
    body = b"0\r\n\r\n" + hidden
    lengths = f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    async with house() as served:
        status, answer = await send_raw(served.url, POST + lengths + body)
        assert status == 400
        assert b"both Content-Length and Transfer-Encoding" in answer
        assert answer.count(b"HTTP/1.1 ") == 1


async def test_a_body_that_is_compressed_is_not_inflated():
    bomb = gzip.compress(b'{"text": "' + b"a" * 50_000_000 + b'"}')
    assert len(bomb) < 100_000
    async with house() as served, served.http() as http:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        answer = await http.post(MESSAGES, content=bomb, headers=headers)
        problem(answer, 422, "invalid-request")


async def test_many_requests_at_once_in_a_connection_are_answered_in_order():
    raw = b"".join(
        f"GET /nowhere/{number} HTTP/1.1\r\n".encode() + HOST + b"\r\n" for number in range(90)
    )
    async with house() as served:
        _, answer = await send_raw(served.url, raw)
        places = [answer.find(b"/nowhere/%d" % number) for number in range(90)]
        assert places == sorted(places)
        assert -1 not in places


@pytest.mark.parametrize(
    "path",
    [
        "/v1/agents/helper/sessions?limit=999999999",
        "/v1/agents/helper/sessions?limit=-1",
        "/v1/agents/helper/sessions/one/why/m-1",
        "/v1/agents/helper/sessions/one/recall/m99999999999999999999",
        f"{EVENTS}?after=junk",
        "/v1/agents/helper/sessions?after=a&after=b",
    ],
)
async def test_absurd_values_are_refused(path):
    async with house("Hello.") as served, served.http() as http:
        await served.session().ask("Hi.")
        problem(await http.get(path), 422, "invalid-request")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/agents/helper/sessions?after=';DROP TABLE trimtab.events;--",
        f"{EVENTS.removesuffix('/events')}/search?q={'(' * 500}",
    ],
)
async def test_text_that_means_something_elsewhere_is_text_here(path):
    async with house("Hello.") as served, served.http() as http:
        await served.session().ask("Hi.")
        assert (await http.get(path)).status_code == 200
