"""What the Chat Completions API refuses, in its own words where they are known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.dialects.shapes import as_dict, as_list, objects

_OPENAI = re.compile(r"(?:^|/)(?:gpt-(?!oss)|chatgpt|o\d)")
"""Models of whom it is known who serves them; some other servers do take `thinking`."""
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_Wire = Mapping[str, Any]


def check(request: _Wire) -> list[str]:
    messages = objects(request.get("messages"))
    if not messages:
        return ["messages: [] is too short, at least one message is required"]
    found: list[str] = []
    for index, message in enumerate(messages):
        if message.get("role") not in _ROLES:
            found.append(
                f"messages[{index}].role: {message.get('role')!r} is not one of {', '.join(_ROLES)}"
            )
        if message.get("role") == "assistant":
            found += _assistant(message, f"messages[{index}]")
    return found + _pairs(messages) + _tools(request) + _parameters(request)


def _parameters(request: _Wire) -> list[str]:
    known = _OPENAI.search(str(request.get("model")))
    return ["Unknown parameter: 'thinking'."] if known and "thinking" in request else []


def _assistant(message: _Wire, where: str) -> list[str]:
    found: list[str] = []
    calls = as_list(message.get("tool_calls"))
    if calls is not None and not calls:
        found.append(f"{where}.tool_calls: [] is too short, leave it out instead")
    said = any(message.get(key) for key in ("refusal", "audio", "function_call"))
    content = message.get("content")
    if not calls and not said and (content is None or content == []):
        found.append(f"{where}.content: expected a string, got null (there are no tool_calls)")
    for number, call in enumerate(objects(calls)):
        kind, key = (
            ("custom", "input")
            if call.get("type") == "custom"
            else (
                "function",
                "arguments",
            )
        )
        body = as_dict(call.get(kind)) or {}
        place = f"{where}.tool_calls[{number}]"
        if not isinstance(body.get(key), str):
            found.append(f"{place}.{kind}.{key}: expected a string")
        if not body.get("name"):
            found.append(f"{place}.{kind}.name: a name is required")
        if not call.get("id"):
            found.append(f"{place}.id: an id is required")
    return found


def _pairs(messages: Sequence[_Wire]) -> list[str]:
    found: list[str] = []
    waiting: dict[str, None] = {}
    answered: set[str] = set()
    where = 0
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            found += _result(message, waiting, answered, index)
            continue
        found += _unanswered(waiting, where)
        waiting, where = {}, index
        answered.clear()
        for call in objects(message.get("tool_calls")):
            call_id = str(call.get("id"))
            if call_id in waiting:
                found.append(f"messages[{index}].tool_calls: duplicate id {call_id}")
            waiting[call_id] = None
    return found + _unanswered(waiting, where)


def _result(message: _Wire, waiting: dict[str, None], answered: set[str], index: int) -> list[str]:
    call_id = str(message.get("tool_call_id"))
    found: list[str] = []
    if not isinstance(message.get("content"), str | list):
        found.append(f"messages[{index}].content: a tool message must have content")
    if call_id in waiting:
        del waiting[call_id]
        answered.add(call_id)
    elif call_id in answered:
        found.append(f"messages[{index}]: duplicate tool message for tool_call_id {call_id}")
    else:
        found.append(
            f"messages[{index}]: messages with role 'tool' must be a response to a preceding "
            f"message with 'tool_calls' (tool_call_id {call_id})"
        )
    return found


def _unanswered(waiting: Mapping[str, None], where: int) -> list[str]:
    if not waiting:
        return []
    return [
        (
            f"messages[{where}]: an assistant message with 'tool_calls' must be followed by tool "
            "messages responding to each 'tool_call_id'. The following tool_call_ids did not have "
            f"response messages: {', '.join(waiting)}"
        )
    ]


def _tools(request: _Wire) -> list[str]:
    found: list[str] = []
    tools = as_list(request.get("tools"))
    if tools is not None and not tools:
        found.append("tools: [] is too short, leave it out instead")
    seen: set[str] = set()
    for index, tool in enumerate(objects(tools)):
        kind = tool.get("type")
        if not isinstance(kind, str):
            found.append(f"Missing required parameter: 'tools[{index}].type'.")
        body = as_dict(tool.get("function")) or as_dict(tool.get("custom"))
        if body is None and kind in ("function", "custom"):
            found.append(f"Missing required parameter: 'tools[{index}].{kind}'.")
        name = None if body is None else body.get("name")
        if body is not None and not name:
            found.append(f"tools[{index}]: a name is required")
        if name in seen:
            found.append(f"tools[{index}]: duplicate name {name}")
        if name is not None:
            seen.add(name)
    return found
