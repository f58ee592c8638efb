"""What the Chat Completions API refuses, in its own words where they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.dialects.families import at_openai, is_openai
from trimtab.dialects.openai_chat_parts import LONGEST_ID, LONGEST_NAME
from trimtab.dialects.openai_names import too_long, wrong_name
from trimtab.dialects.parameters import unknown_to
from trimtab.dialects.shapes import as_dict, as_list, bare, objects

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_NOT_NULL = {"tool_calls": "an array of objects", "function_call": "an object"}
REASONING = ("reasoning_content", "reasoning", "reasoning_details")
"""Where servers of other models write what a model thought."""
_SPEAKERS = ("system", "developer", "user")
_Wire = Mapping[str, Any]


def check(request: _Wire) -> list[str]:
    if wrong := bare(request.get("messages")):
        return [f"Invalid type for 'messages[{index}]': expected an object." for index in wrong]
    messages = objects(request.get("messages"))
    if not messages:
        return ["messages: [] is too short, at least one message is required"]
    found: list[str] = []
    for index, message in enumerate(messages):
        found += _message(message, f"messages[{index}]")
    return found + _pairs(messages) + _tools(request) + _of_openai_alone(request, messages)


def _message(message: _Wire, where: str) -> list[str]:
    role = message.get("role")
    if role == "assistant":
        return _assistant(message, where)
    if role not in _ROLES:
        return [f"{where}.role: {role!r} is not one of {', '.join(_ROLES)}"]
    if role in _SPEAKERS and not isinstance(message.get("content"), str | list):
        return [f"{where}.content: expected a string or a list"]
    return []


def _of_openai_alone(request: _Wire, messages: Sequence[_Wire]) -> list[str]:
    """Of whom it is known who serves them: some other servers do take `thinking`, take nulls, and
    make longer ids themselves."""
    if not is_openai(str(request.get("model"))):
        return []
    foreign = unknown_to("openai_chat", request)
    found = [f"Unknown parameter: '{name}'." for name in foreign]
    for index, message in enumerate(messages):
        found += (
            f"Invalid type for 'messages[{index}].{key}': expected {kind}, but got null instead."
            for key, kind in _NOT_NULL.items()
            if key in message and message[key] is None
        )
        if at_openai(str(request.get("model"))):
            thoughts = (key for key in REASONING if key in message)
            found += (f"messages[{index}].{key}: this API has no such field" for key in thoughts)
        for number, call in enumerate(objects(message.get("tool_calls"))):
            where = f"messages[{index}].tool_calls[{number}].id"
            found += too_long(call.get("id"), LONGEST_ID, where)
    return found


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
        found += _call(call, f"{where}.tool_calls[{number}]")
    return found


def _call(call: _Wire, where: str) -> list[str]:
    custom = call.get("type") == "custom"
    kind, key = ("custom", "input") if custom else ("function", "arguments")
    body = as_dict(call.get(kind)) or {}
    found: list[str] = []
    if not isinstance(body.get(key), str):
        found.append(f"{where}.{kind}.{key}: expected a string")
    if not body.get("name"):
        found.append(f"{where}.{kind}.name: a name is required")
    else:
        found += wrong_name(body["name"], LONGEST_NAME, f"{where}.{kind}.name")
    if not call.get("id"):
        found.append(f"{where}.id: an id is required")
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
    content = message.get("content")
    if not isinstance(content, str | list):
        found.append(f"messages[{index}].content: a tool message must have content")
    elif content == []:
        found.append(f"messages[{index}].content: [] is too short, at least one part is required")
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
    seen: list[Any] = []
    for index, tool in enumerate(objects(tools)):
        kind = tool.get("type")
        if not isinstance(kind, str):
            found.append(f"Missing required parameter: 'tools[{index}].type'.")
        key = "custom" if as_dict(tool.get("custom")) is not None else "function"
        body = as_dict(tool.get(key))
        if body is None:
            if kind in ("function", "custom"):
                found.append(f"Missing required parameter: 'tools[{index}].{kind}'.")
            continue
        name = body.get("name")
        if not name:
            found.append(f"tools[{index}]: a name is required")
        elif name in seen:
            found.append(f"tools[{index}]: duplicate name {name}")
        else:
            found += wrong_name(name, LONGEST_NAME, f"tools[{index}].{key}.name")
            seen.append(name)
    return found
