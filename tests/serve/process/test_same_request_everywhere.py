"""However something is said to an agent, the model is asked the same: HTTP, Telegram, Discord and
the clock are channels to one path, and the requests are the same to the byte, cut and masked by the
same settings."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.serve.channels.http.running_apps import until
from tests.serve.process.processes import write_agent
from tests.simulators import discord, telegram
from trimtab.engine.log.event import MessageAdded
from trimtab.testing import server
from trimtab_serve.agent.config.spec import ScheduleSpec
from trimtab_serve.channels.http import HttpServerState, create_http_app
from trimtab_serve.client import Client
from trimtab_serve.process.http_server import (
    build_http_server,
    build_listener_url,
    open_listening_socket,
)
from trimtab_serve.process.loading import load_agent_set
from trimtab_serve.process.runtime import ServerRuntime, open_server_runtime
from trimtab_serve.schedules.config_sync import build_schedule_from_config
from trimtab_serve.schedules.runner import ScheduleRunner
from trimtab_serve.schedules.store import ScheduleStore

pytestmark = pytest.mark.process

ADA = 7
SAID = ("Good morning!", "How is the weather in Zürich? 🌦", "And\n\nnow?", "Thank you.")
WEATHER = {"name": "weather", "arguments": {"place": "Zürich"}}
SCRIPT = (
    "Good morning to you.",
    {"text": "I look.", "calls": [{**WEATHER, "id": "toolu_1"}, {**WEATHER, "id": "toolu_2"}]},
    {"calls": [{**WEATHER, "id": "toolu_3"}]},
    "It rains.",
    {"calls": [{**WEATHER, "id": "toolu_4"}]},
    "It still rains.",
    "You are welcome.",
)
CONTEXT = {
    "max_history_tokens": 200,
    "max_tool_result_tokens": 60,
    "tool_result_keep_first": 0,
    "tool_result_keep_last": 1,
}
REPLIES = ("Good morning to you.", "It rains.", "It still rains.", "You are welcome.")
TOOL = '''
def weather(place: str) -> str:
    """The weather at a place."""
    return f"Rain in {place}. " * 40
'''
BLOCKS = {
    "session": {"policy": "layered", "context": CONTEXT},
    "tools": {"weather": {"kind": "python", "function": "tools.py:weather"}},
}
ASKING = {
    "shell": {"kind": "shell", "allow": ["git diff *"]},
    "weather": {"kind": "python", "function": "tools.py:weather", "permission": "ask"},
}
"""Tools that ask before they do something."""

Say = Callable[[str, str], Awaitable[None]]
"""Says the first text, and waits until the second is the reply."""


@dataclass
class Channels:
    """All of them, to one agent in one process: each says one thing and waits for the reply."""

    house: ServerRuntime
    bot_api: telegram.TelegramSimulator
    discord: discord.DiscordSimulator
    ann: dict[str, Any]
    client: Client
    schedules: ScheduleStore
    clock: ScheduleRunner

    def ways(self) -> dict[str, Say]:
        """By channel, how something is said through it; it waits for the reply."""
        ways = (self.http, self.telegram, self.chat, self.schedule)
        return dict(zip(("http", "telegram", "discord", "schedule"), ways, strict=True))

    async def http(self, text: str, reply: str) -> None:
        assert await self.client.session("helper", "one").ask(text) == reply

    async def telegram(self, text: str, reply: str) -> None:
        self.bot_api.post_user_message(ADA, text)
        await until(lambda: self.bot_api.list_bot_texts(ADA)[-1:] == [reply])
        await self._over(f"telegram:{ADA}", reply)

    async def chat(self, text: str, reply: str) -> None:
        channel, ann = self.discord.open_direct_channel(self.ann), self.ann
        await self.discord.post_user_message(channel, ann, text)
        await until(lambda: self.discord.list_posted_texts(channel)[-1:] == [reply])
        await self._over(f"discord:{channel}", reply)

    async def schedule(self, text: str, reply: str) -> None:
        now = time.time()
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now))
        block = ScheduleSpec(message=text, at=at, session="clock")
        await self.schedules.upsert(
            build_schedule_from_config("helper", f"s{len(text)}", block, now=now)
        )
        self.clock.wake()
        await self._over("clock", reply)

    async def _over(self, name: str, reply: str) -> None:
        """Wait until it is in the log, and nothing more is to be done."""
        session, service = f"default/helper/{name}", self.house.service

        async def is_over() -> bool:
            if not await service.store.position(session):
                return False
            said = [
                event.body.message.text
                async for event in service.store.events(session)
                if isinstance(event.body, MessageAdded)
            ]
            return said[-1:] == [reply] and not await service.queue.pending(session)

        await until(is_over)


@asynccontextmanager
async def all_channels(
    folder: Path, model: str, blocks: Mapping[str, Any] = BLOCKS
) -> AsyncGenerator[Channels]:
    """What `trimtab serve` opens for a file that names them all."""
    async with AsyncExitStack() as held:
        bot_api = held.enter_context(telegram.serve_simulated_telegram())
        bot_api.simulator.get_or_add_chat(ADA, "Ada", username="ada")
        guild = await held.enter_async_context(discord.serve_simulated_discord())
        (folder / "tools.py").write_text(TOOL, encoding="utf-8")
        file = write_agent(
            folder,
            model,
            **blocks,
            telegram={"token": bot_api.simulator.token, "allow": [ADA], "api": bot_api.url},
            discord={"token": guild.options.token, "allow": ["*"], "api": guild.url},
            schedules={"later": {"message": "Later.", "at": "2999-01-01 00:00:00"}},
        )
        house = await held.enter_async_context(open_server_runtime(load_agent_set([file], {})))

        async def due(session: str) -> None:
            await house.schedule_turn(session)

        offer = HttpServerState(service=house.service, schedule_turn=due)
        listener, http = (
            open_listening_socket("127.0.0.1", 0),
            build_http_server(create_http_app(offer), drain_seconds=1),
        )
        work = [asyncio.create_task(one()) for one in house.background_tasks.values()]
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        await http.ready.wait()
        client = await held.enter_async_context(Client(build_listener_url(listener)))
        await guild.gateway.identified.wait()
        clock = next(
            channel for _, channel in house.channels if isinstance(channel, ScheduleRunner)
        )
        try:
            ann = guild.add_user("Ann")
            yield Channels(house, bot_api.simulator, guild, ann, client, clock._schedules, clock)
        finally:
            http.should_exit = True
            await offer.close()
            for task in work:
                task.cancel()
            await asyncio.gather(*work, serving, return_exceptions=True)


def words_of(request: dict[str, Any]) -> list[str]:
    """What its messages say, results of tools included."""
    parts = [part for message in request["messages"] for part in message["content"]]
    return [str(part.get("text", part.get("content", ""))) for part in parts]


def test_one_conversation_through_four_channels_makes_the_same_requests_to_the_byte(tmp_path):
    async def run(model: server.ServedSimulator) -> dict[str, list[bytes]]:
        found: dict[str, list[bytes]] = {}
        async with all_channels(tmp_path, model.url) as channels:
            for name, say in channels.ways().items():
                model.simulator.reset()
                model.simulator.script.set_replies(list(SCRIPT))
                for text, reply in zip(SAID, REPLIES, strict=True):
                    await say(text, reply)
                found[name] = [record.raw for record in model.simulator.records.requests]
        return found

    with server.serve_simulated_provider(tokenizer="estimate") as model:
        found = asyncio.run(run(model))
    assert len(found["http"]) == len(SCRIPT)
    for name, requests in found.items():
        assert requests == found["http"], name
    sent = [words_of(json.loads(raw)) for raw in found["http"]]
    cut = "[truncated: kept first ~60 of ~170 tokens (head) · recall m15.0]"
    masked = "[result masked — ~58 tokens removed · recall m15.0]"
    assert any(text.endswith(cut) for text in sent[2])
    assert masked in sent[3]
    assert sent[-1][0] == "[conversation truncated — 6 older messages omitted · recall m2-m16]"
    assert [text for text in sent[-1] if text in SAID] == list(SAID[2:])


def test_through_no_channel_runs_what_would_be_asked_about_and_the_model_is_told(tmp_path):
    called = (
        {"name": "shell", "arguments": {"command": "touch written"}},
        {"name": "shell", "arguments": {"command": "git diff --output=written"}},
        WEATHER,
    )

    async def run(model: server.ServedSimulator) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        async with all_channels(tmp_path, model.url, {"tools": ASKING}) as channels:
            for name, say in channels.ways().items():
                model.simulator.reset()
                model.simulator.script.set_replies([{"calls": list(called)}, "I may not."])
                await say("Do it.", "I may not.")
                last = json.loads(model.simulator.records.requests[-1].raw)["messages"][-1]
                found[name] = [part["content"] for part in last["content"]]
        return found

    with server.serve_simulated_provider(tokenizer="estimate") as model:
        found = asyncio.run(run(model))
    asks = "needs approval for this, and nobody can approve it here"
    for told in found.values():
        assert [text.partition(". ")[0] for text in told] == [
            f"[not run: shell {asks}",
            f"[not run: shell {asks}",
            f"[not run: weather {asks}",
        ]
        assert (
            "the pattern 'git diff *' does not allow it: git diff with --output=written is"
            in told[1]
        )
    assert len(found) == 4
    assert not (tmp_path / "written").exists()
