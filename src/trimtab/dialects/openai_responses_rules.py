"""What the Responses API refuses, in its own words where they are known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.dialects.openai_names import too_long, wrong_name
from trimtab.dialects.openai_responses_items import (
    CALLS,
    LONGEST_ID,
    LONGEST_NAME,
    RESULTS,
    TEXT_OUTPUTS,
    is_message,
    side,
)
from trimtab.dialects.parameters import unknown_to
from trimtab.dialects.shapes import as_list, bare, objects

ENCRYPTED = "reasoning.encrypted_content"
_REASONS = re.compile(r"(?:^|[/:.])(?:o\d|codex-|gpt-(?:[5-9]|\d\d)(?!.*-chat))")
_ANSWERS = re.compile(r"(?:^|[/:.])(?:gpt-[34]|chatgpt-4|gpt-5-chat)")
"""Models that answer at once."""
_ROLES = ("user", "assistant", "system", "developer")
_Wire = Mapping[str, Any]


def reasons(model: str) -> bool | None:
    """Whether a model of OpenAI's thinks before it answers; None where the name does not tell."""
    if _ANSWERS.search(model.lower()):
        return False
    return True if _REASONS.search(model.lower()) else None


def check(request: _Wire) -> list[str]:
    return _parameters(request) + _input(request) + _tools(request)


def _parameters(request: _Wire) -> list[str]:
    foreign = unknown_to("openai_responses", request)
    found = [f"Unknown parameter: '{name}'." for name in foreign]
    asked = ENCRYPTED in (as_list(request.get("include")) or [])
    if asked and reasons(str(request.get("model"))) is False:
        found.append("Encrypted content is not supported with this model.")
    return found


def _input(request: _Wire) -> list[str]:
    given = request.get("input")
    if isinstance(given, str) and given:
        return []
    if wrong := bare(given):
        return [f"Invalid type for 'input[{index}]': expected an object." for index in wrong]
    items = objects(given)
    if not items and not request.get("previous_response_id"):
        return ["input: at least one item is required"]
    found: list[str] = []
    for index, item in enumerate(items):
        found += _shape(item, f"input[{index}]")
    if reasons(str(request.get("model"))) is not None:
        # Other servers make longer ids themselves.
        found += _ids(items)
    if not request.get("previous_response_id"):
        found += _pairs(items)
    if reasons(str(request.get("model"))) is False and any(
        item.get("type") == "reasoning" for item in items
    ):
        found.append(
            "Reasoning input items can only be provided to a reasoning or computer use model. "
            "Remove reasoning items from your input and try again."
        )
    return found + _reasoning(items)


def _shape(item: _Wire, where: str) -> list[str]:
    if is_message(item):
        if item["role"] not in _ROLES:
            return [f"{where}.role: {item['role']!r} is not one of {', '.join(_ROLES)}"]
        if not isinstance(item.get("content"), str | list):
            return [f"{where}.content: expected a string or a list"]
        return []
    kind = item.get("type")
    if kind in CALLS:
        return _call(item, where)
    output = item.get("output")
    if kind in TEXT_OUTPUTS and not isinstance(output, str | list):
        return [f"{where}.output: expected a string or a list"]
    return []


def _call(item: _Wire, where: str) -> list[str]:
    found: list[str] = []
    if item["type"] == "function_call":
        keys = ("call_id", "name", "arguments")
        wrong = [key for key in keys if not isinstance(item.get(key), str)]
        found += (f"{where}.{key}: expected a string" for key in wrong)
    if isinstance(item.get("name"), str):
        found += wrong_name(item["name"], LONGEST_NAME, f"{where}.name")
    return found


def _ids(items: Sequence[_Wire]) -> list[str]:
    calls = [index for index, item in enumerate(items) if item.get("type") in CALLS]
    told = (too_long(items[i].get("call_id"), LONGEST_ID, f"input[{i}].call_id") for i in calls)
    return [each for found in told for each in found]


def _pairs(items: Sequence[_Wire]) -> list[str]:
    """A result stands anywhere behind its call, and each has just one."""
    found: list[str] = []
    waiting: dict[str, int] = {}
    called: set[str] = set()
    for index, item in enumerate(items):
        kind, call_id = item.get("type"), str(item.get("call_id"))
        if kind in CALLS:
            if call_id in called:
                found.append(f"input[{index}]: duplicate call_id {call_id} among the calls")
            called.add(call_id)
            waiting[call_id] = index
        elif kind in RESULTS:
            if call_id in waiting and kind == f"{items[waiting[call_id]].get('type')}_output":
                del waiting[call_id]
            elif call_id in called and call_id not in waiting:
                found.append(f"input[{index}]: duplicate output for call_id {call_id}")
            else:
                found.append(
                    f"input[{index}]: No tool call found for {_spoken(kind, '_output')} output "
                    f"with call_id {call_id}."
                )
    for call_id, index in waiting.items():
        kind = _spoken(items[index].get("type"), "")
        found.append(f"input[{index}]: No tool output found for {kind} {call_id}.")
    return found


def _spoken(kind: Any, ending: str) -> str:
    return str(kind).removesuffix(ending).replace("_", " ")


def _reasoning(items: Sequence[_Wire]) -> list[str]:
    """Reasoning leads to something the model said or called; alone it is refused."""
    found: list[str] = []
    for index, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        following = items[index + 1] if index + 1 < len(items) else None
        if following is None or side(following) != "assistant":
            found.append(
                f"input[{index}]: Item '{item.get('id')}' of type 'reasoning' was provided without "
                "its required following item."
            )
    return found


def _tools(request: _Wire) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    for index, tool in enumerate(objects(request.get("tools"))):
        name = tool.get("name")
        if not isinstance(tool.get("type"), str):
            found.append(f"Missing required parameter: 'tools[{index}].type'.")
        if tool.get("type") in ("function", "custom"):
            if not isinstance(name, str) or not name:
                found.append(f"tools[{index}].name: a name is required")
            elif name in seen:
                found.append(f"tools[{index}].name: duplicate name {name}")
            else:
                found += wrong_name(name, LONGEST_NAME, f"tools[{index}].name")
            seen.add(str(name))
    return found
