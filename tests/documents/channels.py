"""`trimtab serve` as a process with four channels, and simulated platforms before them.

With `product.py` the only module here that knows the product's names.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests import warm
from tests.documents.product import (
    LAYERED,
    SERVE_COMMAND,
    Life,
    Model,
    agent_file,
    folder_store,
    served_model,
)

PATIENCE = 60.0
"""Seconds after which what was waited for counts as missing."""
ADA = 7
"""A chat of Telegram."""
OPEN_STREAMS = "trimtab_event_streams_open"


async def until(holds: Callable[[], Any], what: str) -> None:
    """Wait for something that nobody signals; fails if it does not come."""
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends, f"{what} did not come within {PATIENCE:g} s"
        await asyncio.sleep(0.01)


@dataclass
class Server:
    """One agent behind HTTP, Telegram, Discord and schedules."""

    url: str
    model: Model
    telegram: Any
    discord: Any
    ann: Any
    pipe: Path
    """What the tool `wait` reads to its end."""
    log: list[str] = field(default_factory=list[str])

    async def fetch(self, path: str, body: Any = None) -> str:
        """Ask by HTTP; with a body it is sent as JSON."""
        return await asyncio.to_thread(self._fetch, path, body)

    def _fetch(self, path: str, body: Any) -> str:
        with self._asked(path, body) as answer:
            return answer.read().decode()

    def _asked(self, path: str, body: Any, accept: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": accept}
        request = urllib.request.Request(self.url + path, data, headers)  # noqa: S310 - our own server
        return urllib.request.urlopen(request, timeout=PATIENCE)  # noqa: S310

    @staticmethod
    def session(name: str, what: str = "") -> str:
        return f"/v1/agents/helper/sessions/{name}{what}"

    async def history(self, session: str) -> list[dict[str, Any]]:
        return json.loads(await self.fetch(self.session(session, "/history")))["messages"]

    async def display(self, session: str) -> str:
        return json.loads(await self.fetch(self.session(session, "/context")))["text"]

    async def metrics(self) -> str:
        return await self.fetch("/metrics")

    async def say(self, text: str) -> None:
        """Say something by HTTP, and wait for the end of the turn."""
        path = self.session("web", "/messages")
        with await asyncio.to_thread(
            self._asked, path, {"text": text}, "text/event-stream"
        ) as answer:
            await asyncio.to_thread(answer.read)

    async def write(self, text: str) -> None:
        """Say something on Telegram, and wait for the reply."""
        count = len(self.telegram.list_bot_texts(ADA))
        self.telegram.post_user_message(ADA, text)
        await until(lambda: len(self.telegram.list_bot_texts(ADA)) > count, "a reply on Telegram")

    async def post(self, text: str) -> None:
        """Say something on Discord, and wait for the reply."""
        channel = self.discord.open_direct_channel(self.ann)
        count = len(self.discord.list_posted_texts(channel))
        await self.discord.post_user_message(channel, self.ann, text)
        await until(
            lambda: len(self.discord.list_posted_texts(channel)) > count, "a reply on Discord"
        )

    async def replies(self) -> dict[str, list[str]]:
        """What was answered, by the channel."""
        web, ticks = await self.history("web"), await self.history("ticks")
        return {
            "http": [message["text"] for message in web if message["role"] == "assistant"],
            "schedule": [message["text"] for message in ticks if message["role"] == "assistant"],
            "telegram": self.telegram.list_bot_texts(ADA),
            "discord": self.discord.list_posted_texts(self.discord.open_direct_channel(self.ann)),
        }

    async def picture(self) -> bytes:
        """What `/context` shows on Telegram."""
        self.telegram.post_user_message(ADA, "/context")
        await until(lambda: self.telegram.list_calls("sendPhoto"), "a picture")
        return self.telegram.list_calls("sendPhoto")[0].params["photo"]

    async def leave_early(self) -> None:
        """Ask for something that takes long, and go while a tool is at work."""
        path = self.session("gone", "/messages")
        answer = await asyncio.to_thread(self._asked, path, {"text": "go"}, "text/event-stream")
        with answer:
            while not (await asyncio.to_thread(answer.readline)).startswith(b"event: tool"):
                pass

        def closed() -> bool:
            page = self._fetch("/metrics", None)
            return f"{OPEN_STREAMS} 0.0" in page.splitlines()

        await until(closed, "the end of the stream")
        for _ in range(5):
            # The server has seen it; what it does about it is done before it has answered these.
            await self.fetch(self.session("gone"))

    async def let_the_tool_end(self) -> None:
        (await asyncio.to_thread(self.pipe.open, "w")).close()

    async def idle(self, session: str) -> None:
        """Wait until no turn runs in a session."""
        path = self.session(session)
        await until(lambda: not json.loads(self._fetch(path, None))["running"], "rest")

    async def resume(self) -> None:
        await self.fetch(self.session("gone", "/resume"), {})


@asynccontextmanager
async def served(folder: Path, tick: str, **session: Any) -> AsyncGenerator[Server]:
    """Serve an agent; what its schedule says is due at once."""
    from tests.simulators.discord import serve_simulated_discord as serve_discord
    from tests.simulators.telegram import serve_simulated_telegram as serve_telegram

    async with AsyncExitStack() as stack:
        model = stack.enter_context(served_model())
        bot_api = stack.enter_context(serve_telegram())
        discord = await stack.enter_async_context(serve_discord())
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        agent_file(
            folder,
            f"{model.url}/v1",
            model="gpt-4o",
            system="Be brief.",
            session={"policy": LAYERED, "recall": False, "on_message": "queue", **session},
            tools={
                "wait": {"kind": "command", "description": "Wait.", "command": ["cat", str(pipe)]}
            },
            telegram={
                "token": bot_api.simulator.token,
                "allow": ["*"],
                "api": bot_api.url,
                "stream": False,
            },
            discord={"token": discord.options.token, "allow": ["*"], "api": discord.url},
            schedules={"tick": {"at": an_hour_ago(), "session": "ticks", "message": tick}},
            serve={"port": 0},
        )
        process = stack.enter_context(
            warm.Popen(SERVE_COMMAND, cwd=folder, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        log: list[str] = []
        assert process.stderr is not None
        address_line = asyncio.to_thread(address, process.stderr, log)
        url = await asyncio.wait_for(address_line, PATIENCE)
        reading = asyncio.create_task(asyncio.to_thread(log.extend, process.stderr))
        try:
            await asyncio.wait_for(discord.gateway.identified.wait(), PATIENCE)
            ann = discord.add_user("Ann")
            yield Server(url, model, bot_api.simulator, discord, ann, pipe, log)
        except AssertionError as error:
            error.add_note("".join(log[-5:]))
            raise
        finally:
            process.terminate()
            await asyncio.wait_for(reading, PATIENCE)


def address(lines: IO[str], log: list[str]) -> str:
    """Where the server listens, from the line in which it says so."""
    for line in lines:
        log.append(line)
        if line.startswith("{") and (url := json.loads(line).get("url")):
            return url
    raise AssertionError(f"the server has ended: {log}")


def an_hour_ago() -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time() - 3_600))


async def say_before(folder: Path, said: Sequence[tuple[str, str]]) -> None:
    """Let the session of the schedule have a past before anything is served."""
    store = folder_store(folder / "sessions")
    life = await Life.begin(LAYERED, store=store, name="default/helper/ticks")
    for question, answer in said:
        await life.user(question)
        await life.reply(answer)
    await life.close()
    await store.close()
