"""Reads what a caller adds: a dict of any dialect, an SDK's object, a LangChain message or a
`Message`.

`read_message` converts it to a plain dict, finds its dialect, reads the message, and converts media
to what the provider accepts. The result is a copy. Each error says what is wrong and what is valid.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from reprlib import repr as short
from typing import Any, NamedTuple, cast

from trimtab.dialects import get_dialect
from trimtab.dialects.base import Dialect, ModelReply
from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.dialects.langchain import (
    convert_langchain_message_to_wire,
    is_langchain_message,
    read_langchain_stop_reason,
    read_langchain_usage,
)
from trimtab.dialects.media import (
    find_accepted_media,
    normalize_media_where_possible,
    normalize_message_media,
)
from trimtab.engine.log.message import (
    Message,
    OpaqueBlock,
    ToolCall,
    message_from_json,
    message_to_json,
)
from trimtab.engine.text.arguments import describe_wrong_value
from trimtab.engine.text.utf8 import join_surrogate_pairs

MAX_NESTING_DEPTH = 200
"""Maximum number of nested lists and objects. JSON writers fail at about a thousand."""
_SDK_PARSED_FIELDS = ("parsed", "parsed_arguments", "parsed_output")
_Pairs = Mapping[Any, Any]
_Path = tuple[Any, ...]
"""The last key and the path before it. It is formatted only for an error."""

_ANTHROPIC = "anthropic"
_CHAT = "openai_chat"
_RESPONSES = "openai_responses"

_DIALECTS_BY_PART_TYPE: Mapping[str, tuple[str, ...]] = {
    "image_url": (_CHAT,),
    "video_url": (_CHAT,),
    "file": (_CHAT,),
    "input_audio": (_CHAT, _RESPONSES),
    "refusal": (_CHAT, _RESPONSES),
    "input_text": (_RESPONSES,),
    "output_text": (_RESPONSES,),
    "input_image": (_RESPONSES,),
    "input_file": (_RESPONSES,),
    "tool_use": (_ANTHROPIC,),
    "tool_result": (_ANTHROPIC,),
    "image": (_ANTHROPIC,),
    "document": (_ANTHROPIC,),
    "thinking": (_ANTHROPIC,),
    "redacted_thinking": (_ANTHROPIC,),
    "search_result": (_ANTHROPIC,),
    "server_tool_use": (_ANTHROPIC,),
    "compaction": (_ANTHROPIC,),
    "container_upload": (_ANTHROPIC,),
}
_CONTENT_PART_TYPES = frozenset(
    {*_DIALECTS_BY_PART_TYPE, "text", "function", "custom", "mcp_tool_use"} - {"compaction"}
)
_RESPONSES_ITEM_TYPE = re.compile(
    r"function_call|.+_call|.+_call_output|(?!mcp_tool_)mcp_.+|reasoning|compaction|"
    r"compaction_trigger|item_reference|program|program_output|tool_search_output|"
    r"additional_tools|configuration_update"
)
_CHAT_KEYS = (
    "tool_calls",
    "tool_call_id",
    "function_call",
    "refusal",
    "reasoning_content",
    "annotations",
    "audio",
)


def read_message(item: Any, *, dialect: str, model: str) -> tuple[Message, ModelReply | None]:
    """Read what a caller adds: the message, and the whole reply if it was one.

    `dialect` and `model` are those that it will be sent to. A dict that fits several dialects is
    read in that one. Raises `TypeError` or `ValueError` for an invalid message, and
    `UnsupportedMedia` for a picture or a file that the provider would reject.
    """
    if isinstance(item, str):
        raise TypeError('a text has no role; add {"role": "user", "content": …}')
    if isinstance(item, list):
        raise TypeError("add takes one message; sync(messages) takes a whole history")
    if isinstance(item, Message):
        message = copy_message(item)
    else:
        plain = to_plain_dict(item)
        if (reply := read_whole_reply(item, plain, dialect=dialect)) is not None:
            return reply.message, reply
        message = detect_dialect(plain, get_dialect(dialect)).parse_message(plain)
        _reject_bare_reasoning(message)
    return convert_media_or_refuse(message, dialect=dialect, model=model), None


def read_whole_reply(
    item: Any, plain: dict[str, Any] | Message, *, dialect: str
) -> ModelReply | None:
    """Read an item as a whole reply; `plain` is the same as a dict.

    None if it is none. An item that is only a part of a reply, such as a reasoning item, is not
    read as a message: alone it can be invalid although the list is valid.
    """
    if isinstance(plain, Message):
        return None
    written_in = detect_dialect(plain, get_dialect(dialect))
    if written_in.is_reply_body(plain):
        return written_in.parse_reply(plain)
    if is_langchain_message(item) and (usage := read_langchain_usage(item)) is not None:
        message = written_in.parse_message(plain)
        stop = read_langchain_stop_reason(item)
        return ModelReply(message=message, usage=usage, stop=stop, id=item.id)
    return None


_SAID_IN_REPLY = {
    "response": "the items of response.output",
    "chat.completion": "choices[0].message",
}
"""By the object type of a reply: which part of it belongs into a list."""


class ReadHistory(NamedTuple):
    """A caller's list after reading."""

    system: tuple[Message, ...]
    """The system prompt at its start."""
    messages: list[Message]
    """The other messages."""
    starts: list[int]
    """For each of these messages: the index of its first item in the list."""
    contents: list[dict[str, Any] | Message]
    """The items that were read, as new dicts."""


def read_history(messages: Any, *, dialect: str, model: str, first_item: int = 0) -> ReadHistory:
    """Read a caller's list, or the part from an item after the system prompt on.

    An error names the index of its message. Media get the types that their bytes have.
    `convert_media_or_refuse` checks later whether new ones can be sent.
    """
    new_items = require_message_list(messages)[first_item:]
    media = find_accepted_media(dialect, model)
    try:
        history, starts, contents = _parse_items(new_items, dialect)
    except (TypeError, ValueError) as error:
        index, wrong = _find_unreadable_message(new_items, dialect) or (None, error)
        place = "messages" if index is None else f"messages[{first_item + index}]"
        kind = TypeError if isinstance(wrong, TypeError) else ValueError
        raise kind(f"{place}: {wrong}") from error
    # Behind what was read before, a system message is one of the conversation.
    count = 0 if first_item else _count_system_messages(history)
    return ReadHistory(
        tuple(history[:count]),
        [
            normalize_media_where_possible(message, media, request_dialect=dialect)
            for message in history[count:]
        ],
        [first_item + start for start in starts[count:]],
        contents,
    )


def require_message_list(messages: Any) -> list[Any]:
    """Return a caller's messages as a list; raise `TypeError` if they are not a list."""
    if isinstance(messages, list):
        return cast("list[Any]", messages)
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise TypeError(describe_wrong_value("messages", messages, "a list of messages"))
    return [*cast("Sequence[Any]", messages)]


def convert_media_or_refuse(message: Message, *, dialect: str, model: str) -> Message:
    """Return a message whose pictures and files the provider accepts; otherwise raise
    `UnsupportedMedia`."""
    media = find_accepted_media(dialect, model)
    return normalize_message_media(message, media, request_dialect=dialect)


def copy_message(message: Message) -> Message:
    """Copy a message that was made by hand; raise if JSON cannot express it."""
    plain = to_plain_dict(message_to_json(message))
    for index, part in enumerate(plain["parts"]):
        _require_texts(part, f"parts[{index}]")
    return message_from_json(plain)


def _require_texts(part: Mapping[str, Any], location: str) -> None:
    for key in ("text", "call", "name", "arguments", "result"):
        if not isinstance(part.get(key, ""), str):
            right = "a text of JSON" if key == "arguments" else "a text"
            field = {"call": "id", "result": "call_id"}.get(key, key)
            raise TypeError(describe_wrong_value(f"{location}.{field}", part[key], right))
    for index, inner in enumerate(part.get("content", ())):
        _require_texts(inner, f"{location}.content[{index}]")


def to_plain_dict(value: Any) -> dict[str, Any]:
    """Convert an SDK's object, or a mapping that may contain some, to a new dict.

    Fields that the server did not send stay out, so that the same fields are sent back. Raises
    `ValueError` for too deep nesting, and `TypeError` or `ValueError`, with the path, for values
    that JSON cannot express.
    """
    value = convert_langchain_message_to_wire(value) if is_langchain_message(value) else value
    plain = (
        _to_json_value(value, MAX_NESTING_DEPTH, ()) if is_mapping_or_sdk_object(value) else None
    )
    if not isinstance(plain, dict):
        raise TypeError(
            f"expected a mapping or an SDK object, got {type(value).__name__}{_suggest_item(value)}"
        )
    return cast("dict[str, Any]", plain)


def _suggest_item(value: Any) -> str:
    """Return what to pass instead of a value that is not a message, or nothing."""
    if callable(getattr(value, "parse", None)) and hasattr(value, "headers"):
        return "; it is a raw HTTP response: pass the result of its .parse()"
    if hasattr(value, "__await__"):
        return "; await it, and pass the result"
    if hasattr(value, "__next__") or hasattr(value, "__aiter__"):
        return "; a stream is read by watch(stream), which adds the reply when it has ended"
    return "; pass a message, or the reply that the SDK returned" if value is None else ""


def is_mapping_or_sdk_object(value: Any) -> bool:
    """Whether it is a mapping or an SDK's object."""
    if isinstance(value, type):
        return False  # a class has the attributes of its objects, and not their values
    is_sdk_object = hasattr(value, "model_fields_set") or hasattr(value, "to_dict")
    return is_sdk_object or isinstance(value, Mapping)


def _to_json_value(value: Any, depth_left: int, path: _Path) -> Any:
    if isinstance(value, str):
        return join_surrogate_pairs(value)
    if value is None or isinstance(value, int | float):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{_format_path(path)} is {value}; it must be a finite number")
        return value
    if not depth_left:
        raise ValueError(f"more than {MAX_NESTING_DEPTH} lists and objects are nested; nest fewer")
    if isinstance(value, Mapping):
        pairs = [(_to_json_key(key, path), inner) for key, inner in cast("_Pairs", value).items()]
        return {key: _to_json_value(inner, depth_left - 1, (key, path)) for key, inner in pairs}
    if isinstance(value, list | tuple):
        numbered_parts = enumerate(cast("list[Any]", value))
        return [
            _to_json_value(inner, depth_left - 1, (index, path)) for index, inner in numbered_parts
        ]
    if isinstance(value, type):
        raise TypeError(
            describe_wrong_value(
                _format_path(path), value, "JSON, not a class: pass the schema of the class"
            )
        )
    if hasattr(value, "model_fields_set"):
        return _model_to_dict(value, depth_left - 1, path)
    if hasattr(value, "to_dict"):
        return _to_json_value(value.to_dict(), depth_left - 1, path)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if is_dataclass(value):
        attributes = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {
            name: _to_json_value(inner, depth_left - 1, (name, path)) for name, inner in attributes
        }
    right = "JSON: a text, a number, True, False, None, a list or a mapping"
    raise TypeError(describe_wrong_value(_format_path(path), value, right))


def _model_to_dict(model: Any, depth_left: int, path: _Path) -> dict[str, Any]:
    """Convert a model field by field.

    Its own dump would also contain values that only the SDK added. LiteLLM deletes fields after it
    has set them.
    """
    names_set = model.model_fields_set
    out: dict[str, Any] = {}
    for name, alias in _list_model_fields(cast("Any", type(model))):
        if name in names_set and hasattr(model, name):
            out[alias] = _to_json_value(getattr(model, name), depth_left, (name, path))
    for name, value in cast("dict[str, Any]", model.model_extra or {}).items():
        out[name] = _to_json_value(value, depth_left, (name, path))
    return out


@lru_cache(maxsize=512)
def _list_model_fields(kind: Any) -> tuple[tuple[str, str], ...]:
    """Return the fields of a class of models that servers know, each with its name in JSON."""
    on_top = kind.__name__.startswith("Parsed") or ".lib." in kind.__module__
    return tuple(
        (name, field.alias or name)
        for name, field in kind.model_fields.items()
        if not (on_top and name in _SDK_PARSED_FIELDS)
    )


def _to_json_key(key: Any, path: _Path) -> str:
    """Return the key as JSON writes it; a number becomes a text and is sorted as one."""
    if isinstance(key, str):
        return join_surrogate_pairs(key)
    if key is None or isinstance(key, int | float):
        return json.dumps(key)
    raise TypeError(f"{_format_path(path)} has the key {short(key)}; it must be a text")


def _format_path(path: _Path) -> str:
    """Format a path, such as `content[0].meta`."""
    text = ""
    while path:
        key, path = path
        text = (f"[{key}]" if isinstance(key, int) else f".{key}") + text
    return text.removeprefix(".") or "it"


def detect_dialect(wire: Mapping[str, Any], default_dialect: Dialect) -> Dialect:
    """Find the dialect of a message, an item or a reply.

    The default is returned if the shape fits it or does not say.
    """
    fitting = guess_dialects(wire)
    return (
        default_dialect
        if not fitting or default_dialect.name in fitting
        else get_dialect(fitting[0])
    )


def guess_dialects(wire: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the dialects that a message, item or reply may have; empty for any."""
    if "choices" in wire:
        return (_CHAT,)
    if "role" not in wire:
        item = wire.get("object") == "response" or _RESPONSES_ITEM_TYPE.fullmatch(
            str(wire.get("type"))
        )
        return (_RESPONSES,) if item else ()
    if wire.get("type") == "message" and ("stop_reason" in wire or "usage" in wire):
        return (_ANTHROPIC,)
    if wire.get("role") == "tool" or any(key in wire for key in _CHAT_KEYS):
        return (_CHAT,)
    if wire.get("type") == "message" or wire.get("status") is not None:
        return (_RESPONSES,)
    for part in dicts_in_list(wire.get("content")):
        if fitting := _guess_part_dialects(part):
            return fitting
    return (_CHAT, _RESPONSES) if wire.get("role") == "developer" else ()


def is_content_part(wire: Mapping[str, Any]) -> bool:
    """Whether it is a part of a message in some dialect, and not a separate item in any."""
    kind = str(wire.get("type"))
    return kind in _CONTENT_PART_TYPES or kind.endswith("_tool_result")


def _guess_part_dialects(part: Mapping[str, Any]) -> tuple[str, ...]:
    kind = str(part.get("type"))
    if kind == "text" and (part.get("cache_control") or "citations" in part):
        return (_ANTHROPIC,)
    if kind.endswith("_tool_result") or dict_or_none(part.get("source")) is not None:
        return (_ANTHROPIC,)
    return _DIALECTS_BY_PART_TYPE.get(kind, ())


def parse_any_system_and_history(
    wire_messages: Sequence[Any], default_dialect_name: str
) -> tuple[tuple[Message, ...], list[Message]]:
    """Read a list of wire messages of any dialect: the system prompt at its start, and the rest."""
    history, _, _ = _parse_items(wire_messages, default_dialect_name)
    count = _count_system_messages(history)
    return tuple(history[:count]), history[count:]


def _parse_items(
    wire_messages: Sequence[Any], default_dialect_name: str
) -> tuple[list[Message], list[int], list[dict[str, Any] | Message]]:
    """Read a list of wire messages of any dialect.

    Returns the messages, the index of the first item of each, and the items as new dicts.
    """
    default_dialect = get_dialect(default_dialect_name)
    contents = [_read_listed_item(message) for message in wire_messages]
    if any(isinstance(item, Message) or is_langchain_message(item) for item in wire_messages):
        # What one of them holds decides which dialect can say it.
        messages = [_parse_single_item(content, default_dialect) for content in contents]
        return messages, [*range(len(messages))], contents
    wires = cast("list[dict[str, Any]]", contents)
    dialect = _detect_list_dialect(wires, default_dialect)
    return dialect.parse_history(wires), dialect.find_message_starts(wires), contents


def _detect_list_dialect(wires: Sequence[dict[str, Any]], default_dialect: Dialect) -> Dialect:
    """Return the dialect of the first message that is not of the default one."""
    for wire in wires:
        dialect = detect_dialect(wire, default_dialect)
        if dialect is not default_dialect:
            return dialect
    return default_dialect


def _parse_single_item(content: dict[str, Any] | Message, own_dialect: Dialect) -> Message:
    """Read an item of a list in which each item is a message of its own."""
    if isinstance(content, Message):
        return copy_message(content)
    return detect_dialect(content, own_dialect).parse_message(content)


def _read_listed_item(item: Any) -> dict[str, Any] | Message:
    """Read one item of a caller's list as a new dict. A `Message` cannot be changed, and stays.

    A whole reply is rejected, only its message belongs into a list.
    """
    if isinstance(item, Message):
        return item
    wire = to_plain_dict(item)
    if (right_form := _SAID_IN_REPLY.get(str(wire.get("object")))) is not None:
        raise ValueError(
            f"a whole reply cannot be an item of a list; use {right_form}, or add(reply)"
        )
    return wire


def _count_system_messages(messages: Sequence[Message]) -> int:
    """Count the system messages at the start."""
    return next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))


def parse_any_tool_call(wire_call: Any) -> ToolCall:
    """Read a model's tool call in any dialect: a block, an entry of a list, or an item."""
    call = to_plain_dict(wire_call)
    if call.get("type") == "tool_use":
        message = get_dialect("anthropic").parse_message({"role": "assistant", "content": [call]})
    elif "function" in call or "custom" in call:
        message = get_dialect("openai_chat").parse_message(
            {"role": "assistant", "tool_calls": [call]}
        )
    elif str(call.get("type")).endswith("_call"):
        message = get_dialect("openai_responses").parse_message(call)
    else:
        message = None
    if message is None or not message.calls:
        raise ValueError("expected a tool call as the model made it")
    return message.calls[0]


def _find_unreadable_message(
    messages: Sequence[Any], default_dialect: str
) -> tuple[int, Exception] | None:
    """Find the first message that cannot be read, and why, in the dialect of the list."""
    list_dialect = get_dialect(default_dialect)
    wires: list[dict[str, Any]] = []
    is_single = any(isinstance(message, Message) for message in messages)
    for index, message in enumerate(messages):
        try:
            content = _read_listed_item(message)
            if is_single:
                _parse_single_item(content, list_dialect)
            else:
                wires.append(cast("dict[str, Any]", content))
        except (TypeError, ValueError) as error:
            return index, error
    list_dialect = _detect_list_dialect(wires, list_dialect)
    for index, wire in enumerate(wires):
        try:
            list_dialect.parse_history([wire])
        except (TypeError, ValueError) as error:
            return index, error
    return None


def _reject_bare_reasoning(message: Message) -> None:
    """Reject a reasoning item alone: it cannot be sent without what follows it."""
    thoughts = [isinstance(part, OpaqueBlock) and part.thinking for part in message.parts]
    if message.origin == "openai_responses" and thoughts and all(thoughts):
        raise ValueError(
            "a reasoning item cannot be sent alone; add the whole response with add(response), "
            "or all items with sync(items)"
        )
