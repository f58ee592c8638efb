"""Conversations as records: `{"id", "source", "system"?, "tools"?, "messages", "meta"?}`.

The messages are in any supported dialect. A bare list of messages, messages one a line and the body
of a request are records too, of one conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trimtab.core.event import Usage
from trimtab.core.message import Message
from trimtab.dialects import dialect, read_history
from trimtab.dialects.shapes import as_dict, as_list, objects
from trimtab.replay.conversation import Conversation
from trimtab.replay.readers.lines import Line, Unreadable, name_of, usage_of, why


def fits(line: Line) -> bool:
    return isinstance(line.data.get("messages"), list)


def read(path: Path, lines: Iterator[Line]) -> Iterator[Conversation]:
    for line in lines:
        yield _record(path, line.number, line.data)


def is_message(line: Line) -> bool:
    return isinstance(line.data.get("role"), str)


def read_messages(path: Path, lines: Iterator[Line]) -> Iterator[Conversation]:
    """One message a line, or an item of Responses."""
    said: list[dict[str, Any]] = []
    for line in lines:
        if not is_message(line) and "type" not in line.data:
            raise Unreadable(path, line.number, "expected a message with `role` and `content`")
        said.append(line.data)
    yield _record(path, 1, {"messages": said})


def read_document(path: Path, document: Any) -> Iterator[Conversation]:
    """A JSON file: a list of messages, a list of records, or one record."""
    listed = as_list(document)
    record = as_dict(document)
    if listed is not None and len(objects(listed)) == len(listed) > 0:
        if all("messages" in item for item in objects(listed)):
            for item in objects(listed):
                yield _record(path, 1, item)
            return
        record = {"messages": listed}
    if record is None or not isinstance(record.get("messages"), list):
        raise Unreadable(path, 1, "expected a list of messages, or an object with `messages`")
    yield _record(path, 1, record)


def _record(path: Path, number: int, record: Mapping[str, Any]) -> Conversation:
    wires = as_list(record.get("messages"))
    if wires is None:
        raise Unreadable(path, number, "expected an object with a list of `messages`")
    meta = as_dict(record.get("meta")) or {}
    for place in objects(meta.get("compact"))[:1]:
        # From here on the recorded agent saw less than what was said.
        wires = wires[: int(place.get("at", len(wires)))]
    try:
        system, messages = read_history(wires, "openai_chat")
        head = (*_system(record.get("system")), *system)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        expected = f"expected messages of OpenAI or Anthropic{why(error)}"
        raise Unreadable(path, number, expected) from error
    return Conversation(
        id=str(record.get("id") or name_of(path)),
        source=str(record.get("source") or path),
        messages=tuple(messages),
        system=head,
        tools=tuple(objects(record.get("tools"))),
        usage=_usage(meta, len(wires) - len(messages), len(messages)),
    )


def _system(system: Any) -> tuple[Message, ...]:
    return dialect("anthropic").read_system(system) if system else ()


def _usage(meta: Mapping[str, Any], offset: int, count: int) -> dict[int, Usage] | None:
    """By index among the messages: the record counts the system prompt's, too."""
    found: dict[int, Usage] = {}
    for key, wire in (as_dict(meta.get("usage")) or {}).items():
        usage = usage_of(wire)
        if usage is not None and 0 <= int(key) - offset < count:
            found[int(key) - offset] = usage
    return found or None
