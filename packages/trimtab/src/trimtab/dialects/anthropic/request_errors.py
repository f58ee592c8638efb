"""What Anthropic's Messages API rejects, in its own words if they are known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trimtab.dialects.anthropic.blocks import (
    BLOCK_TYPES,
    CALL_ID_PATTERN,
    MAX_TOOL_NAME_CHARS,
    THINKING_BLOCK_TYPES,
)
from trimtab.dialects.anthropic.cache_marks import MAX_CACHE_MARKS
from trimtab.dialects.anthropic.model_features import (
    accepts_inline_system_messages,
    accepts_prefill,
    explain_thinking_refusal,
    parse_claude_version,
)
from trimtab.dialects.foreign_parameters import find_foreign_parameters
from trimtab.dialects.json_values import (
    dict_or_none,
    dicts_in_list,
    find_non_object_indexes,
    int_or_zero,
)
from trimtab.dialects.parameter_rules import find_anthropic_parameter_errors

_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_TOOL_NAME_CHARS}}}")
MIN_THINKING_BUDGET_TOKENS = 1_024
_CLEAR_THINKING_EDIT_TYPE = "clear_thinking_20251015"
_HOSTED_CALL_TYPES = ("server_tool_use", "mcp_tool_use")
_Wire = Mapping[str, Any]


def find_request_errors(request: _Wire) -> list[str]:
    errors = _check_parameters(request)
    if indexes := find_non_object_indexes(request.get("messages")):
        errors += (f"messages.{index}: Input should be a valid dictionary" for index in indexes)
        return errors
    messages = dicts_in_list(request.get("messages"))
    if not messages:
        return [*errors, "messages: at least one message is required"]
    contents = [_content_blocks(message) for message in messages]
    errors += _check_roles(messages)
    errors += _check_system_messages(request, messages)
    for index, content in enumerate(contents):
        is_prefill = index == len(messages) - 1 and messages[index].get("role") == "assistant"
        errors += _check_message_texts(messages[index], content, index, is_prefill=is_prefill)
    errors += _check_call_result_pairs(messages, contents)
    errors += _check_prefill(request, messages, contents)
    errors += _check_open_loop_thinking(request, messages, contents)
    if parse_claude_version(str(request.get("model"))) is not None:
        errors += _check_thinking_blocks(messages, contents)
    errors += _check_tools(request)
    errors += _check_deferred_tools(request, contents)
    return errors + _check_cache_marks(request, contents)


def _check_parameters(request: _Wire) -> list[str]:
    errors = [
        f"{name}: Extra inputs are not permitted"
        for name in find_foreign_parameters("anthropic", request)
    ]
    errors += find_anthropic_parameter_errors(request)
    limit = request.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        return [*errors, "max_tokens: Field required, at least 1"]
    thinking = dict_or_none(request.get("thinking")) or {}
    if thinking.get("type") == "enabled" and int_or_zero(thinking.get("budget_tokens")) >= limit:
        errors.append(
            "`max_tokens` must be greater than `thinking.budget_tokens` "
            f"({limit} is not above {thinking['budget_tokens']})"
        )
    budget = thinking.get("budget_tokens")
    if thinking.get("type") == "enabled" and int_or_zero(budget) < MIN_THINKING_BUDGET_TOKENS:
        errors.append(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to "
            f"{MIN_THINKING_BUDGET_TOKENS}"
        )
    wrong = explain_thinking_refusal(str(request.get("model")), thinking.get("type"))
    if wrong is not None:
        errors.append(wrong)
    choice = dict_or_none(request.get("tool_choice")) or {}
    if thinking.get("type") == "enabled" and choice.get("type") in ("any", "tool"):
        errors.append("Thinking may not be enabled when tool_choice forces tool use.")
    management = dict_or_none(request.get("context_management")) or {}
    clears = any(is_clear_thinking_edit(edit) for edit in dicts_in_list(management.get("edits")))
    if clears and not _would_think(request, thinking):
        errors.append(
            f"`{_CLEAR_THINKING_EDIT_TYPE}` strategy requires `thinking` to be enabled or adaptive"
        )
    return errors


def _would_think(request: _Wire, thinking: _Wire) -> bool:
    """Whether the model would think. From version 5 on models think unless that is disabled."""
    version = parse_claude_version(str(request.get("model")))
    by_itself = version is None or version >= (5, 0)
    return thinking.get("type", "adaptive" if by_itself else "") in ("enabled", "adaptive")


def is_clear_thinking_edit(edit: _Wire) -> bool:
    """Whether it is the edit by which the API itself removes old thinking."""
    return edit.get("type") == _CLEAR_THINKING_EDIT_TYPE


def _content_blocks(message: _Wire) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return dicts_in_list(content)


def _check_roles(messages: Sequence[_Wire]) -> list[str]:
    errors = [
        f"messages.{index}.{key}: Extra inputs are not permitted"
        for index, message in enumerate(messages)
        for key in message
        if key not in ("role", "content")
    ]
    errors += [
        f"messages.{index}.role: {message.get('role')!r} is not one of user, assistant, system"
        for index, message in enumerate(messages)
        if message.get("role") not in ("user", "assistant", "system")
    ]
    if messages[0].get("role") != "user":
        errors.append('messages: first message must use the "user" role')
    return errors


def _check_system_messages(request: _Wire, messages: Sequence[_Wire]) -> list[str]:
    """Check that each follows a user message directly, and is the last or precedes an
    assistant's."""
    model = str(request.get("model"))
    roles = [message.get("role") for message in messages]
    if "system" not in roles or parse_claude_version(model) is None:
        return []
    if not accepts_inline_system_messages(model):
        return ["role 'system' is not supported on this model"]
    errors: list[str] = []
    for index, role in enumerate(roles[1:], 1):
        if role != "system":
            continue
        if roles[index - 1] != "user":
            errors.append(f"messages.{index}: a system message must follow a user message")
        if roles[index + 1 : index + 2] not in ([], ["assistant"]):
            errors.append(
                f"messages.{index}: a system message must be last or come before an assistant's"
            )
    return errors


def _check_message_texts(
    message: _Wire, content: Sequence[_Wire], index: int, *, is_prefill: bool
) -> list[str]:
    location = f"messages.{index}"
    if not content:
        return [] if is_prefill else [f"{location}: all messages must have non-empty content"]
    errors = _check_text_blocks(content, f"{location}.content")
    for number, block in enumerate(content):
        # A reply may have blocks of a type that is newer than this list.
        if message.get("role") != "assistant" and block.get("type") not in BLOCK_TYPES:
            errors.append(
                f"{location}.content.{number}: Input tag {block.get('type')!r} found using 'type' "
                "does not match any of the expected tags"
            )
        if block.get("type") == "tool_result":
            errors += _check_result_content(block, f"{location}.content.{number}.tool_result")
    last_text = content[-1].get("text")
    if is_prefill and isinstance(last_text, str) and last_text[-1:].isspace():
        errors.append("messages: final assistant content cannot end with trailing whitespace")
    return errors


def _check_result_content(block: _Wire, location: str) -> list[str]:
    content = block.get("content", "")
    if not isinstance(content, str | list):
        return [f"{location}.content: Input should be a valid string or list"]
    parts = dicts_in_list(content)
    errors = _check_text_blocks(parts, f"{location}.content")
    if block.get("is_error") and any(part.get("type") != "text" for part in parts):
        errors.append(f"{location}: all content must be type `text` if `is_error` is true")
    return errors


def _check_text_blocks(content: Sequence[_Wire], location: str) -> list[str]:
    errors: list[str] = []
    for number, block in enumerate(content):
        if block.get("type") != "text":
            continue
        text = block.get("text") or ""
        if not isinstance(text, str):
            errors.append(f"{location}.{number}.text: Input should be a valid string")
        elif not text.strip():
            errors.append(
                f"{location}.{number}: text content blocks must contain non-whitespace text"
            )
    return errors


def _check_call_result_pairs(
    messages: Sequence[_Wire], contents: Sequence[Sequence[_Wire]]
) -> list[str]:
    """Check that calls and results are in adjacent messages; the API joins messages of one role."""
    errors: list[str] = []
    all_ids: set[str] = set()
    open_ids: list[str] = []
    call_ids: list[str] = []
    call_location = ""
    is_after_other_content = False
    role: Any = None
    for index, (message, content) in enumerate(zip(messages, contents, strict=True)):
        if message.get("role") != role:
            if role != "assistant":
                errors += _unanswered_call_errors(open_ids, call_location)
                open_ids = []
            role = message.get("role")
            is_after_other_content = False
            call_ids = list(open_ids)
        for number, block in enumerate(content):
            place = f"messages.{index}.content.{number}"
            kind = block.get("type")
            if kind == "tool_use":
                errors += _check_call(block, role, all_ids, place)
                open_ids.append(str(block.get("id")))
                call_location = f"messages.{index}"
            elif kind == "tool_result":
                errors += _check_result(block, role, open_ids, call_ids, place)
                if is_after_other_content:
                    errors.append(f"{place}: tool_result blocks must come first in the content")
            else:
                is_after_other_content = True
    return errors + _unanswered_call_errors(open_ids, call_location)


def _unanswered_call_errors(ids: Sequence[str], location: str) -> list[str]:
    if not ids:
        return []
    return [
        (
            f"{location}: `tool_use` ids were found without `tool_result` blocks immediately "
            f"after: {', '.join(ids)}. Each `tool_use` block must have a corresponding "
            "`tool_result` block in the next message."
        )
    ]


def _check_call(block: _Wire, role: Any, all_ids: set[str], location: str) -> list[str]:
    call_id = str(block.get("id"))
    errors: list[str] = []
    if role != "assistant":
        errors.append(f"{location}: `tool_use` blocks can only be in `assistant` messages")
    if call_id in all_ids:
        errors.append(f"{location}: `tool_use` ids must be unique: {call_id}")
    all_ids.add(call_id)
    if not CALL_ID_PATTERN.fullmatch(call_id):
        errors.append(f"{location}.id: {call_id!r} should match pattern '^[a-zA-Z0-9_-]+$'")
    if not _NAME.fullmatch(str(block.get("name"))):
        errors.append(f"{location}.name: {block.get('name')!r} is not a valid tool name")
    if dict_or_none(block.get("input")) is None:
        errors.append(f"{location}.input: Input should be a valid dictionary")
    return errors


def _check_result(
    block: _Wire, role: Any, open_ids: list[str], call_ids: Sequence[str], location: str
) -> list[str]:
    call_id = str(block.get("tool_use_id"))
    errors: list[str] = []
    if role != "user":
        errors.append(f"{location}: `tool_result` blocks can only be in `user` messages")
    if call_id in open_ids:
        open_ids.remove(call_id)
    elif call_id in call_ids:
        errors.append(f"{location}: each tool_use must have a single result, {call_id} has several")
    else:
        errors.append(
            f"{location}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. "
            "Each `tool_result` block must have a corresponding `tool_use` block in the previous "
            "message."
        )
    return errors


def _check_prefill(
    request: _Wire, messages: Sequence[_Wire], contents: Sequence[Sequence[_Wire]]
) -> list[str]:
    """Check that the model takes a reply that the caller began, if the request ends with one."""
    index = len(messages) - 1
    if messages[index].get("role") != "assistant" or accepts_prefill(
        str(request.get("model")), request.get("thinking")
    ):
        return []
    while index >= 0 and messages[index].get("role") == "assistant":
        if any(block.get("type") in _HOSTED_CALL_TYPES for block in contents[index]):
            return []
        index -= 1
    return [
        (
            "This model does not support assistant message prefill. The conversation must end "
            "with a user message."
        )
    ]


def _check_open_loop_thinking(
    request: _Wire, messages: Sequence[_Wire], contents: Sequence[Sequence[_Wire]]
) -> list[str]:
    """Check that an open tool loop has kept the thinking it began with.

    Adaptive thinking may begin at any time.
    """
    if (dict_or_none(request.get("thinking")) or {}).get("type") != "enabled":
        return []
    if not contents[-1] or _has_other_blocks(contents[-1]):
        return []
    index, kind = _find_open_loop_start(messages, contents, text_ends_loop=False)
    if kind is None or kind in THINKING_BLOCK_TYPES:
        return []
    if _find_open_loop_start(messages, contents, text_ends_loop=True)[0] != index:
        return []  # the rule for a user message within a loop is not documented
    return [
        (
            f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{kind}`. When `thinking` is enabled, a "
            "final `assistant` message must start with a thinking block"
        )
    ]


def may_enable_thinking(messages: Sequence[_Wire]) -> bool:
    """Whether a request with these messages may enable thinking: no tool loop is open, or it began
    with thinking. If a user wrote within it, the part after that must also have begun with
    thinking."""
    contents = [_content_blocks(message) for message in messages]
    if not messages or not _has_tool_results(contents[-1]):
        return True
    for text_ends_loop in (False, True):
        _, kind = _find_open_loop_start(messages, contents, text_ends_loop=text_ends_loop)
        if kind is not None and kind not in THINKING_BLOCK_TYPES:
            return False
    return True


def _has_tool_results(content: Sequence[_Wire]) -> bool:
    return any(block.get("type") == "tool_result" for block in content)


def _has_other_blocks(content: Sequence[_Wire]) -> bool:
    return any(block.get("type") != "tool_result" for block in content)


def _find_open_loop_start(
    messages: Sequence[_Wire], contents: Sequence[Sequence[_Wire]], *, text_ends_loop: bool
) -> tuple[int, Any]:
    """Return the index of the open loop's first reply and the type of its first block; None if
    there is no reply. A text among results ends a loop only if `text_ends_loop`."""
    first = -1
    for index in range(len(messages) - 1, -1, -1):
        role = messages[index].get("role")
        content = contents[index]
        if role == "assistant":
            first = index
        elif role == "system" or index == len(messages) - 1:
            continue
        elif not _has_tool_results(content) or (text_ends_loop and _has_other_blocks(content)):
            break
    kind = contents[first][0].get("type") if first >= 0 and contents[first] else None
    return first, kind


def _check_tools(request: _Wire) -> list[str]:
    errors: list[str] = []
    names: set[str] = set()
    for index, tool in enumerate(dicts_in_list(request.get("tools"))):
        name = tool.get("name")
        is_custom = tool.get("type") in (None, "custom", "function")
        schema = dict_or_none(tool.get("input_schema"))
        if is_custom and schema is None:
            errors.append(f"tools.{index}.input_schema: Field required")
        elif schema is not None and schema.get("type", "object") != "object":
            errors.append(f"tools.{index}.custom.input_schema.type: Input should be 'object'")
        if is_custom or name is not None:
            if name is None:
                errors.append(f"tools.{index}.name: Field required")
            elif not isinstance(name, str) or not _NAME.fullmatch(name):
                errors.append(
                    f"tools.{index}.name: {name!r} should match pattern "
                    f"'^[a-zA-Z0-9_-]{{1,{MAX_TOOL_NAME_CHARS}}}$'"
                )
            elif name in names:
                errors.append(f"tools.{index}.name: tool names must be unique: {name}")
            names.add(str(name))
    return errors


def _check_thinking_blocks(
    messages: Sequence[_Wire], contents: Sequence[Sequence[_Wire]]
) -> list[str]:
    errors = [
        f"messages.{index}.content.{number}.thinking.signature: Field required"
        for index, content in enumerate(contents)
        for number, block in enumerate(content)
        if is_unsigned_thinking(block)
    ]
    return errors + [
        f"messages.{index}: The final block in an assistant message cannot be `thinking`."
        for index, content in enumerate(contents)
        if messages[index].get("role") == "assistant"
        and content
        and content[-1].get("type") in THINKING_BLOCK_TYPES
    ]


def is_unsigned_thinking(block: _Wire) -> bool:
    """Whether it is thinking without the signature that Claude requires."""
    return block.get("type") == "thinking" and not block.get("signature")


def _check_deferred_tools(request: _Wire, contents: Sequence[Sequence[_Wire]]) -> list[str]:
    """Check that not all tools are deferred, and that each reference names a tool."""
    tools = dicts_in_list(request.get("tools"))
    errors = [
        f"Tool {tool.get('name')!r} cannot have both defer_loading=true and cache_control set. "
        "Tools with defer_loading cannot use prompt caching."
        for tool in tools
        if tool.get("defer_loading") and tool.get("cache_control")
    ]
    if tools and all(tool.get("defer_loading") for tool in tools):
        errors.append("At least one tool must have defer_loading=false")
    if any(tool.get("type") == "mcp_toolset" for tool in tools):
        return errors  # its server may have further tools
    names = {str(tool.get("name")) for tool in tools}
    for block in (block for content in contents for block in content):
        kinds = {inner.get("type") for inner in dicts_in_list(block.get("content"))}
        if "tool_reference" in kinds and len(kinds) > 1:
            errors.append("Tool definitions cannot be mixed with other content")
        addition = dict_or_none(block.get("tool")) or {}
        names.add(str((dict_or_none(addition.get("definition")) or {}).get("name")))
        missing_names = (name for name in _find_tool_references(block) if name not in names)
        errors += (
            f"Tool reference {name!r} not found in available tools" for name in missing_names
        )
    return errors


def _find_tool_references(block: _Wire) -> list[str]:
    """Return the tools that a search, a result or a system message loads by name."""
    content = block.get("content")
    search_output = dict_or_none(content) or {}
    bodies = [*dicts_in_list(content), *dicts_in_list(search_output.get("tool_references"))]
    names = [body.get("tool_name") for body in bodies if body.get("type") == "tool_reference"]
    change = dict_or_none(block.get("tool")) or {}
    if change.get("type") == "tool_reference":
        names.append(change.get("name"))
    return [str(name) for name in names]


def _list_markable_bodies(
    request: _Wire, contents: Sequence[Sequence[_Wire]]
) -> Iterator[tuple[str, _Wire]]:
    """Yield what may have a cache mark, with the mark's place, in the order of the API."""
    for key in ("tools", "system"):
        for index, body in enumerate(dicts_in_list(request.get(key))):
            yield f"{key}.{index}.cache_control", body
    for index, content in enumerate(contents):
        for number, block in enumerate(content):
            location = f"messages.{index}.content.{number}"
            if block.get("type") == "tool_result":
                for part_number, part in enumerate(dicts_in_list(block.get("content"))):
                    yield f"{location}.content.{part_number}.cache_control", part
            yield f"{location}.cache_control", block
    yield "cache_control", request


def _check_cache_marks(request: _Wire, contents: Sequence[Sequence[_Wire]]) -> list[str]:
    errors: list[str] = []
    mark_count = 0
    last_ttl = "1h"
    for place, block in _list_markable_bodies(request, contents):
        if not block.get("cache_control"):
            continue
        mark_count += 1
        if block.get("type") in THINKING_BLOCK_TYPES:
            errors.append(f"{place}: thinking blocks cannot carry cache_control")
        mark = dict_or_none(block["cache_control"]) or {}
        ttl = mark.get("ttl") or "5m"
        if mark.get("type") != "ephemeral":
            errors.append(f"{place}.type: Input should be 'ephemeral'")
        elif ttl not in ("5m", "1h"):
            errors.append(f"{place}.ttl: Input should be '5m' or '1h'")
        elif ttl == "1h" and last_ttl == "5m":
            errors.append(
                f"{place}: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: "
                "`tools`, `system`, `messages`."
            )
        last_ttl = ttl
    if mark_count > MAX_CACHE_MARKS:
        errors.append(
            f"A maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided. Found "
            f"{mark_count}."
        )
    return errors
