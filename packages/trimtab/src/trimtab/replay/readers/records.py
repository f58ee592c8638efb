"""Read conversations as records: `{"id", "source", "system"?, "tools"?, "messages", "meta"?}`.

The messages are in any supported dialect. A list of messages, one message per line, and the body of
a request are also read as one conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trimtab.dialects import get_dialect
from trimtab.dialects.json_values import dict_or_none, dicts_in_list, list_or_none
from trimtab.dialects.reading import parse_any_system_and_history
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message
from trimtab.replay.readers.json_files import (
    JsonLine,
    UnreadableRecording,
    derive_conversation_id,
    format_value_error,
    parse_recorded_usage,
)
from trimtab.replay.selection import RecordedConversation


def is_whole_conversation_line(line: JsonLine) -> bool:
    return isinstance(line.data.get("messages"), list)


def read_conversation_records(
    path: Path, lines: Iterator[JsonLine]
) -> Iterator[RecordedConversation]:
    for line in lines:
        yield _parse_record(path, line.number, line.data)


def is_message_line(line: JsonLine) -> bool:
    return isinstance(line.data.get("role"), str)


def read_message_lines(path: Path, lines: Iterator[JsonLine]) -> Iterator[RecordedConversation]:
    """Read one message or one Responses item per line."""
    said: list[dict[str, Any]] = []
    for line in lines:
        if not is_message_line(line) and "type" not in line.data:
            raise UnreadableRecording(
                path, line.number, "expected a message with `role` and `content`"
            )
        said.append(line.data)
    yield _parse_record(path, 1, {"messages": said})


def read_json_document(path: Path, document: Any) -> Iterator[RecordedConversation]:
    """Read a JSON file: a list of messages, a list of records, or one record."""
    listed = list_or_none(document)
    record = dict_or_none(document)
    if listed is not None and len(dicts_in_list(listed)) == len(listed) > 0:
        if all("messages" in item for item in dicts_in_list(listed)):
            for item in dicts_in_list(listed):
                yield _parse_record(path, 1, item)
            return
        record = {"messages": listed}
    if record is None or not isinstance(record.get("messages"), list):
        raise UnreadableRecording(
            path, 1, "expected a list of messages, or an object with `messages`"
        )
    yield _parse_record(path, 1, record)


def _parse_record(path: Path, number: int, record: Mapping[str, Any]) -> RecordedConversation:
    wires = list_or_none(record.get("messages"))
    if wires is None:
        raise UnreadableRecording(path, number, "expected an object with a list of `messages`")
    meta = dict_or_none(record.get("meta")) or {}
    for place in dicts_in_list(meta.get("compact"))[:1]:
        # From here on the recorded agent saw less than what was said.
        wires = wires[: int(place.get("at", len(wires)))]
    try:
        system, messages = parse_any_system_and_history(wires, "openai_chat")
        head = (*_parse_system(record.get("system")), *system)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        expected = f"expected OpenAI or Anthropic messages{format_value_error(error)}"
        raise UnreadableRecording(path, number, expected) from error
    return RecordedConversation(
        id=str(record.get("id") or derive_conversation_id(path)),
        source=str(record.get("source") or path),
        messages=tuple(messages),
        system=head,
        tools=tuple(dicts_in_list(record.get("tools"))),
        usage=_parse_usage_by_index(meta, len(wires) - len(messages), len(messages)),
    )


def _parse_system(system: Any) -> tuple[Message, ...]:
    return get_dialect("anthropic").parse_system_messages(system) if system else ()


def _parse_usage_by_index(
    meta: Mapping[str, Any], offset: int, count: int
) -> dict[int, Usage] | None:
    """Return usage by message index. The record's indexes also count system messages."""
    found: dict[int, Usage] = {}
    for key, wire in (dict_or_none(meta.get("usage")) or {}).items():
        usage = parse_recorded_usage(wire)
        if usage is not None and 0 <= int(key) - offset < count:
            found[int(key) - offset] = usage
    return found or None
