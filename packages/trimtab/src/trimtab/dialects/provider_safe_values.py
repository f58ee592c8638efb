"""Replacements for a part in a dialect that it did not come from."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import Any, TypeGuard

from trimtab.dialects.json_values import dict_or_none, to_compact_json
from trimtab.engine.log.message import Media, Text, ToolResult

EMPTY_MESSAGE_TEXT = "(no content)"
"""The text of a message that has nothing a provider would accept."""
ERROR_RESULT_PREFIX = "Error"
"""The prefix of an error result, if the wire has no flag for it."""
SYSTEM_MESSAGE_PREFIX = "[System message]"
"""The prefix of a system message that has to be in a user message."""

_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def omitted_media_text(media: Media) -> str:
    """Return the text that replaces media which the wire cannot carry."""
    return f"[{media.kind} omitted: not supported here]"


def make_valid_call_id(call_id: str, allowed_pattern: re.Pattern[str]) -> str:
    """Return a call id that the wire accepts: unchanged if it is valid, otherwise a digest of it.

    It depends only on the id, so that a call and its result always agree.
    """
    return call_id if allowed_pattern.fullmatch(call_id) else digest_call_id(call_id)


def digest_call_id(call_id: str) -> str:
    """Return the id that stands for one that a wire does not accept."""
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest[:24]}"


def make_valid_tool_name(name: str, max_chars: int) -> str:
    """Convert a tool's name to the characters that every provider accepts."""
    return _INVALID_NAME_CHARS.sub("_", name)[:max_chars] or "tool"


def parse_tool_arguments(arguments: str) -> dict[str, Any]:
    """Parse a call's arguments as an object. Any other value is wrapped, never lost."""
    if not arguments:
        return {}
    value = _parse_json_object(arguments)
    return {"arguments": arguments} if value is None else value


def ensure_arguments_json(arguments: str) -> str:
    """Return a call's arguments as the text of an object, unchanged if they are one."""
    return (
        to_compact_json(parse_tool_arguments(arguments))
        if _parse_json_object(arguments) is None
        else arguments
    )


def is_json_object_text(value: Any) -> TypeGuard[str]:
    """Whether it is the text of an object, as a model writes a call's arguments."""
    return isinstance(value, str) and _parse_json_object(value) is not None


def with_error_prefix(result: ToolResult) -> ToolResult:
    """Return a result that begins with a text that the tool has failed, for a wire without a
    flag."""
    text = result.text.strip()
    # What stands in for a result is one bracket, and says itself why.
    stands_in = text.startswith("[") and text.endswith("]")
    if not result.is_error or stands_in or text[:5].lower() == "error":
        return result
    first = result.content[0] if result.content else None
    if isinstance(first, Text):
        content = (replace(first, text=f"{ERROR_RESULT_PREFIX}: {first.text}"), *result.content[1:])
    else:
        content = (Text(text=ERROR_RESULT_PREFIX), *result.content)
    return replace(result, content=content, plain=result.plain and len(content) == 1)


def _parse_json_object(text: str) -> dict[str, Any] | None:
    """Parse a text as a JSON object, if a provider could accept it."""
    try:
        value = dict_or_none(json.loads(text))
        # Nested too deeply to be written, or an invalid number: 1e999, NaN.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value


def parse_data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and base64 payload of a plain `data:` URL; None for any other."""
    match = _DATA_URL.fullmatch(url)
    return (match[1], match[2]) if match else None


def media_to_url(media: Media) -> str | None:
    """Return the media as one URL: its address, or with its payload in it."""
    if media.data is not None:
        return f"data:{media.mime};base64,{media.data}" if media.mime else None
    return media.url
