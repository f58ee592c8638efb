"""Which dialects a dict's shape fits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trimtab.dialects.json_values import dict_or_none, dicts_in_list

_ANTHROPIC, _CHAT, _RESPONSES = "anthropic", "openai_chat", "openai_responses"

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


def guess_dialects(wire: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the dialects that a message, item or reply may be in; empty for any."""
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
    """Whether it is a part of a message in some dialect, and no item of its own in any."""
    kind = str(wire.get("type"))
    return kind in _CONTENT_PART_TYPES or kind.endswith("_tool_result")


def _guess_part_dialects(part: Mapping[str, Any]) -> tuple[str, ...]:
    kind = str(part.get("type"))
    if kind == "text" and (part.get("cache_control") or "citations" in part):
        return (_ANTHROPIC,)
    if kind.endswith("_tool_result") or dict_or_none(part.get("source")) is not None:
        return (_ANTHROPIC,)
    return _DIALECTS_BY_PART_TYPE.get(kind, ())
