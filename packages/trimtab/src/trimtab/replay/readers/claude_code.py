"""Read Claude Code transcripts: one line for each block, with its role, time and message id.

The lines of one message id become one message. Injected notes, errors made by the client and
reasoning are left out: reasoning is not sent again in later turns. Each subagent is a conversation
of its own. A compaction begins a new part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trimtab.dialects import get_dialect
from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message
from trimtab.replay.locations import CLAUDE_CODE, SUBAGENTS
from trimtab.replay.readers.json_files import (
    READ_ERRORS,
    JsonLine,
    LogFile,
    UnreadableRecording,
    derive_conversation_id,
    make_times_monotonic,
    parse_iso_timestamp,
    parse_recorded_usage,
)
from trimtab.replay.selection import RecordedCall, RecordedConversation, name_part

CLAUDE_CODE_SUBAGENTS = CLAUDE_CODE + SUBAGENTS
_REASONING = ("thinking", "redacted_thinking")
_EDIT_RECORDS = ("microcompact_boundary", "tool_results_cut")
"""Records by which the client says that it removed old results from what it sends."""


@dataclass(slots=True)
class _TranscriptMessage:
    role: str
    """`user` or `assistant`."""
    content: list[dict[str, Any]]
    """Anthropic blocks."""
    at: float | None
    """Seconds since the epoch, of its first line."""
    reply_id: str | None = None
    """The provider's id."""
    model: str | None = None
    """The model that answered."""
    usage: Usage | None = None
    """The usage of its last line. Earlier lines count only the output up to them."""
    edited: bool = False
    """Whether text was removed from the prompt before the call."""


@dataclass(slots=True)
class _Transcript:
    """The messages of one agent since its last compaction."""

    messages: list[_TranscriptMessage] = field(default_factory=list[_TranscriptMessage])
    """The messages in the order of the file."""
    by_id: dict[str, _TranscriptMessage] = field(default_factory=dict[str, _TranscriptMessage])
    """Replies by message id."""
    seen: set[str] = field(default_factory=set[str])
    """Ids of lines already read. A resumed session repeats its past."""
    part: int = 1
    """The number of the part, from 1."""
    edited: bool = False
    """Whether text was removed from the prompt since the last call."""

    def take(self, file: LogFile, line: JsonLine) -> None:
        message = dict_or_none(line.data.get("message"))
        if message is None or "content" not in message:
            file.skip(line.number, "expected a `message` with `content`")
            return
        uuid = str(line.data.get("uuid") or f"line {line.number}")
        content = _content_blocks(message["content"])
        if uuid in self.seen or not content or message.get("model") == "<synthetic>":
            return
        self.seen.add(uuid)
        usage, key = parse_recorded_usage(message.get("usage")), str(message.get("id") or uuid)
        earlier = self.by_id.get(key)
        if earlier is not None and line.data["type"] == "assistant":
            earlier.content += content
            earlier.usage = usage or earlier.usage
            earlier.edited = earlier.edited or _has_applied_edits(message)
            return
        spoken = _TranscriptMessage(
            line.data["type"], content, parse_iso_timestamp(line.data.get("timestamp")), usage=usage
        )
        if spoken.role == "assistant":
            spoken.model = str(message.get("model") or "") or None
            spoken.reply_id = str(message.get("id") or "") or None
            spoken.edited, self.edited = self.edited or _has_applied_edits(message), False
        self.messages.append(spoken)
        self.by_id[key] = spoken

    def begin_part(self) -> None:
        """Forget the messages that a summary replaces."""
        if self.messages:
            self.messages, self.by_id, self.part = [], {}, self.part + 1


def is_claude_code_line(line: JsonLine) -> bool:
    return line.data.get("type") in ("user", "assistant") and "message" in line.data


def read_claude_code_transcript(
    file: LogFile, lines: Iterator[JsonLine]
) -> Iterator[RecordedConversation]:
    agents: dict[str, _Transcript] = {}
    for line in lines:
        is_compaction = _is_compaction(line)
        if not (is_compaction or is_claude_code_line(line) or _is_edit_record(line)):
            continue
        agent = str(line.data.get("agentId") or "aside") if line.data.get("isSidechain") else ""
        transcript = agents.setdefault(agent, _Transcript())
        if is_compaction:
            yield from _conversations(file, agent, transcript)
            transcript.begin_part()
        if _is_edit_record(line):
            transcript.edited = True
        elif is_claude_code_line(line) and not line.data.get("isMeta"):
            try:
                transcript.take(file, line)
            except UnreadableRecording:
                raise
            except READ_ERRORS:
                file.skip(line.number, "expected a message of Claude Code")
    for agent, transcript in agents.items():
        yield from _conversations(file, agent, transcript)


def _conversations(
    file: LogFile, agent: str, transcript: _Transcript
) -> Iterator[RecordedConversation]:
    """Yield the messages since the last compaction as a conversation, if there are any."""
    pairs: list[tuple[_TranscriptMessage, Message]] = []
    for one in transcript.messages:
        try:
            wire = {"role": one.role, "content": one.content}
            pairs.append((one, get_dialect("anthropic").parse_message(wire)))
        except READ_ERRORS:
            file.skip(1, "expected Anthropic blocks in a message")
    if not pairs:
        return
    session = derive_conversation_id(file.path)
    # A subagent's own file has nothing but lines of the side, and the file's name is its id.
    if agent and not session.startswith("agent-"):
        session = f"{session}/{agent}"
    yield RecordedConversation(
        id=name_part(session, transcript.part),
        part=transcript.part,
        kind=CLAUDE_CODE_SUBAGENTS if agent else CLAUDE_CODE,
        source=str(file.path),
        messages=tuple(message for _, message in pairs),
        times=make_times_monotonic([one.at for one, _ in pairs]),
        recorded={
            index: RecordedCall(
                usage=one.usage, model=one.model, reply_id=one.reply_id, edited=one.edited
            )
            for index, (one, _) in enumerate(pairs)
            if one.role == "assistant"
        },
        model=next((one.model for one, _ in reversed(pairs) if one.model), None),
    )


def _is_compaction(line: JsonLine) -> bool:
    return bool(line.data.get("isCompactSummary")) or (
        line.data.get("type") == "system" and line.data.get("subtype") == "compact_boundary"
    )


def _is_edit_record(line: JsonLine) -> bool:
    attachment = dict_or_none(line.data.get("attachment")) or {}
    names = (line.data.get("type"), line.data.get("subtype"), attachment.get("type"))
    return any(name in _EDIT_RECORDS for name in names if isinstance(name, str))


def _has_applied_edits(message: dict[str, Any]) -> bool:
    """Return whether the provider removed text before the call."""
    management = dict_or_none(message.get("context_management")) or {}
    return bool(dicts_in_list(management.get("applied_edits")))


def _content_blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in dicts_in_list(content) if block.get("type") not in _REASONING]
