"""Read sessions of pi: one entry per line, the messages in pi's own form.

Entries form a tree; they are read in the order of the file, because every branch was paid. A
compaction begins a new part, with its summary and the messages that it kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trimtab.dialects import get_dialect
from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message
from trimtab.replay.locations import PI
from trimtab.replay.readers.json_files import (
    READ_ERRORS,
    JsonLine,
    LogFile,
    count_or_zero,
    derive_conversation_id,
    make_times_monotonic,
    parse_iso_timestamp,
)
from trimtab.replay.selection import RecordedCall, RecordedConversation, name_part

_ENTRY_TYPES = ("message", "compaction", "custom_message")


@dataclass(frozen=True, slots=True)
class _Entry:
    id: str
    """The id of the entry."""
    at: float | None
    """Seconds since the epoch."""
    message: Message
    """The message as it was sent."""
    call: RecordedCall | None
    """What pi recorded about the call, if the message is a reply."""


@dataclass(slots=True)
class _PiSession:
    """The entries of a session since its last compaction."""

    id: str
    """The id of the session."""
    entries: list[_Entry] = field(default_factory=list[_Entry])
    """The messages in the order of the file."""
    part: int = 1
    """The number of the part, from 1."""

    def begin_part(self, entry: dict[str, Any], at: float | None) -> None:
        """Go on with the summary and what the compaction kept. That was paid in the part before."""
        first_kept = entry.get("firstKeptEntryId")
        start = next(
            (i for i, one in enumerate(self.entries) if one.id == first_kept), len(self.entries)
        )
        tail = [_Entry(one.id, one.at, one.message, None) for one in self.entries[start:]]
        self.part += bool(self.entries)
        summary = {"role": "user", "content": str(entry.get("summary") or "")}
        self.entries = [_Entry("", at, get_dialect("anthropic").parse_message(summary), None)]
        self.entries += tail

    def to_conversation(self, file: LogFile) -> RecordedConversation:
        calls = {i: entry.call for i, entry in enumerate(self.entries) if entry.call is not None}
        return RecordedConversation(
            id=name_part(self.id, self.part),
            part=self.part,
            kind=PI,
            source=str(file.path),
            messages=tuple(entry.message for entry in self.entries),
            times=make_times_monotonic([entry.at for entry in self.entries]),
            recorded=calls,
            model=next((call.model for call in reversed(calls.values()) if call.model), None),
        )


def is_pi_line(line: JsonLine) -> bool:
    return (
        line.data.get("type") == "session" and "cwd" in line.data and "timestamp" in line.data
    ) or (line.data.get("type") == "message" and {"id", "parentId", "message"} <= line.data.keys())


def read_pi_session(file: LogFile, lines: Iterator[JsonLine]) -> Iterator[RecordedConversation]:
    session = _PiSession(id=derive_conversation_id(file.path))
    for line in lines:
        entry = line.data
        if entry.get("type") not in _ENTRY_TYPES:
            continue
        at = parse_iso_timestamp(entry.get("timestamp"))
        try:
            if entry["type"] == "compaction":
                if session.entries:
                    yield session.to_conversation(file)
                session.begin_part(entry, at)
                continue
            spoken = dict_or_none(entry.get("message")) or {**entry, "role": "custom"}
            wire = _to_anthropic_message(spoken)
            if wire is not None:
                message = get_dialect("anthropic").parse_message(wire)
                call = _parse_call(spoken) if message.role == "assistant" else None
                session.entries.append(_Entry(str(entry.get("id") or ""), at, message, call))
        except READ_ERRORS:
            file.skip(line.number, "expected an entry of a pi session")
    if session.entries:
        yield session.to_conversation(file)


def _to_anthropic_message(spoken: dict[str, Any]) -> dict[str, Any] | None:
    """Convert a message of pi. None if it is not sent to the model."""
    content = spoken.get("content")
    blocks: list[dict[str, Any]] = (
        [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    )
    for block in dicts_in_list(content):
        match block.get("type"):
            case "text":
                blocks.append({"type": "text", "text": str(block.get("text") or "")})
            case "toolCall":
                use = {"id": block.get("id"), "name": block.get("name")}
                blocks.append(
                    {"type": "tool_use", **use, "input": dict_or_none(block.get("arguments")) or {}}
                )
            case "image":
                source = {
                    "type": "base64",
                    "media_type": str(block.get("mimeType") or "image/png"),
                    "data": str(block.get("data") or ""),
                }
                blocks.append({"type": "image", "source": source})
            case _:
                pass
    match spoken.get("role"):
        case "toolResult":
            result = {"type": "tool_result", "tool_use_id": str(spoken.get("toolCallId") or "")}
            return {"role": "user", "content": [{**result, "content": blocks}]}
        case "bashExecution" if not spoken.get("excludeFromContext"):
            text = f"{spoken.get('command')}\n{spoken.get('output')}"
            return {"role": "user", "content": [{"type": "text", "text": text}]}
        case "assistant" if blocks:
            return {"role": "assistant", "content": blocks}
        case "user" | "custom" if blocks:
            return {"role": "user", "content": blocks}
        case _:
            return None


def _parse_call(spoken: dict[str, Any]) -> RecordedCall:
    usage = dict_or_none(spoken.get("usage"))
    model = str(spoken.get("model") or "") or None
    if usage is None:
        return RecordedCall(model=model)
    read, write = count_or_zero(usage.get("cacheRead")), count_or_zero(usage.get("cacheWrite"))
    return RecordedCall(
        model=model,
        usage=Usage(
            input=count_or_zero(usage.get("input")) + read + write,
            output=count_or_zero(usage.get("output")),
            cache_read=read,
            cache_write=write,
        ),
    )
