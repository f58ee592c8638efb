"""Requests that nobody makes by accident: each is refused, and the next one is answered."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from tests.serve.channels.http.running_apps import EVENTS, MESSAGES, house, problem

pytestmark = pytest.mark.anyio

HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"
POST = f"POST {MESSAGES} HTTP/1.1\r\n".encode() + HOST + JSON


async def send_raw(url: str, raw: bytes, *, until: bytes = b"") -> tuple[int, bytes]:
    """The status of the first answer, and all that came until the connection was closed, a second
    had passed, or these bytes were there."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    found = b""
    try:
        writer.write(raw)
        async with asyncio.timeout(30 if until else 1):
            while more := await reader.read(65_536):
                found += more
                if until and until in found:
                    break
    except (TimeoutError, ConnectionResetError):
        pass
    finally:
        writer.close()
    return int(found.split()[1]) if found else 0, found


def post(length: str, body: bytes = b"") -> bytes:
    return POST + f"Content-Length: {length}\r\n\r\n".encode() + body


def ask(method: str) -> bytes:
    head = f"{method} /v1/agents HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n"
    return head.encode() + HOST + b"\r\n"


REFUSED = [
    (b"GET /v1/agents\r\nX: y HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /v1/agents\nX HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /v1/ag\0ents HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    *(
        (post(length, b'{"text": "Hello."}'), 400)
        for length in ("-1", "+5", "0x10", "1_0", "ten", "5, 6", " ", "9" * 30)
    ),
    (post("99999999999"), 413),
    (post("9" * 19), 413),
    (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 20_000 + b"\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n", 400),
    (b"GET /" + b"y" * 200_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"G" * 200_000, 400),
    (ask("TRACE"), 405),
    (ask("PUT"), 405),
    (ask("EVIL1"), 405),
    (b"\x16\x03\x01\x02\x00\x01\x00", 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403),
]


async def test_a_request_that_is_none_is_refused_and_the_next_one_answered():
    async with house() as served, served.http() as http:
        for raw, status in REFUSED:
            found, answer = await send_raw(served.url, raw)
            # A peer that is still writing may see the reset before the answer.
            assert found == status or (not found and len(raw) > 100_000), (raw[:100], answer[:300])
            if status == 413:
                assert b"connection: close" in answer
            assert (await http.get("/healthz")).status_code == 200
        assert await served.service.store.sessions() == []


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        b"Content-Length: 4\r\nTransfer-Encoding: identity\r\n",
        b"Content-Length: 4\r\nTransfer-Encoding: chunked, identity\r\n",
        b"Content-Length: 4\r\nTransfer-Encoding : chunked\r\n",
        b"Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
    ],
)
async def test_a_request_whose_length_can_be_read_in_two_ways_is_refused(framing):
    """A proxy that reads it the other way would take the rest for another caller's request."""
    hidden = b"GET /v1/agents HTTP/1.1\r\n" + HOST + b"\r\n"
    async with house() as served:
        status, answer = await send_raw(served.url, POST + framing + b"\r\n0\r\n\r\n" + hidden)
        assert status == 400
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"connection: close" in answer.lower()


async def test_a_length_and_chunks_together_are_refused_in_words():
    lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with house() as served:
        _, answer = await send_raw(served.url, POST + lengths + b"0\r\n\r\n")
        assert b"both Content-Length and Transfer-Encoding" in answer


async def test_a_body_that_is_compressed_is_not_inflated():
    bomb = gzip.compress(b'{"text": "' + b"a" * 10_000_000 + b'"}')
    assert len(bomb) < 20_000
    async with house() as served, served.http() as http:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        for body in (bomb, gzip.compress(b'{"text": "small"}')):
            answer = await http.post(MESSAGES, content=body, headers=headers)
            problem(answer, 422, "invalid-request")
        assert await served.service.store.sessions() == []


async def test_many_requests_at_once_in_a_connection_are_answered_in_order():
    raw = b"".join(
        f"GET /nowhere/{number} HTTP/1.1\r\n".encode() + HOST + b"\r\n" for number in range(90)
    )
    async with house() as served:
        _, answer = await send_raw(served.url, raw, until=b"/nowhere/89")
        places = [answer.find(b"/nowhere/%d" % number) for number in range(90)]
        assert places == sorted(places)
        assert -1 not in places


ONE = EVENTS.removesuffix("/events")
ABSURD = [
    *(
        f"{place}?limit={limit}"
        for place in ("/v1/agents/helper/sessions", f"{ONE}/history")
        for limit in ("999999999", "-1", "0", "1e3", "%D9%A3", "9" * 5_000, "1;drop")
    ),
    *(
        f"{ONE}/{verb}/{handle}"
        for verb in ("why", "recall")
        for handle in ("m-1", "m99999999999999999999", "m1e9", "m", "m0x1", "r1.99999999999")
    ),
    f"{EVENTS}?after=junk",
    "/v1/agents/helper/sessions?after=a&after=b",
]


async def test_absurd_values_are_refused():
    async with house("Hello.") as served, served.http() as http:
        await served.session().ask("Hi.")
        for path in ABSURD:
            problem(await http.get(path), 422, "invalid-request")


REFUSED_BODIES = {
    # Addresses inside of the network, and what is no address of a picture.
    **{
        url: {"parts": [{"type": "image", "mime": "image/png", "url": url}]}
        for url in (
            "http://169.254.169.254/latest/meta-data/",
            "file:" + "///etc/passwd",
            "ftp://example.com/x.png",
            "gopher://127.0.0.1:6379/_x",
            "data:image/png;base64,AAAA",
            "//169.254.169.254/",
        )
    },
    **{
        f"{mime} {data}": {"parts": [{"type": "image", "mime": mime, "data": data}]}
        for mime, data in (
            ("image/png", "not base64!"),
            ("image/png", ""),
            ("image/png\r\nX-Own: 1", "QUI="),
            ("image/png; charset=x", "QUI="),
            ("", "QUI="),
        )
    },
    **{
        key: {"text": "Hello.", "key": key}
        for key in ("k" * 5_000, "k\x1b[2J", "k\nX-Own: 1", "", "é", "k\u202e")
    },
}
REPEATED_FIELDS = (
    b'{"text": "Hello.", "text": "Send all."}',
    b'{"text": "Hello.", "user": "ann", "user": "bob"}',
    b'{"parts": [{"type": "text", "text": "Hello.", "text": "Send all."}]}',
    b'{"text": "Hello.", "\\u0074ext": "Send all."}',
)


async def test_a_body_with_a_hostile_value_is_refused():
    async with house() as served, served.http() as http:
        for body in REFUSED_BODIES.values():
            problem(await http.post(MESSAGES, json=body), 422, "invalid-request")
        for key in ("k" * 5_000, "a b"):
            answer = await http.post(
                MESSAGES, json={"text": "Hello."}, headers={"Idempotency-Key": key}
            )
            problem(answer, 422, "invalid-request")
        assert (await http.get("/v1/agents/helper/sessions")).json()["sessions"] == []


async def test_a_body_in_which_a_field_is_repeated_is_refused():
    """A proxy that checks bodies may read the first value, and the server the last."""
    async with house() as served, served.http() as http:
        for raw in REPEATED_FIELDS:
            headers = {"Content-Type": "application/json"}
            told = problem(
                await http.post(MESSAGES, content=raw, headers=headers), 422, "invalid-request"
            )
            assert "this field twice" in told["detail"]


async def test_text_that_means_something_elsewhere_is_text_here():
    sql = ("' OR '1'='1", "x';DROP TABLE trimtab.events;--", "%", "_")
    patterns = ("(" * 500, "[" * 500, "(a+)+" * 100, "\\" * 300, '"' * 500)
    async with house("Hello.") as served, served.http() as http:
        await served.session().ask("Hi.")
        for text in sql:
            answer = await http.get("/v1/agents/helper/sessions", params={"after": text})
            assert answer.status_code == 200
        for text in (*sql, *patterns):
            async with asyncio.timeout(10):
                answer = await http.get(f"{ONE}/search", params={"q": text})
            assert answer.status_code == 200, text
