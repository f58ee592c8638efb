"""Build the replies of a turn from the log. After a crash they are the same, with the same keys."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trimtab.engine.log.event import Edit, Event, MessageAdded
from trimtab.engine.log.message import Message, Text
from trimtab.engine.policy.overflow import OVERFLOW_REASON
from trimtab.session import Session
from trimtab.session.events import COMPACTED_NOTICE, TurnFinished
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
    first_position: int,
    notices: Sequence[str],
    finished: TurnFinished,
) -> list[OutboundMessage]:
    """Return all answers from a position on, including those of an earlier attempt.

    `notices` are the notices of this turn. The notice about compaction is taken from the log if it
    is recorded there.
    """
    routes = [message.route for message in answered if message.route is not None]
    if not routes:
        return []
    reply_parts: list[tuple[int, str, str]] = []
    has_notice = False
    for event in await _read_events_since(session, first_position):
        if session.window.base.find_erasing_event(event.seq, None) is not None:
            continue
        if isinstance(event.body, MessageAdded) and (
            text := extract_assistant_text(event.body.message)
        ):
            reply_parts.append((event.seq, _event_key(event), text))
        elif _is_forced_edit(event) and not has_notice:
            has_notice = True
            reply_parts.append((0, f"notice/{_event_key(event)}", COMPACTED_NOTICE))
    notice_texts = [text for text in notices if text != COMPACTED_NOTICE or not has_notice]
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
    words = (
        _REQUEST_PATH_PREFIX.sub("", window.accounting.rejection.provider_message)[
            :MAX_QUOTED_ERROR_CHARS
        ]
        or "no reason was given"
    )
    text = REJECTION_TEXT.format(words=words) + (
        REPEATED_REJECTION_TEXT if previous_message_rejected else ""
    )
    key = f"{session.id}/rejected/m{window.seq}"
    return [OutboundMessage(session=session.id, seq=0, text=text, route=routes[-1], key=key)]


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


def _is_forced_edit(event: Event) -> bool:
    """Whether something was hidden because the provider had refused the request."""
    return isinstance(event.body, Edit) and event.body.why == OVERFLOW_REASON
