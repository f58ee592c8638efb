"""Follow the log of the demo while it grows: the whole conversation, and what is hidden.

Run the demo's conversation: a real session, the official SDK, and a model that follows a script.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from trimtab.context import Context
from trimtab.engine.log.edits import extract_editable_text
from trimtab.engine.log.erase import RECALL_TOOL
from trimtab.engine.log.event import Edit, MessageAdded, Usage
from trimtab.engine.log.message import ToolCall, ToolResult
from trimtab.engine.prompt.report import compute_cost_usd
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.session import Session
from trimtab.session.events import (
    AssistantReplied,
    ModelCallRetried,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from trimtab.session.turn import run_turn
from trimtab.stores.files import FileStore
from trimtab_serve.cli.demo.fake_tools import build_demo_tools
from trimtab_serve.cli.demo.simulator_process import SimulatorControlClient, open_simulator_process
from trimtab_serve.cli.demo.state import DemoCallTokens, DemoEdit, DemoLine, DemoState
from trimtab_serve.cli.demo.story import INTRO_TEXT, RECALLED_NOTE, STORY, SYSTEM_PROMPT, StoryTurn

EDIT_RESULT_WORDS = {
    "truncate": "truncated",
    "mask": "masked",
    "summarise": "summarised",
    "drop": "dropped",
}
UNLIMITED_WINDOW_TOKENS = 100_000_000
"""Size of a window that is never full."""


class DemoLogReader:
    """Reads what is new in the log."""

    def __init__(self, state: DemoState, options: Mapping[str, Any]) -> None:
        self._seen = state
        self._whole = Context(**options, policy="full", context_window=UNLIMITED_WINDOW_TOKENS)
        self._read = 0
        self._said: dict[int, MessageAdded] = {}
        self._names: dict[str, str] = {}
        self._edits: list[Edit] = []

    async def read_new_events(self, session: Session) -> None:
        """Read new events, and note what is hidden now."""
        async for event in session.store.events(session.id, [(self._read + 1, None)]):
            self._read = event.seq
            match event.body:
                case MessageAdded() as addition:
                    self._said[event.seq] = addition
                    self._whole.add(addition.message)
                    calls = (part for part in addition.message.parts if isinstance(part, ToolCall))
                    self._names.update({call.id: call.name for call in calls})
                case Edit() as edit if edit.op in EDIT_RESULT_WORDS:
                    self._edits.append(edit)
                    self._seen.edits.append(self._describe_edit(edit))
                case _:
                    pass
        self._seen.report = session.report()

    def build_full_request(self) -> dict[str, Any]:
        """Build the request that would send the whole conversation."""
        return dict(self._whole.preview().request)

    def find_hiding_handle(self, text: str) -> str | None:
        """Return the handle of the first result with this text if it is hidden, otherwise None."""
        for seq, addition in self._said.items():
            for index, part in enumerate(addition.message.parts):
                if isinstance(part, ToolResult) and text in part.text:
                    hides = [edit for edit in self._edits if _covers(edit, seq, index)]
                    return f"m{seq}.{index}" if hides else None
        return None

    def _describe_edit(self, edit: Edit) -> DemoEdit:
        additions = [
            addition for seq, addition in self._said.items() if edit.first <= seq <= edit.last
        ]
        sizes = [size.tokens for addition in additions for size in addition.sizes]
        what = f"{len(additions)} messages"
        if edit.part is not None and additions:
            part = additions[0].message.parts[edit.part]
            what = (
                self._names.get(getattr(part, "call_id", ""), "")
                or extract_editable_text(part)[:20]
            )
            sizes = [additions[0].sizes[edit.part].tokens]
        return DemoEdit(
            handle=edit.handle,
            result_word=EDIT_RESULT_WORDS[edit.op],
            subject=what,
            tokens=sum(sizes) - edit.size.tokens,
        )


def _covers(edit: Edit, seq: int, part: int) -> bool:
    return edit.first <= seq <= edit.last and edit.part in (None, part)


SIMULATED_MODEL = "claude-sonnet-5-5"
"""The model whose rules and prices apply. No request is sent to it."""
MAX_OUTPUT_TOKENS = 1_024
"""Maximum output tokens of each request."""
RECALL_GREP_PATTERN = "#2210|pool_size"
"""The pattern that the agent searches for when it recalls."""
READING_PAUSE_STEPS = 16
RECALL_PAUSE_STEPS = 12
"""Steps for which the screen stands still: at the beginning, and after a recall."""


async def run_demo_conversation(state: DemoState, *, step_seconds: float) -> None:
    """Run the whole story and record it in `state`. A step takes `step_seconds`."""
    with tempfile.TemporaryDirectory(prefix="trimtab-demo-") as folder:
        store = FileStore(folder)
        state.lines.append(DemoLine(kind="note", text=INTRO_TEXT.format(window=state.window)))
        try:
            async with open_simulator_process(state.window) as model:
                await _DemoRun(state, model, step_seconds).run(store)
        finally:
            await store.close()


class _DemoRun:
    """One run. It is also the provider, so it sees each request just before it is sent."""

    dialect = "anthropic"

    def __init__(
        self, state: DemoState, model: SimulatorControlClient, step_seconds: float
    ) -> None:
        self._seen = state
        self._model = model
        self._pace = step_seconds
        self._tools = build_demo_tools(step_seconds / 2)
        self._real = AnthropicProvider(api_key="demo", base_url=model.url, timeout=30.0)
        self._options: dict[str, Any] = {
            "model": SIMULATED_MODEL,
            "system": SYSTEM_PROMPT,
            "tools": [tool.definition for tool in self._tools],
            "recall": True,
            "max_output_tokens": MAX_OUTPUT_TOKENS,
        }
        self._watch = DemoLogReader(state, self._options)

    async def run(self, store: FileStore) -> None:
        """Run all turns of the story."""
        state = self._seen
        self._session = await Session.create(
            store,
            "demo",
            **self._options,
            policy=state.policy,
            context_window=state.window,
        )
        state.turns = len(STORY)
        await self._watch.read_new_events(self._session)
        await asyncio.sleep(READING_PAUSE_STEPS * self._pace)
        try:
            for number, story_turn in enumerate(STORY, 1):
                state.turn = number
                await self._watch.read_new_events(self._session)
                await self._model.set_replies(self._build_replies(story_turn))
                state.lines.append(DemoLine(kind="user", text=story_turn.user))
                await run_turn(
                    self._session,
                    self,
                    self._tools,
                    message={"role": "user", "content": story_turn.user},
                    on_event=self._on_event,
                )
            state.refused_requests = await self._model.count_refused_requests()
        finally:
            await self.close()
            await self._session.close()

    def _build_replies(self, turn: StoryTurn) -> list[Any]:
        """Return the model's replies in a turn. It first recalls what it can no longer see."""
        steps: list[Any] = [
            {"text": "", "calls": [{"name": n, "arguments": a} for n, a in calls]}
            for calls in turn.rounds
        ]
        if turn.recall_text and (handle := self._watch.find_hiding_handle(turn.recall_text)):
            call = {
                "name": RECALL_TOOL,
                "arguments": {"handle": handle, "grep": RECALL_GREP_PATTERN},
            }
            steps.append({"text": "", "calls": [call]})
            self._seen.recalled_handle = handle
        steps.append({"text": turn.reply})
        return [{**step, "delay": self._pace, "pace": self._pace / 12} for step in steps]

    async def send(self, request: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any]]:
        """See `Provider`. Count the tokens of the whole conversation, then send the request."""
        await self._watch.read_new_events(self._session)
        if self._seen.lines[-1].kind == "mark":
            await asyncio.sleep(RECALL_PAUSE_STEPS * self._pace)
        whole = await self._model.count_tokens(self._watch.build_full_request())
        self._seen.calls.append(DemoCallTokens(full_tokens=whole))
        self._seen.refused_requests = await self._model.count_refused_requests()
        async for event in self._real.send(request):
            yield event

    async def close(self) -> None:
        """See `Provider`."""
        await self._real.close()

    def _on_event(self, event: TurnEvent) -> None:
        state = self._seen
        match event:
            case TextDelta(text=text):
                state.partial_reply += text
            case ModelCallRetried():
                state.partial_reply = ""
            case AssistantReplied(message=message, usage=usage):
                state.partial_reply = ""
                line_text = "".join(getattr(part, "text", "") for part in message.parts)
                if line_text:
                    state.lines.append(DemoLine(kind="agent", text=line_text))
                self._add_cost(usage)
            case ToolStarted(call=call):
                state.lines.append(DemoLine(kind="call", text=_format_call(call)))
            case ToolFinished(call=call, text=text):
                who = "recall" if call.name == RECALL_TOOL else "result"
                state.lines.append(DemoLine(kind=who, text=text))
                if who == "recall":
                    line_text = RECALLED_NOTE.format(handle=state.recalled_handle)
                    state.lines.append(DemoLine(kind="mark", text=line_text))
            case _:
                pass

    def _add_cost(self, usage: Usage | None) -> None:
        """Add the cost of the call, and its cost if everything had been sent with a warm cache."""
        state = self._seen
        entry = self._session.window.settings.entry
        if usage is None:
            return
        last = state.calls[-1]
        before = state.calls[-2].full_tokens if len(state.calls) > 1 else 0
        read = before if before >= int(entry["cache_minimum"]) else 0
        full = Usage(
            input=last.full_tokens,
            output=usage.output,
            cache_read=read,
            cache_write=last.full_tokens - read,
        )
        state.full_cost += compute_cost_usd(full, entry) or 0.0
        state.calls[-1] = DemoCallTokens(full_tokens=last.full_tokens, sent_tokens=usage.input)
        state.report = self._session.report()
        state.cost = state.report.cost or 0.0


def _format_call(call: ToolCall) -> str:
    return f"{call.name} {call.arguments}"
