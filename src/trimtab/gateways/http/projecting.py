"""The log as those see it who follow a session: one event of the log is one of the stream, or none.

The same log gives the same stream, whenever it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.core.event import (
    Attempt,
    Call,
    Edit,
    Erase,
    Event,
    Outcome,
    Repair,
    Retention,
    Rewind,
    Said,
    Turn,
)
from trimtab.core.message import Media, Message, Text, ToolCall
from trimtab.gateways.http.answers import CallInfo, MediaInfo, MessageInfo, ResultInfo
from trimtab.session.happenings import COMPACTED
from trimtab.stores.store import Store

BACK = 64
"""Events that are read at first to know what stands before a place in the log."""
KINDS: Mapping[str, str] = {
    "message": "Somebody said something: a message. It stands for all pieces before it.",
    "tool": "A tool was started: `call`, `name` and the `handle` of the call.",
    "result": "What a tool gave: a message with `results`.",
    "hidden": "What the model no longer sees, or sees again: `op`, `handle`, `why`, `stands`.",
    "summary": "A model was asked for a summary: `outcome`, `why`, `tokens`, `replaced`.",
    "usage": "What a call used: `input`, `output`, `cache_read`, `cache_write`.",
    "restarted": "A call failed and is made again, or not: pieces since the last message are void.",
    "notice": "Something that the user should know: `text`.",
    "undone": "Messages behind the position `to` were taken back.",
    "erased": "A text was destroyed: `handle`, `why`.",
    "begin": "A turn begins, or begins again: pieces since the last message are void.",
    "end": "A turn is over: `why` is `done`, `stopped` where the model has not said its last, or "
    "`rejected` where its provider did not take what was said: `detail` are its words. The next "
    "message goes without what was rejected.",
    "piece": "A piece of the reply while it is written: `kind` (`text` or `thinking`), `text`.",
    "failed": "The turn was given up: `why`. The message waits for `resume`; where the session was "
    "deleted there is none, and the stream is over.",
    "bye": "The server stops; connect again, with Last-Event-ID, for what follows.",
}
"""What a stream consists of."""

# Behind the session's id, the epoch; see `session.tools`.
_STARTED = re.compile(r"/\d+/m(\d+)\.(\d+)/(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One event of a stream."""

    kind: str
    """One of `KINDS`."""
    data: Mapping[str, Any]
    """What it says."""


class Projector:
    """Follows a log from somewhere on; it remembers the little that later events refer to."""

    def __init__(self, store: Store, session: str) -> None:
        self._store = store
        self._session = session
        self.call = 0
        """Position of the newest call that has no reply and has not failed; 0 where there is
        none."""
        self._overflow = False
        self._rejection: str | None = None
        self._cut = False
        self._answered = True
        self._calls: dict[tuple[int, int], ToolCall] = {}

    async def before(self, position: int) -> None:
        """Know what stands at and before a position, as far as what follows refers to it."""
        first, back, found = position + 1, BACK, list[Event]()
        while first > 1:
            start = max(1, first - back)
            span = (start, first - 1)
            found[:0] = [event async for event in self._store.events(self._session, [span])]
            first, back = start, back * 2
            if _has(found, Call) and _has(found, Said):
                break
        for event in found:
            await self.show(event)

    async def show(self, event: Event) -> Shown | None:
        """What an event of the log is to those who follow; None where it is nothing."""
        body = event.body
        match body:
            case Said() | Repair():
                return self._said(event, body)
            case Call():
                return self._asked(event)
            case Outcome():
                return self._outcome(body)
            case Turn():
                return await self._turn(body)
            case Edit():
                self._cut = self._overflow
                told = {"op": body.op, "handle": body.handle, "why": body.why, "stands": body.text}
                return Shown(kind="hidden", data=told)
            case Rewind():
                self.call, self._answered = 0, True
                return Shown(kind="undone", data={"to": body.to})
            case Attempt():
                names = ("outcome", "why", "tokens", "replaced")
                return Shown(kind="summary", data={name: getattr(body, name) for name in names})
            case Erase():
                part = "" if body.part is None else f".{body.part}"
                told = {"handle": f"m{body.message}{part}", "why": body.why}
                return Shown(kind="erased", data=told)
            case Retention():
                told = {"handle": f"m1-m{max(1, body.before - 1)}", "why": body.why}
                return Shown(kind="erased", data=told)
            case _:
                return None

    def _said(self, event: Event, body: Said | Repair) -> Shown:
        message = body.message
        if isinstance(body, Said) and body.call == self.call:
            self.call = 0
        if message.role == "assistant":
            # Only the calls of the newest reply can still be started.
            self._calls = {
                (event.seq, part): call
                for part, call in enumerate(message.parts)
                if isinstance(call, ToolCall)
            }
        self._answered = message.role == "assistant" and not message.calls
        kind = "result" if message.results else "message"
        return Shown(kind=kind, data=asdict(message_info(event)))

    def _asked(self, event: Event) -> Shown | None:
        self.call = event.seq
        self._rejection = None
        compacted = self._overflow and self._cut
        self._overflow = self._cut = False
        return Shown(kind="notice", data={"text": COMPACTED}) if compacted else None

    def _outcome(self, body: Outcome) -> Shown | None:
        if body.status == "error":
            self.call = 0
            error = body.error or {}
            self._overflow = error.get("kind") == "overflow"
            if error.get("kind") == "rejected":
                self._rejection = str(error.get("message", ""))
            told = {"why": error.get("kind"), "limit": error.get("limit")}
            return Shown(kind="restarted", data=told)
        if body.usage is None:
            return None
        return Shown(kind="usage", data=asdict(body.usage))

    async def _turn(self, body: Turn) -> Shown | None:
        match body.state:
            case "claimed":
                self.call = 0
                return Shown(kind="begin", data={"epoch": body.epoch})
            case "ended":
                self.call = 0
                if self._rejection is not None:
                    told = {"why": "rejected", "detail": self._rejection, "epoch": body.epoch}
                    return Shown(kind="end", data=told)
                why = "done" if self._answered else "stopped"
                return Shown(kind="end", data={"why": why, "epoch": body.epoch})
            case "tool_started":
                found = _STARTED.search(body.key or "")
                if found is None:
                    return None
                seq, part = int(found[1]), int(found[2])
                name = await self._tool(seq, part)
                told = {"call": found[3], "name": name, "handle": f"m{seq}.{part}"}
                return Shown(kind="tool", data=told)

    async def _tool(self, seq: int, part: int) -> str:
        known = self._calls.get((seq, part))
        if known is not None:
            return known.name
        async for event in self._store.events(self._session, [(seq, seq)]):
            if isinstance(event.body, Said) and part < len(event.body.message.parts):
                return getattr(event.body.message.parts[part], "name", "")
        return ""


def message_info(event: Event, *, undone: bool = False) -> MessageInfo:
    """A message of the log as callers see it: all that was said, and no provider's own blocks."""
    assert isinstance(event.body, Said | Repair)  # noqa: S101 - asked for messages only
    message, seq = event.body.message, event.seq
    return MessageInfo(
        position=seq,
        handle=f"m{seq}",
        at=event.at,
        role=message.role,
        text=reply_text(message),
        calls=[
            CallInfo(id=call.id, name=call.name, arguments=call.arguments) for call in message.calls
        ],
        results=[
            ResultInfo(call=result.call_id, text=result.text, error=result.is_error)
            for result in message.results
        ],
        media=[
            MediaInfo(type=part.kind, mime=part.mime, url=part.url, handle=f"m{seq}.{number}")
            for number, part in enumerate(message.parts)
            if isinstance(part, Media)
        ],
        key=event.body.key if isinstance(event.body, Said) else None,
        undone=undone,
    )


def reply_text(message: Message) -> str:
    """All text of a message, as its pieces were when it was written."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _has(events: list[Event], kind: type[Any]) -> bool:
    return any(isinstance(event.body, kind) for event in events)
