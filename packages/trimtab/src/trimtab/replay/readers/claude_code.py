"""Read Claude Code transcripts: one line for each block, with its role, time and message id.

The lines of one message id become one message. Lines of subagents, injected notes, errors made by
the client and reasoning are left out. Subagents have their own conversations, and reasoning is not
sent again in later turns. Reading stops at the point where the agent compacted its context.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.dialects import get_dialect
from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.engine.log.event import Usage
from trimtab.replay.readers.json_files import (
    JsonLine,
    UnreadableRecording,
    derive_conversation_id,
    parse_iso_timestamp,
    parse_recorded_usage,
)
from trimtab.replay.selection import RecordedConversation

_REASONING = ("thinking", "redacted_thinking")


@dataclass(slots=True)
class _TranscriptMessage:
    role: str
    """`user` or `assistant`."""
    content: list[dict[str, Any]]
    """Anthropic blocks."""
    at: float | None
    """Seconds since the epoch, of its first line."""
    usage: Usage | None = None
    """The usage of its last line. Earlier lines count only the output up to them."""


@dataclass(slots=True)
class _Transcript:
    spoken: list[_TranscriptMessage] = field(default_factory=list[_TranscriptMessage])
    """The messages in the order of the file."""
    by_id: dict[str, _TranscriptMessage] = field(default_factory=dict[str, _TranscriptMessage])
    """Replies by message id."""
    model: str | None = None
    """The model that answered last."""
    seen: set[str] = field(default_factory=set[str])
    """Ids of lines already read. A resumed session repeats its past."""

    def take(self, path: Path, line: JsonLine) -> None:
        message = dict_or_none(line.data.get("message"))
        if message is None or "content" not in message:
            raise UnreadableRecording(path, line.number, "expected a `message` with `content`")
        uuid = str(line.data.get("uuid") or f"line {line.number}")
        content = _content_blocks(message["content"])
        if uuid in self.seen or not content or message.get("model") == "<synthetic>":
            return
        self.seen.add(uuid)
        self.model = str(message.get("model") or "") or self.model
        usage, key = parse_recorded_usage(message.get("usage")), str(message.get("id") or uuid)
        known = self.by_id.get(key)
        if known is not None and line.data["type"] == "assistant":
            known.content += content
            known.usage = usage or known.usage
            return
        spoken = _TranscriptMessage(
            line.data["type"], content, parse_iso_timestamp(line.data.get("timestamp")), usage
        )
        self.spoken.append(spoken)
        self.by_id[key] = spoken


def is_claude_code_line(line: JsonLine) -> bool:
    return line.data.get("type") in ("user", "assistant") and "message" in line.data


def read_claude_code_transcript(
    path: Path, lines: Iterator[JsonLine]
) -> Iterator[RecordedConversation]:
    kept = [line for line in lines if is_claude_code_line(line) or _is_compaction(line)]
    aside = [line for line in kept if line.data.get("isSidechain")]
    # A subagent's own file has nothing but lines of the side.
    main = [line for line in kept if not line.data.get("isSidechain")] or aside
    transcript = _Transcript()
    for line in main:
        if _is_compaction(line):
            break
        if not line.data.get("isMeta"):
            transcript.take(path, line)
    spoken = transcript.spoken
    if spoken:
        yield RecordedConversation(
            id=derive_conversation_id(path),
            source=str(path),
            messages=tuple(
                get_dialect("anthropic").parse_message({"role": one.role, "content": one.content})
                for one in spoken
            ),
            times=make_times_monotonic([one.at for one in spoken]),
            usage={i: one.usage for i, one in enumerate(spoken) if one.usage} or None,
            model=transcript.model,
        )


def make_times_monotonic(timestamps: list[float | None]) -> tuple[float, ...] | None:
    """Return times that never decrease. None if there are no times."""
    if not timestamps or timestamps[0] is None:
        return None
    times = [timestamps[0]]
    for stamp in timestamps[1:]:
        times.append(max(times[-1], stamp if stamp is not None else times[-1]))
    return tuple(times)


def _is_compaction(line: JsonLine) -> bool:
    return bool(line.data.get("isCompactSummary")) or (
        line.data.get("type") == "system" and line.data.get("subtype") == "compact_boundary"
    )


def _content_blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in dicts_in_list(content) if block.get("type") not in _REASONING]
