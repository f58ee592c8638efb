"""Places Anthropic's cache marks: at most four in a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.dialects.anthropic.blocks import THINKING_BLOCK_TYPES
from trimtab.dialects.caller_marks import without_marks
from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.engine.prompt.render import Prompt

MAX_CACHE_MARKS = 4
_Bodies = list[Mapping[str, Any]]


def add_cache_marks(
    prompt: Prompt, system_blocks: Sequence[Mapping[str, Any]]
) -> tuple[_Bodies, _Bodies, _Bodies]:
    """Return system, tools and block bodies with marks, on copies of those that get one.

    The caller's own marks count. If there are more than four, one stays for the head, because tools
    and system prompt survive hidden messages and are shared with other conversations. It is the
    mark at the end of the head, or that of the standard tools if further tools are selected for one
    turn, because the prefix after them changes. The others are the latest marks, because the
    longest prefix saves most.
    """
    tools = list(prompt.tools)
    head = len(tools) + len(system_blocks)
    bodies: _Bodies = [*tools, *system_blocks, *(block.body for block in prompt.blocks)]
    mark_indexes = {
        _find_mark_carrier(bodies, head + index)
        for index in prompt.marks
        if _is_valid_mark(prompt, index)
    }
    standard = (
        _find_mark_carrier(bodies, len(tools) - prompt.selected_tools - 1)
        if prompt.selected_tools and prompt.marks
        else -1
    )
    mark_indexes.add(standard)
    carriers = sorted(
        mark_indexes | {i for i, body in enumerate(bodies) if _count_caller_marks(body)},
        reverse=True,
    )
    marked_head = [index for index in carriers if 0 <= index < head]
    head_carrier = standard if standard >= 0 else max(marked_head, default=-1)
    marks_left = MAX_CACHE_MARKS - (1 if prompt.params.get("cache_control") else 0)
    hour = prompt.hour_cache or _has_hour_ttl(prompt.params)
    for index in carriers:
        if index < 0:
            continue
        body = bodies[index]
        caller_marks = _count_caller_marks(body)
        head_marks = 1 if 0 <= head_carrier < index else 0
        if max(caller_marks, 1) > marks_left - head_marks:
            if caller_marks:
                bodies[index] = without_marks(body)
            continue
        marks_left -= max(caller_marks, 1)
        hour = hour or _has_hour_ttl(body)
        if not caller_marks:
            body = {**body, "cache_control": {"type": "ephemeral"}}
        # The API refuses a mark of five minutes before one of an hour.
        bodies[index] = _with_hour_ttl(body) if hour else body
    return bodies[len(tools) : head], bodies[: len(tools)], bodies[head:]


def _is_valid_mark(prompt: Prompt, index: int) -> bool:
    return -1 <= index < len(prompt.blocks)


def _find_mark_carrier(bodies: Sequence[Mapping[str, Any]], index: int) -> int:
    """Return the index of the block, or of the nearest one before it, that may carry a mark; -1 for
    none."""
    while index >= 0 and not _may_carry(bodies[index]):
        index -= 1
    return index


def _may_carry(body: Mapping[str, Any]) -> bool:
    kind = body.get("type")
    if kind == "text":
        return bool(body["text"])
    # A deferred tool is not in the prompt, so nothing of it can be cached.
    return kind not in THINKING_BLOCK_TYPES and not body.get("defer_loading")


def _count_caller_marks(body: Mapping[str, Any]) -> int:
    """Count the caller's marks on a block or, in a tool result, inside it."""
    count = 1 if body.get("cache_control") else 0
    if body.get("type") == "tool_result" and not isinstance(body.get("content"), str):
        count += sum(
            1 for inner in dicts_in_list(body.get("content")) if inner.get("cache_control")
        )
    return count


def find_cache_marks(bodies: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Find the blocks with a mark: by index, the last block that the mark stands for."""
    marks: dict[int, int] = {}
    for index, body in enumerate(bodies):
        if _count_caller_marks(body):
            last = index
            while last + 1 < len(bodies) and not _may_carry(bodies[last + 1]):
                last += 1
            marks[index] = last
    return marks


def _has_hour_ttl(body: Mapping[str, Any]) -> bool:
    control = dict_or_none(body.get("cache_control"))
    if control is not None and control.get("ttl") == "1h":
        return True
    if body.get("type") != "tool_result":
        return False
    return any(_has_hour_ttl(inner) for inner in dicts_in_list(body.get("content")))


def _with_hour_ttl(body: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(body)
    if control := dict_or_none(out.get("cache_control")):
        out["cache_control"] = {**control, "ttl": "1h"}
    if out.get("type") == "tool_result" and isinstance(out.get("content"), list):
        out["content"] = [_with_hour_ttl(inner) for inner in dicts_in_list(out["content"])]
    return out
