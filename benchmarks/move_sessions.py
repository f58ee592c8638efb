"""What becomes of messages while their session moves from one database to another and back.

Two databases, one `trimtab serve` for each, and nginx in front with the rule of deploy/nginx.conf.
Clients post to one session, each message with an idempotency key until it is taken, and others to
sessions that stay. A reader follows the session as a stream of events. Meanwhile the session moves
to and fro; then movers are killed with SIGKILL at random moments and started again.

lost            messages that are not in the log, once and with a reply behind them
doubled         messages in the log twice, and replies behind a reply
out_of_order    messages of a client that stand in the log before an earlier one of the same client
stream_faults   messages that the reader did not get, or got twice
both_serve      after a kill, both databases would have taken a message
refused_p95_s   for messages that were refused, the seconds until they were taken (a client tries
                every 20 ms)

All but the last must be 0. `nobody_serves` counts kills between the two last steps of a move, after
which the session waits for the command to be run again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from statistics import median, quantiles

import psycopg

from benchmarks.crash.cluster import cluster, programs
from benchmarks.harness import Report, finish, head, parser, progress, skip
from trimtab.engine.log.event import MessageAdded
from trimtab.errors import SessionMoved
from trimtab.stores.postgres import PostgresStore
from trimtab.stores.postgres.migrations import migrate
from trimtab.testing.server import spawn_simulated_provider
from trimtab_serve.client import ApiError, Client, ServerUnreachable
from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue
from trimtab_serve.shards.move import open_shards

SEED = 35
SESSION = "default/helper/moving"
CLIENTS = 4
"""Clients of the session that moves. As many post to sessions that stay."""
PAUSE_S = 0.05
"""Seconds between two messages of a client."""
RETRY_S = 0.02
PATIENCE_S = 120.0
ZERO = ("lost", "doubled", "out_of_order", "stream_faults", "both_serve")
PACKAGES = ("procrastinate", "psycopg", "anthropic")
FORKSERVER = multiprocessing.get_context("forkserver")
PRELOADED = [
    "benchmarks.harness",
    "trimtab.testing.server",
    "trimtab_serve.client",
    "trimtab_serve.shards.move",
]
"""What a mover would import, so that it begins at once."""


def run_move(source: str, target: str, shard: str) -> None:
    """Move the session, as the command does. Runs in a process of its own."""

    async def move() -> None:
        async with open_shards(source, target, shard) as shards:
            shards.wait_for_turn_s = 1.0
            await shards.move_session(SESSION)

    asyncio.run(move())


@dataclass(slots=True)
class Run:
    """What is done, and what was seen."""

    url: str
    databases: dict[str, str]
    """Address by shard."""
    stores: dict[str, PostgresStore]
    pick: random.Random
    at: str = "a"
    """The shard that has the session."""
    posted: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Keys by client, in order."""
    refused: list[float] = field(default_factory=list[float])
    """Seconds for which a message was refused."""
    moves: list[float] = field(default_factory=list[float])
    """Seconds of each move."""
    streamed: list[str] = field(default_factory=list[str])
    """Handles of messages that the reader got."""
    found: Counter[str] = field(default_factory=Counter[str])

    async def lead(self, moves: int, kills: int) -> None:
        stop = asyncio.Event()
        async with Client(self.url) as client, asyncio.TaskGroup() as group:
            reading = group.create_task(self._follow(client))
            talking = [
                group.create_task(self._talk(client, session, f"{session}-{number}", stop))
                for number in range(CLIENTS)
                for session in ("moving", f"staying{number}")
            ]
            while True:
                await asyncio.sleep(RETRY_S)
                if await self._serves(self.at):
                    break
            for number in range(moves):
                progress(f"move {number + 1} of {moves}")
                await self._move()
            for number in range(kills):
                progress(f"kill {number + 1} of {kills}")
                await self._kill()
            stop.set()
            await asyncio.gather(*talking)
            await self._compare(client, await self._wait_for_replies())
            reading.cancel()

    async def _talk(self, client: Client, session: str, name: str, stop: asyncio.Event) -> None:
        remote, keys = client.session("helper", session), self.posted.setdefault(name, [])
        while not stop.is_set():
            key, begun, was_refused = f"{name}-{len(keys)}", time.monotonic(), False
            while True:
                try:
                    await remote.send(f"{key} is what I say.", key=key)
                except (ApiError, ServerUnreachable) as error:
                    if isinstance(error, ApiError) and error.status not in (421, 503):
                        self.found[f"status {error.status}"] += 1
                    was_refused = True
                    await asyncio.sleep(RETRY_S)
                else:
                    break
            if was_refused:
                self.refused.append(time.monotonic() - begun)
            keys.append(key)
            await asyncio.sleep(PAUSE_S)

    async def _follow(self, client: Client) -> None:
        while True:
            try:
                async for event in client.session("helper", "moving").follow_events("0"):
                    if event.kind == "message":
                        self.streamed.append(event.data["handle"])
            except ApiError as error:
                if self.streamed or error.status != 404:
                    raise
                await asyncio.sleep(RETRY_S)  # it has not begun

    async def _move(self) -> None:
        other = "b" if self.at == "a" else "a"
        begun = time.monotonic()
        process = self._start(other)
        await asyncio.to_thread(process.join)
        self.moves.append(time.monotonic() - begun)
        if process.exitcode == 0:
            self.at = other
        else:
            self.found["failed_moves"] += 1

    async def _kill(self) -> None:
        other = "b" if self.at == "a" else "a"
        process = self._start(other)
        await asyncio.sleep(self.pick.uniform(0, 1.2 * median(self.moves)))
        process.kill()
        await asyncio.to_thread(process.join)
        if process.exitcode == 0:
            self.at = other
            return
        serving = [shard for shard in self.stores if await self._serves(shard)]
        self.found["killed"] += 1
        self.found["both_serve"] += len(serving) > 1
        self.found["nobody_serves"] += not serving
        self.found["killed_after_leaving"] += serving == [other]
        await self._move()

    async def _serves(self, shard: str) -> bool:
        try:
            return bool(await self.stores[shard].position(SESSION))
        except SessionMoved:
            return False

    def _start(self, target: str) -> ForkServerProcess:
        addresses = self.databases[self.at], self.databases[target]
        process = FORKSERVER.Process(target=run_move, args=(*addresses, target))
        process.start()
        return process

    async def _wait_for_replies(self) -> list[MessageAdded]:
        """Return the messages of the log when the newest has a reply."""
        end = time.monotonic() + PATIENCE_S
        while True:
            log = [
                event.body
                async for event in self.stores[self.at].events(SESSION)
                if isinstance(event.body, MessageAdded)
            ]
            keys = {body.key for body in log}
            expected = [
                key for name in self.posted if "moving" in name for key in self.posted[name]
            ]
            is_whole = keys.issuperset(expected) and log[-1].message.role == "assistant"
            if is_whole or time.monotonic() > end:
                return log
            await asyncio.sleep(0.2)

    async def _compare(self, client: Client, log: list[MessageAdded]) -> None:
        keys = [body.key or "" for body in log if body.message.role == "user"]
        for name, expected in self.posted.items():
            if "moving" not in name:
                continue
            logged = [key for key in keys if key.startswith(f"{name}-")]
            self.found["messages"] += len(expected)
            self.found["lost"] += len({*expected} - {*logged})
            self.found["doubled"] += len(logged) - len({*logged})
            order = [int(key.rpartition("-")[2]) for key in dict.fromkeys(logged)]
            self.found["out_of_order"] += sum(a > b for a, b in pairwise(order))
        open_messages = 0
        for body in log:
            if body.message.role == "user":
                open_messages += 1
            elif body.message.role == "assistant":
                self.found["doubled"] += not open_messages
                self.found["turns"] += 1
                open_messages = 0
        self.found["lost"] += open_messages
        history = [one.handle async for one in client.session("helper", "moving").history()]
        end = time.monotonic() + 10
        while time.monotonic() < end:
            await asyncio.sleep(0.1)
            if len(self.streamed) >= len(history):
                break
        self.found["stream_faults"] = (Counter(history) - Counter(self.streamed)).total() + (
            Counter(self.streamed) - Counter(history)
        ).total()


@contextmanager
def served(folder: Path, database: str, model_url: str, port: int) -> Generator[None]:
    """A process that serves one database."""
    folder.mkdir()
    settings = {
        "name": "helper",
        "model": {"name": "claude-sonnet-5-5", "base_url": model_url, "api_key": "none"},
        "session": {"store": database},
        "serve": {"port": port, "requests_per_minute": 10**9, "shutdown_timeout": 1},
    }
    # JSON is YAML.
    (folder / "agent.yaml").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "trimtab.cli", "serve", "--log", "json"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process,  # noqa: S603 - ourselves
    ):
        try:
            _wait_for_port(port, process)
            yield
        finally:
            process.kill()


@contextmanager
def front(program: str, folder: Path, ports: dict[str, int]) -> Generator[str]:
    """nginx with the rule of the deploy file; its address."""
    rule = (Path(__file__).parents[1] / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    port = _find_free_port()
    for old, new in (
        ("server 10.0.1.1:8080;", f"server 127.0.0.1:{ports['a']};"),
        ("server 10.0.2.1:8080;", f"server 127.0.0.1:{ports['b']};"),
        ("listen 80;", f"listen 127.0.0.1:{port};"),
    ):
        assert old in rule, old
        rule = rule.replace(old, new)
    whole = (
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;\n"
        "events { worker_connections 1024; }\n"
        f"http {{ access_log off; client_body_temp_path {folder}/bodies;\n"
        f"proxy_temp_path {folder}/proxied; fastcgi_temp_path {folder}/unused;\n"
        f"uwsgi_temp_path {folder}/unused; scgi_temp_path {folder}/unused;\n{rule}}}\n"
    )
    (folder / "nginx.conf").write_text(whole, encoding="utf-8")
    command = [program, "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    with subprocess.Popen(command) as process:  # noqa: S603 - our own
        try:
            _wait_for_port(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens at port {port}")


async def measure(url: str, databases: dict[str, str], *, moves: int, kills: int) -> Report:
    stores = {shard: await PostgresStore.connect(one) for shard, one in databases.items()}
    pick = random.Random(SEED)  # noqa: S311 - not for secrets
    run = Run(url, databases, stores, pick)
    await run.lead(moves, kills)
    for store in stores.values():
        await store.close()
    found = run.found
    waits = quantiles(run.refused, n=20) if len(run.refused) > 1 else [0.0] * 19
    statuses = {name: count for name, count in found.items() if name.startswith("status ")}
    checks = (*ZERO, "failed_moves", *statuses)
    return {
        "sample": f"{moves} moves and {kills} killed movers of one session, {CLIENTS} clients in "
        f"it and {CLIENTS} beside it, seed {SEED}",
        "moves": len(run.moves) - found["failed_moves"],
        "killed": found["killed"],
        "messages": found["messages"],
        "turns": found["turns"],
        **{name: found[name] for name in ZERO},
        "nobody_serves": found["nobody_serves"],
        "refused_messages": len(run.refused),
        "refused_p50_s": round(waits[9], 3),
        "refused_p95_s": round(waits[18], 3),
        "refused_max_s": round(max(run.refused, default=0.0), 3),
        "move_p50_s": round(median(run.moves), 3),
        "move_max_s": round(max(run.moves), 3),
        "broken": [f"{name} is {found[name]}" for name in checks if found[name]],
    }


def main(program: str, where: Path, *, moves: int, kills: int) -> Report:
    FORKSERVER.set_forkserver_preload(PRELOADED)
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-")))
        server = held.enter_context(cluster(where))
        model = held.enter_context(spawn_simulated_provider(tokenizer="estimate", keeps=False))
        databases: dict[str, str] = {}
        ports: dict[str, int] = {}
        for shard in "ab":
            with psycopg.connect(server.conninfo, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE shard_{shard}")
            databases[shard] = f"{server.conninfo.rpartition('=')[0]}=shard_{shard}"
            asyncio.run(migrate(databases[shard]))
            asyncio.run(migrate_job_queue(databases[shard]))
            ports[shard] = _find_free_port()
            held.enter_context(served(folder / shard, databases[shard], model.url, ports[shard]))
        url = held.enter_context(front(program, folder, ports))
        return asyncio.run(measure(url, databases, moves=moves, kills=kills))


def start() -> int:
    for name in ("psycopg.pool", "httpx2"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    options = parser(__doc__)
    options.add_argument("--moves", type=int, help="how many; 100, or 10 with --quick")
    asked = options.parse_args()
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    program, where = shutil.which("nginx", path=path), programs()
    if program is None or where is None:
        missing = "nginx is" if program is None else "the programs of a PostgreSQL server are"
        return skip(f"{missing} not installed", as_json=asked.json)
    moves = asked.moves or (10 if asked.quick else 100)
    report = main(program, where, moves=moves, kills=max(2, moves // 3))
    return finish({**head(PACKAGES), **report}, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(start())
