"""The demo's conversation: a real session, the official SDK, and a model that follows a script."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from trimtab.cli.demo.seen import Line, Seen, Sent
from trimtab.cli.demo.simulated import Simulated, simulated
from trimtab.cli.demo.story import ABOUT, RECALLED, STORY, SYSTEM, Asked
from trimtab.cli.demo.tools import tools
from trimtab.cli.demo.watch import Watch
from trimtab.core.event import Usage
from trimtab.core.ledger import cost_of
from trimtab.core.message import ToolCall
from trimtab.core.search import RECALL
from trimtab.providers.anthropic import Anthropic
from trimtab.session import Session
from trimtab.session.happenings import Happening, Piece, Replied, Restarted, ToolBegan, ToolEnded
from trimtab.session.turn import run_turn
from trimtab.stores.files import FileStore

MODEL = "claude-sonnet-5-5"
"""Whose rules and prices hold; nobody asks it."""
OUTPUT = 1_024
"""Tokens of output to ask for."""
PATTERN = "#2210|pool_size"
"""What the agent looks for in what it recalls."""
READING, POINT = 16, 12
"""Steps that the picture stands still: to read what it shows, and where something is recalled."""


async def converse(seen: Seen, *, pace: float) -> None:
    """Tell the whole story; what there is to see is kept in `seen`. `pace` is seconds a step."""
    with tempfile.TemporaryDirectory(prefix="trimtab-demo-") as folder:
        store = FileStore(folder)
        seen.lines.append(Line(who="note", text=ABOUT.format(window=seen.window)))
        try:
            async with simulated(seen.window) as model:
                await _Demo(seen, model, pace).run(store)
        finally:
            await store.close()


class _Demo:
    """One run. It is also the provider, which sees each request just before it is sent."""

    dialect = "anthropic"

    def __init__(self, seen: Seen, model: Simulated, pace: float) -> None:
        self._seen, self._model, self._pace = seen, model, pace
        self._tools = tools(pace / 2)
        self._real = Anthropic(api_key="demo", base_url=model.url, timeout=30.0)
        self._options: dict[str, Any] = {
            "model": MODEL,
            "system": SYSTEM,
            "tools": [tool.definition for tool in self._tools],
            "recall": True,
            "max_output_tokens": OUTPUT,
        }
        self._watch = Watch(seen, self._options)

    async def run(self, store: FileStore) -> None:
        """All turns of the story."""
        seen = self._seen
        self._session = await Session.create(
            store, "demo", **self._options, policy=seen.policy, context_window=seen.window
        )
        seen.turns = len(STORY)
        await self._watch.look(self._session)
        await asyncio.sleep(READING * self._pace)
        try:
            for number, asked in enumerate(STORY, 1):
                seen.turn = number
                await self._watch.look(self._session)
                await self._model.say(self._script(asked))
                seen.lines.append(Line(who="user", text=asked.user))
                await run_turn(
                    self._session,
                    self,
                    self._tools,
                    says={"role": "user", "content": asked.user},
                    tell=self._told,
                )
            seen.refused = await self._model.refused()
        finally:
            await self.close()
            await self._session.close()

    def _script(self, asked: Asked) -> list[Any]:
        """What the model is to say in a turn; what it sees no longer it looks up first."""
        steps: list[Any] = [
            {"text": "", "calls": [{"name": n, "arguments": a} for n, a in calls]}
            for calls in asked.rounds
        ]
        if asked.recalls and (handle := self._watch.hiding(asked.recalls)):
            call = {"name": RECALL, "arguments": {"handle": handle, "grep": PATTERN}}
            steps.append({"text": "", "calls": [call]})
            self._seen.recalled = handle
        steps.append({"text": asked.reply})
        return [{**step, "delay": self._pace, "pace": self._pace / 12} for step in steps]

    async def send(self, request: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any]]:
        """See `Provider`: count what everything would be, then pass the request on."""
        await self._watch.look(self._session)
        if self._seen.lines[-1].who == "mark":
            await asyncio.sleep(POINT * self._pace)
        whole = await self._model.count(self._watch.everything())
        self._seen.calls.append(Sent(whole=whole))
        self._seen.refused = await self._model.refused()
        async for event in self._real.send(request):
            yield event

    async def close(self) -> None:
        """See `Provider`."""
        await self._real.close()

    def _told(self, happening: Happening) -> None:
        seen = self._seen
        match happening:
            case Piece(text=text):
                seen.said += text
            case Restarted():
                seen.said = ""
            case Replied(message=message, usage=usage):
                seen.said = ""
                told = "".join(getattr(part, "text", "") for part in message.parts)
                if told:
                    seen.lines.append(Line(who="agent", text=told))
                self._bill(usage)
            case ToolBegan(call=call):
                seen.lines.append(Line(who="call", text=_asked(call)))
            case ToolEnded(call=call, text=text):
                who = "recall" if call.name == RECALL else "result"
                seen.lines.append(Line(who=who, text=text))
                if who == "recall":
                    told = RECALLED.format(handle=seen.recalled)
                    seen.lines.append(Line(who="mark", text=told))
            case _:
                pass

    def _bill(self, usage: Usage | None) -> None:
        """What the call cost, and what it would have cost with everything in a warm cache."""
        seen, entry = self._seen, self._session.window.settings.entry
        if usage is None:
            return
        last = seen.calls[-1]
        before = seen.calls[-2].whole if len(seen.calls) > 1 else 0
        read = before if before >= int(entry["cache_minimum"]) else 0
        full = Usage(
            input=last.whole, output=usage.output, cache_read=read, cache_write=last.whole - read
        )
        seen.whole_cost += cost_of(full, entry) or 0.0
        seen.calls[-1] = Sent(whole=last.whole, input=usage.input)
        seen.ledger = self._session.report()
        seen.cost = seen.ledger.cost or 0.0


def _asked(call: ToolCall) -> str:
    return f"{call.name} {call.arguments}"
