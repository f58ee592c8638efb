"""What Anthropic's Messages API refuses, in its own words where they are known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.dialects.anthropic_marks import MOST
from trimtab.dialects.anthropic_parts import ID, LONGEST_NAME, THINKING
from trimtab.dialects.shapes import as_dict, as_int, as_list, bare, objects

_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")
_FOREIGN = (
    "frequency_penalty",
    "logit_bias",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "store",
    "stream_options",
)
"""Parameters of OpenAI's APIs."""
_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2}))?(?!\d)")
_HOSTED = ("server_tool_use", "mcp_tool_use")
_Wire = Mapping[str, Any]


def claude_version(model: str) -> tuple[int, int] | None:
    """`(4, 5)` for `claude-sonnet-4-5-20250929`; None for what is no Claude."""
    found = _CLAUDE.search(model)
    return None if found is None else (int(found[1]), int(found[2] or 0))


def check(request: _Wire) -> list[str]:
    found = _parameters(request)
    if wrong := bare(request.get("messages")):
        told = (f"messages.{index}: Input should be a valid dictionary" for index in wrong)
        return [*found, *told]
    messages = objects(request.get("messages"))
    if not messages:
        return [*found, "messages: at least one message is required"]
    contents = [_content(message) for message in messages]
    found += _roles(messages)
    for index, content in enumerate(contents):
        found += _texts(messages[index], content, index, last=index == len(messages) - 1)
    found += _pairs(messages, contents)
    found += _ending(request, messages, contents)
    found += _thinking(request, messages, contents)
    found += _tools(request)
    return found + _marks(request, contents)


def _parameters(request: _Wire) -> list[str]:
    found = [f"{name}: Extra inputs are not permitted" for name in _FOREIGN if name in request]
    limit = request.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        return [*found, "max_tokens: Field required, at least 1"]
    thinking = as_dict(request.get("thinking")) or {}
    if thinking.get("type") == "enabled" and as_int(thinking.get("budget_tokens")) >= limit:
        found.append(
            "`max_tokens` must be greater than `thinking.budget_tokens` "
            f"({limit} is not above {thinking['budget_tokens']})"
        )
    return found


def _content(message: _Wire) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return objects(content)


def _roles(messages: Sequence[_Wire]) -> list[str]:
    found = [
        f"messages.{index}.role: {message.get('role')!r} is not one of user, assistant, system"
        for index, message in enumerate(messages)
        if message.get("role") not in ("user", "assistant", "system")
    ]
    if messages[0].get("role") != "user":
        found.append('messages: first message must use the "user" role')
    return found


def _texts(message: _Wire, content: Sequence[_Wire], index: int, *, last: bool) -> list[str]:
    where = f"messages.{index}"
    prefill = last and message.get("role") == "assistant"
    if not content:
        return [] if prefill else [f"{where}: all messages must have non-empty content"]
    found = _wrong_texts(content, f"{where}.content")
    for number, block in enumerate(content):
        if block.get("type") == "tool_result":
            inner = objects(block.get("content"))
            found += _wrong_texts(inner, f"{where}.content.{number}.tool_result.content")
    final = content[-1].get("text")
    if prefill and isinstance(final, str) and final[-1:].isspace():
        found.append("messages: final assistant content cannot end with trailing whitespace")
    return found


def _wrong_texts(content: Sequence[_Wire], where: str) -> list[str]:
    found: list[str] = []
    for number, block in enumerate(content):
        if block.get("type") != "text":
            continue
        text = block.get("text") or ""
        if not isinstance(text, str):
            found.append(f"{where}.{number}.text: Input should be a valid string")
        elif not text.strip():
            found.append(f"{where}.{number}: text content blocks must contain non-whitespace text")
    return found


def _pairs(messages: Sequence[_Wire], contents: Sequence[Sequence[_Wire]]) -> list[str]:
    """Calls and results stand in neighbouring messages; the API joins runs of one role."""
    found: list[str] = []
    seen: set[str] = set()
    open_ids: list[str] = []
    expected: list[str] = []
    where = ""
    late = False
    role: Any = None
    for index, (message, content) in enumerate(zip(messages, contents, strict=True)):
        if message.get("role") != role:
            if role != "assistant":
                found += _unanswered(open_ids, where)
                open_ids = []
            role = message.get("role")
            late = False
            expected = list(open_ids)
        for number, block in enumerate(content):
            place = f"messages.{index}.content.{number}"
            kind = block.get("type")
            if kind == "tool_use":
                found += _call(block, role, seen, place)
                open_ids.append(str(block.get("id")))
                where = f"messages.{index}"
            elif kind == "tool_result":
                found += _result(block, role, open_ids, expected, place)
                if late:
                    found.append(f"{place}: tool_result blocks must come first in the content")
            else:
                late = True
    return found + _unanswered(open_ids, where)


def _unanswered(ids: Sequence[str], where: str) -> list[str]:
    if not ids:
        return []
    return [
        (
            f"{where}: `tool_use` ids were found without `tool_result` blocks immediately "
            f"after: {', '.join(ids)}. Each `tool_use` block must have a corresponding "
            "`tool_result` block in the next message."
        )
    ]


def _call(block: _Wire, role: Any, seen: set[str], where: str) -> list[str]:
    call_id = str(block.get("id"))
    found: list[str] = []
    if role != "assistant":
        found.append(f"{where}: `tool_use` blocks can only be in `assistant` messages")
    if call_id in seen:
        found.append(f"{where}: `tool_use` ids must be unique: {call_id}")
    seen.add(call_id)
    if not ID.fullmatch(call_id):
        found.append(f"{where}.id: {call_id!r} should match pattern '^[a-zA-Z0-9_-]+$'")
    if not _NAME.fullmatch(str(block.get("name"))):
        found.append(f"{where}.name: {block.get('name')!r} is not a valid tool name")
    if as_dict(block.get("input")) is None:
        found.append(f"{where}.input: Input should be a valid dictionary")
    return found


def _result(
    block: _Wire, role: Any, open_ids: list[str], expected: Sequence[str], where: str
) -> list[str]:
    call_id = str(block.get("tool_use_id"))
    found: list[str] = []
    if role != "user":
        found.append(f"{where}: `tool_result` blocks can only be in `user` messages")
    if call_id in open_ids:
        open_ids.remove(call_id)
    elif call_id in expected:
        found.append(f"{where}: each tool_use must have a single result, {call_id} has several")
    else:
        found.append(
            f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. "
            "Each `tool_result` block must have a corresponding `tool_use` block in the previous "
            "message."
        )
    return found


def _ending(
    request: _Wire, messages: Sequence[_Wire], contents: Sequence[Sequence[_Wire]]
) -> list[str]:
    """Models from 4.6 on go on with no reply but one that paused for a tool of the provider's."""
    version = claude_version(str(request.get("model")))
    index = len(messages) - 1
    if messages[index].get("role") != "assistant" or version is None or version < (4, 6):
        return []
    while index >= 0 and messages[index].get("role") == "assistant":
        if any(block.get("type") in _HOSTED for block in contents[index]):
            return []
        index -= 1
    return [
        (
            "This model does not support assistant message prefill. The conversation must end "
            "with a user message."
        )
    ]


def _thinking(
    request: _Wire, messages: Sequence[_Wire], contents: Sequence[Sequence[_Wire]]
) -> list[str]:
    """A tool loop that is still open must have kept the thinking it began with."""
    if (as_dict(request.get("thinking")) or {}).get("type") != "enabled":
        return []
    if not any(block.get("type") == "tool_result" for block in contents[-1]):
        return []
    index = len(messages) - 1
    while index >= 0 and messages[index].get("role") != "assistant":
        index -= 1
    while index > 0 and messages[index - 1].get("role") == "assistant":
        index -= 1
    if index < 0 or not contents[index] or contents[index][0].get("type") in THINKING:
        return []
    return [
        (
            f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{contents[index][0].get('type')}`. When `thinking` is enabled, a "
            "final `assistant` message must start with a thinking block"
        )
    ]


def _tools(request: _Wire) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    for index, tool in enumerate(objects(request.get("tools"))):
        name = tool.get("name")
        own = tool.get("type") in (None, "custom", "function")
        if own and as_dict(tool.get("input_schema")) is None:
            found.append(f"tools.{index}.input_schema: Field required")
        if own or name is not None:
            if name is None:
                found.append(f"tools.{index}.name: Field required")
            elif not isinstance(name, str) or not _NAME.fullmatch(name):
                found.append(
                    f"tools.{index}.name: {name!r} should match pattern "
                    f"'^[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}$'"
                )
            elif name in seen:
                found.append(f"tools.{index}.name: tool names must be unique: {name}")
            seen.add(str(name))
    return found


def _marks(request: _Wire, contents: Sequence[Sequence[_Wire]]) -> list[str]:
    found: list[str] = []
    count = 1 if request.get("cache_control") else 0
    head = [*objects(request.get("tools")), *objects(request.get("system"))]
    count += sum(1 for block in head if block.get("cache_control"))
    for index, content in enumerate(contents):
        for number, block in enumerate(content):
            if block.get("cache_control"):
                count += 1
                if block.get("type") in THINKING:
                    found.append(
                        f"messages.{index}.content.{number}.cache_control: "
                        "thinking blocks cannot carry cache_control"
                    )
            if block.get("type") == "tool_result" and as_list(block.get("content")) is not None:
                inner = objects(block.get("content"))
                count += sum(1 for each in inner if each.get("cache_control"))
    if count > MOST:
        found.append(
            f"A maximum of {MOST} blocks with cache_control may be provided. Found {count}."
        )
    return found
