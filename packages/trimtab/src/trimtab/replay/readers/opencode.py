"""Read the sessions of opencode from its SQLite database.

A message of opencode holds the calls of its reply together with their results. It becomes two
messages: the reply, and what the tools returned. A compaction begins a new part.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from trimtab.dialects import get_dialect
from trimtab.dialects.json_values import dict_or_none
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message
from trimtab.replay.locations import OPENCODE
from trimtab.replay.readers.json_files import (
    READ_ERRORS,
    LogFile,
    UnreadableRecording,
    count_or_zero,
    make_times_monotonic,
    parse_millisecond_timestamp,
)
from trimtab.replay.selection import RecordedCall, RecordedConversation, name_part

SQLITE_START = b"SQLite format 3\x00"
_SESSIONS = "SELECT DISTINCT session_id FROM message ORDER BY session_id"
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
_PARTS = "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id"


@dataclass(slots=True)
class _OpencodeSession:
    """The messages of a session since its last compaction."""

    id: str
    """The id of the session."""
    messages: list[Message] = field(default_factory=list[Message])
    """The messages in order."""
    times: list[float | None] = field(default_factory=list[float | None])
    """Seconds since the epoch, one for each message."""
    calls: dict[int, RecordedCall] = field(default_factory=dict[int, RecordedCall])
    """What opencode recorded about each call, by message index."""
    pruned: list[float] = field(default_factory=list[float])
    """Times at which opencode removed old results from what it sends."""
    part: int = 1
    """The number of the part, from 1."""

    def add(self, role: str, blocks: list[dict[str, Any]], at: float | None) -> None:
        if blocks:
            wire = {"role": role, "content": blocks}
            self.messages.append(get_dialect("anthropic").parse_message(wire))
            self.times.append(at)

    def to_conversation(self, file: LogFile) -> RecordedConversation:
        models = [call.model for call in self.calls.values() if call.model]
        return RecordedConversation(
            id=name_part(self.id, self.part),
            part=self.part,
            kind=OPENCODE,
            source=str(file.path),
            messages=tuple(self.messages),
            times=make_times_monotonic(self.times),
            recorded=self.calls,
            model=models[-1] if models else None,
        )

    def begin_part(self, summary: list[dict[str, Any]], at: float | None) -> None:
        """Go on with the summary alone."""
        self.part += 1
        self.messages, self.times, self.calls = [], [], {}
        self.add("user", [block for block in summary if block["type"] == "text"], at)

    def take_pruned(self, at: float | None) -> bool:
        """Return whether results were removed before a call, since the call before."""
        due = [time for time in self.pruned if at is not None and time <= at]
        self.pruned = [time for time in self.pruned if time not in due]
        return bool(due)


def read_opencode_database(file: LogFile) -> Iterator[RecordedConversation]:
    try:
        address = f"{file.path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as database:
            for (session_id,) in database.execute(_SESSIONS).fetchall():
                yield from _read_session(file, database, session_id)
    except sqlite3.Error as error:
        raise UnreadableRecording(
            file.path, 1, f"expected a database of opencode: {error}"
        ) from error


def _read_session(
    file: LogFile, database: sqlite3.Connection, session_id: Any
) -> Iterator[RecordedConversation]:
    session = _OpencodeSession(id=str(session_id))
    parts: dict[Any, list[dict[str, Any]]] = {}
    for message_id, text in database.execute(_PARTS, (session_id,)):
        parts.setdefault(message_id, []).append(_parse_object(text))
    session.pruned = sorted(
        time
        for part in chain.from_iterable(parts.values())
        if (time := _parse_prune_time(part)) is not None
    )
    for message_id, text in database.execute(_MESSAGES, (session_id,)):
        try:
            info = _parse_object(text)
            yield from _add_message(file, session, info, parts.get(message_id, []))
        except READ_ERRORS:
            file.skip(1, "expected a message of opencode")
    if session.messages:
        yield session.to_conversation(file)


def _add_message(
    file: LogFile,
    session: _OpencodeSession,
    info: dict[str, Any],
    parts: list[dict[str, Any]],
) -> Iterator[RecordedConversation]:
    at = parse_millisecond_timestamp((dict_or_none(info.get("time")) or {}).get("created"))
    blocks = [block for part in parts for block in _to_blocks(part)]
    if info.get("role") != "assistant":
        session.add("user", blocks, at)
        return
    index = len(session.messages)
    session.add("assistant", blocks, at)
    if len(session.messages) > index:
        session.calls[index] = RecordedCall(
            usage=_parse_usage(info),
            model=str(info.get("modelID") or "") or None,
            edited=session.take_pruned(at),
        )
    session.add("user", [block for part in parts for block in _to_results(part)], at)
    if info.get("summary") is True and session.messages:
        yield session.to_conversation(file)
        session.begin_part(blocks, at)


def _to_blocks(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Convert a part of a message to Anthropic blocks, without what a tool returned."""
    match part.get("type"):
        case "text" if part.get("text") and not part.get("ignored"):
            return [{"type": "text", "text": str(part["text"])}]
        case "tool":
            state = dict_or_none(part.get("state")) or {}
            return [
                {
                    "type": "tool_use",
                    "id": str(part.get("callID") or ""),
                    "name": str(part.get("tool") or ""),
                    "input": dict_or_none(state.get("input")) or {},
                }
            ]
        case _:
            return []


def _to_results(part: dict[str, Any]) -> list[dict[str, Any]]:
    state = dict_or_none(part.get("state")) or {}
    if part.get("type") != "tool" or state.get("status") not in ("completed", "error"):
        return []
    text = str(state.get("output") or state.get("error") or "")
    result = {"type": "tool_result", "tool_use_id": str(part.get("callID") or "")}
    return [{**result, "content": [{"type": "text", "text": text}]}]


def _parse_usage(info: dict[str, Any]) -> Usage | None:
    tokens = dict_or_none(info.get("tokens"))
    if tokens is None:
        return None
    cache = dict_or_none(tokens.get("cache")) or {}
    read, write = count_or_zero(cache.get("read")), count_or_zero(cache.get("write"))
    usage = Usage(
        input=count_or_zero(tokens.get("input")) + read + write,
        output=count_or_zero(tokens.get("output")) + count_or_zero(tokens.get("reasoning")),
        cache_read=read,
        cache_write=write,
    )
    return usage if usage.input else None


def _parse_prune_time(part: dict[str, Any]) -> float | None:
    state = dict_or_none(part.get("state")) or {}
    return parse_millisecond_timestamp((dict_or_none(state.get("time")) or {}).get("compacted"))


def _parse_object(text: Any) -> dict[str, Any]:
    return dict_or_none(json.loads(text)) or {}
