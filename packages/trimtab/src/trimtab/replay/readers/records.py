"""Read conversations as records: `{"id", "source", "system"?, "tools"?, "messages", "meta"?}`.

The messages are in any supported dialect. A list of messages, one message per line, and the body of
a request are also read as one conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from trimtab.dialects import get_dialect
from trimtab.dialects.json_values import dict_or_none, dicts_in_list, list_or_none
from trimtab.dialects.reading import parse_any_system_and_history
from trimtab.engine.log.message import Message
from trimtab.replay.readers.json_files import (
    READ_ERRORS,
    JsonLine,
    LogFile,
    UnreadableRecording,
    count_or_zero,
    derive_conversation_id,
    format_value_error,
    parse_recorded_usage,
)
from trimtab.replay.selection import RecordedCall, RecordedConversation, name_part


def is_whole_conversation_line(line: JsonLine) -> bool:
    is_request = isinstance(line.data.get("input"), list)
    continues = is_request and _find_thread_field(line.data) is not None
    return isinstance(line.data.get("messages"), list) or continues


def read_conversation_records(
    file: LogFile, lines: Iterator[JsonLine]
) -> Iterator[RecordedConversation]:
    for line in lines:
        try:
            yield from _parse_record(file.path, line.number, line.data)
        except UnreadableRecording as error:
            if file.on_skipped is None:
                raise
            file.on_skipped(error)


def is_message_line(line: JsonLine) -> bool:
    return isinstance(line.data.get("role"), str)


def read_message_lines(file: LogFile, lines: Iterator[JsonLine]) -> Iterator[RecordedConversation]:
    """Read one message or one Responses item per line."""
    wires: list[dict[str, Any]] = []
    for line in lines:
        if is_message_line(line) or "type" in line.data:
            wires.append(line.data)
        else:
            file.skip(line.number, "expected a message with `role` and `content`")
    yield from _parse_record(file.path, 1, {"messages": wires})


def read_json_document(file: LogFile, document: Any) -> Iterator[RecordedConversation]:
    """Read a JSON file: a list of messages, a list of records, or one record."""
    json_list = list_or_none(document)
    record = dict_or_none(document)
    if json_list is not None and len(dicts_in_list(json_list)) == len(json_list) > 0:
        if all("messages" in item for item in dicts_in_list(json_list)):
            for item in dicts_in_list(json_list):
                yield from _parse_record(file.path, 1, item)
            return
        record = {"messages": json_list}
    if record is not None:
        _require_no_thread(file.path, 1, record)
    if record is None or not isinstance(record.get("messages"), list):
        raise UnreadableRecording(
            file.path, 1, "expected a list of messages, or an object with `messages`"
        )
    yield from _parse_record(file.path, 1, record)


def _parse_record(
    path: Path, number: int, record: Mapping[str, Any]
) -> Iterator[RecordedConversation]:
    """Yield the parts of a conversation: a compaction begins the next one."""
    _require_no_thread(path, number, record)
    wires = list_or_none(record.get("messages"))
    if wires is None:
        raise UnreadableRecording(path, number, "expected an object with a list of `messages`")
    meta = dict_or_none(record.get("meta")) or {}
    compactions = sorted(
        {count_or_zero(place.get("at")) for place in dicts_in_list(meta.get("compact"))} - {0}
    )
    edges = [0, *(at for at in compactions if at < len(wires)), len(wires)]
    system: tuple[Message, ...] = ()
    for part, (start, end) in enumerate(pairwise(edges), 1):
        try:
            if part == 1:
                system = _parse_system(record.get("system"))
            inline, messages = parse_any_system_and_history(wires[start:end], "openai_chat")
            system = (*system, *inline)
        except READ_ERRORS as error:
            expectation = f"expected OpenAI or Anthropic messages{format_value_error(error)}"
            raise UnreadableRecording(path, number, expectation) from error
        yield RecordedConversation(
            id=name_part(str(record.get("id") or derive_conversation_id(path)), part),
            part=part,
            source=str(record.get("source") or path),
            messages=tuple(messages),
            system=system,
            tools=tuple(dicts_in_list(record.get("tools"))),
            recorded=_parse_calls(meta, end - len(messages), len(messages)),
            model=_parse_model(record, meta),
        )


def _require_no_thread(path: Path, number: int, record: Mapping[str, Any]) -> None:
    """Refuse the body of a request that continues a thread: the provider holds the messages before.

    Logs of clients are whole: threads change what a client sends, not what it writes down.
    """
    name = _find_thread_field(record)
    if name is not None:
        expected = (
            f"expected a whole conversation; this request continues a thread (`{name}`), and the "
            "provider holds its earlier messages: replay the client's own log instead"
        )
        raise UnreadableRecording(path, number, expected)


def _find_thread_field(request: Mapping[str, Any]) -> str | None:
    """Return the field by which a request continues a thread. None if it has none."""
    if request.get("previous_response_id") is not None:
        return "previous_response_id"
    if "input" in request and request.get("conversation") is not None:
        return "conversation"
    thread = dict_or_none(request.get("thread")) or {}
    continues = thread.get("type") == "continue" or thread.get("previous_message_id")
    return "thread" if continues else None


def _parse_system(system: Any) -> tuple[Message, ...]:
    return get_dialect("anthropic").parse_system_messages(system) if system else ()


def _parse_model(record: Mapping[str, Any], meta: Mapping[str, Any]) -> str | None:
    """Return the model of a record, or the one that `meta.models` counts most often."""
    if isinstance(record.get("model"), str):
        return record["model"]
    calls = {
        name: count_or_zero(count)
        for name, count in (dict_or_none(meta.get("models")) or {}).items()
        if not name.startswith("<")
    }
    return max(calls, key=lambda name: calls[name]) if calls else None


def _parse_calls(meta: Mapping[str, Any], offset: int, count: int) -> dict[int, RecordedCall]:
    """Return usage by message index. The record's indexes also count what stands before."""
    calls: dict[int, RecordedCall] = {}
    for key, wire in (dict_or_none(meta.get("usage")) or {}).items():
        usage = parse_recorded_usage(wire)
        index = int(key) - offset if key.isdecimal() else -1
        if usage is not None and 0 <= index < count:
            calls[index] = RecordedCall(usage=usage)
    return calls
