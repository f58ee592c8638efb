"""The calls of a session: the newest few, or the one that a user refers to.

The data that `trimtab session show` prints.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trimtab.cli.store_command import require_session_position
from trimtab.engine.log.edits import apply_edit_to_part
from trimtab.engine.log.event import CallOutcome, Edit, Event, MessageAdded, ModelCall
from trimtab.engine.log.message import Media, OpaqueBlock, Part, Text, ToolCall, ToolResult
from trimtab.engine.log.rewind import list_undone_spans
from trimtab.engine.prompt.report import ContextReport
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.window import Window
from trimtab.session.loading import explain_damage, load_state_to_read
from trimtab.stores.base import Store
from trimtab.verbs.reporting import build_report
from trimtab.verbs.state import State

_LAST_CALL_REFERENCE = re.compile(r"last(?:-(\d+))?")
_CALL_SEARCH_SPAN = 500
"""Positions before and after a wrong reference in which to look for calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWithOutcome:
    """One call, its outcome, and the edits that were made for it."""

    seq: int
    """Its position in the log."""
    at: float
    """Seconds since the epoch."""
    call: ModelCall
    """The recorded call."""
    outcome: CallOutcome | None
    """How it ended. None if that is unknown."""
    edits: dict[str, int] = field(default_factory=dict[str, int])
    """Edits since the previous call, by kind."""
    took_s: float | None = None
    """Seconds to its outcome. None if that is unknown."""
    tools_s: float | None = None
    """Seconds from the reply before it to the last result of the tools that it called. None if it
    called none."""

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON values."""
        outcome = self.outcome
        usage = outcome.usage if outcome is not None else None
        return {
            "call": self.seq,
            "at": self.at,
            "tokens": self.call.tokens,
            "bound": self.call.bound,
            "bytes": self.call.bytes,
            "hash": self.call.hash,
            "status": outcome.status if outcome is not None else None,
            "usage": asdict(usage) if usage is not None else None,
            "edits": self.edits,
            "took_s": self.took_s,
            "tools_s": self.tools_s,
        }


async def read_last_calls(
    store: Store, session: str, position: int, count: int
) -> list[CallWithOutcome]:
    """Read the last `count` calls, oldest first. The log is read from its end."""
    events: list[Event] = []
    first = position + 1 if count else 0
    size = _CALL_SEARCH_SPAN
    # One more than asked for: the edits behind it belong to the next.
    while first > 1 and sum(map(_is_sent_call, events)) <= count:
        start = max(1, first - size)
        piece = [event async for event in store.events(session, [(start, first - 1)])]
        events = [*piece, *events]
        first = start
        size = 2 * size
    return collect_calls(events)[-count:] if count else []


def _is_sent_call(event: Event) -> bool:
    return isinstance(event.body, ModelCall) and not event.body.imported


def collect_calls(events: Iterable[Event]) -> list[CallWithOutcome]:
    """Return each call with the edits before it and its outcome."""
    calls: dict[int, CallWithOutcome] = {}
    edits: Counter[str] = Counter()
    replied_at: float | None = None
    tools_s: float | None = None
    for event in events:
        match event.body:
            case Edit(op=op):
                edits[op] += 1
            case ModelCall(imported=True):
                edits.clear()  # they were made for a call that is not listed
            case MessageAdded(message=message) if message.role == "assistant":
                replied_at = event.at
            case MessageAdded(message=message) if message.results and replied_at is not None:
                tools_s = max(0.0, event.at - replied_at)
            case ModelCall() as call:
                calls[event.seq] = CallWithOutcome(
                    seq=event.seq,
                    at=event.at,
                    call=call,
                    outcome=None,
                    edits=dict(edits),
                    tools_s=tools_s,
                )
                edits.clear()
                tools_s = None
            case CallOutcome() as outcome if (one := calls.get(outcome.call)) is not None:
                replied_at = event.at
                took_s = max(0.0, event.at - one.at)
                calls[one.seq] = replace(one, outcome=outcome, took_s=took_s)
            case _:
                pass
    return list(calls.values())


async def find_call_by_reference(
    store: Store, session: str, log_end: int, typed_reference: str
) -> CallWithOutcome:
    """Find the call that a user typed: a position, `last`, or `last-2` for two calls earlier."""
    if (match := _LAST_CALL_REFERENCE.fullmatch(typed_reference.strip().lower())) is not None:
        back = int(match[1] or 0)
        calls = await read_last_calls(store, session, log_end, back + 1)
        if len(calls) <= back:
            raise LookupError(
                f"there is no call {typed_reference}: session {session!r} has {len(calls):,} calls"
            )
        return calls[0]
    if not typed_reference.strip().isdecimal():
        raise ValueError(
            f"invalid call {typed_reference!r}: use a position that `trimtab session show` lists, "
            "or last, or last-1 for the call before it"
        )
    return await _find_call_at(store, session, log_end, int(typed_reference))


async def _find_call_at(store: Store, session: str, position: int, seq: int) -> CallWithOutcome:
    # The edits before it are not needed, so the events up to the call before are not read.
    around = (max(1, seq - _CALL_SEARCH_SPAN), seq + _CALL_SEARCH_SPAN)
    near = collect_calls([event async for event in store.events(session, [around])])
    for past_call in near:
        if past_call.seq == seq:
            return past_call
    what = f"event {seq} is not a call" if seq <= position else f"there is no event {seq}"
    close = sorted(near, key=lambda past_call: abs(past_call.seq - seq))[:2]
    if not close:
        close = await read_last_calls(store, session, position, 1)
    hint = " or ".join(
        str(past_call.seq) for past_call in sorted(close, key=lambda past_call: past_call.seq)
    )
    raise LookupError(
        f"{what} of session {session!r}, which has {position:,} events; "
        + (f"nearest calls: --call {hint}" if hint else "it has no calls yet")
    )


STATE_BY_EDIT = {
    "truncate": "truncated",
    "mask": "masked",
    "summarise": "summarised",
    "drop": "dropped",
}
"""The state of a message part after each kind of edit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLine:
    """A part of a message."""

    handle: str
    """The handle that recalls it."""
    role: str
    """The role of the message."""
    state: str
    """`shown`, or what hides it."""
    tokens: int
    """Estimated tokens that the model sees. 0 if it sees none of it."""
    text: str
    """The text that the model sees, or the original text if it sees nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    session: str
    """The session's id."""
    position: int
    """Number of events in its log."""
    updated: float
    """Time of the last event, in seconds since the epoch."""
    policy: str
    """The policy that decides what to hide."""
    messages_in_force: int
    """Messages that are not undone, including hidden ones."""
    undone_messages: int
    """Messages that the user has undone. The list of sessions also counts them."""
    visible_messages: int
    """Messages that the model sees."""
    calls: int
    """Number of requests so far."""
    report: ContextReport
    """How the next call would use its tokens."""
    summary: str
    """The text that replaces the summarised messages. Empty if there are none."""
    lines: tuple[MessageLine, ...]
    """The last messages, part by part."""
    last_calls: tuple[CallWithOutcome, ...]
    """The last calls, oldest first."""

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON values."""
        return {
            "id": self.session,
            "events": self.position,
            "updated": self.updated,
            "model": self.report.model,
            "policy": self.policy,
            "said": self.messages_in_force,
            "undone": self.undone_messages,
            "shown": self.visible_messages,
            "calls": self.calls,
            "report": self.report.to_dict(),
            "hidden": self.report.hidden_handles,
            "summary": self.summary,
            "messages": [asdict(line) for line in self.lines],
            "last_calls": [past_call.to_json() for past_call in self.last_calls],
        }


async def load_read_only_state(store: Store, session: str) -> State:
    """Load the state of a session for reading."""
    await require_session_position(store, session)
    with explain_damage(session):
        return await load_state_to_read(store, session)


async def build_session_view(store: Store, session: str, count: int) -> SessionView:
    """Build the view of a session with its last messages and calls."""
    state = await load_read_only_state(store, session)
    with explain_damage(session):
        window = state.window
        end = [event async for event in store.events(session, [(window.seq, window.seq)])]
        entries = [*window.entries.values()][-count:] if count else []
        return SessionView(
            session=session,
            position=window.seq,
            updated=end[0].at,
            policy=window.settings.policy,
            messages_in_force=window.conversation.total_messages,
            undone_messages=await _count_undone_messages(store, session, window),
            visible_messages=window.visible_messages,
            calls=window.accounting.call_count,
            report=build_report(state),
            summary=window.summary.text if window.summary is not None else "",
            lines=tuple(line for entry in entries for line in build_message_lines(entry)),
            last_calls=tuple(
                await read_last_calls(
                    store, session, window.seq, min(count, window.accounting.call_count)
                )
            ),
        )


async def _count_undone_messages(store: Store, session: str, window: Window) -> int:
    """Count messages in the log that were undone. Reads the log only if there are any."""
    spans = list_undone_spans(window.base.rewinds)
    if not spans:
        return 0
    return sum([isinstance(each.body, MessageAdded) async for each in store.events(session, spans)])


def build_message_lines(entry: Entry) -> Iterator[MessageLine]:
    """Yield one line for each part of a message."""
    parts = entry.message.parts
    group_edit = entry.round.group.hidden
    for index, part in enumerate(parts):
        edit = group_edit or entry.edits.get(index)
        visible_part = (
            apply_edit_to_part(part, edit) if edit is not None and edit is not group_edit else part
        )
        yield MessageLine(
            handle=f"m{entry.seq}" if len(parts) == 1 else f"m{entry.seq}.{index}",
            role=entry.message.role,
            state=STATE_BY_EDIT.get(edit.op, "shown") if edit is not None else "shown",
            tokens=0 if group_edit is not None else entry.shown_size(index).tokens,
            text=describe_message_part(visible_part),
        )


def describe_message_part(part: Part) -> str:
    """Describe a part in a few words."""
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"→ {part.name} {part.arguments}"
        case ToolResult():
            others = [
                describe_message_part(item) for item in part.content if not isinstance(item, Text)
            ]
            return " ".join(["←", *(["failed:"] if part.is_error else []), part.text, *others])
        case Media():
            return f"[{part.kind} {part.mime or part.url or ''}]".replace(" ]", "]")
        case OpaqueBlock():
            return "[thinking]" if part.thinking else f"[{part.data.get('type', 'opaque')}]"
