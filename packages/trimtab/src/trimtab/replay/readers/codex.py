"""Read Codex rollouts: Responses items with times, between records of the session.

Reasoning and snapshots of the workspace are left out: reasoning is encrypted, and snapshots are
never sent. A compaction begins a new part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trimtab.dialects import get_dialect
from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.dialects.openai_responses.items import find_item_role
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message
from trimtab.replay.locations import CODEX
from trimtab.replay.readers.json_files import (
    READ_ERRORS,
    JsonLine,
    LogFile,
    UnreadableRecording,
    derive_conversation_id,
    format_value_error,
    make_times_monotonic,
    parse_iso_timestamp,
    parse_recorded_usage,
)
from trimtab.replay.selection import RecordedCall, RecordedConversation, name_part

_SKIPPED_ITEM_TYPES = ("reasoning", "ghost_snapshot", "compaction")


@dataclass(slots=True)
class _Rollout:
    """The items of a session since its last compaction."""

    groups: list[tuple[list[dict[str, Any]], float | None]] = field(
        default_factory=list[tuple[list[dict[str, Any]], float | None]]
    )
    """The items of each message, and its time."""
    usage: dict[int, Usage] = field(default_factory=dict[int, Usage])
    """Reported usage, by the index of the message after which it was reported."""
    models: dict[int, str] = field(default_factory=dict[int, str])
    """The model of each message."""
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the log says about the session."""
    model: str | None = None
    """The model in use."""
    part: int = 1
    """The number of the part, from 1."""

    def add_item(self, item: dict[str, Any], at: float | None) -> None:
        """Add an item. The items of one reply stay together, as the dialect needs them."""
        if self.groups and find_item_role(item) == "assistant" == find_item_role(
            self.groups[-1][0][0]
        ):
            self.groups[-1][0].append(item)
            return
        if self.model is not None:
            self.models[len(self.groups)] = self.model
        self.groups.append(([item], at))

    def begin_part(self, compacted: dict[str, Any], at: float | None) -> None:
        """Go on with what the compaction left: the history that it names, or its summary."""
        self.part += bool(self.groups)
        self.groups, self.usage, self.models = [], {}, {}
        history = dicts_in_list(compacted.get("replacement_history"))
        summary = compacted.get("message")
        if not history and isinstance(summary, str) and summary:
            history = [{"type": "message", "role": "user", "content": summary}]
        for item in history:
            if item.get("type") not in _SKIPPED_ITEM_TYPES:
                self.add_item(item, at)


def is_codex_line(line: JsonLine) -> bool:
    return isinstance(line.data.get("payload"), dict) and "type" in line.data


def read_codex_rollout(file: LogFile, lines: Iterator[JsonLine]) -> Iterator[RecordedConversation]:
    rollout = _Rollout()
    for line in lines:
        payload = dict_or_none(line.data.get("payload")) or {}
        at = parse_iso_timestamp(line.data.get("timestamp"))
        try:
            match line.data.get("type"):
                case "compacted":
                    yield from _conversations(file, rollout)
                    rollout.begin_part(payload, at)
                case "session_meta":
                    rollout.meta = rollout.meta or payload
                case "turn_context":
                    rollout.model = str(payload.get("model") or "") or rollout.model
                case "response_item" if payload.get("type") not in _SKIPPED_ITEM_TYPES:
                    rollout.add_item(payload, at)
                case "event_msg" if payload.get("type") == "token_count":
                    last = (dict_or_none(payload.get("info")) or {}).get("last_token_usage")
                    usage = parse_recorded_usage(last)
                    if usage is not None and rollout.groups:
                        rollout.usage[len(rollout.groups) - 1] = usage
                case _:
                    pass
        except UnreadableRecording:
            raise
        except READ_ERRORS:
            file.skip(line.number, "expected a record of Codex")
    yield from _conversations(file, rollout)


def _conversations(file: LogFile, rollout: _Rollout) -> Iterator[RecordedConversation]:
    """Yield the items since the last compaction as a conversation, if there is a reply."""
    responses = get_dialect("openai_responses")
    try:
        messages = [responses.parse_history(items)[0] for items, _ in rollout.groups]
    except READ_ERRORS as error:
        raise UnreadableRecording(
            file.path, 1, f"expected Responses items{format_value_error(error)}"
        ) from error
    if not messages:
        return
    start = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    usage = _assign_usage_to_replies(rollout.usage, messages, start)
    session = str(rollout.meta.get("id") or derive_conversation_id(file.path))
    yield RecordedConversation(
        id=name_part(session, rollout.part),
        part=rollout.part,
        kind=CODEX,
        source=str(file.path),
        messages=tuple(messages[start:]),
        system=(*_instructions(rollout.meta), *messages[:start]),
        times=make_times_monotonic([at for _, at in rollout.groups[start:]]),
        recorded={
            index: RecordedCall(
                usage=usage.get(index), model=rollout.models.get(index + start, rollout.model)
            )
            for index, message in enumerate(messages[start:])
            if message.role == "assistant"
        },
        model=rollout.model,
    )


def _assign_usage_to_replies(
    usage: dict[int, Usage], messages: list[Message], start: int
) -> dict[int, Usage]:
    """Assign usage to replies. It may be reported after the results of a reply's tool calls."""
    usage_by_reply: dict[int, Usage] = {}
    for index, reply_usage in usage.items():
        while index > start and messages[index].role != "assistant":
            index -= 1  # noqa: PLW2901 - walks back to the reply
        usage_by_reply[index - start] = reply_usage
    return usage_by_reply


def _instructions(meta: dict[str, Any]) -> tuple[Message, ...]:
    base = dict_or_none(meta.get("base_instructions")) or {}
    text = base.get("text") or meta.get("instructions")
    return (
        get_dialect("openai_responses").parse_system_messages(text)
        if isinstance(text, str) and text
        else ()
    )
