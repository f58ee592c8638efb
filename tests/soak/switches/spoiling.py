"""Requests that are spoiled on purpose, each in a way that its provider refuses by its documents:
a judge that is silent about one is no judge of the others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from tests.pictures import PNG_TEXT
from tests.soak.switches.judging import Target

Wire = dict[str, Any]
Spoil = Callable[[Wire, Target], bool]
"""Changes a request; says whether there was something to spoil."""


def _blocks(request: Wire, kind: str) -> list[Wire]:
    contents = [message["content"] for message in request["messages"]]
    listed = [block for content in contents if isinstance(content, list) for block in content]
    return [block for block in listed if block.get("type") == kind]


def _system_message(request: Wire, to: Target) -> bool:
    if to.maker != "anthropic" or request["messages"][-1]["role"] == "system":
        return False
    takes = to.model.startswith(("claude-opus-4-8", "claude-sonnet-5"))
    place = (
        1
        if not takes
        else next(
            (n for n, each in enumerate(request["messages"], 1) if each["role"] == "assistant"),
            None,
        )
    )
    if place is None:
        return False
    request["messages"].insert(place, {"role": "system", "content": "Be brief."})
    return True


def _error_with_a_picture(request: Wire, _: Target) -> bool:
    for block in _blocks(request, "tool_result"):
        source = {"type": "base64", "media_type": "image/png", "data": PNG_TEXT}
        block |= {"is_error": True, "content": [{"type": "image", "source": source}]}
        return True
    return False


def _null_result(request: Wire, _: Target) -> bool:
    for block in _blocks(request, "tool_result"):
        block["content"] = None
        return True
    return False


def _kind_of_thinking(request: Wire, to: Target) -> bool:
    wrong = {"claude-sonnet-4-5": "adaptive", "claude-opus-4-8": "enabled"}.get(to.model)
    if wrong is None:
        return False
    budget = {"budget_tokens": 1_024} if wrong == "enabled" else {}
    request |= {"thinking": {"type": wrong, **budget}, "max_tokens": 4_000}
    return True


def _thinking_in_a_loop(request: Wire, to: Target) -> bool:
    """Only of a loop that nobody spoke in, and that did not begin with thinking."""
    if to.model not in ("claude-sonnet-4-5", "claude-sonnet-4-6") or "thinking" in request:
        return False
    last = request["messages"][-1]["content"]
    if not isinstance(last, list) or any(b["type"] != "tool_result" for b in last):
        return False
    for number in range(len(request["messages"]) - 2, 0, -1):
        message, before = request["messages"][number], request["messages"][number - 1]
        inside = before["content"]
        results = (
            []
            if isinstance(inside, str)
            else [block for block in inside if block["type"] == "tool_result"]
        )
        if message["role"] == "assistant" and not results:
            first = message["content"][0]
            thinks = first["type"] in ("thinking", "redacted_thinking")
            request |= {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
            request["max_tokens"] = 4_000
            return not thinks
        if results and len(results) < len(inside):
            return False
    return False


def _empty_calls(request: Wire, _: Target) -> bool:
    for message in request["messages"]:
        if message["role"] == "assistant" and not message.get("tool_calls"):
            message["tool_calls"] = []
            return True
    return False


def _null_calls(request: Wire, to: Target) -> bool:
    for message in request["messages"] if to.maker == "openai" else ():
        if message["role"] == "assistant" and not message.get("tool_calls"):
            message["tool_calls"] = None
            return True
    return False


def _foreign_thought(request: Wire, to: Target) -> bool:
    for message in request["messages"] if to.maker == "openai" else ():
        if message["role"] == "assistant":
            message["reasoning_content"] = "Hm."
            return True
    return False


def _no_parts(request: Wire, _: Target) -> bool:
    for message in request["messages"]:
        if message["role"] == "tool":
            message["content"] = []
            return True
    return False


def _bare_output(request: Wire, _: Target) -> bool:
    for item in request["input"]:
        if item.get("type") == "function_call_output":
            item["output"] = {"temperature": 20}
            return True
    return False


def _reasoning(request: Wire, to: Target) -> bool:
    if to.thinks:
        return False
    for number, item in enumerate(request["input"]):
        if item.get("role") == "assistant" or item.get("type") == "function_call":
            thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "A"}
            request["input"].insert(number, thought)
            return True
    return False


def _orphan(request: Wire, to: Target) -> bool:
    if to.dialect == "anthropic":
        block = {"type": "tool_result", "tool_use_id": "nobody", "content": "x"}
        request["messages"].insert(0, {"role": "user", "content": [block]})
    elif to.dialect == "openai_chat":
        request["messages"].append({"role": "tool", "tool_call_id": "nobody", "content": "x"})
    else:
        item = {"type": "function_call_output", "call_id": "nobody", "output": "x"}
        request["input"].append(item)
    return True


SPOILS: Mapping[str, tuple[Spoil, ...]] = {
    "anthropic": (
        *(_system_message, _error_with_a_picture, _null_result, _kind_of_thinking),
        # Seldom possible, so tried more often than the others.
        *(_thinking_in_a_loop, _thinking_in_a_loop, _thinking_in_a_loop, _orphan),
    ),
    "openai_chat": (_empty_calls, _null_calls, _foreign_thought, _no_parts, _orphan),
    "openai_responses": (_bare_output, _reasoning, _orphan),
}


def spoiled(request: Wire, to: Target, spoil: Spoil) -> Wire | None:
    """A copy that is spoiled; None if there was nothing to spoil."""
    copied = copy.deepcopy(request)
    return copied if spoil(copied, to) else None
