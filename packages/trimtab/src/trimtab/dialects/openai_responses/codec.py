"""OpenAI's Responses API, if the caller keeps the conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

from trimtab.dialects.base import ModelReply, WireObject
from trimtab.dialects.foreign_parameters import drop_foreign_parameters
from trimtab.dialects.json_values import (
    collect_extra_keys,
    dict_or_none,
    dicts_in_list,
    list_or_none,
    text_or_none,
)
from trimtab.dialects.openai_cache_breakpoints import (
    accepts_cache_breakpoints,
    add_cache_breakpoints_to_items,
    render_blocks_with_breakpoints,
)
from trimtab.dialects.openai_responses.items import (
    find_item_role,
    is_message_item,
    match_result_types_to_calls,
    parse_assistant_parts,
    parse_result_message,
    render_assistant_items,
    render_result_item,
    serialize_assistant_items,
    serialize_result_item,
)
from trimtab.dialects.openai_responses.parts import (
    parse_responses_part,
    render_responses_content,
    serialize_responses_part,
)
from trimtab.dialects.openai_responses.reply_accumulator import (
    create_reply_accumulator as create_reply_accumulator,
)
from trimtab.dialects.openai_responses.reply_usage import (
    parse_responses_usage,
    read_responses_cache_diagnosis,
    read_responses_compaction,
)
from trimtab.dialects.openai_responses.request_errors import (
    ENCRYPTED_REASONING_INCLUDE,
    detect_reasoning_support,
)
from trimtab.dialects.openai_responses.request_errors import (
    find_request_errors as find_request_errors,
)
from trimtab.dialects.provider_safe_values import EMPTY_MESSAGE_TEXT
from trimtab.dialects.reading import is_content_part
from trimtab.dialects.tool_definitions import convert_tool_definitions as tools_in
from trimtab.dialects.tool_definitions import to_openai_responses_tool
from trimtab.dialects.wire_content import (
    missing_role_error,
    parse_system_prompt,
    require_valid_content,
)
from trimtab.engine.log.message import Media, Message, OpaqueBlock, Role, Text, ToolCall, ToolResult
from trimtab.engine.prompt.render import JoinText, Prompt, PromptBlock, SentBlocks

name: str = "openai_responses"
allows_system_notices: bool = True
prepend_text: JoinText | None = None

_OPAQUE_ITEM_EXTRA: Mapping[str, Any] = {"item": True}
_ROLES: Mapping[str, Role] = {"user": "user", "system": "system"}


def parse_message(wire: WireObject) -> Message:
    return parse_history([wire])[0]


def parse_history(wire_messages: Sequence[WireObject]) -> list[Message]:
    messages: list[Message] = []
    reply: list[WireObject] = []
    for wire in wire_messages:
        if "role" not in wire and not _is_item(wire):
            raise missing_role_error(wire)
        whose = find_item_role(wire)
        if whose == "assistant":
            reply.append(wire)
            continue
        if reply:
            messages.append(_parse_assistant(reply))
            reply = []
        is_result = whose == "tool" and not is_message_item(wire)
        messages.append(parse_result_message(wire) if is_result else _parse_input(wire, whose))
    if reply:
        messages.append(_parse_assistant(reply))
    return messages


def find_message_starts(wire_messages: Sequence[WireObject]) -> list[int]:
    """The items of one reply follow one another."""
    whose = ["", *map(find_item_role, wire_messages)]
    pairs = enumerate(pairwise(whose))
    return [index for index, pair in pairs if pair != ("assistant", "assistant")]


def _is_item(wire: WireObject) -> bool:
    """Whether an item without a role is separate.

    An item that only refers to another has just an id.
    """
    kind = wire.get("type")
    return "id" in wire if kind is None else kind != "message" and not is_content_part(wire)


def _parse_assistant(items: Sequence[WireObject]) -> Message:
    return Message(role="assistant", parts=parse_assistant_parts(items), plain=False, origin=name)


def _parse_input(wire: WireObject, role_name: object) -> Message:
    if not is_message_item(wire):
        part = OpaqueBlock(data=wire)
        return Message(
            role="user", parts=(part,), plain=False, origin=name, extra=_OPAQUE_ITEM_EXTRA
        )
    role = _ROLES.get(role_name) if isinstance(role_name, str) else None
    if role is None:
        raise ValueError(
            f"role {wire['role']!r} is not a Responses role; expected user, system, developer or "
            "assistant (a tool's result is a function_call_output item)"
        )
    content = require_valid_content(wire)
    plain = isinstance(content, str)
    parts: tuple[Text | Media | OpaqueBlock, ...]
    parts = (
        (Text(text=content),) if plain else tuple(parse_responses_part(part) for part in content)
    )
    keys = ["content"] if wire["role"] == "developer" else ["role", "content"]
    return Message(
        role=role, parts=parts, plain=plain, origin=name, extra=collect_extra_keys(wire, *keys)
    )


def serialize_history(messages: Sequence[Message]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for message in messages:
        if message.origin != name:
            out += (dict(block.body) for block in render_round_blocks([message]))
        elif message.role == "assistant":
            out += serialize_assistant_items(message)
        elif message.role == "tool":
            out += (serialize_result_item(result) for result in message.results)
        else:
            out += _serialize_input(message)
    return out


def _serialize_input(message: Message) -> list[dict[str, Any]]:
    first = message.parts[0] if len(message.parts) == 1 else None
    if message.extra == _OPAQUE_ITEM_EXTRA and isinstance(first, OpaqueBlock):
        return [cast("dict[str, Any]", first.data)]
    out: dict[str, Any] = {"role": message.role, **(message.extra or {})}
    if message.plain and isinstance(first, Text) and first.extra is None:
        out["content"] = first.text
    elif message.parts or not message.plain:
        parts = [part for part in message.parts if not isinstance(part, ToolCall | ToolResult)]
        out["content"] = [serialize_responses_part(part) for part in parts]
    return [out]


def is_reply_body(value: WireObject) -> bool:
    return value.get("object") == "response" and isinstance(value.get("output"), list)


def parse_reply(reply_body: WireObject) -> ModelReply:
    if reply_body.get("status") == "failed":
        error = dict_or_none(reply_body.get("error")) or {}
        raise ValueError(f"the response failed and contains no reply: {error.get('message')}")
    details = dict_or_none(reply_body.get("incomplete_details")) or {}
    usage = dict_or_none(reply_body.get("usage"))
    edits = read_responses_compaction(reply_body)
    # Nobody can send an item without a type back.
    items = [
        item
        for item in dicts_in_list(reply_body.get("output"))
        if isinstance(item.get("type"), str)
    ]
    return ModelReply(
        message=_parse_assistant(items),
        usage=None if usage is None else parse_responses_usage(usage),
        # What was compacted is no longer counted, and the reply does not say what it was.
        counted=None if edits is None else 0,
        cache_diagnosis=read_responses_cache_diagnosis(reply_body),
        server_edits=edits,
        stop=text_or_none(details.get("reason") or reply_body.get("status")),
        id=text_or_none(reply_body.get("id")),
    )


def parse_system_messages(system_prompt: str | Sequence[WireObject]) -> tuple[Message, ...]:
    return parse_system_prompt(
        system_prompt, name, parse_messages=parse_history, parse_part=parse_responses_part
    )


def render_tools(tools: Sequence[WireObject]) -> list[dict[str, Any]]:
    return tools_in(tools, name, to_openai_responses_tool)


def render_round_blocks(round_messages: Sequence[Message], model: str = "") -> list[PromptBlock]:
    reply_indexes = [
        index for index, message in enumerate(round_messages) if message.role == "assistant"
    ]
    thinks = detect_reasoning_support(model) is not False
    bodies: list[dict[str, Any]] = []
    indexes: list[int] = []
    if reply_indexes:
        replies = [round_messages[index] for index in reply_indexes]
        bodies, counts = render_assistant_items(replies, model=model, model_reasons=thinks)
        indexes = [
            index for index, count in zip(reply_indexes, counts, strict=True) for _ in range(count)
        ]
    others: list[PromptBlock] = []
    for index, message in enumerate(round_messages):
        is_own = message.origin == name
        if message.role == "assistant" and is_own:
            continue
        bodies += (render_result_item(result, is_own) for result in message.results)
        indexes += [index] * len(message.results)
        if message.role != "assistant":
            items = _render_input(message, is_own)
            others += (PromptBlock(role="", body=item, message_index=index) for item in items)
    bodies = match_result_types_to_calls(bodies)
    blocks = [
        PromptBlock(role="", body=body, message_index=index)
        for body, index in zip(bodies, indexes, strict=True)
    ]
    return [*blocks, *others]


def _render_input(message: Message, is_native: bool) -> list[dict[str, Any]]:
    if is_native and message.role != "tool":
        return _serialize_input(message)
    content = [part for part in message.parts if not isinstance(part, ToolCall | ToolResult)]
    if not content and message.results:
        return []
    role = "user" if message.role == "tool" else message.role
    wire_content = render_responses_content(content, allow_media=role == "user")
    return [{"role": role, "content": wire_content or EMPTY_MESSAGE_TEXT}]


def build_request_kwargs(prompt: Prompt) -> dict[str, Any]:
    params = drop_foreign_parameters(name, prompt.params)
    out = {"store": False, **params, "model": prompt.model}
    out[prompt.output_param] = prompt.max_output
    if not out["store"] and _should_include_reasoning(prompt):
        # Nothing is kept over there, so the reasoning must come back with each reply.
        include = list_or_none(prompt.params.get("include")) or []
        out["include"] = (
            include
            if ENCRYPTED_REASONING_INCLUDE in include
            else [*include, ENCRYPTED_REASONING_INCLUDE]
        )
    if prompt.tools:
        out["tools"] = list(prompt.tools)
    has_breakpoints = accepts_cache_breakpoints(prompt.rules_model)
    instructions = (
        None if has_breakpoints and -1 in prompt.marks else _as_instructions(prompt.system)
    )
    if instructions is not None:
        out["instructions"] = instructions
    head = [] if instructions is not None else _render_system_items(prompt.system)
    items: list[Mapping[str, Any]] = [*head, *(block.body for block in prompt.blocks)]
    if has_breakpoints:
        items = add_cache_breakpoints_to_items(items, len(head), prompt.marks)
    if prompt.volatile:
        items.append(_render_volatile(prompt.volatile).body)
    out["input"] = items
    if prompt.stream:
        out["stream"] = True
    return out


def _should_include_reasoning(prompt: Prompt) -> bool:
    """Whether to request encrypted reasoning: models without reasoning reject that.

    For an unknown model the caller's own `include` decides.
    """
    is_reasoning = detect_reasoning_support(prompt.rules_model)
    return prompt.params.get("include") is None if is_reasoning is None else is_reasoning


def _as_instructions(system: Sequence[Message]) -> str | None:
    """Return the system prompt if it is one plain text, which is all that `instructions`
    accepts."""
    if len(system) != 1 or len(system[0].parts) != 1 or system[0].extra is not None:
        return None
    part = system[0].parts[0]
    return part.text if isinstance(part, Text) and part.extra is None else None


def _render_system_items(system: Sequence[Message]) -> list[Mapping[str, Any]]:
    return [block.body for message in system for block in render_round_blocks([message])]


def _render_volatile(text: str) -> PromptBlock:
    return PromptBlock(role="", body={"role": "user", "content": text})


def render_sent_blocks(prompt: Prompt) -> SentBlocks:
    volatile = _render_volatile(prompt.volatile) if prompt.volatile else None
    return render_blocks_with_breakpoints(prompt, add_cache_breakpoints_to_items, volatile)


def must_join(first: PromptBlock, second: PromptBlock, model: str) -> bool:  # noqa: ARG001 - the interface
    """Every item stands for itself."""
    return False


def join_blocks(blocks: Sequence[PromptBlock], model: str = "") -> list[dict[str, Any]]:  # noqa: ARG001 - the interface
    return [dict(block.body) for block in blocks]
