"""Tools that a model may call. Each call runs once, whatever happens in the meantime."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from trimtab.dialects.base import WireObject
from trimtab.dialects.media import replace_unsupported_media
from trimtab.dialects.tool_definitions import parse_tool_definition
from trimtab.engine.log.erase import RECALL_TOOL_NAMES
from trimtab.engine.log.message import Media, Message, OpaqueBlock, Text, ToolCall, ToolResult
from trimtab.errors import TrimtabError
from trimtab.options import OptionChanges
from trimtab.session.events import ToolFinished, ToolStarted, TurnEvent
from trimtab.session.session import Session

OnInterrupt = Literal["rerun", "report", "ask"]
"""What to do with a tool call that a crash interrupted."""
UNKNOWN_OUTCOME_TEXT = "[outcome unknown: the call was interrupted]"
"""The result of a tool that was started and whose outcome is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvocation:
    """One call of a tool, as the tool sees it."""

    name: str
    """The tool's name."""
    arguments: Mapping[str, Any]
    """The model's arguments, parsed."""
    key: str
    """The same for each attempt at this call, and different for every other call. Pass it to
    services that must not act twice."""
    session: str
    """The session's id."""


ToolContent = Text | Media | OpaqueBlock
"""One part of what a tool returns."""
ToolFunction = Callable[[ToolInvocation], Awaitable[str | Sequence[ToolContent]]]
"""Runs a tool and returns what the model reads."""
CheckPermission = Callable[[ToolInvocation], Awaitable[str | None]]
"""Returns None if a call is allowed, otherwise the reason why not, for the model."""


class ToolError(TrimtabError):
    """An error that a tool raises. Its content becomes the result, marked as an error.

    Args:
        content: What the model reads: a text, or parts of content.
    """

    def __init__(self, content: str | Sequence[ToolContent]) -> None:
        super().__init__(content)
        self.content = content
        """What the model reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call, with its definition.

    `tool` makes one of a typed function.
    """

    definition: WireObject
    """The definition that the model reads, in the form of any supported dialect."""
    run: ToolFunction
    """The function. A raised exception becomes the result, marked as an error."""
    on_interrupt: OnInterrupt = "report"
    """What to do after a crash in the middle of it: run it again, report that the outcome is
    unknown, or ask the user."""
    timeout: float | None = 300.0
    """Seconds after which the call fails; None for no limit."""
    check_permission: CheckPermission | None = None
    """Awaited before the tool is started, for as long as it takes; None allows every call."""

    @property
    def name(self) -> str:
        function: Mapping[str, Any] = self.definition.get("function") or self.definition
        return str(function["name"])


_TOOL_CALL_KEY = re.compile(r"/\d+/m(\d+)\.(\d+)/(.*)", re.DOTALL)
"""After the session's id: the epoch, the handle of the call, and the provider's id of it."""
_ToolOutcome = tuple[str | tuple[ToolContent, ...], bool]
"""The content of a result, and whether it is an error."""

ConfirmRerun = Callable[[ToolCall], Awaitable[bool]]
"""Returns whether to run a call again whose outcome is unknown."""


OnEvent = Callable[[TurnEvent], None]
"""Hears what happens in a turn."""


def find_tools_without_function(session: Session, tools: Mapping[str, Tool]) -> list[str]:
    """Return the names of the session's tools that nobody could run. After a restart the log has
    their definitions."""
    settings = session.window.settings
    own_tools = settings.tools[: len(settings.tools) - settings.selected]
    names = [tool.name for tool in map(parse_tool_definition, own_tools) if tool is not None]
    recall_names = RECALL_TOOL_NAMES if settings.recall is True else ()
    return [name for name in names if name not in tools and name not in recall_names]


async def set_session_tools(
    session: Session, tools: Mapping[str, Tool] | None, turn_tools: Mapping[str, Tool]
) -> None:
    """Set the tools of the session by name; write nothing if it has them already."""
    options: OptionChanges = {"turn_tools": [tool.definition for tool in turn_tools.values()]}
    if tools is not None:
        options["tools"] = [tool.definition for tool in tools.values()]
    if _begins_with_recall_tools(session, [*(tools or ()), *turn_tools]):
        options["recall"] = True
    if len(options) > 1 or turn_tools or session.window.settings.selected:
        await session.configure(**options)


def _begins_with_recall_tools(session: Session, new_tool_names: Iterable[str]) -> bool:
    """Whether the recall tools are to be added: nobody has decided, and no call was made.

    Later they would rewrite the whole prompt cache. The other presets send what their documents
    say.
    """
    settings = session.window.settings
    if settings.recall is not None or settings.policy != "auto" or session.window.last_call:
        return False
    tools = map(parse_tool_definition, settings.tools)
    tool_names = {*new_tool_names, *(tool.name for tool in tools if tool is not None)}
    return tool_names.isdisjoint(RECALL_TOOL_NAMES)


async def run_open_tool_calls(
    session: Session,
    tools: Mapping[str, Tool],
    on_event: OnEvent,
    confirm_rerun: ConfirmRerun | None = None,
) -> None:
    """Run all calls of the last reply that have no result, concurrently.

    Calls with the same id run one after the other, because only the order distinguishes their
    results.
    """
    last_call = session.window.last_call
    # Somebody else's loop may have run the calls of an imported reply.
    is_imported = last_call is not None and last_call.body.imported
    by_id: dict[str, list[tuple[ToolCall, str, bool]]] = {}
    for call, handle in list_open_calls(session):
        key_end = f"/{handle}/{call.id}"
        key = next(
            (key for key in session.window.accounting.started_tool_keys if key.endswith(key_end)),
            None,
        )
        fresh = f"{session.id}/{session.recorder.epoch}{key_end}"
        by_id.setdefault(call.id, []).append((call, key or fresh, is_imported or key is not None))

    async def in_turn(calls: list[tuple[ToolCall, str, bool]]) -> None:
        for call, key, was_started in calls:
            await _run_tool_call(session, tools, call, key, was_started, on_event, confirm_rerun)

    try:
        async with asyncio.TaskGroup() as group:
            for calls in by_id.values():
                group.create_task(in_turn(calls))
    except BaseExceptionGroup as failures:
        # One error is enough for the caller, however many tools failed at the same time.
        raise failures.exceptions[0] from None


def parse_call_position_from_key(tool_idempotency_key: str) -> tuple[int, int, str] | None:
    """Return the call for which a tool was started, by its key: the message, the part and the
    call's id."""
    match = _TOOL_CALL_KEY.search(tool_idempotency_key)
    return None if match is None else (int(match[1]), int(match[2]), match[3])


async def _run_tool_call(  # noqa: PLR0917 - one step of a loop, called once
    session: Session,
    tools: Mapping[str, Tool],
    call: ToolCall,
    key: str,
    was_started: bool,
    on_event: OnEvent,
    confirm_rerun: ConfirmRerun | None,
) -> None:
    if call.name in RECALL_TOOL_NAMES and session.window.settings.recall is True:
        on_event(ToolStarted(call=call))
        on_event(ToolFinished(call=call, text=await session.answer(call), is_error=False))
        return
    tool = tools.get(call.name)
    outcome: _ToolOutcome
    if tool is None:
        tool_names = ", ".join(sorted(tools)) or "none"
        outcome = f"unknown tool; there is {tool_names}", True
    elif was_started and not await _may_rerun(tool, call, confirm_rerun):
        outcome = UNKNOWN_OUTCOME_TEXT, True
    elif isinstance(invocation := _build_invocation(call, key, session.id), str):
        outcome = invocation, True
    elif (
        tool.check_permission is not None
        and (why_not := await tool.check_permission(invocation)) is not None
    ):
        outcome = why_not, True
    else:
        await session.recorder.record_tool_start(key)
        on_event(ToolStarted(call=call))
        outcome = await _invoke_tool(tool, invocation)
    output_content, is_error = outcome
    content = (Text(text=output_content),) if isinstance(output_content, str) else output_content
    result = ToolResult(call_id=call.id, content=content, is_error=is_error)
    # What the provider would refuse is told in words: the call needs its result.
    message = replace_unsupported_media(
        Message(role="tool", parts=(result,)), session.media_support
    )
    await session.add(message)
    on_event(ToolFinished(call=call, text=message.results[0].text, is_error=is_error))


async def _may_rerun(tool: Tool, call: ToolCall, confirm_rerun: ConfirmRerun | None) -> bool:
    match tool.on_interrupt:
        case "rerun":
            return True
        case "ask" if confirm_rerun is not None:
            return await confirm_rerun(call)
        case _:
            return False


def _build_invocation(call: ToolCall, key: str, session_id: str) -> ToolInvocation | str:
    """Return the call as the tool sees it, or what is wrong with it."""
    try:
        json_arguments: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        return f"the arguments are not JSON: {error}"
    if not isinstance(json_arguments, dict):
        return "the arguments must be a JSON object"
    arguments = cast("dict[str, Any]", json_arguments)
    return ToolInvocation(name=call.name, arguments=arguments, key=key, session=session_id)


async def _invoke_tool(tool: Tool, invocation: ToolInvocation) -> _ToolOutcome:
    limit = asyncio.timeout(tool.timeout)
    try:
        async with limit:
            return _normalise_content(await tool.run(invocation)), False
    except ToolError as failure:
        return _normalise_content(failure.content), True
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a tool raises is its result
        # A tool may have time limits of its own: only ours is known to us.
        if limit.expired():
            return f"{invocation.name} was given up after {tool.timeout:g} seconds", True
        return f"{type(error).__name__}: {error}", True


def _normalise_content(value: Any) -> str | tuple[ToolContent, ...]:
    if isinstance(value, str):
        return value
    parts = tuple(cast("Sequence[Any]", value)) if isinstance(value, Sequence) else (value,)
    if wrong := [part for part in parts if not isinstance(part, ToolContent)]:
        raise TypeError(
            f"a tool must return a text or parts of content, not {type(wrong[0]).__name__}"
        )
    return parts


def list_open_calls(session: Session) -> list[tuple[ToolCall, str]]:
    """List open calls, each with its handle, because an id may occur twice, even in one reply."""
    if not session.window.conversation.open_calls():
        return []
    last = session.window.conversation.rounds[-1]
    calls = [
        (call, f"m{entry.seq}.{part}")
        for entry in last.entries
        if entry.message.role == "assistant"
        for part, call in enumerate(entry.message.parts)
        if isinstance(call, ToolCall)
    ]
    return [each for each, pairing in zip(calls, last.calls, strict=True) if not pairing.result]
