"""What a turn sends out, from the log: after a crash the same again, under the same keys."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trimtab.core.event import Edit, Event, Said
from trimtab.core.message import Message, Text
from trimtab.core.policies.aggressive import WHY
from trimtab.session import Session
from trimtab.session.happenings import COMPACTED, Ended
from trimtab.worker.letters import Inbound, Outbound, Route

TOO_LONG = "I stopped here: this took more steps than one turn may have. Write to me to go on."
"""What is sent where a turn had come to its limit of tool calls before its last word."""

REJECTED = (
    "The model's provider did not take this: “{words}”. I leave it out from your next message on; "
    "say it in another way, or send another file."
)
"""What is sent where the provider has rejected what was said."""
REJECTED_AGAIN = (
    " It did not take your message before either. The fault may be further back: /undo takes back "
    "one message after the other, /reset begins anew."
)
WORDS = 300
"""Characters of a provider's own words that are repeated."""
_PLACE = re.compile(r"^(?:messages|input)[\w.\[\]]*: ")


async def replies_of(
    session: Session,
    taken: Sequence[Inbound],
    *,
    first: int,
    notices: Sequence[str],
    ended: Ended,
) -> list[Outbound]:
    """All that was said in answer from a position on, also what an earlier attempt has said.

    `notices` are what the user was told; the one that the log knows of is read there.
    """
    routes = [letter.route for letter in taken if letter.route is not None]
    if not routes:
        return []
    said: list[tuple[int, str, str]] = []
    compacted = False
    for event in await _said_since(session, first):
        if isinstance(event.body, Said) and (text := said_to_user(event.body.message)):
            said.append((event.seq, _key(event), text))
        elif _cut_down(event) and not compacted:
            compacted = True
            said.append((0, f"notice/{_key(event)}", COMPACTED))
    heard = [text for text in notices if text != COMPACTED or not compacted]
    told = [(0, f"notice/m{first}/{n}", text) for n, text in enumerate(heard)]
    if ended.why == "iterations":
        said.append((0, f"limit/m{session.window.seq}", TOO_LONG))
    return [
        Outbound(
            session=session.id, seq=seq, text=text, route=routes[-1], key=f"{session.id}/{key}"
        )
        for seq, key, text in (*told, *said)
    ]


def rejection_of(session: Session, taken: Sequence[Inbound], *, again: bool) -> list[Outbound]:
    """What is sent where the provider has not taken what was said; `again` where it had not taken
    the message before either."""
    window = session.window
    routes = [letter.route for letter in taken if letter.route is not None]
    if not routes:
        return []
    words = _PLACE.sub("", window.rejection.words)[:WORDS] or "no reason is given"
    text = REJECTED.format(words=words) + (REJECTED_AGAIN if again else "")
    key = f"{session.id}/rejected/m{window.seq}"
    return [Outbound(session=session.id, seq=0, text=text, route=routes[-1], key=key)]


def said_to_user(message: Message) -> str:
    """The text of an assistant's message; empty for any other."""
    if message.role != "assistant":
        return ""
    return "".join(part.text for part in message.parts if isinstance(part, Text)).strip()


def apology(session: str, route: Route, letter: Inbound, text: str) -> Outbound:
    """What is sent where no answer could be made."""
    key = f"{session}/apology/{letter.key}"
    return Outbound(session=session, seq=0, text=text, route=route, key=key)


async def _said_since(session: Session, first: int) -> list[Event]:
    """What was said and hidden from a position on; as a rule all of it is in memory."""
    window = session.window
    if window.base.seq < first:
        return [event for event in window.past if event.seq >= first]
    return [event async for event in session.store.events(session.id, [(first, None)])]


def _key(event: Event) -> str:
    """By its time, too: a session that is deleted and begun anew has the same positions again."""
    return f"m{event.seq}@{int(event.at * 1000):x}"


def _cut_down(event: Event) -> bool:
    """Whether something was hidden because the provider had refused the request."""
    return isinstance(event.body, Edit) and event.body.why == WHY
