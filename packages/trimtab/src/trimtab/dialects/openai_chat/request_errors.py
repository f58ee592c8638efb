"""What the Chat Completions API rejects, in its own words if they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.dialects.foreign_parameters import find_foreign_parameters
from trimtab.dialects.json_values import (
    dict_or_none,
    dicts_in_list,
    find_non_object_indexes,
    list_or_none,
)
from trimtab.dialects.openai_chat.blocks import MAX_CALL_ID_CHARS, MAX_TOOL_NAME_CHARS
from trimtab.dialects.openai_responses.request_errors import detect_reasoning_support
from trimtab.dialects.parameter_rules import (
    find_chat_parameter_errors,
    find_max_length_errors,
    find_name_errors,
    find_openai_output_errors,
    find_openai_schema_errors,
)
from trimtab.models.families import is_openai_model, is_served_by_openai

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_NON_NULL_KEYS = {"tool_calls": "an array of objects", "function_call": "an object"}
REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details")
"""The keys in which servers of other models return reasoning."""
_ROLES_WITH_CONTENT = ("system", "developer", "user")
_Wire = Mapping[str, Any]


def find_request_errors(request: _Wire) -> list[str]:
    if wrong := find_non_object_indexes(request.get("messages")):
        return [f"Invalid type for 'messages[{index}]': expected an object." for index in wrong]
    messages = dicts_in_list(request.get("messages"))
    if not messages:
        return ["messages: [] is too short, at least one message is required"]
    errors: list[str] = []
    for index, message in enumerate(messages):
        errors += _check_message(message, f"messages[{index}]")
    return (
        errors
        + _check_call_result_pairs(messages)
        + _check_tools(request)
        + find_openai_output_errors(request, "max_tokens")
        + find_openai_output_errors(request, "max_completion_tokens")
        + _check_openai_only_rules(request, messages)
    )


def _check_message(message: _Wire, location: str) -> list[str]:
    role = message.get("role")
    if role == "assistant":
        return _check_assistant(message, location)
    if role not in _ROLES:
        return [f"{location}.role: {role!r} is not one of {', '.join(_ROLES)}"]
    content = message.get("content")
    if role in _ROLES_WITH_CONTENT and (not isinstance(content, str | list) or content == []):
        return [f"{location}.content: expected a string or a list that is not empty"]
    return []


def _check_openai_only_rules(request: _Wire, messages: Sequence[_Wire]) -> list[str]:
    """Check rules of OpenAI's own models.

    Other servers accept `thinking` or nulls, make longer ids, and have tools with other names.
    """
    if not is_openai_model(str(request.get("model"))):
        return []
    foreign = find_foreign_parameters("openai_chat", request)
    errors = [f"Unknown parameter: '{name}'." for name in foreign]
    errors += find_chat_parameter_errors(request)
    if "max_tokens" in request and detect_reasoning_support(str(request["model"])):
        errors.append(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead."
        )
    for index, message in enumerate(messages):
        errors += (
            f"Invalid type for 'messages[{index}].{key}': expected {kind}, but got null instead."
            for key, kind in _NON_NULL_KEYS.items()
            if key in message and message[key] is None
        )
        is_openai = is_served_by_openai(str(request.get("model")))
        if is_openai:
            thoughts = (key for key in REASONING_KEYS if key in message)
            errors += (f"messages[{index}].{key}: this API has no such field" for key in thoughts)
        for number, call in enumerate(dicts_in_list(message.get("tool_calls"))):
            where = f"messages[{index}].tool_calls[{number}]"
            errors += find_max_length_errors(call.get("id"), MAX_CALL_ID_CHARS, f"{where}.id")
            kind = "custom" if call.get("type") == "custom" else "function"
            if is_openai and (name := (dict_or_none(call.get(kind)) or {}).get("name")):
                errors += find_name_errors(name, MAX_TOOL_NAME_CHARS, f"{where}.{kind}.name")
    return errors


def _check_assistant(message: _Wire, location: str) -> list[str]:
    errors: list[str] = []
    calls = list_or_none(message.get("tool_calls"))
    if calls is not None and not calls:
        errors.append(f"{location}.tool_calls: [] is too short, leave it out instead")
    has_other_content = any(message.get(key) for key in ("refusal", "audio", "function_call"))
    content = message.get("content")
    if not calls and not has_other_content and (content is None or content == []):
        errors.append(f"{location}.content: expected a string, got null (there are no tool_calls)")
    for number, call in enumerate(dicts_in_list(calls)):
        errors += _check_call(call, f"{location}.tool_calls[{number}]")
    return errors


def _check_call(call: _Wire, location: str) -> list[str]:
    custom = call.get("type") == "custom"
    kind, key = ("custom", "input") if custom else ("function", "arguments")
    body = dict_or_none(call.get(kind)) or {}
    errors: list[str] = []
    if not isinstance(body.get(key), str):
        errors.append(f"{location}.{kind}.{key}: expected a string")
    if not body.get("name"):
        errors.append(f"{location}.{kind}.name: a name is required")
    if not call.get("id"):
        errors.append(f"{location}.id: an id is required")
    return errors


def _check_call_result_pairs(messages: Sequence[_Wire]) -> list[str]:
    errors: list[str] = []
    waiting: dict[str, None] = {}
    answered_ids: set[str] = set()
    where = 0
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            errors += _check_result(message, waiting, answered_ids, index)
            continue
        errors += _unanswered_call_errors(waiting, where)
        waiting = {}
        where = index
        answered_ids.clear()
        for call in dicts_in_list(message.get("tool_calls")):
            call_id = str(call.get("id"))
            if call_id in waiting:
                errors.append(f"messages[{index}].tool_calls: duplicate id {call_id}")
            waiting[call_id] = None
    return errors + _unanswered_call_errors(waiting, where)


def _check_result(
    message: _Wire, waiting: dict[str, None], answered_ids: set[str], index: int
) -> list[str]:
    call_id = str(message.get("tool_call_id"))
    errors: list[str] = []
    content = message.get("content")
    if not isinstance(content, str | list):
        errors.append(f"messages[{index}].content: a tool message must have content")
    elif content == []:
        errors.append(f"messages[{index}].content: [] is too short, at least one part is required")
    if call_id in waiting:
        del waiting[call_id]
        answered_ids.add(call_id)
    elif call_id in answered_ids:
        errors.append(f"messages[{index}]: duplicate tool message for tool_call_id {call_id}")
    else:
        errors.append(
            f"messages[{index}]: messages with role 'tool' must be a response to a preceding "
            f"message with 'tool_calls' (tool_call_id {call_id})"
        )
    return errors


def _unanswered_call_errors(waiting: Mapping[str, None], message_index: int) -> list[str]:
    if not waiting:
        return []
    return [
        (
            f"messages[{message_index}]: an assistant message with 'tool_calls' must be "
            "followed by tool "
            "messages responding to each 'tool_call_id'. The following tool_call_ids did not have "
            f"response messages: {', '.join(waiting)}"
        )
    ]


def _check_tools(request: _Wire) -> list[str]:
    errors: list[str] = []
    tools = list_or_none(request.get("tools"))
    if tools is not None and not tools:
        errors.append("tools: [] is too short, leave it out instead")
    names: list[Any] = []
    for index, tool in enumerate(dicts_in_list(tools)):
        kind = tool.get("type")
        if not isinstance(kind, str):
            errors.append(f"Missing required parameter: 'tools[{index}].type'.")
        key = "custom" if dict_or_none(tool.get("custom")) is not None else "function"
        body = dict_or_none(tool.get(key))
        if body is None:
            if kind in ("function", "custom"):
                errors.append(f"Missing required parameter: 'tools[{index}].{kind}'.")
            continue
        name = body.get("name")
        if not name:
            errors.append(f"tools[{index}]: a name is required")
        elif name in names:
            errors.append(f"tools[{index}]: duplicate name {name}")
        else:
            errors += find_name_errors(name, MAX_TOOL_NAME_CHARS, f"tools[{index}].{key}.name")
            names.append(name)
        errors += find_openai_schema_errors(name, body.get("parameters"))
    return errors
