"""What Anthropic's Messages API refuses, in its own words where they are known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.dialects.anthropic_marks import MOST
from trimtab.dialects.anthropic_models import (
    claude_version,
    refused_thinking,
    takes_system_messages,
)
from trimtab.dialects.anthropic_parts import ID, LONGEST_NAME, THINKING
from trimtab.dialects.parameters import unknown_to
from trimtab.dialects.shapes import as_dict, as_int, as_list, bare, objects

_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")
_CLEARS_THINKING = "clear_thinking_20251015"
_HOSTED = ("server_tool_use", "mcp_tool_use")
_Wire = Mapping[str, Any]


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
    found += _system_messages(request, messages)
    for index, content in enumerate(contents):
        found += _texts(messages[index], content, index, last=index == len(messages) - 1)
    found += _pairs(messages, contents)
    found += _ending(request, messages, contents)
    found += _thinking(request, messages, contents)
    found += _tools(request)
    return found + _marks(request, contents)


def _parameters(request: _Wire) -> list[str]:
    found = [f"{name}: Extra inputs are not permitted" for name in unknown_to("anthropic", request)]
    limit = request.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        return [*found, "max_tokens: Field required, at least 1"]
    thinking = as_dict(request.get("thinking")) or {}
    if thinking.get("type") == "enabled" and as_int(thinking.get("budget_tokens")) >= limit:
        found.append(
            "`max_tokens` must be greater than `thinking.budget_tokens` "
            f"({limit} is not above {thinking['budget_tokens']})"
        )
    wrong = refused_thinking(str(request.get("model")), thinking.get("type"))
    if wrong is not None:
        found.append(wrong)
    choice = as_dict(request.get("tool_choice")) or {}
    if thinking.get("type") == "enabled" and choice.get("type") in ("any", "tool"):
        found.append("Thinking may not be enabled when tool_choice forces tool use.")
    managed = as_dict(request.get("context_management")) or {}
    clears = any(clears_thinking(edit) for edit in objects(managed.get("edits")))
    if clears and not _thinks(request, thinking):
        found.append(f"`{_CLEARS_THINKING}` strategy requires `thinking` to be enabled or adaptive")
    return found


def _thinks(request: _Wire, thinking: _Wire) -> bool:
    """Whether the model would think; those from version 5 on do so unless they are told not to."""
    version = claude_version(str(request.get("model")))
    by_itself = version is None or version >= (5, 0)
    return thinking.get("type", "adaptive" if by_itself else "") in ("enabled", "adaptive")


def clears_thinking(edit: _Wire) -> bool:
    """Whether it is the edit by which the API itself leaves out old thinking."""
    return edit.get("type") == _CLEARS_THINKING


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


def _system_messages(request: _Wire, messages: Sequence[_Wire]) -> list[str]:
    """One stands right behind a user's message, and is the last or before an assistant's."""
    model = str(request.get("model"))
    roles = [message.get("role") for message in messages]
    if "system" not in roles or claude_version(model) is None:
        return []
    if not takes_system_messages(model):
        return ["role 'system' is not supported on this model"]
    found: list[str] = []
    for index, role in enumerate(roles[1:], 1):
        if role != "system":
            continue
        if roles[index - 1] != "user":
            found.append(f"messages.{index}: a system message must follow a user message")
        if roles[index + 1 : index + 2] not in ([], ["assistant"]):
            found.append(
                f"messages.{index}: a system message must be last or come before an assistant's"
            )
    return found


def _texts(message: _Wire, content: Sequence[_Wire], index: int, *, last: bool) -> list[str]:
    where = f"messages.{index}"
    prefill = last and message.get("role") == "assistant"
    if not content:
        return [] if prefill else [f"{where}: all messages must have non-empty content"]
    found = _wrong_texts(content, f"{where}.content")
    for number, block in enumerate(content):
        if block.get("type") == "tool_result":
            found += _wrong_result(block, f"{where}.content.{number}.tool_result")
    final = content[-1].get("text")
    if prefill and isinstance(final, str) and final[-1:].isspace():
        found.append("messages: final assistant content cannot end with trailing whitespace")
    return found


def _wrong_result(block: _Wire, where: str) -> list[str]:
    content = block.get("content", "")
    if not isinstance(content, str | list):
        return [f"{where}.content: Input should be a valid string or list"]
    inner = objects(content)
    found = _wrong_texts(inner, f"{where}.content")
    if block.get("is_error") and any(each.get("type") != "text" for each in inner):
        found.append(f"{where}: all content must be type `text` if `is_error` is true")
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
    """Models from 4.6 on, and others that are to think, go on with no reply but one that paused for
    a tool of the provider's."""
    version = claude_version(str(request.get("model")))
    index = len(messages) - 1
    thinks = (as_dict(request.get("thinking")) or {}).get("type") == "enabled"
    goes_on = not thinks and (version is None or version < (4, 6))
    if messages[index].get("role") != "assistant" or goes_on:
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
    """A tool loop that is still open must have kept the thinking it began with. Adaptive thinking
    may begin at any time."""
    if (as_dict(request.get("thinking")) or {}).get("type") != "enabled":
        return []
    if not contents[-1] or _speaks(contents[-1]):
        return []
    index, kind = _loop_start(messages, contents, spoken=False)
    if kind is None or kind in THINKING:
        return []
    if _loop_start(messages, contents, spoken=True)[0] != index:
        return []  # what holds where somebody spoke within a loop is not documented
    return [
        (
            f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{kind}`. When `thinking` is enabled, a "
            "final `assistant` message must start with a thinking block"
        )
    ]


def may_think(messages: Sequence[_Wire]) -> bool:
    """Whether a request with these messages may enable thinking: no tool loop is open, or it began
    with thinking. Where somebody spoke within it, what came after that did, too."""
    contents = [_content(message) for message in messages]
    if not messages or not _results(contents[-1]):
        return True
    starts = [_loop_start(messages, contents, spoken=spoken)[1] for spoken in (False, True)]
    return all(kind is None or kind in THINKING for kind in starts)


def _results(content: Sequence[_Wire]) -> bool:
    return any(block.get("type") == "tool_result" for block in content)


def _speaks(content: Sequence[_Wire]) -> bool:
    return any(block.get("type") != "tool_result" for block in content)


def _loop_start(
    messages: Sequence[_Wire], contents: Sequence[Sequence[_Wire]], *, spoken: bool
) -> tuple[int, Any]:
    """Where the open loop's first reply stands, and the type of its first block; None where there
    is no reply. Words among results end a loop only if they are `spoken`."""
    first = -1
    for index in range(len(messages) - 1, -1, -1):
        role, content = messages[index].get("role"), contents[index]
        if role == "assistant":
            first = index
        elif role == "system" or index == len(messages) - 1:
            continue
        elif not _results(content) or (spoken and _speaks(content)):
            break
    kind = contents[first][0].get("type") if first >= 0 and contents[first] else None
    return first, kind


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
