"""Build the replies of a turn from the log. After a crash they are the same, with the same keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from trimtab.engine.log.edits import REJECTED_REASON
from trimtab.engine.log.event import CallOutcome, Edit, Event, MessageAdded
from trimtab.engine.log.message import Message, Text
from trimtab.engine.policy.overflow import OVERFLOW_REASON
from trimtab.session import Session
from trimtab.session.events import COMPACTED_NOTICE, CONTENT_LEFT_OUT_NOTICE, TurnFinished
from trimtab.session.spending import describe_reached_ceiling
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage, ReplyRoute

STEP_LIMIT_TEXT = (
    "I stopped here: this turn reached its limit of steps. Send me a message to go on."
)
"""Sent if a turn reaches its limit of tool calls before its final answer."""

SESSION_CEILING_TEXT = (
    "I stopped here: this conversation has used up its budget. Send /reset to start a new one."
)
"""Sent to a chat at `cost.max_per_session`. Only a new conversation has a new budget."""

REJECTION_TEXT = (
    "The model provider rejected this: “{words}”. I will ignore it from your next message on. "
    "Please say it in another way, or send another file."
)
"""Sent if the provider rejects the content of a message."""
REPEATED_REJECTION_TEXT = (
    " It also rejected your previous message, so the cause may be an older message. "
    "/undo removes your messages one by one, and /reset starts a new conversation."
)
MAX_QUOTED_ERROR_CHARS = 300
"""Maximum length of the quoted error message of a provider."""
_REQUEST_PATH_PREFIX = re.compile(r"^(?:messages|input)[\w.\[\]]*: ")


async def build_turn_replies(
    session: Session,
    answered: Sequence[InboundMessage],
    *,
    positions: Collection[int],
    notices: Sequence[str],
    finished: TurnFinished,
) -> list[OutboundMessage]:
    """Return all answers to the messages at these positions, including those of an earlier attempt.

    `notices` are the notices of this turn. Those about what was hidden are taken from the log if it
    is recorded there, because the attempt that hid it may have ended before it could tell it.
    """
    routes = [message.route for message in answered if message.route is not None]
    if not routes:
        return []
    first_position = min(positions)
    reply_parts: list[tuple[int, str, str]] = []
    logged_notices = set[tuple[int, str]]()
    was_rejected = False
    for event in await _read_events_since(session, first_position):
        if session.window.base.find_erasing_event(event.seq, None) is not None:
            continue
        match event.body:
            case MessageAdded(message=message):
                was_rejected = False
                if text := extract_assistant_text(message):
                    reply_parts.append((event.seq, _event_key(event), text))
            case CallOutcome(error={"kind": "rejected"}):
                was_rejected = True
            case Edit(first=position) as edit:
                text = _find_notice(session, edit, positions, was_rejected=was_rejected)
                about = 0 if text in (COMPACTED_NOTICE, CONTENT_LEFT_OUT_NOTICE) else position
                if text and (about, text) not in logged_notices:
                    logged_notices.add((about, text))
                    reply_parts.append((0, f"notice/{_event_key(event)}", text))
            case _:
                pass
    notice_texts = [text for text in notices if (0, text) not in logged_notices]
    notice_parts = [
        (0, f"notice/m{first_position}/{n}", text) for n, text in enumerate(notice_texts)
    ]
    if finished.reason == "iterations":
        reply_parts.append((0, f"limit/m{session.window.seq}", STEP_LIMIT_TEXT))
    if finished.cost_ceiling is not None:
        text = (
            SESSION_CEILING_TEXT
            if finished.cost_ceiling == "session"
            else describe_reached_ceiling(finished.cost_ceiling)
        )
        reply_parts.append((0, f"cost/m{session.window.seq}", text))
    return [
        OutboundMessage(
            session=session.id, seq=seq, text=text, route=routes[-1], key=f"{session.id}/{key}"
        )
        for seq, key, text in (*notice_parts, *reply_parts)
    ]


def build_provider_rejection_replies(
    session: Session, answered: Sequence[InboundMessage], *, previous_message_rejected: bool
) -> list[OutboundMessage]:
    """Build the reply for content that the provider rejected.

    `previous_message_rejected` means that the provider also rejected the message before.
    """
    window = session.window
    routes = [message.route for message in answered if message.route is not None]
    if not routes:
        return []
    text = _build_rejection_text(window.accounting.rejection.provider_message) + (
        REPEATED_REJECTION_TEXT if previous_message_rejected else ""
    )
    key = f"{session.id}/rejected/m{window.seq}"
    return [OutboundMessage(session=session.id, seq=0, text=text, route=routes[-1], key=key)]


def _build_rejection_text(provider_message: str) -> str:
    words = _REQUEST_PATH_PREFIX.sub("", provider_message)[:MAX_QUOTED_ERROR_CHARS]
    return REJECTION_TEXT.format(words=words or "no reason was given")


def extract_assistant_text(message: Message) -> str:
    """Return the text of an assistant message. Empty for other roles."""
    if message.role != "assistant":
        return ""
    return "".join(part.text for part in message.parts if isinstance(part, Text)).strip()


def build_apology_reply(
    session: str, route: ReplyRoute, inbound: InboundMessage, text: str
) -> OutboundMessage:
    """Build the reply for a message that could not be answered."""
    key = f"{session}/apology/{inbound.key}"
    return OutboundMessage(session=session, seq=0, text=text, route=route, key=key)


async def _read_events_since(session: Session, first_position: int) -> list[Event]:
    """Return the events from a position on. Usually all of them are in memory."""
    window = session.window
    if window.base.snapshot.seq < first_position:
        return [event for event in window.base.events_since_snapshot if event.seq >= first_position]
    return [event async for event in session.store.events(session.id, [(first_position, None)])]


def _event_key(event: Event) -> str:
    """Return a key with the time: a session that was deleted and created again reuses positions."""
    return f"m{event.seq}@{int(event.at * 1000):x}"


def _find_notice(
    session: Session, edit: Edit, positions: Collection[int], *, was_rejected: bool
) -> str:
    """Return what the user is told of an edit that was made because the provider had refused the
    request. Empty if it was made for another reason, or hides a tool's result."""
    if edit.why == OVERFLOW_REASON:
        return COMPACTED_NOTICE
    if not edit.why.startswith(REJECTED_REASON):
        return ""
    if edit.first in positions:
        # An earlier attempt ended between the rejection and its notice.
        return _build_rejection_text(edit.why.removeprefix(REJECTED_REASON).removeprefix(": "))
    entry = session.window.entries.get(edit.first)
    is_users = entry is not None and entry.message.role == "user" and not entry.message.results
    return CONTENT_LEFT_OUT_NOTICE if was_rejected and is_users else ""
