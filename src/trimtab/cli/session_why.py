"""Why the model sees something as it does, in plain words."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from rich.console import Console
from rich.text import Text

from trimtab.cli.storing import known
from trimtab.cli.words import age, counted, moment, plain
from trimtab.core.edits import parse_handle
from trimtab.core.event import Event, Repair, Said
from trimtab.core.message import Message
from trimtab.session.audit import SAID_OF, Why, why
from trimtab.stores.store import Store

LINES = 30
"""Of a text that are shown; `recall` shows all."""
FEW_LINES = 8
"""Of what stands in its place."""
CHARACTERS = 10_000
"""Of a text that are looked at to show its beginning."""

_LABEL = re.compile(r"\A\[m\d+ \w+\]\n")
"""What stands over a message when it is recalled: who said it."""
_BY = {
    "truncated": "a truncate edit",
    "masked": "a mask edit",
    "summarised": "a summarise edit",
    "dropped": "a drop edit",
    "listed": "an edit",
    "undone": "a rewind",
    "erased": "an erasure",
}
_STANDS = {
    "truncated": "where it was cut, the model reads",
    "masked": "in its place the model reads",
    "summarised": "the summary",
    "dropped": "the notice",
    "listed": "there the model reads",
}


async def reasons(store: Store, session: str, handle: str) -> list[Why]:
    """Of what a handle names; of a message with parts that differ, one for each part."""
    message = await named(store, session, handle)
    whole = await why(store, session, handle)
    several = parse_handle(handle)
    if whole.state != "shown" or several.part is not None or len(message.parts) < 2:
        return [whole]
    if several.first != several.last:
        return [whole]
    parts = [await why(store, session, f"{handle}.{index}") for index in range(len(message.parts))]
    return [whole] if all(part.state == "shown" for part in parts) else parts


async def named(store: Store, session: str, handle: str) -> Message:
    """The first message that a handle names; LookupError where it names none."""
    wanted, position = parse_handle(handle), await known(store, session)
    if not 0 < wanted.first <= position:
        raise LookupError(f"nothing is called {handle}; positions go up to m{position}")
    async for event in messages(store, session, wanted.first, wanted.last):
        message = _message(event)
        if wanted.part is not None and wanted.part >= len(message.parts):
            raise LookupError(
                f"nothing is called {handle}: m{event.seq} has {len(message.parts)} parts, from "
                f"m{event.seq}.0 on"
            )
        return message
    raise LookupError(
        f"event {wanted.first} is no message, so nothing is called {handle}; `trimtab session "
        f"show {session}` lists messages and their handles"
    )


async def messages(store: Store, session: str, first: int, last: int) -> AsyncIterator[Event]:
    """The messages between two positions, undone ones included."""
    async for event in store.events(session, [(first, last)]):
        if isinstance(event.body, Said | Repair):
            yield event


def show_reason(reason: Why, console: Console, hint: str) -> None:
    """What became of it, when and by what, what the model reads instead, and what it said."""
    console.print(Text(reason.handle, "bold"), Text(f"{SAID_OF[reason.state]}."), soft_wrap=True)
    if reason.event is not None:
        since = f"{moment(reason.since)}, {age(reason.since)}" if reason.since is not None else ""
        _row(console, "since", since)
        _row(console, "by", f"event {reason.event}, {_BY.get(reason.state, 'an edit')}")
    if reason.why:
        _row(console, "why", reason.why)
    if reason.stands:
        _row(console, _STANDS.get(reason.state, "the model reads"), "")
        _quote(console, reason.stands, FEW_LINES, "")
    if reason.text:
        text = _LABEL.sub("", reason.text) if _is_one(reason.handle) else reason.text
        _row(console, f"what it says, {counted(len(text), 'character')}", "")
        _quote(console, text, LINES, hint)


def _is_one(handle: str) -> bool:
    """Whether it names one whole message, whose label is no part of what it says."""
    named = parse_handle(handle)
    return named.part is None and named.first == named.last


def _row(console: Console, name: str, text: str) -> None:
    line = Text(f"  {name}: " if text else f"  {name}:", "dim")
    line.append(plain(text), "default")
    console.print(line, soft_wrap=True)


def _quote(console: Console, text: str, most: int, hint: str) -> None:
    """The beginning of a text, in at most so many lines."""
    room = max(20, console.width - 4)
    pieces = Text(plain(text[:CHARACTERS])).wrap(console, room, overflow="fold", tab_size=4)
    for piece in pieces[:most]:
        console.print(Text("  │ ") + piece)
    if len(pieces) > most or len(text) > CHARACTERS:
        console.print(Text(f"  └ and more{hint and f': {hint}'}", "dim"), soft_wrap=True)


def _message(event: Event) -> Message:
    assert isinstance(event.body, Said | Repair)  # noqa: S101 - messages() yields nothing else
    return event.body.message
