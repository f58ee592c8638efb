"""Convert a log to a stream of events: each log event becomes one stream event or none.

The same log always gives the same stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.engine.log import call_failure
from trimtab.engine.log.event import (
    CallOutcome,
    Edit,
    Event,
    MessageAdded,
    ModelCall,
    PayloadErasure,
    RetentionErasure,
    Rewind,
    SummaryAttempt,
    ToolResultRepair,
    TurnProgressRecord,
)
from trimtab.engine.log.message import Media, ToolCall
from trimtab.session.events import (
    COMPACTED_NOTICE,
    AssistantReplied,
    ContextEdited,
    ModelCallFinished,
    SummaryFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
    UserNotice,
    join_text_parts,
    summary_attempt_to_json,
    turn_event_to_json,
)
from trimtab.session.spending import describe_reached_ceiling
from trimtab.session.tools import parse_call_position_from_key
from trimtab.stores.base import Store
from trimtab_serve.channels.http.message_keys import to_shown_key
from trimtab_serve.client.types import MediaInfo, MessageInfo, ToolCallInfo, ToolResultInfo

FIRST_LOOKBACK_EVENTS = 16
"""Number of events that are read first to find what comes before a log position."""
MAX_PAGE_CHARS = 2_000_000
"""Maximum number of characters of messages in one response. Also of one message in a stream."""
STREAM_EVENT_KINDS: Mapping[str, str] = {
    "message": "A user, the model or a tool added a message, with its `handle`, `role`, `text`, "
    "`tool_calls` and `tool_results`. It replaces the deltas before it.",
    "message.delta": "The next part of the reply while it is written: `kind` (`text` or "
    "`thinking`), `text`.",
    "tool.started": "A tool was started: `call_id`, `name`, `arguments`, and the `handle` of the "
    "call.",
    "context.edited": "Something is hidden from the model, or shown again: `op`, `handle`, "
    "`reason`, `replacement`.",
    "summary.finished": "A model was asked for a summary: `outcome`, `reason`, `tokens`, "
    "`replaced`, `patched`.",
    "model_call.finished": "A model call has ended. `outcome` is `ok`, or the kind of failure: "
    "discard the deltas since the last message. `usage` has the tokens: `input`, `output`, "
    "`cache_read`, `cache_write`. `limit` has the tokens that the provider accepts, if it said so.",
    "notice": "Something that the user should know: `text`.",
    "messages.undone": "The messages after the position `to` were undone.",
    "messages.erased": "A text was erased: `handle`, `reason`.",
    "turn.started": "A turn starts, or starts again: discard the deltas since the last message.",
    "turn.finished": "A turn has ended. `reason` is `done`, or `stopped` if it ended before the "
    "final answer. It is `rejected` if the provider rejected the content: `detail` is its message, "
    "and the next request leaves out that content. It is `cost_ceiling` if the next call could "
    "cost more than allowed: `detail` is a text for the user.",
    "turn.failed": "The turn failed, and `detail` says why. `reason` is `dead_letter` if the "
    "server does not retry it: you can retry it with `resume`. It is `deleted` if the session was "
    "deleted: the stream ends.",
    "stream.reset": "The id that you sent, `unknown_id`, is after the end of the log. It belongs "
    "to another session, or a backup was restored. Read the history again. Events continue after "
    "this one.",
    "reconnect": "The server stops or its store is unavailable. Connect again, with Last-Event-ID.",
}
"""The kinds of stream events, with their descriptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedStreamEvent:
    """One event of a stream."""

    kind: str
    """One of `STREAM_EVENT_KINDS`."""
    data: Mapping[str, Any]
    """Its content."""


class LogToStreamProjector:
    """Converts a log from a position on. It remembers only what later events refer to."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self.open_call_position = 0
        """Position of the newest call without a reply or a failure. 0 if there is none."""
        self._had_overflow = False
        self._rejection: str | None = None
        self._cost_ceiling: str | None = None
        self._was_edited_after_overflow = False
        self._has_final_answer = True
        self._was_stopped = False
        self._newest_tool_calls: dict[tuple[int, int], ToolCall] = {}

    async def replay_up_to(self, position: int) -> None:
        """Read the log up to a position, as far as later events refer to it."""
        first = position + 1
        back = FIRST_LOOKBACK_EVENTS
        events = list[Event]()
        while first > 1:
            start = max(1, first - back)
            span = (start, first - 1)
            events[:0] = [event async for event in self._store.events(self._session_id, [span])]
            first = start
            back = back * 2
            if _contains_body(events, ModelCall) and _contains_body(events, MessageAdded):
                break
        for event in events:
            await self.project_event(event)

    async def project_event(self, event: Event) -> ProjectedStreamEvent | None:
        """Return the stream event of a log event. None if it has none."""
        body = event.body
        match body:
            case MessageAdded() | ToolResultRepair():
                return self._project_message(event, body)
            case ModelCall():
                return self._project_call(event)
            case CallOutcome():
                return self._project_outcome(body)
            case TurnProgressRecord():
                return await self._project_turn(body)
            case Edit():
                self._was_edited_after_overflow = self._had_overflow
                data = {
                    "op": body.op,
                    "handle": body.handle,
                    "reason": body.why,
                    "replacement": body.text,
                }
                return ProjectedStreamEvent(kind=ContextEdited.type, data=data)
            case Rewind():
                self.open_call_position = 0
                self._has_final_answer = True
                return ProjectedStreamEvent(kind="messages.undone", data={"to": body.to})
            case SummaryAttempt():
                data = summary_attempt_to_json(body)
                return ProjectedStreamEvent(kind=SummaryFinished.type, data=data)
            case PayloadErasure():
                part = "" if body.part is None else f".{body.part}"
                data = {"handle": f"m{body.message}{part}", "reason": body.why}
                return ProjectedStreamEvent(kind="messages.erased", data=data)
            case RetentionErasure():
                data = {"handle": f"m1-m{max(1, body.before - 1)}", "reason": body.why}
                return ProjectedStreamEvent(kind="messages.erased", data=data)
            case _:
                return None

    def _project_message(
        self, event: Event, body: MessageAdded | ToolResultRepair
    ) -> ProjectedStreamEvent:
        message = body.message
        if isinstance(body, MessageAdded) and body.call == self.open_call_position:
            self.open_call_position = 0
        if message.role == "assistant":
            # Only the calls of the newest reply can still start.
            self._newest_tool_calls = {
                (event.seq, part): call
                for part, call in enumerate(message.parts)
                if isinstance(call, ToolCall)
            }
        self._has_final_answer = message.role == "assistant" and not message.calls
        data = asdict(build_message_info(event))
        return ProjectedStreamEvent(kind=AssistantReplied.type, data=data)

    def _project_call(self, event: Event) -> ProjectedStreamEvent | None:
        self.open_call_position = event.seq
        self._rejection = self._cost_ceiling = None
        was_compacted = self._had_overflow and self._was_edited_after_overflow
        self._had_overflow = self._was_edited_after_overflow = False
        return project_turn_event(UserNotice(text=COMPACTED_NOTICE)) if was_compacted else None

    def _project_outcome(self, body: CallOutcome) -> ProjectedStreamEvent:
        error = body.error or {}
        if body.status == "error":
            self.open_call_position = 0
            match error.get("kind"):
                case call_failure.STOPPED_CALL_KIND:
                    self._was_stopped = True
                case call_failure.OVER_CEILING_KIND:
                    self._cost_ceiling = str(error.get("ceiling", ""))
                case "rejected":
                    self._rejection = str(error.get("message", ""))
                case kind:
                    self._had_overflow = kind == "overflow"
        data = {
            "outcome": error.get("kind", "ok"),
            "usage": None if body.usage is None else asdict(body.usage),
            "limit": error.get("limit"),
        }
        return ProjectedStreamEvent(kind=ModelCallFinished.type, data=data)

    async def _project_turn(self, body: TurnProgressRecord) -> ProjectedStreamEvent | None:
        match body.state:
            case "claimed":
                self.open_call_position = 0
                self._was_stopped = False
                self._cost_ceiling = None
                return ProjectedStreamEvent(kind=TurnStarted.type, data={})
            case "ended":
                self.open_call_position = 0
                return ProjectedStreamEvent(kind=TurnFinished.type, data=self._describe_turn_end())
            case "tool_started":
                position = parse_call_position_from_key(body.key or "")
                if position is None:
                    return None
                call = await self._find_tool_call(*position)
                handle = f"m{position[0]}.{position[1]}"
                return project_turn_event(ToolStarted(call=call), handle=handle)

    def _describe_turn_end(self) -> dict[str, Any]:
        if self._rejection is not None:
            return {"reason": "rejected", "detail": self._rejection}
        if self._cost_ceiling is not None:
            detail = describe_reached_ceiling(self._cost_ceiling)
            return {"reason": "cost_ceiling", "detail": detail, "cost_ceiling": self._cost_ceiling}
        is_done = self._has_final_answer and not self._was_stopped
        return {"reason": "done" if is_done else "stopped"}

    async def _find_tool_call(self, seq: int, part: int, call_id: str) -> ToolCall:
        recent_call = self._newest_tool_calls.get((seq, part))
        if recent_call is not None:
            return recent_call
        async for event in self._store.events(self._session_id, [(seq, seq)]):
            if isinstance(event.body, MessageAdded):
                for call in event.body.message.parts[part : part + 1]:
                    if isinstance(call, ToolCall):
                        return call
        return ToolCall(id=call_id, name="", arguments="")  # it was erased


def project_turn_event(event: TurnEvent, **position: str) -> ProjectedStreamEvent:
    """Return a stream event with the fields of an event of a turn, and its position."""
    data = {**turn_event_to_json(event), **position}
    return ProjectedStreamEvent(kind=data.pop("type"), data=data)


def build_message_info(event: Event, *, undone: bool = False) -> MessageInfo:
    """Return a logged message for callers, without provider-specific blocks.

    Content above `MAX_PAGE_CHARS` is left out, and a note says how to read it.
    """
    assert isinstance(event.body, MessageAdded | ToolResultRepair)  # noqa: S101 - asked for messages only
    message = event.body.message
    seq = event.seq
    shorten = TextShortener(handle=f"m{seq}")
    return MessageInfo(
        position=seq,
        handle=f"m{seq}",
        at=event.at,
        role=message.role,
        text=shorten(join_text_parts(message)),
        tool_calls=[
            ToolCallInfo(id=call.id, name=call.name, arguments=shorten(call.arguments))
            for call in message.calls
        ],
        tool_results=[
            ToolResultInfo(
                call_id=result.call_id, text=shorten(result.text), is_error=result.is_error
            )
            for result in message.results
        ],
        media=[
            MediaInfo(type=part.kind, mime=part.mime, url=part.url, handle=f"m{seq}.{number}")
            for number, part in enumerate(message.parts)
            if isinstance(part, Media)
        ],
        key=to_shown_key(event.body.key)
        if isinstance(event.body, MessageAdded) and event.body.key is not None
        else None,
        undone=undone,
    )


@dataclass(slots=True, kw_only=True)
class TextShortener:
    """Shortens the texts of one message, so that together they have `MAX_PAGE_CHARS`."""

    handle: str
    """The handle of the message."""
    room: int = MAX_PAGE_CHARS
    """Characters that may still follow."""

    def __call__(self, text: str) -> str:
        """Return the text, or its beginning with a note."""
        excerpt = text[: self.room]
        self.room -= len(excerpt)
        if len(excerpt) == len(text):
            return text
        rest = len(text) - len(excerpt)
        return f"{excerpt}\n[{rest:,} more characters; recall {self.handle} to read them]"


def _contains_body(events: list[Event], kind: type[Any]) -> bool:
    return any(isinstance(event.body, kind) for event in events)
