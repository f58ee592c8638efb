"""Probes are answered while the event loop stands still, whoever else connects."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from trimtab_serve.process import loop_health, probe_server
from trimtab_serve.process.http_server import build_listener_url, open_listening_socket
from trimtab_serve.process.loop_health import LoopHealth
from trimtab_serve.process.probe_server import ProbeServer

pytestmark = pytest.mark.anyio


@contextmanager
def probes(health: LoopHealth | None = None) -> Generator[str]:
    """The address of a server."""
    listener = open_listening_socket("127.0.0.1", 0)
    server = ProbeServer(
        health or LoopHealth(),
        listener=listener,
        render_metrics=lambda: (b"trimtab_up 1\n", "text/plain"),
    )
    server.start()
    try:
        yield build_listener_url(listener)
    finally:
        server.close()


def ask(url: str, method: str = "GET") -> tuple[int, bytes]:
    try:
        with urlopen(Request(url, method=method), timeout=10) as answer:  # noqa: S310 - our own
            return answer.status, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


async def test_a_probe_is_answered_while_the_event_loop_stands_still(monkeypatch):
    health = LoopHealth()
    noting = asyncio.create_task(health.run())
    await asyncio.sleep(0)
    with probes(health) as url:
        # This call blocks the loop.
        assert ask(f"{url}/healthz") == (200, b'{"status":"ok"}')
        monkeypatch.setattr(loop_health, "MAX_STALL_S", 0.0)
        status, body = ask(f"{url}/healthz")
        assert status == 503
        assert "the event loop has not run for 0 s" in json.loads(body)["detail"]
    noting.cancel()


async def test_the_port_has_metrics_and_nothing_else():
    with probes() as url:
        assert ask(f"{url}/metrics") == (200, b"trimtab_up 1\n")
        assert ask(f"{url}/v1/agents")[0] == 404
        assert ask(f"{url}/healthz", "POST")[0] == 405


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTTP/1.1\r\nX: ", b"\x16\x03\x01", b"x" * 100_000]
)
async def test_clients_that_never_finish_keep_nobody_out(monkeypatch, sent):
    monkeypatch.setattr(probe_server, "MAX_PROBE_CONNECTIONS", 4)
    with probes() as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        hostile = [socket.create_connection(address, timeout=10) for _ in range(20)]
        for client in hostile:
            client.sendall(sent)
        assert ask(f"{url}/healthz")[0] == 200
        for client in hostile:
            client.close()


async def test_a_client_that_takes_too_long_is_closed(monkeypatch):
    monkeypatch.setattr(probe_server, "PROBE_TIMEOUT_S", 0.05)
    with probes() as url:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        async with asyncio.timeout(10):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_the_log_says_once_what_a_loop_that_stands_still_is_doing(monkeypatch, caplog):
    monkeypatch.setattr(loop_health, "LOGGED_STALL_S", 0.0)
    health = LoopHealth()

    def look() -> None:
        health.log_stall()
        health.log_stall()

    async def count_grains_of_sand() -> None:
        watcher = threading.Thread(target=look)
        watcher.start()
        watcher.join()

    noting = asyncio.create_task(health.run())
    for _ in range(2):
        await asyncio.sleep(0)
        await asyncio.create_task(count_grains_of_sand(), name="turn of a/b/c")
        noting.cancel()
        noting = asyncio.create_task(health.run())
    await asyncio.sleep(0)
    noting.cancel()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    for line in lines:
        assert "it is in turn of a/b/c:" in line
        assert "in count_grains_of_sand" in line


async def test_systemd_hears_that_the_loop_runs_and_nothing_when_it_does_not(monkeypatch, tmp_path):
    path = Path(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    monkeypatch.setattr(probe_server, "WATCH_INTERVAL_S", 0.001)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        systemd.settimeout(10)
        with probes():
            assert systemd.recv(100) == b"WATCHDOG=1"
        systemd.setblocking(False)
        with suppress(BlockingIOError):
            while systemd.recv(100):
                pass
        monkeypatch.setattr(loop_health, "MAX_STALL_S", 0.0)
        with probes() as url:
            assert ask(f"{url}/healthz")[0] == 503
        with pytest.raises(BlockingIOError):
            systemd.recv(100)


def test_a_process_that_starts_slowly_has_no_loop_that_stands_still(monkeypatch, caplog):
    monkeypatch.setattr(loop_health, "LOGGED_STALL_S", 0.0)
    LoopHealth().log_stall()
    assert caplog.records == []
