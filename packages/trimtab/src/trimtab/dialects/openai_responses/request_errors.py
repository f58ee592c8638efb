"""What the Responses API rejects, in its own words if they are known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.dialects.foreign_parameters import find_foreign_parameters
from trimtab.dialects.json_values import dicts_in_list, find_non_object_indexes, list_or_none
from trimtab.dialects.openai_responses.items import (
    CALL_ITEM_TYPES,
    MAX_CALL_ID_CHARS,
    MAX_TOOL_NAME_CHARS,
    RESULT_ITEM_TYPES,
    TEXT_RESULT_ITEM_TYPES,
    find_item_role,
    get_result_item_type,
    is_message_item,
    is_run_by_provider,
)
from trimtab.dialects.parameter_rules import (
    find_max_length_errors,
    find_name_errors,
    find_openai_schema_errors,
    find_responses_parameter_errors,
)

ENCRYPTED_REASONING_INCLUDE = "reasoning.encrypted_content"
_REASONING_MODEL = re.compile(r"(?:^|[/:.])(?:o\d|codex-|gpt-(?:[5-9]|\d\d)(?!.*-chat))")
_NON_REASONING_MODEL = re.compile(r"(?:^|[/:.])(?:gpt-[34]|chatgpt-4|gpt-5-chat)")
"""Models that answer at once."""
_ROLES = ("user", "assistant", "system", "developer")
_Wire = Mapping[str, Any]


def detect_reasoning_support(model: str) -> bool | None:
    """Whether a model of OpenAI thinks before it answers; None if the name does not say."""
    if _NON_REASONING_MODEL.search(model.lower()):
        return False
    return True if _REASONING_MODEL.search(model.lower()) else None


def find_request_errors(request: _Wire) -> list[str]:
    return _check_parameters(request) + _check_input(request) + _check_tools(request)


def _check_parameters(request: _Wire) -> list[str]:
    foreign = find_foreign_parameters("openai_responses", request)
    errors = [f"Unknown parameter: '{name}'." for name in foreign]
    errors += find_responses_parameter_errors(request)
    wants_reasoning = ENCRYPTED_REASONING_INCLUDE in (list_or_none(request.get("include")) or [])
    if wants_reasoning and detect_reasoning_support(str(request.get("model"))) is False:
        errors.append("Encrypted content is not supported with this model.")
    return errors


def _check_input(request: _Wire) -> list[str]:
    request_input = request.get("input")
    if isinstance(request_input, str) and request_input:
        return []
    if wrong := find_non_object_indexes(request_input):
        return [f"Invalid type for 'input[{index}]': expected an object." for index in wrong]
    items = dicts_in_list(request_input)
    if not items and not request.get("previous_response_id"):
        return ["input: at least one item is required"]
    errors: list[str] = []
    for index, item in enumerate(items):
        errors += _check_item_shape(item, f"input[{index}]")
    if detect_reasoning_support(str(request.get("model"))) is not None:
        # Other servers make longer ids themselves.
        errors += _check_call_id_lengths(items)
    if not request.get("previous_response_id"):
        errors += _check_call_result_pairs(items)
    if detect_reasoning_support(str(request.get("model"))) is False and any(
        item.get("type") == "reasoning" for item in items
    ):
        errors.append(
            "Reasoning input items can only be provided to a reasoning or computer use model. "
            "Remove reasoning items from your input and try again."
        )
    return errors + _check_reasoning_items(items)


def _check_item_shape(item: _Wire, location: str) -> list[str]:
    if is_message_item(item):
        if item["role"] not in _ROLES:
            return [f"{location}.role: {item['role']!r} is not one of {', '.join(_ROLES)}"]
        if not isinstance(item.get("content"), str | list):
            return [f"{location}.content: expected a string or a list"]
        return _check_text_types(item, location)
    kind = item.get("type")
    if kind in CALL_ITEM_TYPES:
        return _check_call(item, location)
    output = item.get("output")
    if kind in TEXT_RESULT_ITEM_TYPES and not isinstance(output, str | list):
        return [f"{location}.output: expected a string or a list"]
    return []


def _check_text_types(item: _Wire, location: str) -> list[str]:
    text_type = "output_text" if item["role"] == "assistant" else "input_text"
    return [
        f"Invalid value: '{part['type']}' at {location}.content[{index}].type. A text in a message "
        f"of this role must be '{text_type}'."
        for index, part in enumerate(dicts_in_list(item["content"]))
        if part.get("type") in ("text", "input_text", "output_text") and part["type"] != text_type
    ]


def _check_call(item: _Wire, location: str) -> list[str]:
    errors: list[str] = []
    if item["type"] == "function_call":
        keys = ("call_id", "name", "arguments")
        wrong = [key for key in keys if not isinstance(item.get(key), str)]
        errors += (f"{location}.{key}: expected a string" for key in wrong)
    if isinstance(item.get("name"), str):
        errors += find_name_errors(item["name"], MAX_TOOL_NAME_CHARS, f"{location}.name")
    return errors


def _check_call_id_lengths(items: Sequence[_Wire]) -> list[str]:
    errors: list[str] = []
    for index, item in enumerate(items):
        if item.get("type") in CALL_ITEM_TYPES and not is_run_by_provider(item):
            location = f"input[{index}].call_id"
            errors += find_max_length_errors(item.get("call_id"), MAX_CALL_ID_CHARS, location)
    return errors


def _check_call_result_pairs(items: Sequence[_Wire]) -> list[str]:
    """Check that each result comes after its call, and that each call has exactly one."""
    errors: list[str] = []
    open_calls: dict[str, int] = {}
    call_ids: set[str] = set()
    for index, item in enumerate(items):
        kind = item.get("type")
        call_id = str(item.get("call_id"))
        if is_run_by_provider(item):
            continue
        if kind in CALL_ITEM_TYPES:
            if call_id in call_ids:
                errors.append(f"input[{index}]: duplicate call_id {call_id} among the calls")
            call_ids.add(call_id)
            open_calls[call_id] = index
        elif kind in RESULT_ITEM_TYPES:
            call_type = str(items[open_calls[call_id]].get("type")) if call_id in open_calls else ""
            if call_type and kind == get_result_item_type(call_type):
                del open_calls[call_id]
            elif call_id in call_ids and call_id not in open_calls:
                errors.append(f"input[{index}]: duplicate output for call_id {call_id}")
            else:
                errors.append(
                    f"input[{index}]: No tool call found for "
                    f"{_item_type_in_words(kind, '_output')} output "
                    f"with call_id {call_id}."
                )
    for call_id, index in open_calls.items():
        kind = _item_type_in_words(items[index].get("type"), "")
        errors.append(f"input[{index}]: No tool output found for {kind} {call_id}.")
    return errors


def _item_type_in_words(kind: Any, suffix: str) -> str:
    return str(kind).removesuffix(suffix).replace("_", " ")


def _check_reasoning_items(items: Sequence[_Wire]) -> list[str]:
    """Check that reasoning is followed by a message or a call; alone it is rejected."""
    errors: list[str] = []
    for index, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        if index + 1 == len(items) or find_item_role(items[index + 1]) != "assistant":
            errors.append(
                f"input[{index}]: Item '{item.get('id')}' of type 'reasoning' was provided without "
                "its required following item."
            )
    return errors


def _check_tools(request: _Wire) -> list[str]:
    errors: list[str] = []
    names: set[str] = set()
    for index, tool in enumerate(dicts_in_list(request.get("tools"))):
        name = tool.get("name")
        if not isinstance(tool.get("type"), str):
            errors.append(f"Missing required parameter: 'tools[{index}].type'.")
        if tool.get("type") in ("function", "custom"):
            if not isinstance(name, str) or not name:
                errors.append(f"tools[{index}].name: a name is required")
            elif name in names:
                errors.append(f"tools[{index}].name: duplicate name {name}")
            else:
                errors += find_name_errors(name, MAX_TOOL_NAME_CHARS, f"tools[{index}].name")
            names.add(str(name))
            errors += find_openai_schema_errors(name, tool.get("parameters"))
    tools = dicts_in_list(request.get("tools"))
    nested_tools = [nested for tool in tools for nested in dicts_in_list(tool.get("tools"))]
    is_any_deferred = any(tool.get("defer_loading") for tool in (*tools, *nested_tools))
    if is_any_deferred and not any(tool.get("type") == "tool_search" for tool in tools):
        errors.append(
            "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search."
        )
    return errors
