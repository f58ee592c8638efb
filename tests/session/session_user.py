"""Someone who works in a session: what a test says is what matters to it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.agents import Clock
from tests.conversations import prose, user
from trimtab.engine.log.event import Edit, EventBody, ModelCall, dump_canonical_json
from trimtab.errors import UnusableSummary
from trimtab.session import Session
from trimtab.stores.base import Store

MODEL = "claude-sonnet-4-5"
TOOLS = [
    {
        "name": "read",
        "description": "Read a file.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
]


def options(**own: Any) -> dict[str, Any]:
    """Of a session with so little room that every policy has something to do."""
    return {
        "model": MODEL,
        "system": "You are careful.",
        "tools": TOOLS,
        "context_window": 8_000,
        "max_output_tokens": 500,
        "clock": Clock(),
        "recall": True,
        **own,
    }


def reply(number: int, *content: dict[str, Any], tokens: int = 900) -> dict[str, Any]:
    """As Claude's API gives it."""
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": list(content),
        "stop_reason": "end_turn",
        "usage": {"input_tokens": tokens, "output_tokens": 7, "cache_read_input_tokens": 100},
    }


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def tool_use(call_id: str, tool: str = "read", **asked: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": asked}


def tool_result(call_id: str, said: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": said}
    return {"role": "user", "content": [block]}


class Worker:
    """Turns of a conversation; every request is kept as it was sent, by its call's position."""

    def __init__(self, session: Session, clock: Clock | None = None) -> None:
        self.session = session
        self.clock = clock or Clock()
        self.sent: dict[int, str] = {}
        self.count = 0

    async def ask(self, **how: Any) -> dict[str, Any]:
        self.clock.now += 1
        request = await self.session.request(**how)
        call = self.session.window.last_call
        assert call is not None
        self.sent[call.seq] = dump_canonical_json(request)
        return request

    async def say(self, said: str) -> str:
        self.clock.now += 1
        return await self.session.add(user(said))

    async def answer(self, *content: dict[str, Any], tokens: int | None = None) -> str:
        self.count += 1
        self.clock.now += 1
        last = self.session.window.last_call
        tokens = last.body.tokens if tokens is None and last is not None else tokens or 900
        return await self.session.add(reply(self.count, *content, tokens=tokens))

    async def use(self, said: str, tool: str = "read", **asked: Any) -> str:
        """A round of a tool, sent; the handle of its result."""
        call_id = f"c{self.count}"
        await self.answer(tool_use(call_id, tool, **asked))
        handle = await self.session.add(tool_result(call_id, said))
        await self.ask()
        return handle

    async def turn(self, rounds: int = 1, size: int = 600) -> None:
        """A question, so many rounds of a tool, an answer."""
        number = self.count
        await self.say(prose(size // 4, f"question {number}"))
        await self.ask()
        for index in range(rounds):
            question = prose(size, f"value_{number}_{index} = {number}")
            await self.use(question, path=f"src/part_{number % 7}.py")
        await self.answer(text(f"answer {number}"))
        request = await self.session.pending_summary()
        if request is not None:
            with suppress(UnusableSummary):  # it may be no smaller than what it replaces
                await self.session.add_summary(f"All up to {number}.", span=request.span)


async def bodies(store: Store, session: str) -> list[EventBody]:
    return [event.body async for event in store.events(session)]


async def edits(store: Store, session: str) -> list[Edit]:
    return [body for body in await bodies(store, session) if isinstance(body, Edit)]


async def call_positions(store: Store, session: str) -> list[int]:
    return [event.seq async for event in store.events(session) if isinstance(event.body, ModelCall)]
