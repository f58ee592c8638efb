"""Whether a server answers while somebody without a key holds thousands of half-open connections.

A real server on files that may open 1,024 descriptors, with a simulated provider behind it. The
attacker opens connections, sends the beginning of a request in each and no more, and opens another
one for each that the server closes: at first from one address, then from many. Meanwhile `/healthz`
is asked from another address, again and again, each time in a new connection; a reader with a key
follows a session; and messages with a key are sent and answered.

connections     half-open connections that the attacker opened, of which so many were held at once
                as the size says, or as the server allowed
healthz_ms_max  the slowest answer to `/healthz`, with its connection
log_bytes       what the server wrote into its log
refused         connections of the attacker that the server closed
descriptors     the most that the server had open
messages        answered during the attack and after it
ran_s, waited_s seconds that the server computed, and that it waited for a core: on a machine that
                is busy with other work, the latter is what `/healthz` waits for
"""

from __future__ import annotations

import asyncio
import http.client
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.harness import Report, progress, run
from tests.soak.http_served import Server, served
from trimtab_serve.client import Client, RemoteSession

DESCRIPTORS = 1_024
PROBE_TIMEOUT_S = 10.0
PROBE_ADDRESS = "127.0.0.1"
MAX_HEALTHZ_MS = 1_000.0
MAX_LOG_BYTES = 1_000_000
UNFINISHED_REQUEST = b"GET / HTTP/1.1\r\nX: "
OPENED_PER_S = 500
"""How fast the attacker opens the first connections. A server of one process takes some thousands a
second; to send more than that is another attack, which a firewall stops."""
REOPENED_AFTER_S = 10.0
MESSAGES = 3
"""Sent with a key in each phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    connections: int
    """Half-open ones at once."""
    hold_s: float
    """Seconds for which they are held."""


FULL = Size(connections=2_000, hold_s=30.0)
QUICK = Size(connections=1_200, hold_s=6.0)


class Attack:
    """Half-open connections, each opened again a while after the server has closed it. They live in
    a process of their own, so that they do not slow whoever measures."""

    def __init__(self, host: str, port: int, addresses: list[str], connections: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready, self._ended = context.Event(), context.Event()
        self._counts = context.SimpleQueue()
        self._process = context.Process(
            target=hold_connections,
            args=((host, port), addresses, connections, (self._ready, self._ended), self._counts),
            daemon=True,
        )

    def start(self) -> None:
        """Returns when the first connection is about to be opened."""
        self._process.start()
        self._ready.wait()

    def stop(self) -> AttackCounts:
        self._ended.set()
        counts: AttackCounts = self._counts.get()
        self._process.join()
        return counts


@dataclass
class AttackCounts:
    opened: int = 0
    closed: int = 0
    """By the server."""
    most_open: int = 0


def hold_connections(
    server: tuple[str, int],
    addresses: list[str],
    connections: int,
    signals: tuple[Any, Any],
    answer: Any,
) -> None:
    """The attacker's process."""
    raise_own_descriptor_limit()
    ready, ended = signals
    ready.set()
    answer.put(asyncio.run(_hold_all(server, addresses, connections, ended)))


async def _hold_all(
    server: tuple[str, int], addresses: list[str], connections: int, ended: Any
) -> AttackCounts:
    counts, open_now = AttackCounts(), 0

    async def hold(number: int) -> None:
        nonlocal open_now
        await asyncio.sleep(number / OPENED_PER_S)
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    *server, local_addr=(addresses[number % len(addresses)], 0)
                )
                counts.opened += 1
                open_now += 1
                counts.most_open = max(counts.most_open, open_now)
                try:
                    writer.write(UNFINISHED_REQUEST)
                    with suppress(OSError):
                        while await reader.read(1_024):
                            pass
                    counts.closed += 1
                finally:
                    open_now -= 1
                    writer.transport.abort()
            await asyncio.sleep(REOPENED_AFTER_S)

    tasks = [asyncio.create_task(hold(number)) for number in range(connections)]
    await asyncio.to_thread(ended.wait)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return counts


@dataclass
class Probe:
    """`/healthz`, asked by a thread of its own."""

    host: str
    port: int
    slowest_ms: float = 0.0
    asked: int = 0
    failures: list[str] = field(default_factory=list[str])
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._ended.wait(0.1):
            begun = time.monotonic()
            self.asked += 1
            try:
                connection = http.client.HTTPConnection(
                    self.host,
                    self.port,
                    timeout=PROBE_TIMEOUT_S,
                    source_address=(PROBE_ADDRESS, 0),
                )
                connection.request("GET", "/healthz")
                if (status := connection.getresponse().status) != http.HTTPStatus.OK:
                    self.failures.append(f"status {status}")
                connection.close()
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            self.slowest_ms = max(self.slowest_ms, (time.monotonic() - begun) * 1_000)

    def end(self) -> None:
        self._ended.set()


def raise_own_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 10_000), hard))


def count_descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def read_scheduler_seconds(pid: int) -> tuple[float, float]:
    """Seconds that a process has run, and that it has waited for a core."""
    ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(ran) / 1e9, int(waited) / 1e9


async def watch_descriptors(pid: int, most: list[int]) -> None:
    while True:
        most[0] = max(most[0], count_descriptors(pid))
        await asyncio.sleep(0.05)


async def follow(session: RemoteSession, wanted: int, replies: list[str]) -> None:
    """All replies of a session by one stream, which must not be cut off."""
    async with aclosing(session.follow_events("0")) as events:
        async for event in events:
            if event.kind == "message" and event.data["role"] == "assistant":
                replies.append(event.data["text"])
                if len(replies) == wanted:
                    return


async def attack_from(server: Server, addresses: list[str], size: Size, name: str) -> Report:
    """One phase."""
    where = urlsplit(server.url)
    assert where.hostname is not None
    assert where.port is not None
    attack = Attack(where.hostname, where.port, addresses, size.connections)
    probe = Probe(where.hostname, where.port)
    thread = threading.Thread(target=probe.run, daemon=True)
    descriptors, log_before = [0], server.log_bytes
    ran, waited = read_scheduler_seconds(server.process.pid)
    async with Client(server.url, key=server.key, timeout=60.0) as client:
        session = await client.create_session("helper", name.replace(" ", "-"))
        replies: list[str] = []
        reading = asyncio.create_task(follow(session, MESSAGES + 1, replies))
        watching = asyncio.create_task(watch_descriptors(server.process.pid, descriptors))
        await asyncio.to_thread(attack.start)
        thread.start()
        answered = 0
        for number in range(MESSAGES):
            await asyncio.sleep(size.hold_s / MESSAGES)
            answered += bool(await session.ask(f"During the attack, {number}."))
            progress(f"{name}: {answered} answered, /healthz {probe.slowest_ms:.0f} ms at most")
        probe.end()
        await asyncio.to_thread(thread.join)
        counts = await asyncio.to_thread(attack.stop)
        answered += bool(await session.ask("After it."))
        async with asyncio.timeout(60):
            await reading
        watching.cancel()
    ran_now, waited_now = read_scheduler_seconds(server.process.pid)
    return {
        "addresses": len(addresses),
        "connections": counts.opened,
        "most_open": counts.most_open,
        "healthz_asked": probe.asked,
        "healthz_ms_max": round(probe.slowest_ms, 1),
        "healthz_failures": probe.failures,
        "log_bytes": server.log_bytes - log_before,
        "refused": counts.closed,
        "descriptors": descriptors[0],
        "messages": answered,
        "replies_by_stream": len(replies),
        "ran_s": round(ran_now - ran, 1),
        "waited_s": round(waited_now - waited, 1),
    }


def judge(name: str, phase: Report) -> list[str]:
    broken: list[str] = []
    if phase["healthz_failures"]:
        broken.append(f"{name}: /healthz failed: {phase['healthz_failures'][:3]}")
    if phase["healthz_ms_max"] >= MAX_HEALTHZ_MS:
        line = f"{name}: /healthz took {phase['healthz_ms_max']} ms"
        if phase["waited_s"] > phase["ran_s"]:
            line += (
                f"; the server waited {phase['waited_s']} s for a core: repeat it when it is quiet"
            )
        broken.append(line)
    if phase["log_bytes"] >= MAX_LOG_BYTES:
        broken.append(f"{name}: {phase['log_bytes']} bytes of log")
    if phase["descriptors"] >= DESCRIPTORS:
        broken.append(f"{name}: all {DESCRIPTORS} descriptors were open")
    if phase["messages"] != MESSAGES + 1 or phase["replies_by_stream"] != MESSAGES + 1:
        broken.append(f"{name}: {phase['messages']} messages were answered")
    return broken


def main(quick: bool) -> Report:
    size = QUICK if quick else FULL
    many = [f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(500)]
    phases: dict[str, Report] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), descriptors=DESCRIPTORS) as server,
    ):
        for name, addresses in (("one address", ["127.0.0.9"]), ("many addresses", many)):
            phases[name] = asyncio.run(attack_from(server, addresses, size, name))
        broken = [line for name, phase in phases.items() for line in judge(name, phase)]
        if not server.runs:
            broken.append("the server has ended")
    found: dict[str, Any] = {
        "sample": f"{size.connections} half-open connections for {size.hold_s:g} s, twice",
        "connections": sum(phase["connections"] for phase in phases.values()),
        "healthz_ms_max": max(phase["healthz_ms_max"] for phase in phases.values()),
        "log_bytes": sum(phase["log_bytes"] for phase in phases.values()),
        "refused": sum(phase["refused"] for phase in phases.values()),
        "descriptors": max(phase["descriptors"] for phase in phases.values()),
        "messages": sum(phase["messages"] for phase in phases.values()),
        "ran_s": round(sum(phase["ran_s"] for phase in phases.values()), 1),
        "waited_s": round(sum(phase["waited_s"] for phase in phases.values()), 1),
        "phases": phases,
    }
    return {**found, "broken": broken}


if __name__ == "__main__":
    sys.exit(run(__doc__, main, ("uvicorn", "h11")))
