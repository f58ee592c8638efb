"""OpenAI's Chat Completions API, and the many servers that speak it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from trimtab.dialects.base import ModelReply, WireObject
from trimtab.dialects.foreign_parameters import drop_foreign_parameters
from trimtab.dialects.json_values import (
    collect_extra_keys,
    dict_or_none,
    dicts_in_list,
    int_or_zero,
    list_or_none,
    text_or_none,
)
from trimtab.dialects.openai_cache_breakpoints import (
    accepts_cache_breakpoints,
    add_cache_breakpoints_to_messages,
    render_blocks_with_breakpoints,
)
from trimtab.dialects.openai_chat.blocks import (
    CALL_ID_PATTERN,
    MAX_TOOL_NAME_CHARS,
    parse_chat_part,
    parse_chat_tool_call,
    render_chat_content,
    render_chat_result_content,
    render_chat_tool_call,
    serialize_chat_part,
    serialize_chat_tool_call,
)
from trimtab.dialects.openai_chat.reply_accumulator import (
    create_reply_accumulator as create_reply_accumulator,
)
from trimtab.dialects.openai_chat.request_errors import REASONING_KEYS
from trimtab.dialects.openai_chat.request_errors import find_request_errors as find_request_errors
from trimtab.dialects.provider_safe_values import (
    EMPTY_MESSAGE_TEXT,
    make_valid_call_id,
    make_valid_tool_name,
    with_error_prefix,
)
from trimtab.dialects.tool_definitions import convert_tool_definitions as tools_in
from trimtab.dialects.tool_definitions import to_openai_chat_tool
from trimtab.dialects.wire_content import (
    convert_tool_output_to_content,
    missing_role_error,
    parse_system_prompt,
    read_object_list,
    require_string_call_fields,
    require_valid_content,
)
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import (
    Media,
    Message,
    OpaqueBlock,
    Part,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from trimtab.engine.prompt.render import Prompt, PromptBlock, SentBlocks
from trimtab.models.families import (
    has_foreign_thinking,
    is_openai_model,
    is_served_by_openai,
    without_family_tag,
    without_thinking,
)

name: str = "openai_chat"
allows_system_notices: bool = True

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_OUTPUT_LIMIT_PARAMS = ("max_tokens", "max_completion_tokens")


def parse_message(wire: WireObject) -> Message:
    if "role" not in wire:
        raise missing_role_error(wire)
    role = _ROLES.get(wire["role"]) if isinstance(wire["role"], str) else None
    if wire.get("role") == "function" or wire.get("function_call") is not None:
        raise ValueError(
            "function_call and the role function are not supported; use tool_calls and messages "
            "with the role tool instead"
        )
    if role is None:
        raise ValueError(
            f"role {wire.get('role')!r} is not a Chat Completions role; "
            f"expected {', '.join(_ROLES)}"
        )
    if role == "tool":
        return _parse_result(wire)
    keys = ["role"]
    parts: list[Part] = []
    if role == "assistant" and any(wire.get(key) for key in REASONING_KEYS):
        reasoning = {key: wire[key] for key in REASONING_KEYS if wire.get(key)}
        # A part of its own, so that it is sized, and kept while its tool loop is open.
        parts.append(OpaqueBlock(data=reasoning, thinking=True))
        keys += reasoning
    content = require_valid_content(wire, optional=role == "assistant")
    if isinstance(content, str):
        parts.append(Text(text=content))
        keys.append("content")
    elif content is not None:
        parts += [parse_chat_part(part) for part in content]
        keys.append("content")
    if calls := read_object_list(wire, "tool_calls"):
        parts += [require_string_call_fields(parse_chat_tool_call(call)) for call in calls]
        keys.append("tool_calls")
    extra = _without_empty_values(collect_extra_keys(wire, *keys))
    if wire["role"] == "developer":
        extra = {**(extra or {}), "role": "developer"}
    plain = not isinstance(content, list)
    return Message(role=role, parts=tuple(parts), plain=plain, origin=name, extra=extra)


def _without_empty_values(extra: dict[str, Any] | None) -> dict[str, Any] | None:
    """Remove extra keys without a value.

    An SDK's `model_dump()` has nulls, some servers return empty lists, and others reject both.
    """
    if extra is None:
        return None
    filled_keys = {
        key: value
        for key, value in extra.items()
        if key == "content"
        or (value is not None and value != [] and (value or key not in REASONING_KEYS))
    }
    return filled_keys or None


def _parse_result(wire: WireObject) -> Message:
    # A tool that returned nothing has said so.
    content = convert_tool_output_to_content(wire, optional="content" in wire)
    parts: tuple[Text | Media | OpaqueBlock, ...] = ()
    if isinstance(content, str):
        parts = (Text(text=content),)
    elif content is not None:
        parts = tuple(parse_chat_part(part) for part in content)
    keys = ["role", "tool_call_id"]
    if content is not None:
        keys.append("content")
    plain = not isinstance(content, list)
    result = ToolResult(call_id=wire.get("tool_call_id") or "", content=parts, plain=plain)
    extra = _without_empty_values(collect_extra_keys(wire, *keys))
    return Message(
        role="tool", parts=(require_string_call_fields(result),), origin=name, extra=extra
    )


def parse_history(wire_messages: Sequence[WireObject]) -> list[Message]:
    return [parse_message(wire) for wire in wire_messages]


def find_message_starts(wire_messages: Sequence[WireObject]) -> list[int]:
    return [*range(len(wire_messages))]


def serialize_history(messages: Sequence[Message]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for message in messages:
        if message.origin != name:
            out += (dict(block.body) for block in render_round_blocks([message]))
        elif message.role == "tool":
            out.append(_serialize_result(message))
        else:
            out.append(
                _serialize_message(
                    message, [serialize_chat_tool_call(call) for call in message.calls]
                )
            )
    return out


def _serialize_result(message: Message) -> dict[str, Any]:
    result = message.results[0]
    out: dict[str, Any] = {**(message.extra or {}), "role": "tool", "tool_call_id": result.call_id}
    if result.content or not result.plain:
        out["content"] = render_chat_result_content(result, is_native=True)
    return out


def _serialize_message(message: Message, calls: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role, **(without_family_tag(message).extra or {})}
    content: list[Text | Media | OpaqueBlock] = []
    for part in message.parts:
        if isinstance(part, OpaqueBlock) and "type" not in part.data:
            out.update(part.data)
        elif not isinstance(part, ToolCall | ToolResult):
            content.append(part)
    first = content[0] if len(content) == 1 else None
    if message.plain and isinstance(first, Text) and first.extra is None:
        out["content"] = first.text
    elif content or not message.plain:
        out["content"] = [serialize_chat_part(part) for part in content]
    if calls:
        out["tool_calls"] = calls
    return out


def is_reply_body(value: WireObject) -> bool:
    choices = dicts_in_list(value.get("choices"))
    return bool(choices) and all("message" in choice for choice in choices)


def parse_reply(reply_body: WireObject) -> ModelReply:
    choices = dicts_in_list(reply_body.get("choices"))
    if len(choices) != 1:
        raise ValueError(
            f"the reply has {len(choices)} choices, but it must have one: set n=1 in the "
            "request, or remove the other choices from the reply"
        )
    usage = dict_or_none(reply_body.get("usage"))
    reply_message = dict_or_none(choices[0]["message"])
    if reply_message is None:
        kind = type(choices[0]["message"]).__name__
        raise ValueError(f"the message of the reply's choice is {kind}; it must be an object")
    return ModelReply(
        message=parse_message({"role": "assistant", **reply_message}),
        usage=None if usage is None else parse_chat_usage(usage),
        stop=text_or_none(choices[0].get("finish_reason")),
        id=text_or_none(reply_body.get("id")),
    )


def parse_chat_usage(usage: WireObject) -> Usage:
    details = dict_or_none(usage.get("prompt_tokens_details")) or {}
    cache_read = details.get("cached_tokens")
    if cache_read is None:
        # DeepSeek's name for it.
        cache_read = usage.get("prompt_cache_hit_tokens")
    return Usage(
        input=int_or_zero(usage.get("prompt_tokens")),
        output=int_or_zero(usage.get("completion_tokens")),
        cache_read=int_or_zero(cache_read),
        cache_write=int_or_zero(details.get("cache_write_tokens")),
    )


def parse_system_messages(system_prompt: str | Sequence[WireObject]) -> tuple[Message, ...]:
    return parse_system_prompt(
        system_prompt,
        name,
        parse_messages=lambda wires: map(parse_message, wires),
        parse_part=parse_chat_part,
    )


def render_tools(tools: Sequence[WireObject]) -> list[dict[str, Any]]:
    return tools_in(tools, name, to_openai_chat_tool)


def render_round_blocks(round_messages: Sequence[Message], model: str = "") -> list[PromptBlock]:
    """Render one assistant message, then the results, then the rest: results must directly follow
    calls."""
    reply: dict[str, Any] | None = None
    results: list[PromptBlock] = []
    others: list[PromptBlock] = []
    first_assistant = 0
    for index, message in enumerate(round_messages):
        is_own = message.origin == name
        if has_foreign_thinking(message, model) or is_served_by_openai(model):
            message = without_thinking(message)  # noqa: PLW2901 - as this model sees it
        results += (
            _render_result_block(message, result, is_own, index) for result in message.results
        )
        if message.role == "assistant":
            message = _with_valid_tool_names(message, model)  # noqa: PLW2901 - as this server takes it
            wire = _render_assistant(message, is_own)
            first_assistant = index if reply is None else first_assistant
            reply = wire if reply is None else _merge_messages(reply, wire)
        elif body := _render_other(message, is_own):
            if body["role"] == "developer" and model and not is_openai_model(model):
                body["role"] = "system"  # as everybody else calls it
            others.append(PromptBlock(role=body["role"], body=body, message_index=index))
    start = (
        []
        if reply is None
        else [PromptBlock(role="assistant", body=reply, message_index=first_assistant)]
    )
    return start + results + others


def _with_valid_tool_names(message: Message, model: str) -> Message:
    """Give tools the names that the server accepts: OpenAI rejects some that a model made up.

    On other servers they may be those of real tools, except an empty one.
    """
    parts = (
        replace(part, name=make_valid_tool_name(part.name, MAX_TOOL_NAME_CHARS))
        if isinstance(part, ToolCall) and (is_served_by_openai(model) or not part.name)
        else part
        for part in message.parts
    )
    return replace(message, parts=tuple(parts)) if message.calls else message


def _render_result_block(
    message: Message, result: ToolResult, is_native: bool, index: int
) -> PromptBlock:
    body: dict[str, Any] = {
        "role": "tool",
        "tool_call_id": make_valid_call_id(result.call_id, CALL_ID_PATTERN),
    }
    if is_native and message.extra is not None:
        body = {**message.extra, **body}
    body["content"] = render_chat_result_content(with_error_prefix(result), is_native) or ""
    return PromptBlock(role="tool", body=body, message_index=index)


def _render_assistant(message: Message, is_native: bool) -> dict[str, Any]:
    calls = [render_chat_tool_call(call, is_native) for call in message.calls]
    if is_native:
        wire = _serialize_message(message, calls)
        if not calls and not any(wire.get(key) for key in ("content", "refusal", "audio")):
            wire["content"] = EMPTY_MESSAGE_TEXT
        if "audio" in wire and (audio := dict_or_none(wire["audio"])) is not None and "id" in audio:
            wire["audio"] = {"id": audio["id"]}
        return wire
    content = render_chat_content(_content_parts(message), allow_media=False)
    wire = {"role": "assistant", "content": content or (None if calls else EMPTY_MESSAGE_TEXT)}
    if calls:
        wire["tool_calls"] = calls
    return wire


def _render_other(message: Message, is_native: bool) -> dict[str, Any] | None:
    """Return the rest of a message besides results; None if there is nothing else."""
    if is_native and message.role != "tool":
        wire = _serialize_message(message, [])
        return wire if wire.get("content") != [] else {**wire, "content": EMPTY_MESSAGE_TEXT}
    content = _content_parts(message)
    if not content and message.results:
        return None
    role = "user" if message.role == "tool" else message.role
    wire_content = render_chat_content(content, allow_media=role == "user")
    return {"role": role, "content": wire_content or EMPTY_MESSAGE_TEXT}


def _content_parts(message: Message) -> list[Text | Media | OpaqueBlock]:
    return [part for part in message.parts if not isinstance(part, ToolCall | ToolResult)]


def _merge_messages(first: WireObject, second: WireObject) -> dict[str, Any]:
    out = {**first, **second}
    contents = [wire["content"] for wire in (first, second) if wire.get("content")]
    if all(isinstance(content, str) for content in contents):
        out["content"] = "\n\n".join(contents) or None
    else:
        out["content"] = [part for content in contents for part in _as_part_list(content)]
    calls = [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())]
    if calls:
        out["tool_calls"] = calls
    for key in REASONING_KEYS:
        if first.get(key) and second.get(key):
            out[key] = _join_reasoning(first[key], second[key])
    return out


def _join_reasoning(first: Any, second: Any) -> Any:
    """Join the reasoning of two messages so that the sent text of the first stays a prefix."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*(list_or_none(first) or [first]), *(list_or_none(second) or [second])]


def prepend_text(text: str, block: PromptBlock) -> PromptBlock:
    """Put a text at the start of the message.

    Many chat templates reject a system message that is not the first, and two user messages in a
    row.
    """
    old_content = block.body.get("content") or ""
    if isinstance(old_content, str):
        content = f"{text}\n\n{old_content}" if old_content else text
    else:
        content = [{"type": "text", "text": text}, *old_content]
    return replace(block, body={**block.body, "content": content})


def _merge_neighbours_of_one_role(messages: Sequence[WireObject]) -> list[WireObject]:
    """Join adjacent messages of one role: the chat templates of many open models reject two in a
    row."""
    out: list[WireObject] = []
    for message in messages:
        if out and _can_merge(out[-1], message):
            out[-1] = _merge_messages(out[-1], message)
        else:
            out.append(message)
    return out


def _can_merge(first: WireObject, second: WireObject) -> bool:
    """Whether two adjacent messages can be joined: same role, no sender's name, and at most the
    second has calls, whose results follow."""
    role = first.get("role")
    has_name = "name" in first or "name" in second
    return (
        role in ("user", "assistant")
        and second.get("role") == role
        and not (has_name or first.get("tool_calls"))
    )


def _as_part_list(content: Any) -> list[Any]:
    return list_or_none(content) or [{"type": "text", "text": content}]


def build_request_kwargs(prompt: Prompt) -> dict[str, Any]:
    is_openai = is_openai_model(prompt.rules_model)
    # The server of other models is unknown, and some servers accept more.
    params = drop_foreign_parameters(name, prompt.params) if is_openai else prompt.params
    other_params = {key: value for key, value in params.items() if key not in _OUTPUT_LIMIT_PARAMS}
    out = {**other_params, "model": prompt.model, prompt.output_param: prompt.max_output}
    if prompt.tools:
        out["tools"] = list(prompt.tools)
    head = (render_round_blocks([message], prompt.rules_model) for message in prompt.system)
    system = [block.body for head_blocks in head for block in head_blocks]
    messages = [*system, *[block.body for block in prompt.blocks]]
    if accepts_cache_breakpoints(prompt.rules_model):
        messages = add_cache_breakpoints_to_messages(messages, len(system), prompt.marks)
    elif not is_openai:
        messages = _merge_neighbours_of_one_role(messages)
    if prompt.volatile:
        tail = _render_volatile(prompt.volatile).body
        can_join = bool(messages) and _can_merge(messages[-1], tail)
        messages = (
            [*messages[:-1], _merge_messages(messages[-1], tail)] if can_join else [*messages, tail]
        )
    out["messages"] = messages
    if prompt.stream:
        out["stream"] = True
        options = cast("Mapping[str, Any]", prompt.params.get("stream_options") or {})
        out["stream_options"] = {**options, "include_usage": True}
    return out


def render_sent_blocks(prompt: Prompt) -> SentBlocks:
    volatile = _render_volatile(prompt.volatile) if prompt.volatile else None
    return render_blocks_with_breakpoints(prompt, add_cache_breakpoints_to_messages, volatile)


def _render_volatile(text: str) -> PromptBlock:
    return PromptBlock(role="user", body={"role": "user", "content": text})


def must_join(first: PromptBlock, second: PromptBlock, model: str) -> bool:
    return _can_merge(first.body, second.body) and not is_openai_model(model)


def join_blocks(blocks: Sequence[PromptBlock], model: str = "") -> list[dict[str, Any]]:
    bodies = [block.body for block in blocks]
    messages = bodies if is_openai_model(model) else _merge_neighbours_of_one_role(bodies)
    return [dict(body) for body in messages]
