"""Where Anthropic's prompt cache is told to keep a prefix: at most four marks a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.core.prompt import Prompt
from trimtab.dialects.anthropic_parts import THINKING
from trimtab.dialects.shapes import as_dict, objects

MOST = 4
_Bodies = list[Mapping[str, Any]]


def mark(prompt: Prompt, system: Sequence[Mapping[str, Any]]) -> tuple[_Bodies, _Bodies, _Bodies]:
    """System, tools and block bodies with marks on copies of those that carry one.

    The caller's own marks count. The latest four stay, for the longest prefix is worth most; but
    one is kept for the standard tools, where others behind them are selected for one turn: all
    that follows is another prefix in the next.
    """
    tools = list(prompt.tools)
    head = len(tools) + len(system)
    bodies: _Bodies = [*tools, *system, *(block.body for block in prompt.blocks)]
    wanted = {_carrier(bodies, head + index) for index in prompt.marks if _known(prompt, index)}
    standard = len(tools) - prompt.selected - 1 if prompt.selected and prompt.marks else -1
    wanted.add(standard)
    carriers = sorted(wanted | {i for i, body in enumerate(bodies) if _own(body)}, reverse=True)
    left = MOST - (1 if prompt.params.get("cache_control") else 0)
    hour = prompt.hour or _is_hour(prompt.params)
    for index in carriers:
        if index < 0:
            continue
        body = bodies[index]
        own = _own(body)
        kept = 1 if 0 <= standard < index else 0
        if max(own, 1) > left - kept:
            if own:
                bodies[index] = _unmarked(body)
            continue
        left -= max(own, 1)
        hour = hour or _is_hour(body)
        if not own:
            # The API refuses a mark of five minutes before one of an hour.
            ttl = {"ttl": "1h"} if hour else {}
            bodies[index] = {**body, "cache_control": {"type": "ephemeral", **ttl}}
    return bodies[len(tools) : head], bodies[: len(tools)], bodies[head:]


def _known(prompt: Prompt, index: int) -> bool:
    return -1 <= index < len(prompt.blocks)


def _carrier(bodies: Sequence[Mapping[str, Any]], index: int) -> int:
    """The block itself or the nearest one before it that may carry a mark; -1 for none."""
    while index >= 0 and not _may_carry(bodies[index]):
        index -= 1
    return index


def _may_carry(body: Mapping[str, Any]) -> bool:
    kind = body.get("type")
    if kind == "text":
        return bool(body["text"])
    return kind not in THINKING


def _own(body: Mapping[str, Any]) -> int:
    """Marks that the caller has put on a block or, in a tool result, inside it."""
    count = 1 if body.get("cache_control") else 0
    if body.get("type") == "tool_result" and not isinstance(body.get("content"), str):
        count += sum(1 for inner in objects(body.get("content")) if inner.get("cache_control"))
    return count


def _is_hour(body: Mapping[str, Any]) -> bool:
    control = as_dict(body.get("cache_control"))
    if control is not None and control.get("ttl") == "1h":
        return True
    if body.get("type") != "tool_result":
        return False
    return any(_is_hour(inner) for inner in objects(body.get("content")))


def _unmarked(body: Mapping[str, Any]) -> dict[str, Any]:
    out = {key: value for key, value in body.items() if key != "cache_control"}
    if out.get("type") == "tool_result" and isinstance(out.get("content"), list):
        out["content"] = [_unmarked(inner) for inner in objects(out["content"])]
    return out
