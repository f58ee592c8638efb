"""However something is said to an agent, the model is asked the same: HTTP, Telegram, Discord and
the clock are doors to one path, and the requests are the same to the byte, cut and masked by the
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

from tests.http.houses import until
from tests.serve.processes import write_agent
from trimtab.agent.doors import Schedule
from trimtab.cli.serve.crew import crew_of
from trimtab.cli.serve.house import House, opened
from trimtab.cli.serve.listening import address, listen, server_of
from trimtab.client import Client
from trimtab.core.event import Said
from trimtab.gateways.http import Offer, make_app
from trimtab.testing import discord, server, telegram
from trimtab.worker.schedules.bring_in import from_file
from trimtab.worker.schedules.door import ScheduleDoor
from trimtab.worker.schedules.schedules import Schedules

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
class Doors:
    """All of them, to one agent in one process: each says one thing and waits for the reply."""

    house: House
    bot_api: telegram.BotApi
    discord: discord.Simulator
    ann: dict[str, Any]
    client: Client
    schedules: Schedules
    clock: ScheduleDoor

    def ways(self) -> dict[str, Say]:
        """By door, how something is said through it; it waits for the reply."""
        ways = (self.http, self.telegram, self.chat, self.schedule)
        return dict(zip(("http", "telegram", "discord", "schedule"), ways, strict=True))

    async def http(self, text: str, reply: str) -> None:
        assert await self.client.session("helper", "one").ask(text) == reply

    async def telegram(self, text: str, reply: str) -> None:
        self.bot_api.says(ADA, text)
        await until(lambda: self.bot_api.texts(ADA)[-1:] == [reply])
        await self._over(f"telegram:{ADA}", reply)

    async def chat(self, text: str, reply: str) -> None:
        channel, ann = self.discord.direct(self.ann), self.ann
        await self.discord.say(channel, ann, text)
        await until(lambda: self.discord.posted(channel)[-1:] == [reply])
        await self._over(f"discord:{channel}", reply)

    async def schedule(self, text: str, reply: str) -> None:
        now = time.time()
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now))
        block = Schedule(says=text, at=at, session="clock")
        await self.schedules.keep(from_file("helper", f"s{len(text)}", block, now=now))
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
                if isinstance(event.body, Said)
            ]
            return said[-1:] == [reply] and not await service.mail.pending(session)

        await until(is_over)


@asynccontextmanager
async def all_doors(
    folder: Path, model: str, blocks: Mapping[str, Any] = BLOCKS
) -> AsyncGenerator[Doors]:
    """What `trimtab serve` opens for a file that names them all."""
    async with AsyncExitStack() as held:
        bot_api = held.enter_context(telegram.serve())
        bot_api.api.chat(ADA, "Ada", username="ada")
        guild = await held.enter_async_context(discord.serve())
        (folder / "tools.py").write_text(TOOL, encoding="utf-8")
        file = write_agent(
            folder,
            model,
            **blocks,
            telegram={"token": bot_api.api.token, "allow": [ADA], "api": bot_api.url},
            discord={"token": guild.options.token, "allow": ["*"], "api": guild.url},
        )
        house = await held.enter_async_context(opened(crew_of([file], {})))

        async def due(session: str) -> None:
            await house.due(session)

        offer = Offer(service=house.service, due=due)
        listener, http = listen("127.0.0.1", 0), server_of(make_app(offer), drain=1)
        work = [asyncio.create_task(one()) for one in house.work.values()]
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        await http.up.wait()
        client = await held.enter_async_context(Client(address(listener)))
        await guild.gateway.identified.wait()
        clock = next(door for _, door in house.doors if isinstance(door, ScheduleDoor))
        try:
            ann = guild.user("Ann")
            yield Doors(house, bot_api.api, guild, ann, client, clock._schedules, clock)
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


def test_one_conversation_through_four_doors_makes_the_same_requests_to_the_byte(tmp_path):
    async def run(model: server.Served) -> dict[str, list[bytes]]:
        found: dict[str, list[bytes]] = {}
        async with all_doors(tmp_path, model.url) as doors:
            for name, say in doors.ways().items():
                model.simulator.reset()
                model.simulator.script.set(list(SCRIPT))
                for text, reply in zip(SAID, REPLIES, strict=True):
                    await say(text, reply)
                found[name] = [record.raw for record in model.simulator.records.all]
        return found

    with server.serve(tokenizer="estimate") as model:
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


def test_through_no_door_runs_what_would_be_asked_about_and_the_model_is_told(tmp_path):
    called = (
        {"name": "shell", "arguments": {"command": "touch written"}},
        {"name": "shell", "arguments": {"command": "git diff --output=written"}},
        WEATHER,
    )

    async def run(model: server.Served) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        async with all_doors(tmp_path, model.url, {"tools": ASKING}) as doors:
            for name, say in doors.ways().items():
                model.simulator.reset()
                model.simulator.script.set([{"calls": list(called)}, "I may not."])
                await say("Do it.", "I may not.")
                last = json.loads(model.simulator.records.all[-1].raw)["messages"][-1]
                found[name] = [part["content"] for part in last["content"]]
        return found

    with server.serve(tokenizer="estimate") as model:
        found = asyncio.run(run(model))
    asks = "asks before it does this, and nobody can be asked here"
    for told in found.values():
        assert [text.partition(". ")[0] for text in told] == [
            f"[not run: shell {asks}",
            f"[not run: shell {asks}",
            f"[not run: weather {asks}",
        ]
        assert "the pattern 'git diff *' does not allow it: --output=written of git diff" in told[1]
    assert len(found) == 4
    assert not (tmp_path / "written").exists()
