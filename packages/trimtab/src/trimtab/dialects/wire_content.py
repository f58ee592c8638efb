"""Reads the content of a wire message, or says what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast, overload

from trimtab.dialects.json_values import list_or_none
from trimtab.dialects.reading import is_content_part
from trimtab.engine.log.message import Message, Part, Text, ToolCall, ToolResult

_Named = TypeVar("_Named", ToolCall, ToolResult)

_KNOWN_MESSAGE_KEYS = frozenset({"role", "type", "name", "id", "status", "call_id", "tool_call_id"})
"""Keys that a message may have in addition to its content."""
_REQUIRED_KEY_BY_PART_TYPE = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "image_url": "image_url",
    "video_url": "video_url",
    "input_audio": "input_audio",
    "tool_use": "id",
    "tool_result": "tool_use_id",
}
"""By the type of a part: the key that it must have."""


@overload
def require_valid_content(
    wire_message: Mapping[str, Any], *, key: str = "content"
) -> str | list[Any]: ...
@overload
def require_valid_content(
    wire_message: Mapping[str, Any], *, key: str = "content", optional: bool
) -> str | list[Any] | None: ...
def require_valid_content(
    wire_message: Mapping[str, Any], *, key: str = "content", optional: bool = False
) -> str | list[Any] | None:
    """Return the text or the parts under the key; None only if that is `optional`.

    Without this check, a caller with a wrong key would send the model nothing.
    """
    content = wire_message.get(key)
    if isinstance(content, str) or (content is None and optional):
        return content
    whose = wire_message.get("role") or wire_message.get("type")
    if content is None:
        raise ValueError(_missing_content_text(wire_message, whose, key))
    parts = list_or_none(content)
    if parts is None:
        raise ValueError(
            f"{key} of the {whose} message is {type(content).__name__}; it must be a text or a "
            "list of parts"
        )
    for number, part in enumerate(parts):
        if (lack := _describe_part_fault(part)) is not None:
            raise ValueError(f"{key}[{number}] of the {whose} message {lack}")
    return parts


def convert_tool_output_to_content(
    wire_result: Mapping[str, Any], *, key: str = "content", optional: bool
) -> str | list[Any] | None:
    """Return a tool's output: a text or parts; None only if that is `optional`.

    An object, or a list without a part of any dialect, becomes the text of its JSON, because a tool
    that returns it means that.
    """
    content = wire_result.get(key)
    content_list = list_or_none(content)
    is_bare_list = bool(content_list) and not any(map(_is_part, content_list or ()))
    if is_bare_list or (isinstance(content, Mapping) and not _is_part(cast("Any", content))):
        return json.dumps(content, ensure_ascii=False)
    return require_valid_content(wire_result, key=key, optional=optional)


def _is_part(value: Any) -> bool:
    """Whether it is a part of a message, or one that only a result may contain."""
    if not isinstance(value, Mapping):
        return False
    part = cast("Mapping[str, Any]", value)
    return is_content_part(part) or part.get("type") == "tool_reference"


def read_object_list(wire: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the objects under the key of a call or a model's block."""
    objects = list_or_none(value := wire.get(key)) or []
    if value is not None and not isinstance(value, list):
        raise ValueError(
            f"{key} of the assistant message is {type(value).__name__}; it must be a list"
        )
    for number, item in enumerate(objects):
        if not isinstance(item, Mapping):
            raise ValueError(  # noqa: TRY004 - of JSON
                f"{key}[{number}] of the assistant message is {type(item).__name__}; it must be an "
                "object, as the model wrote it"
            )
    return objects


def require_string_call_fields(call_or_result: _Named) -> _Named:
    """Return the call or the result; raise if its ids or names are not texts."""
    keys = ("id", "name", "arguments") if isinstance(call_or_result, ToolCall) else ("call_id",)
    for key in keys:
        if not isinstance(value := getattr(call_or_result, key), str):
            whose = "call" if isinstance(call_or_result, ToolCall) else "result"
            raise ValueError(  # noqa: TRY004 - of JSON
                f"{key.removeprefix('call_')} of a tool {whose} is {type(value).__name__}; it must "
                "be a text"
            )
    return call_or_result


def parse_system_prompt(
    system_prompt: str | Sequence[Mapping[str, Any]],
    origin: str,
    *,
    parse_messages: Callable[[Sequence[Mapping[str, Any]]], Iterable[Message]],
    parse_part: Callable[[Any], Part],
) -> tuple[Message, ...]:
    """Parse a system prompt: a text, whole messages, or parts without a message around them."""
    if isinstance(system_prompt, str):
        parts = (Text(text=system_prompt),)
        return (Message(role="system", parts=parts, origin=origin),) if system_prompt else ()
    if all("role" in wire for wire in system_prompt):
        return tuple(parse_messages(system_prompt))
    content = require_valid_content({"role": "system", "content": list(system_prompt)})
    parts = tuple(parse_part(part) for part in content)
    return (Message(role="system", parts=parts, plain=False, origin=origin),)


def missing_role_error(wire_message: Mapping[str, Any]) -> ValueError:
    """Build the error for a message, or a part of one, without a role."""
    kind = wire_message.get("type", "message")
    advice = f"a block of type {kind!r} has no role: put it into a message, "
    if kind == "message":
        advice = "the message has no role: write "
    return ValueError(advice + '{"role": "user", "content": [...]}; add a reply as a whole')


def _describe_part_fault(part: Any) -> str | None:
    if not isinstance(part, Mapping):
        return f"is {type(part).__name__}; a part is an object with a type"
    mapping = cast("Mapping[str, Any]", part)
    kind = mapping.get("type")
    if not isinstance(kind, str):
        return 'has no type; a text is {"type": "text", "text": "…"}'
    key = _REQUIRED_KEY_BY_PART_TYPE.get(kind)
    if key is None or isinstance(value := mapping.get(key), str):
        return None
    if value is None:
        return f"is of type {kind!r} and has no {key}"
    return f"has a text that is {type(value).__name__}" if key == "text" else None


def _missing_content_text(wire: Mapping[str, Any], whose: object, key: str) -> str:
    others = [repr(name) for name in wire if name not in _KNOWN_MESSAGE_KEYS and name != key]
    hint = ""
    if others:
        word = "key" if len(others) == 1 else "keys"
        hint = f", but the unknown {word} {', '.join(others)}"
    return f'the {whose} message has no {key}{hint}; write "{key}": "…", or a list of parts'
