"""Connections: who is closed to make room, what must arrive in time, and what is never cut."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import h11
import pytest

from tests.serve.channels.http.running_apps import EVENTS, MESSAGES, Held, House, house, until
from trimtab_serve.agent.config.spec import ServeSpec
from trimtab_serve.metrics import definitions as meters
from trimtab_serve.process import http_connections as module
from trimtab_serve.process.http_connections import (
    RESERVED_CONNECTIONS,
    RESERVED_CONNECTIONS_PER_ADDRESS,
    ConnectionLimits,
    OpenConnections,
    choose_connection_limits,
)

pytestmark = pytest.mark.anyio

HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


OPENED: list[asyncio.StreamWriter] = []


@asynccontextmanager
async def serving(*script: Any, **options: Any) -> AsyncGenerator[House]:
    """A server, and in the end nothing of what was connected to it."""
    async with house(*script, **options) as served:
        try:
            yield served
        finally:
            for writer in OPENED:
                writer.transport.abort()
            OPENED.clear()


async def connect(served: House, sent: bytes, address: str = "127.0.0.1"):
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
    OPENED.append(writer)
    writer.write(sent)
    return reader, writer


async def read_status(reader: asyncio.StreamReader) -> int:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    size = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
    await reader.readexactly(int(size or 0))
    return int(head.split()[1])


async def is_closed(reader: asyncio.StreamReader) -> bytes:
    """What comes before the end, which must come."""
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""


def closed_count(reason: str) -> float:
    return meters.http_connections_closed.labels(reason)._value.get()


# Headers that do not come


async def test_a_request_whose_headers_do_not_end_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "HEADER_TIMEOUT_S", 0.3)
    before = closed_count("header_timeout")
    async with serving() as served:
        reader, _ = await connect(served, HALF)
        assert (await is_closed(reader)).startswith(b"HTTP/1.1 408 ")
        silent, _ = await connect(served, b"")
        assert await is_closed(silent) == b""
        assert closed_count("header_timeout") == before + 2
        assert not served.connections()


async def test_headers_that_come_byte_by_byte_get_no_more_time(monkeypatch):
    monkeypatch.setattr(module, "HEADER_TIMEOUT_S", 0.5)
    async with serving() as served:
        reader, writer = await connect(served, HALF)

        async def trickle() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.05)

        sending = asyncio.create_task(trickle())
        begun = asyncio.get_running_loop().time()
        # Who is still sending may see the reset before the answer.
        found = await is_closed(reader)
        assert not found or b" 408 " in found
        assert asyncio.get_running_loop().time() - begun < 30
        sending.cancel()


async def test_the_next_request_of_a_connection_must_end_its_headers_as_well(monkeypatch):
    monkeypatch.setattr(module, "HEADER_TIMEOUT_S", 0.3)
    async with serving() as served:
        reader, writer = await connect(served, HEALTHZ)
        assert await read_status(reader) == 200
        await asyncio.sleep(0.6)  # between two requests it may wait for longer
        writer.write(HEALTHZ)
        assert await read_status(reader) == 200
        writer.write(HALF)
        assert b" 408 " in await is_closed(reader)


async def test_a_connection_that_idles_is_closed_after_the_keep_alive_time(monkeypatch):
    monkeypatch.setattr("trimtab_serve.process.http_server.KEEP_ALIVE_TIMEOUT_S", 0.2)
    async with serving() as served:
        reader, _ = await connect(served, HEALTHZ)
        assert await read_status(reader) == 200
        assert await is_closed(reader) == b""


async def test_neither_streams_nor_slow_bodies_nor_long_answers_are_cut(monkeypatch):
    monkeypatch.setattr(module, "HEADER_TIMEOUT_S", 0.2)
    model = Held("Hello.", after=1)
    async with serving(provider=model) as served, served.http() as http:
        body = b'{"text": "Hi."}'
        head = (
            f"POST {MESSAGES} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        reader, writer = await connect(served, head.encode() + body[:4])
        await asyncio.sleep(0.5)
        writer.write(body[4:])
        await model.reached.wait()
        async with http.stream("GET", EVENTS) as following:
            await asyncio.sleep(0.5)
            model.go_on.set()
            answer = await asyncio.wait_for(reader.readuntil(b"event: turn.finished"), 10)
            assert answer.startswith(b"HTTP/1.1 200 ")
            async for line in following.aiter_lines():
                if line == "event: turn.finished":
                    break


# Requests in tiny pieces

POST = f"POST {MESSAGES} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n".encode()
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def in_chunks(body: bytes, size: int, extension: bytes = b"") -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    sent = [b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces]
    return b"".join(sent) + b"0\r\n\r\n"


@pytest.mark.parametrize("extension", [b"", b";x=" + b"y" * 20])
@pytest.mark.parametrize("before", [b"", HEALTHZ], ids=["alone", "pipelined"])
async def test_a_body_in_too_many_tiny_chunks_is_refused_and_hardly_parsed(
    monkeypatch, extension, before
):
    monkeypatch.setattr(module, "MAX_SMALL_CHUNKS", 100)
    parsed: list[int] = []
    parse = h11.Connection.next_event

    def count(parser: Any) -> Any:
        parsed.append(1)
        return parse(parser)

    monkeypatch.setattr(h11.Connection, "next_event", count)
    async with serving() as served:
        served.leave_unanswered()
        body = b'{"text": "%b"}' % (b"a" * 2_000)
        reader, _ = await connect(served, before + CHUNKED + in_chunks(body, 1, extension))
        if before:
            assert await read_status(reader) == 200
        refusal = await is_closed(reader)
        # Who is still sending may see the reset before the answer.
        assert not refusal or (b" 400 " in refusal and b"send larger chunks" in refusal)
    assert len(parsed) < 250


async def test_a_body_in_chunks_of_a_usual_size_is_taken_however_many_there_are(monkeypatch):
    monkeypatch.setattr(module, "MAX_SMALL_CHUNKS", 10)
    async with serving() as served:
        served.leave_unanswered()
        body = b'{"text": "%b"}' % (b"a" * 20_000)
        reader, writer = await connect(served, CHUNKED + in_chunks(body, 256))
        assert await read_status(reader) == 202
        # The count begins again with each request.
        for _ in range(3):
            writer.write(CHUNKED + in_chunks(b'{"text": "Hi."}', 2))
            assert await read_status(reader) == 202


async def test_many_small_packets_are_read_a_few_times_a_second(monkeypatch):
    reads: list[int] = []
    receive = module.LimitedHttpProtocol.data_received

    def count(protocol: Any, data: bytes) -> None:
        reads.append(len(data))
        receive(protocol, data)

    monkeypatch.setattr(module.LimitedHttpProtocol, "data_received", count)
    async with serving() as served:
        served.leave_unanswered()
        body = b'{"text": "%b"}' % (b"a" * 300)
        reader, writer = await connect(served, POST + b"Content-Length: %d\r\n\r\n" % len(body))
        for byte in body:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.0002)
        assert await read_status(reader) == 202
    assert len(reads) < len(body) // 3


# Too many connections


async def test_half_open_connections_make_room_for_whoever_comes(monkeypatch):
    before = closed_count("evicted")
    async with serving("Hello.", limits=ConnectionLimits(total=4, per_address=4)) as served:
        strangers = [
            await connect(served, HALF, f"127.0.1.{number}")
            for number in range(1, RESERVED_CONNECTIONS + 40)
        ]
        most = 4 + RESERVED_CONNECTIONS
        await until(lambda: len(served.connections()) == most)
        for _ in range(5):
            reader, writer = await connect(served, HEALTHZ)
            assert await read_status(reader) == 200
            writer.close()
        assert await served.session().ask("Hi.") == "Hello."
        await until(lambda: closed_count("evicted") >= before + len(strangers) - most)
        # Those that have waited longest are gone.
        assert await is_closed(strangers[0][0]) == b""
        assert not strangers[-1][0].at_eof()


async def test_one_address_has_a_limit_of_its_own():
    limits = ConnectionLimits(total=500, per_address=4)
    async with serving(limits=limits) as served:
        crowd = [await connect(served, HALF, "127.0.0.9") for _ in range(30)]
        await until(lambda: len(served.connections()) == 4 + RESERVED_CONNECTIONS_PER_ADDRESS)
        other, _ = await connect(served, HALF, "127.0.0.10")
        reader, _ = await connect(served, HEALTHZ, "127.0.0.9")
        assert await read_status(reader) == 200
        assert await is_closed(crowd[0][0]) == b""
        assert not other.at_eof()


@pytest.mark.parametrize("limits", [(2, 2), (100, 2)])
async def test_streams_stay_and_what_is_too_much_gets_a_503_but_probes_are_answered(limits):
    total, per_address = limits
    before = closed_count("refused")
    async with (
        serving("Hello.", limits=ConnectionLimits(total=total, per_address=per_address)) as served,
        served.http() as http,
    ):
        await served.session().ask("Hi.")
        async with http.stream("GET", EVENTS) as one, http.stream("GET", EVENTS) as two:
            assert (one.status_code, two.status_code) == (200, 200)
            answer = await http.get("/v1/agents")
            told = answer.json()
            assert (answer.status_code, told["type"]) == (
                503,
                "urn:trimtab:problem:service-unavailable",
            )
            assert int(answer.headers["retry-after"]) > 0
            assert answer.headers["connection"] == "close"
            assert closed_count("refused") == before + 1
            assert (await http.get("/healthz")).status_code == 200
            assert (await http.get("/readyz")).status_code == 200
            for _ in range(RESERVED_CONNECTIONS + 20):
                await connect(served, HALF)
            assert (await http.get("/healthz")).status_code == 200
            lines = two.aiter_lines()
            served.offer.drain()
            assert [line async for line in lines if line.startswith("event: reconnect")]
        served.offer.draining = False
        assert (await http.get("/v1/agents")).status_code == 200


async def test_whoever_does_not_read_the_answers_is_no_better_than_who_sends_nothing():
    limits = ConnectionLimits(total=4, per_address=100)
    async with serving(limits=limits) as served:
        ask = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 400
        for _ in range(4):
            await connect_deaf(served, ask)
        for number in range(1, RESERVED_CONNECTIONS + 60):
            await connect(served, HALF, f"127.0.2.{number}")
        await until(lambda: len(served.connections()) == 4 + RESERVED_CONNECTIONS)
        reader, _ = await connect(served, HEALTHZ, "127.0.0.5")
        assert await read_status(reader) == 200


async def connect_deaf(served: House, sent: bytes) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1)
    transport: Any = writer.transport
    OPENED.append(writer)
    transport.pause_reading()
    writer.write(sent)


async def test_many_requests_in_one_connection_are_all_answered():
    async with serving(limits=ConnectionLimits(total=2, per_address=2)) as served:
        reader, writer = await connect(served, HEALTHZ * 200)
        for _ in range(200):
            assert await read_status(reader) == 200
        writer.close()
        await until(lambda: not served.connections())


# The bookkeeping


class Connection:
    def __init__(self, address: str) -> None:
        self.address = address
        self.is_evicted = False

    def evict(self) -> None:
        self.is_evicted = True


def test_strangers_go_before_those_with_a_valid_key_and_keep_a_few_places():
    table = OpenConnections(ConnectionLimits(total=100, per_address=100))
    known = [Connection("known") for _ in range(60)]
    for each in known:
        table.open(each)
        assert table.begin_request(each)
        table.end_request(each, had_valid_key=True)
    strangers = [Connection(f"s{number}") for number in range(200)]
    for each in strangers:
        table.open(each)
    assert len(table) == 100 + RESERVED_CONNECTIONS
    assert not any(each.is_evicted for each in known)
    assert [each.is_evicted for each in strangers] == [True] * 128 + [False] * 72
    late = [Connection("known") for _ in range(40)]
    for each in late:
        table.open(each)
    assert sum(not each.is_evicted for each in strangers) == RESERVED_CONNECTIONS
    more = [Connection("known") for _ in range(5)]
    for each in more:
        table.open(each)
    assert [each.is_evicted for each in known] == [True] * 5 + [False] * 55
    assert sum(not each.is_evicted for each in strangers) == RESERVED_CONNECTIONS


def test_a_trusted_proxy_may_have_more_connections_than_one_address():
    table = OpenConnections(
        ConnectionLimits(total=40, per_address=2, trusted_proxies=("10.1.0.0/16", "2001:db8::7"))
    )
    answering = {
        address: sum(table.begin_request(Connection(address)) for _ in range(30))
        for address in ("192.0.2.7", "10.1.2.3")
    }
    assert answering == {"192.0.2.7": 2, "10.1.2.3": 30}
    # An IPv6 address is known by its network.
    answered = [table.begin_request(Connection("2001:db8::/64")) for _ in range(8)]
    assert answered == [True] * 8
    assert not table.begin_request(Connection("10.1.2.3"))


def test_nothing_is_left_of_connections_that_are_gone():
    table = OpenConnections(ConnectionLimits(total=3, per_address=2))
    for round_number in range(50):
        some = [Connection(f"a{number % 20}") for number in range(60)]
        for number, each in enumerate(some):
            table.open(each)
            if number % 3 == round_number % 3:
                table.begin_request(each)
            if number % 4 == 0:
                table.end_request(each, had_valid_key=False)
        for each in some:
            table.close(each)
            table.end_request(each, had_valid_key=False)
            table.close(each)
    assert len(table) == 0
    left = {name: value for name, value in vars(table).items() if name != "limits" and value}
    assert not left


def test_limits_suit_the_descriptors(caplog):
    assert choose_connection_limits(ServeSpec(), 1_024) == ConnectionLimits(
        total=512, per_address=256
    )
    assert choose_connection_limits(ServeSpec(), 65_536) == ConnectionLimits(
        total=10_000, per_address=5_000
    )
    own = ServeSpec(max_connections=300, max_connections_per_address=300)
    assert choose_connection_limits(own, 1_024) == ConnectionLimits(total=300, per_address=300)
    assert not caplog.text
    much = ServeSpec(max_connections=5_000)
    assert choose_connection_limits(much, 1_024).total == 512
    assert (
        "serve.max_connections is 5000, but this process can have only 512 connections"
        in caplog.text
    )


DESCRIPTORS_SCRIPT = """
import os, resource
from trimtab_serve.process.http_connections import raise_descriptor_limit
for soft, hard in ((64, 512), (128, 128)):
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        print(raise_descriptor_limit(), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.process
def test_the_process_takes_the_descriptors_it_may_have():
    command = [sys.executable, "-c", DESCRIPTORS_SCRIPT]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["512", "128"]


def test_no_more_descriptors_are_taken_than_programs_of_tools_can_bear(monkeypatch):
    limits = [(256, resource.RLIM_INFINITY)]
    monkeypatch.setattr(module.resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(module.resource, "setrlimit", lambda _, given: limits.append(given))
    assert module.raise_descriptor_limit() == 65_536
    assert limits[-1] == (65_536, resource.RLIM_INFINITY)
