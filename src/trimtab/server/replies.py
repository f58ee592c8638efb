"""What a turn sends out, from the log: after a crash the same again, under the same keys."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trimtab.log.event import Edit, Event, MessageAdded
from trimtab.log.message import Message, Text
from trimtab.policy.hiding_after_provider_error import OVERFLOW_REASON
from trimtab.server.queue.inbound_outbound import InboundMessage, OutboundMessage, ReplyRoute
from trimtab.session import Session
from trimtab.session.events import COMPACTED_NOTICE, TurnFinished
from trimtab.session.spending import describe_reached_ceiling

STEP_LIMIT_TEXT = (
    "I stopped here: this took more steps than one turn may have. Write to me to go on."
)
"""What is sent where a turn had come to its limit of tool calls before its last word."""

REJECTION_TEXT = (
    "The model's provider did not take this: “{words}”. I leave it out from your next message on; "
    "say it in another way, or send another file."
)
"""What is sent where the provider has rejected what was said."""
REPEATED_REJECTION_TEXT = (
    " It did not take your message before either. The fault may be further back: /undo takes back "
    "one message after the other, /reset begins anew."
)
MAX_QUOTED_ERROR_CHARS = 300
"""Characters of a provider's own words that are repeated."""
_REQUEST_PATH_PREFIX = re.compile(r"^(?:messages|input)[\w.\[\]]*: ")


async def build_turn_replies(
    session: Session,
    answered: Sequence[InboundMessage],
    *,
    first_position: int,
    notices: Sequence[str],
    finished: TurnFinished,
) -> list[OutboundMessage]:
    """All that was said in answer from a position on, also what an earlier attempt has said.

    `notices` are what the user was told; the one that the log knows of is read there.
    """
    routes = [queued.route for queued in answered if queued.route is not None]
    if not routes:
        return []
    said: list[tuple[int, str, str]] = []
    compacted = False
    for event in await _read_events_since(session, first_position):
        if session.window.base.find_erasing_event(event.seq, None) is not None:
            continue
        if isinstance(event.body, MessageAdded) and (
            text := extract_assistant_text(event.body.message)
        ):
            said.append((event.seq, _event_key(event), text))
        elif _is_forced_edit(event) and not compacted:
            compacted = True
            said.append((0, f"notice/{_event_key(event)}", COMPACTED_NOTICE))
    heard = [text for text in notices if text != COMPACTED_NOTICE or not compacted]
    told = [(0, f"notice/m{first_position}/{n}", text) for n, text in enumerate(heard)]
    if finished.reason == "iterations":
        said.append((0, f"limit/m{session.window.seq}", STEP_LIMIT_TEXT))
    if finished.cost_ceiling is not None:
        text = describe_reached_ceiling(finished.cost_ceiling)
        said.append((0, f"cost/m{session.window.seq}", text))
    return [
        OutboundMessage(
            session=session.id, seq=seq, text=text, route=routes[-1], key=f"{session.id}/{key}"
        )
        for seq, key, text in (*told, *said)
    ]


def build_provider_rejection_replies(
    session: Session, answered: Sequence[InboundMessage], *, previous_message_rejected: bool
) -> list[OutboundMessage]:
    """What is sent where the provider has not taken what was said; `again` where it had not taken
    the message before either."""
    window = session.window
    routes = [queued.route for queued in answered if queued.route is not None]
    if not routes:
        return []
    words = (
        _REQUEST_PATH_PREFIX.sub("", window.accounting.rejection.provider_message)[
            :MAX_QUOTED_ERROR_CHARS
        ]
        or "no reason is given"
    )
    text = REJECTION_TEXT.format(words=words) + (
        REPEATED_REJECTION_TEXT if previous_message_rejected else ""
    )
    key = f"{session.id}/rejected/m{window.seq}"
    return [OutboundMessage(session=session.id, seq=0, text=text, route=routes[-1], key=key)]


def extract_assistant_text(message: Message) -> str:
    """The text of an assistant's message; empty for any other."""
    if message.role != "assistant":
        return ""
    return "".join(part.text for part in message.parts if isinstance(part, Text)).strip()


def build_apology_reply(
    session: str, route: ReplyRoute, inbound: InboundMessage, text: str
) -> OutboundMessage:
    """What is sent where no answer could be made."""
    key = f"{session}/apology/{inbound.key}"
    return OutboundMessage(session=session, seq=0, text=text, route=route, key=key)


async def _read_events_since(session: Session, first_position: int) -> list[Event]:
    """What was said and hidden from a position on; as a rule all of it is in memory."""
    window = session.window
    if window.base.snapshot.seq < first_position:
        return [event for event in window.base.events_since_snapshot if event.seq >= first_position]
    return [event async for event in session.store.events(session.id, [(first_position, None)])]


def _event_key(event: Event) -> str:
    """By its time, too: a session that is deleted and begun anew has the same positions again."""
    return f"m{event.seq}@{int(event.at * 1000):x}"


def _is_forced_edit(event: Event) -> bool:
    """Whether something was hidden because the provider had refused the request."""
    return isinstance(event.body, Edit) and event.body.why == OVERFLOW_REASON
