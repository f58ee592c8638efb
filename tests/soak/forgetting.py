"""Whether a text that was erased or deleted is anywhere still, while it is served and afterwards.

A real `trimtab serve` on files, with HTTP, a Telegram bot and the clock, is told many texts, each
with a word that stands nowhere else: plain messages, messages with a key, replies and tool results
that repeat them, pictures with captions, texts of 70 kB, texts that a summary quotes, texts in dead
letters, in schedules, in replies that wait or cannot be delivered, in forks, and lines typed into a
chat. Then all of them are forgotten while it is serving: half are erased, message by message,
and half deleted with their sessions; over HTTP, and those of the chat by the command line. After
each step every byte of every file below the folder is looked at, those of the lines that were typed
and of the server's log among them: as they are, in Base64, in hexadecimal digits, in UTF-16, and
unpacked.

Last, some are forgotten while the server is killed. What it had not acknowledged is asked for once
more.

The same is done with two processes on PostgreSQL, and looked for in every row of every table and in
what `pg_dump` writes.

planted              texts that were found before they were forgotten, on files
found_at_once        of them, those that are found in a file as soon as all is forgotten
found_after_restart  those that are found after SIGTERM and a start, or after SIGKILL and a start
found_postgres_sql   those of PostgreSQL that some row of some table holds
found_pg_dump        those that stand in a dump
refused              requests to forget something that were not done
open_modes           files and folders of ours that somebody else may read

All but `planted` must be 0.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import queue
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import yaml

from benchmarks.harness import Report, run
from benchmarks.store_places import Postgres, no_server, place
from tests.simulators import telegram
from trimtab.stores.postgres.migrations import migrate
from trimtab.testing.server import spawn_simulated_provider
from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue

TEXTS = {"full": 200, "quick": 24}
SEED = 12
AT_ONCE = 8
"""Requests that are made side by side."""
REPLY = "At your service."
READY = b"\x1b[?2004h"
"""What a terminal is told when a line can be typed."""
PATIENCE = 60.0
"""Seconds after which something that should have happened has not."""
PACKAGES = ("starlette", "psycopg", "procrastinate", "prompt_toolkit", "anthropic")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
Known = set[str]
"""Words that are looked for."""


@dataclass(slots=True, kw_only=True)
class Plant:
    """A text, and how it is forgotten."""

    word: str
    """What stands nowhere else."""
    kind: str
    """How it came in."""
    session: str
    """Where it was said."""
    erase: bool
    """Whether message by message; else with its session."""


@dataclass(slots=True)
class Server:
    """A process that serves, or several of them."""

    folder: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list[Any])
    urls: list[str] = field(default_factory=list[str])

    def start(self, count: int = 1) -> None:
        """Begin so many, and wait until they answer."""
        self.processes, self.urls = [self._begin() for _ in range(count)], []
        for process in self.processes:
            self.urls.append(_url(process, self.folder / "server.log"))

    def end(self, number: int = signal.SIGTERM) -> None:
        for process in self.processes:
            process.send_signal(number)
        for process in self.processes:
            process.wait(PATIENCE)

    def _begin(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "trimtab.cli", "serve", "--log", "json"]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environ(self.folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )


def environ(folder: Path) -> dict[str, str]:
    own = {"XDG_STATE_HOME": str(folder / "state"), "TERM": "xterm"}
    return {**os.environ, **own, "PROMPT_TOOLKIT_NO_CPR": "1"}


def _url(process: subprocess.Popen[str], log: Path) -> str:
    """Where a process listens; all that it says goes into a file that is looked at as well."""
    told: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        assert process.stderr is not None
        with log.open("a", encoding="utf-8") as kept:
            for line in process.stderr:
                kept.write(line)
                kept.flush()
                if '"event": "serving"' in line:
                    told.put(json.loads(line)["url"])

    threading.Thread(target=read, daemon=True).start()
    return told.get(timeout=PATIENCE)


def forms(word: str) -> list[bytes]:
    """A word as it may stand in a file."""
    plain = word.encode()
    shifted = [base64.b64encode(b"x" * n + plain)[[0, 2, 3][n] :].rstrip(b"=") for n in range(3)]
    # The last message of each may depend on what follows.
    coded = [one[: len(one) - 1] for one in shifted]
    return [plain, plain.upper(), plain.hex().encode(), plain.decode().encode("utf-16-le"), *coded]


def found_in(parts: Iterable[bytes], words: Collection[str]) -> Known:
    """Words that stand somewhere, in any form."""
    whole = b"\0".join(parts)
    return {word for word in words if any(form in whole for form in forms(word))}


def files_below(folder: Path) -> list[bytes]:
    """All that is in files, those that are packed unpacked as well."""
    found: list[bytes] = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                data = path.read_bytes()
                found.append(data)
                with suppress(zlib.error):
                    found.append(zlib.decompress(data))
    return found


def readable_by_others(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.stat().st_mode & 0o077]


class Telling:
    """Tells a server texts, and has it forget them."""

    def __init__(
        self, server: Server, bots: telegram.ServedTelegramSimulator, pick: random.Random
    ) -> None:
        self.server = server
        self.forgotten = 0
        """Texts whose end was acknowledged."""
        self.refused: list[str] = []
        """What could not be forgotten, and why."""
        self._bots = bots
        self._pick = pick
        self._number = 0
        self._kinds: list[Callable[[httpx2.AsyncClient, Plant], Awaitable[None]]] = [
            *(self.plain, self.keyed, self.repeated, self.tool, self.picture, self.large),
            *(self.summarised, self.dead, self.schedule, self.forked, self.waiting, self.blocked),
        ]

    @asynccontextmanager
    async def http(self) -> AsyncGenerator[httpx2.AsyncClient]:
        # Of several processes each time another: whoever forgets is seldom who has answered.
        url = self._pick.choice(self.server.urls)
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            yield client

    async def plant(self, count: int) -> list[Plant]:
        """So many texts, of all kinds in turn."""
        made: list[Plant] = []
        for _ in range(count):
            self._number += 1
            kind = self._kinds[self._number % len(self._kinds)].__name__
            word = f"zq{self._number:04d}{self._pick.randbytes(5).hex()}"
            bot = kind in ("waiting", "blocked")
            name = f"telegram:{10_000 + self._number}" if bot else f"s{self._number}"
            erase = self._number // len(self._kinds) % 2 == 0
            made.append(Plant(word=word, kind=kind, session=name, erase=erase))
        # The bot is quick to answer, so its troubles are of one kind at a time.
        for kinds in ({"waiting"}, {"blocked"}):
            await self._all(made, lambda one, kinds=kinds: one.kind in kinds)
        await self._all(made, lambda one: one.kind not in ("waiting", "blocked"))
        return made

    async def _all(self, plants: list[Plant], wanted: Callable[[Plant], bool]) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(plant: Plant) -> None:
            async with gate, self.http() as http:
                await getattr(self, plant.kind)(http, plant)

        chosen = [plant for plant in plants if wanted(plant)]
        if chosen and chosen[0].kind == "waiting":
            flood = telegram.OneTimeTelegramFault(refusal=telegram.make_flood_refusal(3_600))
            self._bots.simulator.fail_calls("sendMessage", *[flood] * 4 * len(chosen))
        await asyncio.gather(*map(one, chosen))
        self._bots.simulator._troubles.clear()

    async def say(self, http: httpx2.AsyncClient, plant: Plant, **message: Any) -> None:
        """Say it, and wait until it is answered or given up."""
        path = f"{_path(plant.session)}/messages"
        (await http.post(path, json=message)).raise_for_status()
        await until(lambda: self._rests(http, plant.session))

    async def _rests(self, http: httpx2.AsyncClient, session: str) -> bool:
        answer = await http.get(_path(session))
        state = answer.json()
        known = answer.status_code == 200 and state["messages"] > 0
        return known and (not state["waiting"] or state["failure_reason"] is not None)

    async def plain(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        await self.say(http, plant, text=f"My name is {plant.word}, “Zoë”.")

    async def keyed(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        text = f"Call me {plant.word}."
        await self.say(http, plant, text=text, key=f"key-{plant.session}")
        await self.say(http, plant, text=text, key=f"key-{plant.session}")

    async def repeated(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        await self.say(http, plant, text=_simulated({"text": f"So you are {plant.word}."}))

    async def tool(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        call = {"name": "echo", "arguments": {"text": f"It is {plant.word}."}}
        await self.say(http, plant, text=_simulated({"calls": [call]}, {"text": "Done."}))

    async def picture(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        # Behind the last chunk of a PNG anything may stand.
        data = base64.b64encode(PNG + plant.word.encode()).decode()
        caption = {"type": "text", "text": f"This is {plant.word}."}
        image = {"type": "image", "mime": "image/png", "data": data}
        await self.say(http, plant, parts=[caption, image])

    async def large(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        await self.say(http, plant, text=f"{plant.word} " * (70_000 // (len(plant.word) + 1)))

    async def summarised(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        await self.say(http, plant, text=f"Remember `{plant.word}` and /srv/{plant.word}.py.")
        for number in range(6):
            await self.say(http, plant, text=f"{number}: " + "and so on " * 30)
        (await http.post(f"{_path(plant.session)}/compact", json={})).raise_for_status()

    async def dead(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        await self.say(http, plant, text=f"{_simulated({'fault': 'forbidden'})}\n{plant.word}")

    async def schedule(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        given = {"when": "in 2 hours", "message": f"Ask {plant.word} again."}
        call = {"name": "schedule_task", "arguments": given}
        await self.say(http, plant, text=_simulated({"calls": [call]}, {"text": "Done."}))

    async def forked(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        await self.plain(http, plant)
        copy = {"name": f"{plant.session}-copy"}
        (await http.post(f"{_path(plant.session)}/fork", json=copy)).raise_for_status()

    async def waiting(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        chat = int(plant.session.partition(":")[2])
        self._bots.simulator.post_user_message(chat, _simulated({"text": f"You say {plant.word}."}))
        await until(lambda: self._rests(http, plant.session))

    async def blocked(self, http: httpx2.AsyncClient, plant: Plant) -> None:
        self._bots.simulator.get_or_add_chat(int(plant.session.partition(":")[2])).blocked = True
        await self.waiting(http, plant)

    async def forget(self, plants: Iterable[Plant]) -> list[Plant]:
        """Have all of them forgotten; those that were not."""
        gate, left = asyncio.Semaphore(AT_ONCE), list[Plant]()

        async def one(plant: Plant) -> None:
            sessions = [plant.session]
            if plant.kind == "forked":
                sessions.append(f"{plant.session}-copy")
            try:
                async with gate, self.http() as http:
                    for session in sessions:
                        await (self._erase if plant.erase else self._delete)(http, session, plant)
                self.forgotten += 1
            except (httpx2.HTTPError, LookupError) as error:
                left.append(plant)
                self.refused.append(f"{plant.kind}: {error!r}")

        await asyncio.gather(*map(one, plants))
        return left

    async def _delete(self, http: httpx2.AsyncClient, session: str, plant: Plant) -> None:
        del plant
        answer = await http.delete(_path(session))
        # Where a kill cut the first attempt short, the session may be gone: what counts is what is
        # found afterwards.
        if answer.status_code != 404:
            answer.raise_for_status()

    async def _erase(self, http: httpx2.AsyncClient, session: str, plant: Plant) -> None:
        """Every message that says it; twice, for the same again does no harm."""
        told = (await http.get(f"{_path(session)}/history")).raise_for_status().json()
        handles = [one["handle"] for one in told["messages"] if plant.word in json.dumps(one)]
        if not handles:
            raise LookupError(f"no message of {session} says it")
        for handle in (*handles, handles[0]):
            body = {"handle": handle, "why": "asked for"}
            (await http.post(f"{_path(session)}/erase", json=body)).raise_for_status()


def _path(session: str) -> str:
    return f"/v1/agents/helper/sessions/{session}"


def _simulated(*steps: Any) -> str:
    """A message by which the simulated model knows what to do."""
    return f"simulate: {json.dumps([*steps])}"


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110 - a process of its own signals nothing here
            await asyncio.sleep(0.02)


def typed(folder: Path, pick: random.Random, count: int) -> Known:
    """Lines typed into chats, then erased by the command line, or deleted; their words."""
    words: Known = set()
    for number in range(count):
        session, mine = f"typed-{number}", [f"zqt{number}{pick.randbytes(5).hex()}" for _ in "ab"]
        words |= {*mine}
        _type(folder, session, [f"I am {mine[0]}.", f"And then\n{mine[1]} as well."])
        if found_in(files_below(folder / "state"), mine) != {*mine}:
            raise AssertionError("what is typed is kept for the next chat")
        commands = [["erase", session, "m2-m99"]] if number % 2 else [["delete", session]]
        for command in commands:
            told = [sys.executable, "-m", "trimtab.cli", "session", *command, "--yes"]
            subprocess.run(
                told, cwd=folder, env=environ(folder), check=True, stderr=subprocess.DEVNULL
            )
    return words


def _type(folder: Path, session: str, lines: list[str]) -> None:
    """A conversation at a terminal of its own: each line when the prompt is there."""
    main, other = pty.openpty()
    command = [sys.executable, "-m", "trimtab.cli", "chat", "--session", session]
    with subprocess.Popen(
        command, cwd=folder, env=environ(folder), stdin=other, stdout=other, stderr=other
    ) as process:
        os.close(other)
        try:
            _read(main, READY)
            for line in lines:
                # Ctrl-J is a new row of the same message.
                os.write(main, line.encode() + b"\r")
                _read(main, REPLY.encode())
            os.write(main, b"\x04")
            with suppress(OSError):  # when it ends, its terminal does
                _read(main, b"never said")
        finally:
            process.kill()
            os.close(main)


def _read(terminal: int, wanted: bytes) -> None:
    seen, deadline = b"", time.monotonic() + PATIENCE
    while wanted not in seen:
        if not select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"the chat has not said {wanted!r}: {seen[-400:]!r}")
        seen += os.read(terminal, 65_536)


def write_agent(
    folder: Path, model: str, bots: telegram.ServedTelegramSimulator, store: str
) -> None:
    """An agent with a tool, a bot and a clock."""
    parameter = {"type": "string", "description": "What is said."}
    echo = {"kind": "command", "description": "Say it.", "command": ["echo", "{text}"]}
    told = {
        "name": "helper",
        "model": {"name": "claude-sonnet-5-5", "base_url": model, "api_key": "none"},
        "system": "You are brief.",
        "session": {"store": store, "debounce": 0},
        "serve": {"port": 0, "requests_per_minute": 1_000_000},
        "tools": {"echo": {**echo, "parameters": {"text": parameter}}},
        "schedules": {"far": {"at": "2099-01-01 08:00", "message": "It is late."}},
        "telegram": {"token": bots.simulator.token, "allow": ["*"], "api": bots.url},
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")


@contextmanager
def town(
    model: str, store: str
) -> Generator[tuple[Path, Server, telegram.ServedTelegramSimulator]]:
    """A folder with an agent, whoever serves it, and where its bot talks."""
    folder = Path(tempfile.mkdtemp(prefix="trimtab-forgetting-"))
    server = Server(folder)
    try:
        with telegram.serve_simulated_telegram() as bots:
            write_agent(folder, model, bots, store)
            try:
                yield folder, server, bots
            finally:
                server.end(signal.SIGKILL)
    finally:
        shutil.rmtree(folder)


async def on_files(model: str, count: int, chats: int, pick: random.Random) -> Report:
    with town(model, "sessions") as (folder, server, bots):
        server.start()
        telling = Telling(server, bots, pick)
        last = max(6, count // 10)
        lines = typed(folder, pick, chats)
        plants = await telling.plant(count - len(lines) - last)
        words = {one.word for one in plants}
        planted = found_in(files_below(folder), words) | lines
        left = await telling.forget(plants)
        at_once = found_in(files_below(folder), words | lines)
        server.end()
        server.start()
        later = found_in(files_below(folder), words | lines)
        # Whoever is killed amid it has acknowledged some.
        doomed = await telling.plant(last)
        planted |= found_in(files_below(folder), {one.word for one in doomed})
        unheard = await _killed(telling, doomed)
        server.start()
        known = {one.word for one in doomed} - {one.word for one in unheard}
        later |= found_in(files_below(folder), words | lines | known)
        left += await telling.forget(unheard)
        later |= found_in(files_below(folder), {one.word for one in doomed})
        modes = readable_by_others(folder / "sessions") + readable_by_others(folder / "state")
        return {
            "planted": len(planted),
            "found_at_once": len(at_once),
            "found_after_restart": len(later),
            "refused": len(left),
            "open_modes": len(modes),
            "killed_amid": len(unheard),
            "where": _told(plants + doomed, at_once | later),
            "why": sorted({*telling.refused})[:3] if left else [],
        }


async def _killed(telling: Telling, plants: list[Plant]) -> list[Plant]:
    """Forget some while the server is killed; those that were not acknowledged."""
    enough = telling.forgotten + len(plants) // 3

    async def some() -> bool:
        return telling.forgotten >= enough

    forgetting = asyncio.create_task(telling.forget(plants))
    await until(some)
    await asyncio.to_thread(telling.server.end, signal.SIGKILL)
    left = await forgetting
    telling.refused.clear()
    return left


async def on_postgres(model: str, count: int, pick: random.Random) -> Report:
    with place("postgres") as database:
        assert isinstance(database, Postgres)
        return await _in_database(model, database.conninfo, count, pick)


async def _in_database(model: str, conninfo: str, count: int, pick: random.Random) -> Report:
    await migrate(conninfo)
    await migrate_job_queue(conninfo)
    with town(model, conninfo) as (folder, server, bots):
        server.start(2)
        telling = Telling(server, bots, pick)
        plants = await telling.plant(count)
        words = {one.word for one in plants}
        planted = found_in(rows_of(conninfo), words)
        left = await telling.forget(plants)
        by_sql = found_in([*rows_of(conninfo), *files_below(folder)], words)
        dump = await asyncio.to_thread(dumped, conninfo)
        return {
            "planted_postgres": len(planted),
            "found_postgres_sql": len(by_sql),
            "found_pg_dump": len(found_in(dump, words)),
            "refused_postgres": len(left),
            "where_postgres": _told(plants, by_sql),
            "why_postgres": sorted({*telling.refused})[:3],
        }


def rows_of(conninfo: str) -> list[bytes]:
    """Every row of every table of ours, as text; what is packed in it unpacked."""
    with psycopg.connect(conninfo) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables "
            "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        found: list[bytes] = []
        for (table,) in tables:
            rows = connection.execute(f"SELECT one.*::text FROM {table} AS one".encode()).fetchall()
            found += [str(row[0]).encode() for row in rows]
        packed = connection.execute("SELECT data FROM trimtab.blobs").fetchall()
    return [*found, *(zlib.decompress(row[0]) for row in packed)]


def dumped(conninfo: str) -> list[bytes]:
    """What a back-up of the database holds; what is packed in it unpacked."""
    command = ["pg_dump", conninfo]
    whole = subprocess.run(command, check=True, capture_output=True).stdout
    found = [whole]
    for digits in re.findall(rb"\\\\x((?:[0-9a-f]{2}){20,})", whole):
        with suppress(zlib.error):
            found.append(zlib.decompress(bytes.fromhex(digits.decode())))
    return found


def _told(plants: list[Plant], found: Known) -> dict[str, int]:
    """What was found, by kind."""
    return dict(Counter(one.kind for one in plants if one.word in found))


def main(quick: bool) -> Report:
    count, pick = TEXTS["quick" if quick else "full"], random.Random(SEED)  # noqa: S311 - not for secrets
    begun = time.monotonic()
    why_not = no_server() or (None if shutil.which("pg_dump") else "pg_dump is not installed")
    with spawn_simulated_provider(tokenizer="estimate") as model:
        model.set_replies(otherwise=REPLY)
        report = asyncio.run(on_files(model.url, count, 1 if quick else 4, pick))
        if why_not is None:
            report |= asyncio.run(on_postgres(model.url, count, pick))
    wanted = {"planted": count, **({"planted_postgres": count} if why_not is None else {})}
    zero = ("found_at_once", "found_after_restart", "found_postgres_sql", "found_pg_dump")
    zero += ("refused", "refused_postgres", "open_modes")
    broken = [f"{name} is {report[name]}" for name in zero if report.get(name)]
    broken += [f"{name} is {report[name]}" for name in wanted if report[name] != wanted[name]]
    return {
        "sample": f"{count} texts on files"
        + (f", {count} on PostgreSQL" if why_not is None else f"; {why_not}"),
        **report,
        "seconds": round(time.monotonic() - begun),
        "broken": broken,
    }


if __name__ == "__main__":
    sys.exit(run(__doc__, main, PACKAGES))
