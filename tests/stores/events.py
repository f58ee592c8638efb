"""Events by hand, and what stores hold of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from trimtab.engine.log.event import (
    CallOutcome,
    Event,
    Fork,
    MessageAdded,
    ModelCall,
    Settings,
    Size,
    ToolResultRepair,
    TurnProgressRecord,
    Usage,
    dump_event_line,
)
from trimtab.engine.log.message import (
    PRIVATE_CHAT_KEY,
    SENDER_KEY,
    Message,
    Role,
    Text,
    ToolCall,
    ToolResult,
    make_text_message,
)
from trimtab.errors import PositionTaken
from trimtab.stores.base import WHOLE_LOG, PositionSpan, Store

SIZES = (Size(bytes=4, tokens=1),)


def said(
    seq: int, text: str = "hello", *, key: str | None = None, role: Role = "user", at: float = 0.0
) -> Event:
    body = MessageAdded(message=make_text_message(role, text), sizes=SIZES, key=key)
    return Event(seq=seq, at=at or float(seq), body=body)


def sent(seq: int, user: str, text: str = "hello", *, is_private: bool = False) -> Event:
    """A message of a user."""
    extra: dict[str, object] = {SENDER_KEY: user}
    if is_private:
        extra[PRIVATE_CHAT_KEY] = True
    message = replace(make_text_message("user", text), extra=extra)
    return Event(seq=seq, at=float(seq), body=MessageAdded(message=message, sizes=SIZES))


def called(seq: int, name: str, arguments: str) -> Event:
    call = ToolCall(id=f"c{seq}", name=name, arguments=arguments)
    body = MessageAdded(message=Message(role="assistant", parts=(call,)), sizes=SIZES)
    return Event(seq=seq, at=float(seq), body=body)


def returned(seq: int, text: str, *, recalled: bool = False) -> Event:
    result = ToolResult(call_id=f"c{seq - 1}", content=(Text(text=text),))
    body = MessageAdded(
        message=Message(role="tool", parts=(result,)), sizes=SIZES, recalled=recalled
    )
    return Event(seq=seq, at=float(seq), body=body)


def repaired(seq: int, text: str) -> Event:
    body = ToolResultRepair(
        message=make_text_message("tool", text), sizes=SIZES, why="no result came"
    )
    return Event(seq=seq, at=float(seq), body=body)


def claimed(seq: int, epoch: int) -> Event:
    return Event(seq=seq, at=float(seq), body=TurnProgressRecord(state="claimed", epoch=epoch))


def forked(seq: int, parent: str) -> Event:
    return Event(seq=seq, at=float(seq), body=Fork(parent=parent, position=seq - 1))


def call(seq: int, size: int) -> Event:
    return Event(seq=seq, at=float(seq), body=ModelCall(position=seq - 1, max_output=9, bytes=size))


def settings(seq: int, model: str) -> Event:
    return Event(
        seq=seq, at=float(seq), body=Settings(model=model, dialect="anthropic", renderer=1)
    )


def outcome(
    seq: int, of: int, usage: Usage | None = None, status: Literal["ok", "error"] = "ok"
) -> Event:
    return Event(seq=seq, at=float(seq), body=CallOutcome(call=of, usage=usage, status=status))


async def held(store: Store, session: str, spans: Sequence[PositionSpan] = WHOLE_LOG) -> list[str]:
    """The events as `dump` has them."""
    return [dump_event_line(event) async for event in store.events(session, spans)]


async def append_next(store: Store, session: str, text: str, *, epoch: int | None = None) -> int:
    """Append one message, deciding again as often as somebody else was first; its position."""
    seq = await store.position(session) + 1
    while True:
        try:
            await store.append(session, [said(seq, text)], epoch=epoch)
        except PositionTaken:
            seq += len(await held(store, session, [(seq, None)]))
        else:
            return seq
