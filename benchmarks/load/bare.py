"""The same turns as plain Procrastinate jobs: the same calls of the SDK, the same inserts.

What anybody would write who needs none of the rest: a job reads the conversation, asks, runs the
tool, asks again, and puts each step into a table before it goes on. Nothing is checked, nothing is
taken up after a crash, no request is ever too long.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from typing import Any

from anthropic import AsyncAnthropic
from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.worker import Worker
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

from benchmarks.load.model import CONTENT, DEFINITION, MAX_TOKENS, MODEL, SYSTEM
from benchmarks.load.served import EACH
from benchmarks.load.talk import Talk

TABLES = """
CREATE SCHEMA bare;
CREATE TABLE bare.inbox (
    number bigserial PRIMARY KEY, session text, key text, body text, UNIQUE (session, key));
CREATE TABLE bare.events (session text, seq int, kind text, body text, PRIMARY KEY (session, seq));
CREATE TABLE bare.outbox (
    number bigserial PRIMARY KEY, session text, key text UNIQUE, body text,
    state text DEFAULT 'waiting');
"""
INSERT = "INSERT INTO bare.events (session, seq, kind, body) VALUES (%s, %s, %s, %s)"
MESSAGES = "SELECT number, body FROM bare.inbox WHERE session = %s ORDER BY number"
HISTORY = "SELECT seq, kind, body FROM bare.events WHERE session = %s ORDER BY seq"
TASK, QUEUE = "bare", "bare"
AT_ONCE = {"autocommit": True}
"""An insert by itself is one round trip."""

Pool = AsyncConnectionPool[AsyncConnection]


def app_of(conninfo: str) -> App:
    told = make_conninfo(conninfo, options="-c search_path=bare")
    return App(connector=PsycopgConnector(conninfo=told, min_size=1, max_size=4))


async def set_up(conninfo: str) -> None:
    async with await AsyncConnection.connect(conninfo, autocommit=True) as connection:
        await connection.execute(TABLES)
    async with app_of(conninfo).open_async() as app:
        await app.schema_manager.apply_schema_async()


@asynccontextmanager
async def talking(conninfo: str, sessions: list[str]) -> AsyncGenerator[Talk]:
    """Those who write."""
    told = make_conninfo(conninfo, options="-c search_path=bare")
    async with (
        app_of(conninfo).open_async() as app,
        AsyncConnectionPool(told, min_size=8, max_size=8) as pool,
    ):

        async def post(session: str, key: str, text: str) -> None:
            body = json.dumps({"role": "user", "content": text})
            query = "INSERT INTO bare.inbox (session, key, body) VALUES (%s, %s, %s)"
            async with pool.connection() as connection:
                await connection.execute(query, [session, key, body])
                job = app.configure_task(
                    TASK, queue=QUEUE, lock=session, queueing_lock=session, connection=connection
                )
                await job.defer_async(session=session)

        yield Talk(sessions, post)


def worker(pipe: Connection, conninfo: str, url: str, sizes: dict[str, int]) -> None:
    """A process of those who answer."""
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    asyncio.run(_work(pipe, conninfo, url, sizes))


async def _work(pipe: Connection, conninfo: str, url: str, sizes: dict[str, int]) -> None:
    client = AsyncAnthropic(api_key="benchmark", base_url=url, max_retries=0)
    app = app_of(conninfo)

    async def around(job: Callable[[], Awaitable[Any]], _: JobContext, running: Worker) -> None:
        """What was answered is told when the job is over, for it holds the session until then."""
        task = asyncio.current_task()
        assert task is not None
        sent = await job()

        def told(_: asyncio.Task[Any]) -> None:
            pipe.send(sent)
            getattr(running, "_new_job_event").set()  # noqa: B009 - as the fleet does

        task.add_done_callback(told)

    pool: Pool = AsyncConnectionPool(conninfo, min_size=4, max_size=16, kwargs=AT_ONCE, open=False)
    async with app.open_async(), pool:

        async def turn(session: str) -> tuple[str, str, int, int, float]:
            return await Turn(client, pool, session, sizes).run()

        app.task(name=TASK, queue=QUEUE)(turn)
        pipe.send("ready")
        await Worker(
            app,
            queues=[QUEUE],
            concurrency=EACH,
            fetch_job_polling_interval=1.0,
            delete_jobs="always",
            install_signal_handlers=False,
            worker_middleware=[around],
        ).run()


class Turn:
    """One turn, step by step."""

    def __init__(
        self, client: AsyncAnthropic, pool: Pool, session: str, sizes: dict[str, int]
    ) -> None:
        self._client = client
        self._pool = pool
        self._session = session
        self._sizes = sizes
        self._seq = 0
        self._messages: list[dict[str, Any]] = []

    async def run(self) -> tuple[str, str, int, int, float]:
        begun = asyncio.get_running_loop().time()
        async with self._pool.connection() as connection:
            messages = await (await connection.execute(MESSAGES, [self._session])).fetchall()
            rows = await (await connection.execute(HISTORY, [self._session])).fetchall()
        self._seq = rows[-1][0] if rows else 0
        self._messages = [json.loads(body) for _, kind, body in rows if kind == "message"]
        for _, body in messages:
            await self._say(json.loads(body))
        await self._note("turn")
        while True:
            await self._note("call")
            content = await self._ask()
            await self._say({"role": "assistant", "content": content})
            calls = [block for block in content if block["type"] == "tool_use"]
            if not calls:
                break
            for call in calls:
                await self._note("turn")
                result = {"type": "tool_result", "tool_use_id": call["id"], "content": CONTENT}
                await self._say({"role": "user", "content": [result]})
        await self._note("turn")
        key = await self._finish([number for number, _ in messages], content)
        return self._session, key, self._seq, 0, asyncio.get_running_loop().time() - begun

    async def _ask(self) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        pieces: list[list[str]] = []
        asked: dict[str, Any] = {
            "model": MODEL,
            "max_tokens": MAX_TOKENS,
            "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
            "tools": [DEFINITION],
            "messages": self._messages,
        }
        stream: Any = await self._client.messages.create(**asked, stream=True)
        async with stream:
            async for event in stream:
                if event.type == "content_block_start":
                    blocks.append(event.content_block.model_dump(include={"type", "id", "name"}))
                    pieces.append([])
                elif event.type == "content_block_delta":
                    delta: Any = event.delta
                    text = delta.text if delta.type == "text_delta" else delta.partial_json
                    pieces[event.index].append(text)
        for block, parts in zip(blocks, pieces, strict=True):
            if block["type"] == "text":
                block["text"] = "".join(parts)
            else:
                block["input"] = json.loads("".join(parts) or "{}")
        return blocks

    async def _say(self, message: dict[str, Any]) -> None:
        self._messages.append(message)
        await self._insert("message", json.dumps(message))

    async def _note(self, kind: str) -> None:
        """What is not said is as long as it is with us."""
        await self._insert(kind, "x" * self._sizes[kind])

    async def _insert(self, kind: str, body: str) -> None:
        self._seq += 1
        async with self._pool.connection() as connection:
            await connection.execute(INSERT, [self._session, self._seq, kind, body])

    async def _finish(self, messages: Sequence[int], content: list[dict[str, Any]]) -> str:
        key = f"{self._session}/{self._seq}"
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(
                "DELETE FROM bare.inbox WHERE number = ANY (%s)", [list(messages)]
            )
            query = "INSERT INTO bare.outbox (session, key, body) VALUES (%s, %s, %s)"
            await connection.execute(query, [self._session, key, json.dumps(content)])
        async with self._pool.connection() as connection:
            await connection.execute(
                "UPDATE bare.outbox SET state = 'sent', body = '' WHERE key = %s", [key]
            )
        return key
