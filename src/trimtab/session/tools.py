"""Tools: what a model may ask for, run once each, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from trimtab.core.message import Media, Message, Opaque, Text, ToolCall, ToolResult
from trimtab.core.search import RECALL_TOOLS
from trimtab.dialects.dialect import Wire
from trimtab.dialects.media import softened_message
from trimtab.session.happenings import Happening, ToolBegan, ToolEnded
from trimtab.session.session import Session

OnInterrupt = Literal["rerun", "report", "ask"]
UNKNOWN_OUTCOME = "[outcome unknown: the call was interrupted]"
"""What stands for the result of a tool that was started and never heard of again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call of a tool, as the tool sees it."""

    name: str
    """The tool's name."""
    arguments: Mapping[str, Any]
    """What the model gave, parsed."""
    key: str
    """The same for each attempt at this call, and for no other: pass it on to what must not
    happen twice."""
    session: str
    """The session's id."""


Content = Text | Media | Opaque
Run = Callable[[Invocation], Awaitable[str | Sequence[Content]]]
Permit = Callable[[Invocation], Awaitable[str | None]]
"""Whether a call may be made: None, or why not, in words for the model."""


class Failed(Exception):
    """Raised by a tool: a result in its own words, marked as an error."""

    def __init__(self, content: str | Sequence[Content]) -> None:
        super().__init__(content)
        self.content = content
        """What the model is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    definition: Wire
    """What the model is told, in any supported dialect's form."""
    run: Run
    """What it does. A raised exception becomes the result, marked as an error."""
    on_interrupt: OnInterrupt = "report"
    """After a crash in the middle of it: run it again, report that its outcome is unknown, or ask
    the user."""
    timeout: float | None = 300.0
    """Seconds after which it is given up; None for never."""
    permit: Permit | None = None
    """Asked before it counts as started, for as long as it takes; None is always."""

    @property
    def name(self) -> str:
        named: Mapping[str, Any] = self.definition.get("function") or self.definition
        return str(named["name"])


_Outcome = tuple[str | tuple[Content, ...], bool]
"""What a tool gave, and whether that is an error."""

Ask = Callable[[ToolCall], Awaitable[bool]]
"""Whether a call whose outcome is unknown is to be made again."""


Tell = Callable[[Happening], None]


async def equip(
    session: Session, tools: Mapping[str, Tool] | None, selected: Mapping[str, Tool]
) -> None:
    """Let the model have these tools, by name; nothing is written where it has them already."""
    options = {"selected": [tool.definition for tool in selected.values()]}
    if tools is not None:
        options["tools"] = [tool.definition for tool in tools.values()]
    if tools is not None or selected or session.window.settings.selected:
        await session.configure(**options)


async def run_open_calls(
    session: Session, tools: Mapping[str, Tool], tell: Tell, ask: Ask | None = None
) -> None:
    """Run all calls of the last reply that have no result, side by side.

    Those that share an id run one after the other: their results are told apart by order alone.
    """
    by_id: dict[str, list[tuple[ToolCall, str, bool]]] = {}
    for call, handle in _open(session):
        own = f"/{handle}/{call.id}"
        key = next((key for key in session.window.started if key.endswith(own)), None)
        fresh = f"{session.id}/{session.epoch}{own}"
        by_id.setdefault(call.id, []).append((call, key or fresh, key is not None))

    async def in_turn(calls: list[tuple[ToolCall, str, bool]]) -> None:
        for call, key, interrupted in calls:
            await _one(session, tools, call, key, interrupted, tell, ask)

    try:
        async with asyncio.TaskGroup() as group:
            for calls in by_id.values():
                group.create_task(in_turn(calls))
    except BaseExceptionGroup as failed:
        # Whoever lost the turn, or the store, is told so, however many tools ran at that time.
        raise failed.exceptions[0] from None


async def _one(  # noqa: PLR0917 - one step of a loop, called once
    session: Session,
    tools: Mapping[str, Tool],
    call: ToolCall,
    key: str,
    interrupted: bool,
    tell: Tell,
    ask: Ask | None,
) -> None:
    if call.name in RECALL_TOOLS and session.window.settings.recall:
        tell(ToolBegan(call=call))
        tell(ToolEnded(call=call, text=await session.answer(call), is_error=False))
        return
    tool = tools.get(call.name)
    outcome: _Outcome
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        outcome = f"unknown tool; there is {known}", True
    elif interrupted and not await _again(tool, call, ask):
        outcome = UNKNOWN_OUTCOME, True
    elif isinstance(asked := _invocation(call, key, session.id), str):
        outcome = asked, True
    elif tool.permit is not None and (why_not := await tool.permit(asked)) is not None:
        outcome = why_not, True
    else:
        await session.begin_tool(key)
        tell(ToolBegan(call=call))
        outcome = await _outcome(tool, asked)
    given, is_error = outcome
    content = (Text(text=given),) if isinstance(given, str) else given
    result = ToolResult(call_id=call.id, content=content, is_error=is_error)
    # What the provider would refuse is told in words: the call needs its result.
    told = softened_message(Message(role="tool", parts=(result,)), session.takes)
    await session.add(told)
    tell(ToolEnded(call=call, text=told.results[0].text, is_error=is_error))


async def _again(tool: Tool, call: ToolCall, ask: Ask | None) -> bool:
    match tool.on_interrupt:
        case "rerun":
            return True
        case "ask" if ask is not None:
            return await ask(call)
        case _:
            return False


def _invocation(call: ToolCall, key: str, session: str) -> Invocation | str:
    """The call as the tool sees it, or what is wrong with it."""
    try:
        given: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        return f"the arguments are not JSON: {error}"
    if not isinstance(given, dict):
        return "the arguments must be a JSON object"
    arguments = cast("dict[str, Any]", given)
    return Invocation(name=call.name, arguments=arguments, key=key, session=session)


async def _outcome(tool: Tool, asked: Invocation) -> _Outcome:
    limit = asyncio.timeout(tool.timeout)
    try:
        async with limit:
            return _content(await tool.run(asked)), False
    except Failed as failed:
        return _content(failed.content), True
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is its result
        # A tool may have time limits of its own: only ours is known to us.
        if limit.expired():
            return f"{asked.name} was given up after {tool.timeout:g} seconds", True
        return f"{type(error).__name__}: {error}", True


def _content(given: Any) -> str | tuple[Content, ...]:
    if isinstance(given, str):
        return given
    parts = tuple(cast("Sequence[Any]", given)) if isinstance(given, Sequence) else (given,)
    if wrong := [part for part in parts if not isinstance(part, Content)]:
        raise TypeError(f"a tool gives a text or parts of content, not {type(wrong[0]).__name__}")
    return parts


def _open(session: Session) -> list[tuple[ToolCall, str]]:
    """Open calls, each with its handle: ids may come twice, even in one reply."""
    if not session.window.open_calls():
        return []
    last = session.window.rounds[-1]
    asked = [
        (call, f"m{entry.seq}.{part}")
        for entry in last.entries
        if entry.message.role == "assistant"
        for part, call in enumerate(entry.message.parts)
        if isinstance(call, ToolCall)
    ]
    return [each for each, pairing in zip(asked, last.calls, strict=True) if not pairing.result]
