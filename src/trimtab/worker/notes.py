"""What processes tell each other of sessions that run, as short texts for PostgreSQL's NOTIFY.

Pieces of a reply are sent as they are, joined where they follow each other. What is in the log is
not sent: that something is there is enough, and whoever watches reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from trimtab.session.happenings import (
    BrokeOff,
    CallBegan,
    CallEnded,
    Ended,
    Happening,
    Notice,
    Piece,
    Restarted,
    TurnBegan,
)
from trimtab.worker.live import Heard, Missed

LIMIT = 7_000
"""Bytes of one note; PostgreSQL takes 7,999."""

Told = list[Any]
"""A happening on its way: a word for what it is, then its values."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


def told_of(happening: Happening) -> Told | None:
    """A happening for another process; None for what nobody there waits for."""
    match happening:
        case Piece():
            return ["piece", happening.kind, happening.text]
        case Restarted():
            return ["restarted", happening.why[:500], happening.limit]
        case Notice():
            return ["notice", happening.text[:500]]
        case TurnBegan():
            return ["turn", happening.session, happening.model, happening.dialect]
        case Ended():
            return ["end", happening.why, happening.calls]
        case BrokeOff():
            return ["broke_off", happening.why, happening.error]
        case CallBegan() | CallEnded():
            return None
        case _:
            return ["moved"]


def heard_of(told: Told) -> Heard | None:
    """What was told; None where a later release tells something that this one does not know."""
    match told:
        case ["piece", kind, text]:
            return Piece(kind=kind, text=text)
        case ["restarted", why, limit]:
            return Restarted(why=why, limit=limit)
        case ["notice", text]:
            return Notice(text=text)
        case ["turn", session, model, dialect]:
            return TurnBegan(session=session, model=model, dialect=dialect)
        case ["end", why, calls]:
            return Ended(why=why, calls=calls)
        case ["broke_off", why, error]:
            return BrokeOff(why=why, error=error)
        case ["moved"]:
            return Missed()
        case _:
            return None


def join(waiting: list[Told], told: Told) -> None:
    """Add to what waits to be sent; pieces that follow each other become one."""
    if waiting and told[0] == "moved" == waiting[-1][0]:
        return
    if waiting and told[0] == "piece" and waiting[-1][:2] == told[:2]:
        waiting[-1] = [*told[:2], waiting[-1][2] + told[2]]
    else:
        waiting.append(told)


def notes_of(sender: str, session: str, told: Sequence[Told]) -> Iterator[str]:
    """What was told of a session, in notes that are short enough."""
    head: dict[str, Any] = {"from": sender, "session": session}
    yield from _packed(head, "told", [part for each in told for part in _split(each)])


def list_of(sender: str, word: str, sessions: Sequence[str]) -> Iterator[str]:
    """A list of sessions, in notes that are short enough."""
    yield from _packed({"from": sender}, word, sessions)


def _packed(head: dict[str, Any], word: str, items: Sequence[Any]) -> Iterator[str]:
    page: list[Any] = []
    # Numbered, for of notes that say the same PostgreSQL sends one.
    number = 0
    size = empty = len(_encode(head)) + len(word) + 24
    for item in items:
        more = len(_encode(item)) + 1
        if page and size + more > LIMIT:
            yield _encode({**head, "part": number, word: page})
            page, size, number = [], empty, number + 1
        page.append(item)
        size += more
    if page:
        yield _encode({**head, "part": number, word: page})


def _split(told: Told) -> Iterator[Told]:
    """A long piece as several."""
    if told[0] == "piece" and len(_encode(told[2])) > LIMIT // 2:
        half = len(told[2]) // 2
        for text in (told[2][:half], told[2][half:]):
            yield from _split([*told[:2], text])
    else:
        yield told
