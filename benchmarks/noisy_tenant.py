"""Whether one tenant can stop the others.

    python -m benchmarks.noisy_tenant [--lane files|postgres] [--attack NAME] [--quick] [--json]

Twenty tenants talk over HTTP, two turns a second in all, and one more tenant attacks with an
ordinary key (role `talk`), one attack after the other. On files one process serves, on PostgreSQL
two do. The settings are the defaults. The attacker's agent has a simulated provider of its own, so
that the one of the others is not busy with the attacker's requests. Before the first attack and
after the last one the same twenty talk alone; the rest is compared with that.

search          a word of 100,000 letters, then one of 900,000, each searched for over HTTP
poison          the same word, searched for by the model, inside of a turn, in 4 sessions
megabytes       20 messages of a megabyte each in one session (5 in a quick run), all posted at once
bytes           a body of a megabyte, sent as chunks of one byte, over 4 connections
pages           the history of that session and a recall of all of it, 10 times at once
slow_turns      40 turns that each wait for the model for as long as the attack lasts
forks           100 forks of the session of megabytes
schedules       100 sessions that each ask for 20 schedules, one a minute each
bomb            a tool of a hostile MCP server, whose answer of 200 kB expands to 200 MB
blocks          a tool of that server whose answer has 15 blocks of 900 kB each
kills           a turn whose tool kills the process with SIGKILL, again after each restart

After that, what needs no key or no turn:

lockout         every process starts anew, and is sent guesses of keys without end, from the address
                of the others. Meanwhile each tenant tries its key for the first time
waiting         a tenant with a limit of 5 MB posts 60 messages of 0.9 MB, ten at once, behind turns
                that wait for the model
backlog         200,000 turns are put off, as in an outage of a provider (2,000 in a quick run), and
                a turn of another agent is fetched from a database of its own

valid_keys_refused  keys of tenants that were refused in `lockout`; must be 0
waiting_over_limit  bytes that wait in `waiting` beyond the limit; must be 0
fetch_ms           the median of the times of a fetch in `backlog`, according to PostgreSQL
healthz_max_ms     the slowest answer to `/healthz` of a process that runs, a new connection each
others_p95_ratio   the 95th of a hundred of the others' waits for a reply, against that without
                   attack; the largest of all attacks. `kills` is left out on files, where the only
                   process is gone until it is started again. A quick run has too few replies to
                   judge it
lost               messages of the others without a reply in the history, at the end
dead_letters       sessions of the others that were given up; must be 0
attacker_dead_letters  those of the attacker
rss_mb             the most memory that one process had
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.harness import Report, finish, head, parser, progress, skip
from tests.soak.crash.cluster import cluster, programs
from trimtab.testing.server import RemoteSimulator, spawn_simulated_provider
from trimtab_serve.api_keys.api_key import create_api_key
from trimtab_serve.api_keys.command_line_control import open_api_keys
from trimtab_serve.client import ApiError, Client, ServerUnreachable

MODEL = "claude-sonnet-5-5"
ATTACKER = "mallory"
TENANTS = [f"tenant{number:02}" for number in range(20)]
TURNS_PER_S = 2.0
MEGABYTE = 1_000_000
START_TIMEOUT_S = 120.0
REPLY_TIMEOUT_S = 120.0
MAX_ATTACK_S = 90.0
"""After this the others stop talking, even if the attack goes on."""
MAX_HEALTHZ_MS = 1_000.0
MAX_P95_RATIO = 3.0
MAX_FETCH_MS = 2.0
GREEDY = "greedy"
"""A tenant with a limit of its own."""
GREEDY_LIMIT_BYTES = 5 * MEGABYTE
GREEDY_MESSAGE_BYTES = 900_000
GUESSES = 200
"""Guesses of keys that come before the first valid key."""
KILLER = '''\
"""A tool that kills its process, as running out of memory would."""

import os
import signal


def die() -> str:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "alive"
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    attacks: tuple[str, ...]
    seconds: float
    """How long an attack lasts at least, and the others talk alone."""
    megabytes: int
    """How many messages `megabytes` posts."""
    put_off_turns: int
    """Turns that are put off in `backlog`."""


class ServedProcess:
    """A `trimtab serve` on a port of its own, started again whenever it ends."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.starts = 0
        self.rss_mb = 0
        self.up = threading.Event()
        self._folder = folder
        self._environ = environ
        self._ending = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._supervise, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        if not self.up.wait(START_TIMEOUT_S):
            raise RuntimeError((self._folder / f"{self.port}.log").read_text()[-2_000:])

    def restart(self) -> None:
        starts = self.starts
        self.up.clear()
        assert self._process is not None
        self._process.kill()
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.starts == starts or not _healthz(self.port):
            if time.monotonic() > deadline:
                raise RuntimeError((self._folder / f"{self.port}.log").read_text()[-2_000:])
            time.sleep(0.05)

    def stop(self) -> None:
        self._ending = True
        if self._process is not None:
            self._process.kill()
        self._thread.join()

    def _supervise(self) -> None:
        command = [sys.executable, "-m", "trimtab.cli", "serve", "--log", "json"]
        command += ["--port", str(self.port), "helper.yaml", "attacked.yaml"]
        with (self._folder / f"{self.port}.log").open("ab") as log:
            while not self._ending:
                self.starts += 1
                self._process = subprocess.Popen(  # noqa: S603 - ourselves
                    command, cwd=self._folder, env=self._environ, stdout=log, stderr=log
                )
                threading.Thread(target=self._wait_until_up, daemon=True).start()
                self._watch_memory(self._process)
                self.up.clear()

    def _wait_until_up(self) -> None:
        while not self._ending:
            if _healthz(self.port):
                self.up.set()
                return
            time.sleep(0.05)

    def _watch_memory(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            with suppress(OSError, ValueError, IndexError):
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
                kilobytes = status.partition("VmHWM:")[2].split(maxsplit=1)[0]
                self.rss_mb = max(self.rss_mb, int(kilobytes) // 1_024)
            time.sleep(0.2)


class HealthProbe:
    """Asks each process for `/healthz`, again and again, as a supervisor would."""

    def __init__(self, processes: Sequence[ServedProcess]) -> None:
        self.slowest_ms = 0.0
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(each,), daemon=True) for each in processes
        ]

    def __enter__(self) -> HealthProbe:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, process: ServedProcess) -> None:
        while not self._ended.wait(0.1):
            starts, begun = process.starts, time.perf_counter()
            answered = process.up.is_set() and _healthz(process.port)
            took_ms = 1_000 * (time.perf_counter() - begun)
            # A process that was killed meanwhile does not answer, and is not slow.
            if answered or (process.up.is_set() and process.starts == starts):
                self.slowest_ms = max(self.slowest_ms, took_ms)


def _healthz(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REPLY_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@dataclass
class Lane:
    """Processes that serve one store, and those who talk to them."""

    name: str
    processes: list[ServedProcess]
    keys: dict[str, str]
    """By tenant."""
    store: str
    """The folder or database."""
    sent: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The keys of all messages of the others that were accepted, by tenant."""
    turn_count: int = 0

    async def talk(self, clients: dict[str, Client], until: Callable[[], bool]) -> list[float]:
        """The others talk; returns what each waited for its reply, in milliseconds."""
        turns: list[asyncio.Task[float]] = []
        begun = time.monotonic()
        while not until():
            tenant = TENANTS[self.turn_count % len(TENANTS)]
            self.turn_count += 1
            turns.append(asyncio.create_task(self._turn(tenant, clients[tenant])))
            await asyncio.sleep(max(0.0, begun + len(turns) / TURNS_PER_S - time.monotonic()))
        return [1_000 * seconds for seconds in await asyncio.gather(*turns)]

    async def _turn(self, tenant: str, client: Client) -> float:
        key = f"k{self.turn_count}"
        begun = time.perf_counter()
        session = client.session("helper", "chat")
        with suppress(TimeoutError, ApiError, ServerUnreachable):
            async with (
                asyncio.timeout(REPLY_TIMEOUT_S),
                aclosing(session.stream(f"Question {key}", key=key)) as events,
            ):
                async for _ in events:
                    if key not in self.sent.setdefault(tenant, []):
                        self.sent[tenant].append(key)
        return time.perf_counter() - begun

    async def count_lost(self, clients: dict[str, Client]) -> int:
        """Messages that are not in the history, or have no reply behind them."""
        lost = 0
        ended = time.monotonic() + REPLY_TIMEOUT_S
        for tenant, keys in self.sent.items():
            session = clients[tenant].session("helper", "chat")
            while (await session.state()).waiting and time.monotonic() < ended:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
            unanswered = set(keys)
            waiting: set[str] = set()
            async for message in session.history():
                if message.role == "user" and message.key:
                    waiting.add(message.key)
                elif message.role == "assistant" and message.text:
                    unanswered -= waiting
                    waiting.clear()
            lost += len(unanswered)
        return lost


class Attacker:
    """Requests of the tenant that attacks, each in a thread."""

    def __init__(self, lane: Lane, size: Size) -> None:
        self.size = size
        self.refused = 0
        """Requests that were answered with 4xx or 5xx."""
        self._lane = lane
        self._count = 0

    def request(self, method: str, path: str, body: Any = None) -> None:
        self._count += 1
        process = self._lane.processes[self._count % len(self._lane.processes)]
        headers = {"Authorization": f"Bearer {self._lane.keys[ATTACKER]}"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=REPLY_TIMEOUT_S)
        with suppress(OSError, http.client.HTTPException):
            connection.request(method, f"/v1/agents/attacked/sessions/{path}", data, headers)
            response = connection.getresponse()
            self.refused += response.status >= 400
            response.read()
        connection.close()

    def say(self, session: str, text: str) -> None:
        self.request("POST", f"{session}/messages", {"text": text})

    def script(self, session: str, *steps: Any) -> None:
        """A message that says what the model does."""
        self.say(session, f"simulate:{json.dumps(steps)}")

    def wait(self, session: str) -> None:
        """Until nothing waits in a session, as far as its owner can see."""
        ended = time.monotonic() + REPLY_TIMEOUT_S
        process = self._lane.processes[0]
        while time.monotonic() < ended:
            connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=30)
            with suppress(OSError, http.client.HTTPException, ValueError):
                connection.request(
                    "GET",
                    f"/v1/agents/attacked/sessions/{session}",
                    headers={"Authorization": f"Bearer {self._lane.keys[ATTACKER]}"},
                )
                state = json.loads(connection.getresponse().read())
                if state.get("failure_reason") or (
                    state.get("messages") and not (state["waiting"] or state["running"])
                ):
                    return
            connection.close()
            time.sleep(0.25)

    # The attacks.

    def search(self) -> None:
        for letters in (100_000, 900_000):
            self.say(f"word{letters}", "a" * letters)
            self.wait(f"word{letters}")
            for _ in range(3):
                self.request("GET", f"word{letters}/search?q=aaaa")

    def poison(self) -> None:
        calls = [{"name": "search_history", "arguments": {"query": "aaaa"}}]
        for number in range(4):
            self.say(f"poison{number}", "a" * 900_000)
        for number in range(4):
            self.wait(f"poison{number}")
            self.script(f"poison{number}", {"calls": calls}, "done")
        for number in range(4):
            self.wait(f"poison{number}")

    def megabytes(self) -> None:
        text = "w" * 20 + " " + "hello world " * (MEGABYTE // 12)
        self._together(self.size.megabytes, lambda _: self.say("megabytes", text))
        self.wait("megabytes")
        self.say("megabytes", "And now?")
        self.wait("megabytes")

    def bytes(self) -> None:
        start = (
            "POST /v1/agents/attacked/sessions/bytes/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {self._lane.keys[ATTACKER]}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        body = json.dumps({"text": "b" * (MEGABYTE - 100)})
        chunks = "".join(f"1\r\n{letter}\r\n" for letter in body) + "0\r\n\r\n"

        def send(number: int) -> None:
            process = self._lane.processes[number % len(self._lane.processes)]
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", process.port), timeout=60) as connection,
            ):
                connection.sendall((start + chunks).encode())
                connection.recv(4_096)

        self._together(4, send)

    def pages(self) -> None:
        paths = ("megabytes/history?limit=1000", "megabytes/recall/m1-m999999")
        self._together(10, lambda number: self.request("GET", paths[number % 2]))

    def slow_turns(self) -> None:
        step = {"text": "slow", "delay": self.size.seconds}
        self._together(40, lambda number: self.script(f"slow{number}", step))
        time.sleep(self.size.seconds)
        for number in range(40):
            self.wait(f"slow{number}")

    def forks(self) -> None:
        self._together(100, lambda _: self.request("POST", "megabytes/fork", {}))

    def schedules(self) -> None:
        task = {"when": "* * * * *", "message": "beat"}
        calls = [{"name": "schedule_task", "arguments": task}] * 20
        self._together(100, lambda n: self.script(f"beat{n}", {"calls": calls}, "done"))
        for number in range(100):
            self.wait(f"beat{number}")

    def bomb(self) -> None:
        self._call_tool("evil__bomb")

    def blocks(self) -> None:
        self._call_tool("evil__blocks")

    def kills(self) -> None:
        self.script("kills", {"calls": [{"name": "die", "arguments": {}}]}, "alive")
        self.wait("kills")

    def _call_tool(self, name: str) -> None:
        for number in range(4):
            self.script(f"{name}{number}", {"calls": [{"name": name, "arguments": {}}]}, "done")
        for number in range(4):
            self.wait(f"{name}{number}")

    def _together(self, count: int, step: Callable[[int], None]) -> None:
        """Ten at once."""

        def run(first: int) -> None:
            for number in range(first, count, 10):
                step(number)

        threads = [threading.Thread(target=run, args=(first,)) for first in range(min(10, count))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def get_status(port: int, key: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REPLY_TIMEOUT_S)
    try:
        connection.request("GET", "/v1/agents", headers={"Authorization": f"Bearer {key}"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def count_refused_keys(lane: Lane) -> int:
    """Valid keys that are refused by processes that have just started, while others guess."""
    refused = 0
    for process in lane.processes:
        process.restart()
        has_ended, guesses = threading.Event(), threading.Semaphore(0)

        def guess(
            number: int,
            port: int = process.port,
            has_ended: threading.Event = has_ended,
            guesses: threading.Semaphore = guesses,
        ) -> None:
            count = 0
            while not has_ended.is_set():
                get_status(port, f"tt_guess-{number}-{count}")
                guesses.release()
                count += 1

        threads = [threading.Thread(target=guess, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(GUESSES):
            guesses.acquire(timeout=REPLY_TIMEOUT_S)
        refused += sum(get_status(process.port, lane.keys[name]) != 200 for name in TENANTS)
        has_ended.set()
        for thread in threads:
            thread.join()
    return refused


def count_waiting_bytes_over_limit(lane: Lane) -> int:
    """Bytes that a tenant at its limit makes wait beyond it."""
    text = "w" * GREEDY_MESSAGE_BYTES
    slow = f"simulate:{json.dumps([{'text': 'slow', 'delay': 20}])}"
    accepted_bytes: list[int] = []

    def post(number: int, text: str) -> None:
        process = lane.processes[number % len(lane.processes)]
        path = f"/v1/agents/attacked/sessions/greedy{number % 4}/messages"
        headers = {
            "Authorization": f"Bearer {lane.keys[GREEDY]}",
            "Content-Type": "application/json",
        }
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=REPLY_TIMEOUT_S)
        with suppress(OSError, http.client.HTTPException):
            connection.request("POST", path, json.dumps({"text": text}).encode(), headers)
            if connection.getresponse().status == 202:
                accepted_bytes.append(len(text))
        connection.close()

    for number in range(4):
        post(number, slow)
    time.sleep(1.0)  # the turns have begun, so all that follows waits
    accepted_bytes.clear()
    numbers = iter(range(60))

    def post_many() -> None:
        for number in numbers:
            post(number, text)

    threads = [threading.Thread(target=post_many) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not accepted_bytes:
        raise RuntimeError("no message of the tenant with a limit was accepted")
    return max(0, sum(accepted_bytes) - GREEDY_LIMIT_BYTES)


PUT_OFF = """
INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, scheduled_at)
SELECT 'turns', 'trimtab:turn', name, name,
    jsonb_build_object('session', name, 'failing_since', 1), now() + interval '4 minutes'
FROM (SELECT 't' || n || '/attacked/s' AS name FROM generate_series(1, %s) AS n) AS sessions
"""


async def measure_fetch_ms(server: str, put_off_turns: int) -> float:
    """The time of a fetch of a turn behind others that are put off, in a database of its own."""
    from psycopg import AsyncConnection
    from psycopg.types.numeric import Int8

    from trimtab_serve.queue.postgres.procrastinate_jobs import JobPayload
    from trimtab_serve.queue.postgres.queries import SERVER_QUERIES
    from trimtab_serve.queue.postgres.queue import PostgresMessageQueue

    place = server.rpartition("/")[0] + "/backlog"
    async with await AsyncConnection.connect(server, autocommit=True) as connection:
        await connection.execute("CREATE DATABASE backlog")
    migrate = [sys.executable, "-m", "trimtab.cli", "migrate", "--database", place]
    subprocess.run(migrate, check=True, capture_output=True)  # noqa: ASYNC221, S603 - ourselves
    options = {"options": "-c search_path=trimtab_queue"}
    async with await AsyncConnection.connect(place, autocommit=True, **options) as connection:
        await connection.execute("ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER")
        await connection.execute(PUT_OFF, [put_off_turns])
        await connection.execute("ALTER TABLE procrastinate_jobs ENABLE TRIGGER USER")
        await connection.execute("VACUUM ANALYZE procrastinate_jobs")
    queue = await PostgresMessageQueue.connect(place)
    try:
        await queue.defer_job(JobPayload(session="acme/helper/new"))
        explain = b"EXPLAIN (ANALYZE, FORMAT JSON) " + SERVER_QUERIES["fetch_job"]
        times_ms: list[float] = []
        async with queue.borrow_connection() as connection:
            worker = "INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id"
            ((worker_id,),) = await (await connection.execute(worker)).fetchall()
            values = ["turns", Int8(worker_id), [], [], False]
            for _ in range(9):
                async with connection.transaction(force_rollback=True):
                    cursor = await connection.execute(explain, values)
                    ((plans,),) = await cursor.fetchall()
                    assert plans[0]["Plan"]["Actual Rows"] == 1
                    times_ms.append(plans[0]["Execution Time"])
    finally:
        await queue.close()
    return round(median(times_ms), 2)


ATTACKS = (
    *("search", "poison", "megabytes", "bytes", "pages", "forks", "bomb", "blocks", "schedules"),
    *("slow_turns", "kills"),
)
FULL = Size(attacks=ATTACKS, seconds=15.0, megabytes=20, put_off_turns=200_000)
QUICK = Size(attacks=("search", "megabytes"), seconds=3.0, megabytes=5, put_off_turns=2_000)


@cache
def pack_bomb() -> bytes:
    """200 MB of text, compressed once: whoever measures must not wait for it."""
    return gzip.compress(b"x" * (200 * MEGABYTE), 6)


class HostileMcp(BaseHTTPRequestHandler):
    """An MCP server whose answers are too large."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = request.get("params", {}).get("name")
        if "id" not in request:
            self._send(202, b"")
            return
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": request.get("params", {}).get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "evil", "version": "1"},
            },
            "tools/list": {
                "tools": [
                    {"name": each, "description": each, "inputSchema": {"type": "object"}}
                    for each in ("bomb", "blocks")
                ]
            },
        }
        result = results.get(request["method"], {})
        if name == "blocks":
            result = {"content": [{"type": "text", "text": "x" * 900_000}] * 15}
        if name == "bomb":
            result = {"content": [{"type": "text", "text": "BOMB"}]}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        if name == "bomb":
            start, _, end = body.partition(b"BOMB")
            body = gzip.compress(start) + pack_bomb() + gzip.compress(end)
        self._send(200, body, packed=name == "bomb")

    def do_GET(self) -> None:
        self._send(405, b"")

    def do_DELETE(self) -> None:
        self._send(405, b"")

    def _send(self, status: int, body: bytes, *, packed: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base names it
        del format, args


@contextmanager
def hostile_mcp(attacks: Sequence[str]) -> Generator[str]:
    if "bomb" in attacks:
        pack_bomb()
    with ThreadingHTTPServer(("127.0.0.1", 0), HostileMcp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()


async def create_keys(store: str) -> dict[str, str]:
    """A key for each tenant."""
    keys: dict[str, str] = {}
    async with open_api_keys(store) as stored:
        for tenant in (*TENANTS, ATTACKER, GREEDY):
            role = "talk" if tenant in (ATTACKER, GREEDY) else "admin"
            keys[tenant], key = create_api_key(tenant, tenant=tenant, role=role)
            await stored.add(key)
    return keys


@contextmanager
def serving(name: str, models: dict[str, RemoteSimulator], mcp: str) -> Generator[Lane]:
    """The processes of a lane, for the length of the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-")))
        store, count = "sessions", 1
        if name == "postgres":
            where = programs()
            assert where is not None
            database = stack.enter_context(cluster(where))
            store, count = f"postgresql://postgres@127.0.0.1:{database.port}/postgres", 2
        (folder / "killer.py").write_text(KILLER, encoding="utf-8")
        for agent, model in models.items():
            settings = {
                "name": agent,
                "model": {"name": MODEL, "base_url": model.url, "api_key": "none"},
                "session": {"store": store},
                "tools": {
                    "evil": {"kind": "mcp", "url": mcp, "permission": "allow"},
                    "die": {
                        "kind": "python",
                        "function": "killer.py:die",
                        "on_interrupt": "rerun",
                    },
                },
                "serve": {
                    "keys": True,
                    "limits_by_tenant": {GREEDY: {"bytes": GREEDY_LIMIT_BYTES}},
                },
            }
            # JSON is YAML.
            (folder / f"{agent}.yaml").write_text(json.dumps(settings), encoding="utf-8")
        if name == "postgres":
            migrate = [sys.executable, "-m", "trimtab.cli", "migrate", "--database", store]
            subprocess.run(migrate, cwd=folder, check=True, capture_output=True)  # noqa: S603 - ourselves
        place = store if name == "postgres" else str(folder / store)
        keys = asyncio.run(create_keys(place))
        processes = [ServedProcess(folder, dict(os.environ)) for _ in range(count)]
        try:
            for process in processes:
                process.start()
            yield Lane(name, processes, keys, place)
        finally:
            for process in processes:
                process.stop()


async def run_lane(lane: Lane, size: Size) -> list[Report]:
    async with _clients(lane) as clients:
        await lane.talk(clients, _after(size.seconds / 2))  # every session exists, caches are warm
        alone = await lane.talk(clients, _after(size.seconds))
        rows = [await _attack(lane, clients, name, size) for name in size.attacks]
        if "kills" not in size.attacks:
            alone += await lane.talk(clients, _after(size.seconds))
        usual = _p95(alone)
        for row in rows:
            row["others_p95_ratio"] = round(row["others_p95_ms"] / usual, 2)
        for process in lane.processes:
            await asyncio.to_thread(process.up.wait, START_TIMEOUT_S)
        dead = {tenant: await clients[tenant].list_dead_letters() for tenant in TENANTS}
        mine = await clients[ATTACKER].list_dead_letters()
        total = {
            "lane": lane.name,
            "attack": "(all)",
            "alone_p95_ms": usual,
            "turns": lane.turn_count,
            "lost": await lane.count_lost(clients),
            "dead_letters": sum(len(sessions) for sessions in dead.values()),
            "attacker_dead_letters": len(mine),
            "starts": sum(process.starts for process in lane.processes),
            "rss_mb": max(process.rss_mb for process in lane.processes),
        }
    return [*rows, total]


async def _attack(lane: Lane, clients: dict[str, Client], name: str, size: Size) -> Report:
    progress(f"{lane.name}: {name}")
    attacker = Attacker(lane, size)
    thread = threading.Thread(target=getattr(attacker, name), daemon=True)
    soonest, latest = _after(size.seconds), _after(MAX_ATTACK_S)
    with HealthProbe(lane.processes) as probe:
        thread.start()
        waits = await lane.talk(clients, lambda: latest() or (soonest() and not thread.is_alive()))
    return {
        "lane": lane.name,
        "attack": name,
        "others_p95_ms": _p95(waits),
        "others_max_ms": round(max(waits), 1),
        "healthz_max_ms": round(probe.slowest_ms, 1),
        "turns": len(waits),
        "refused": attacker.refused,
    }


class _clients:  # noqa: N801 - a context manager
    """A client for each tenant, alternating between the processes."""

    def __init__(self, lane: Lane) -> None:
        urls = [process.url for process in lane.processes]
        self._clients = {
            tenant: Client(urls[number % len(urls)], key=lane.keys[tenant])
            for number, tenant in enumerate((*TENANTS, ATTACKER))
        }

    async def __aenter__(self) -> dict[str, Client]:
        return self._clients

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()


def _after(seconds: float) -> Callable[[], bool]:
    ended = time.monotonic() + seconds
    return lambda: time.monotonic() >= ended


def _p95(milliseconds: Sequence[float]) -> float:
    return round(quantiles(milliseconds, n=20, method="inclusive")[-1], 1)


def main(asked: Any) -> Report:
    size = QUICK if asked.quick else FULL
    if asked.attack:
        size = replace(size, attacks=tuple(asked.attack))
    lanes = [asked.lane] if asked.lane else ["files", "postgres"]
    rows: list[Report] = []
    with (
        spawn_simulated_provider(tokenizer="estimate", keeps=False) as model,
        spawn_simulated_provider(tokenizer="estimate", keeps=False) as attacked,
        hostile_mcp(size.attacks) as mcp,
    ):
        for name in lanes:
            with serving(name, {"helper": model, "attacked": attacked}, mcp) as lane:
                rows += asyncio.run(run_lane(lane, size))
                progress(f"{name}: waiting, lockout, backlog")
                extra: Report = {"waiting_over_limit": count_waiting_bytes_over_limit(lane)}
                extra["valid_keys_refused"] = count_refused_keys(lane)
                if name == "postgres":
                    extra["fetch_ms"] = asyncio.run(
                        measure_fetch_ms(lane.store, size.put_off_turns)
                    )
                rows[-1] |= extra
    attacks = [row for row in rows if "healthz_max_ms" in row]
    totals = [row for row in rows if "lost" in row]
    judged = [row for row in attacks if (row["lane"], row["attack"]) != ("files", "kills")]
    figures: Report = {
        "healthz_max_ms": max(row["healthz_max_ms"] for row in attacks),
        "others_p95_ratio": max((row["others_p95_ratio"] for row in judged), default=0.0),
        **{name: sum(row[name] for row in totals) for name in ("lost", "dead_letters")},
        "attacker_dead_letters": sum(row["attacker_dead_letters"] for row in totals),
        "rss_mb": max(row["rss_mb"] for row in totals),
        "valid_keys_refused": sum(row["valid_keys_refused"] for row in totals),
        "waiting_over_limit": sum(row["waiting_over_limit"] for row in totals),
        "fetch_ms": max((row["fetch_ms"] for row in totals if "fetch_ms" in row), default=0.0),
    }
    must = {
        f"{figures['valid_keys_refused']} valid keys are refused": figures["valid_keys_refused"]
        > 0,
        f"{figures['waiting_over_limit']} bytes wait beyond a limit": figures["waiting_over_limit"]
        > 0,
        f"fetch_ms is {figures['fetch_ms']}": figures["fetch_ms"] > MAX_FETCH_MS,
        f"healthz_max_ms is {figures['healthz_max_ms']}": figures["healthz_max_ms"]
        > MAX_HEALTHZ_MS,
        f"others_p95_ratio is {figures['others_p95_ratio']}": figures["others_p95_ratio"]
        > MAX_P95_RATIO
        and not asked.quick,
        f"{figures['lost']} messages are lost": figures["lost"] > 0,
        f"{figures['dead_letters']} dead letters of others": figures["dead_letters"] > 0,
    }
    return {**figures, "attacks": attacks, "lanes": totals, "broken": [k for k in must if must[k]]}


if __name__ == "__main__":
    asking = parser(__doc__)
    asking.add_argument("--lane", choices=["files", "postgres"], help="only this one")
    asking.add_argument("--attack", action="append", choices=ATTACKS, help="only this one")
    arguments = asking.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if arguments.lane != "files" and programs() is None:
        sys.exit(skip("PostgreSQL is not installed", as_json=arguments.json))
    sys.exit(finish({**head(), **main(arguments)}, as_json=arguments.json))
