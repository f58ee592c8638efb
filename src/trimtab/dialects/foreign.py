"""What stands for a part in a dialect that it did not come from."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import Any, TypeGuard

from trimtab.core.message import Media, Text, ToolResult
from trimtab.dialects.shapes import as_dict, compact

NOTHING = "(no content)"
"""The text of a message that has nothing a provider would accept."""
FAILED = "Error"
"""What a result begins with that is an error, where the wire cannot say so otherwise."""
SYSTEM = "[System message]"
"""Before the words of a system message that has to stand in a user's."""

_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def omitted(media: Media) -> str:
    """The text in place of media that the wire cannot carry."""
    return f"[{media.kind} omitted: not supported here]"


def wire_id(call_id: str, accepted: re.Pattern[str]) -> str:
    """The id as the wire takes it: unchanged if it may be, else a digest of it.

    It depends on nothing but the id, so that a call and its result agree wherever they stand.
    """
    if accepted.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest[:24]}"


def tool_name(name: str, longest: int) -> str:
    """A tool's name in the letters that every provider takes."""
    return _NAME.sub("_", name)[:longest] or "tool"


def tool_input(arguments: str) -> dict[str, Any]:
    """A call's arguments as an object; what is none is wrapped, never lost."""
    if not arguments:
        return {}
    value = _object(arguments)
    return {"arguments": arguments} if value is None else value


def tool_arguments(arguments: str) -> str:
    """A call's arguments as the text of an object, untouched where they are one."""
    return compact(tool_input(arguments)) if _object(arguments) is None else arguments


def is_object_text(value: Any) -> TypeGuard[str]:
    """Whether it is the text of an object, as a model writes a call's arguments."""
    return isinstance(value, str) and _object(value) is not None


def failed(result: ToolResult) -> ToolResult:
    """A result whose first words say that the tool has failed, for a wire that has no flag."""
    told = result.text.strip()
    # What stands in for a result is one bracket, and says itself why.
    stands_in = told.startswith("[") and told.endswith("]")
    if not result.is_error or stands_in or told[:5].lower() == "error":
        return result
    first = result.content[0] if result.content else None
    if isinstance(first, Text):
        content = (replace(first, text=f"{FAILED}: {first.text}"), *result.content[1:])
    else:
        content = (Text(text=FAILED), *result.content)
    return replace(result, content=content, plain=result.plain and len(content) == 1)


def _object(text: str) -> dict[str, Any] | None:
    """The object that a text is the JSON of, if any provider could take it."""
    try:
        value = as_dict(json.loads(text))
        # Too deep for whoever writes it, or a number that is none: 1e999, NaN.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value


def split_data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 payload of a plain `data:` URL; None for any other."""
    found = _DATA_URL.fullmatch(url)
    return (found[1], found[2]) if found else None


def data_url(media: Media) -> str | None:
    """The media as one URL: where it lies, or with its payload in it."""
    if media.data is not None:
        return f"data:{media.mime};base64,{media.data}" if media.mime else None
    return media.url
