"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trimtab.dialects.anthropic.blocks import (
    THINKING_BLOCK_TYPES,
    parse_anthropic_block,
    render_anthropic_block,
    serialize_anthropic_block,
)
from trimtab.dialects.anthropic.cache_marks import add_cache_marks, find_cache_marks
from trimtab.dialects.anthropic.model_features import (
    accepts_inline_system_messages,
    adapt_thinking_to_model,
    parse_claude_version,
)
from trimtab.dialects.anthropic.reply_accumulator import (
    create_reply_accumulator as create_reply_accumulator,
)
from trimtab.dialects.anthropic.reply_usage import (
    count_request_as_sent,
    parse_anthropic_usage,
    read_anthropic_cache_diagnosis,
    read_anthropic_edits,
)
from trimtab.dialects.anthropic.request_errors import find_request_errors as find_request_errors
from trimtab.dialects.anthropic.request_errors import (
    is_clear_thinking_edit,
    is_unsigned_thinking,
    may_enable_thinking,
)
from trimtab.dialects.base import ModelReply, WireObject
from trimtab.dialects.foreign_parameters import drop_foreign_parameters
from trimtab.dialects.json_values import (
    collect_extra_keys,
    dict_or_none,
    dicts_in_list,
    text_or_none,
)
from trimtab.dialects.provider_safe_values import EMPTY_MESSAGE_TEXT, SYSTEM_MESSAGE_PREFIX
from trimtab.dialects.tool_definitions import convert_tool_definitions as tools_in
from trimtab.dialects.tool_definitions import to_anthropic_tool
from trimtab.dialects.wire_content import (
    missing_role_error,
    parse_system_prompt,
    read_object_list,
    require_valid_content,
)
from trimtab.engine.log.message import Message, Role, Text, ToolResult
from trimtab.engine.prompt.render import JoinText, Prompt, PromptBlock, SentBlocks
from trimtab.engine.text.quoting import indent_lines_that_begin_with
from trimtab.models.families import has_foreign_thinking, without_family_tag, without_thinking

name: str = "anthropic"
allows_system_notices: bool = False
prepend_text: JoinText | None = None

_CONVERSATION_START_TEXT = "(conversation start)"
_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def parse_message(wire: WireObject) -> Message:
    if "role" not in wire:
        raise missing_role_error(wire)
    role = _ROLES.get(wire["role"]) if isinstance(wire["role"], str) else None
    if role is None:
        raise ValueError(
            f"role {wire.get('role')!r} is not an Anthropic role; "
            "expected user, assistant or system (tool results are in user messages)"
        )
    content = require_valid_content(wire, optional=role == "assistant")
    if isinstance(content, str):
        parts = (Text(text=content),)
        return Message(
            role=role, parts=parts, origin=name, extra=collect_extra_keys(wire, "role", "content")
        )
    if content is None:
        return Message(role=role, parts=(), origin=name, extra=collect_extra_keys(wire, "role"))
    return Message(
        role=role,
        parts=tuple(parse_anthropic_block(block) for block in content),
        plain=False,
        origin=name,
        extra=collect_extra_keys(wire, "role", "content"),
    )


def parse_history(wire_messages: Sequence[WireObject]) -> list[Message]:
    return [parse_message(wire) for wire in wire_messages]


def find_message_starts(wire_messages: Sequence[WireObject]) -> list[int]:
    return [*range(len(wire_messages))]


def serialize_history(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [_serialize_message(message) for message in messages]


def _serialize_message(message: Message) -> dict[str, Any]:
    if message.origin != name:
        return _serialize_foreign_message(message)
    message = without_family_tag(message)
    out: dict[str, Any] = {**(message.extra or {}), "role": message.role}
    first = message.parts[0] if len(message.parts) == 1 else None
    if message.plain and isinstance(first, Text) and first.extra is None:
        out["content"] = first.text
    elif message.parts or not message.plain:
        out["content"] = [serialize_anthropic_block(part) for part in message.parts]
    return out


def _serialize_foreign_message(message: Message) -> dict[str, Any]:
    blocks = render_round_blocks([message])
    return {"role": blocks[0].role, "content": [block.body for block in blocks]}


def is_reply_body(value: WireObject) -> bool:
    return value.get("type") == "message" and "stop_reason" in value and "model" in value


def parse_reply(reply_body: WireObject) -> ModelReply:
    message = Message(
        role="assistant",
        parts=tuple(
            parse_anthropic_block(block) for block in read_object_list(reply_body, "content")
        ),
        plain=False,
        origin=name,
    )
    usage = dict_or_none(reply_body.get("usage"))
    return ModelReply(
        message=message,
        usage=None if usage is None else parse_anthropic_usage(usage),
        counted=None if usage is None else count_request_as_sent(reply_body, usage),
        cache_diagnosis=read_anthropic_cache_diagnosis(reply_body),
        server_edits=read_anthropic_edits(reply_body),
        stop=text_or_none(reply_body.get("stop_reason")),
        id=text_or_none(reply_body.get("id")),
        # A long turn of tools that the provider runs itself.
        paused=reply_body.get("stop_reason") == "pause_turn",
    )


def parse_system_messages(system_prompt: str | Sequence[WireObject]) -> tuple[Message, ...]:
    return parse_system_prompt(
        system_prompt,
        name,
        parse_messages=lambda wires: map(parse_message, wires),
        parse_part=parse_anthropic_block,
    )


def render_tools(tools: Sequence[WireObject]) -> list[dict[str, Any]]:
    return tools_in(tools, name, to_anthropic_tool)


def render_round_blocks(round_messages: Sequence[Message], model: str = "") -> list[PromptBlock]:
    """Render a round with the results right after the calls: Anthropic wants them first."""
    replies: list[PromptBlock] = []
    results: list[PromptBlock] = []
    others: list[PromptBlock] = []
    is_claude = parse_claude_version(model) is not None
    for index, message in enumerate(round_messages):
        is_own = message.origin == name
        role = "user" if message.role == "tool" else message.role
        target = replies if role == "assistant" else others
        empty = True
        if has_foreign_thinking(message, model):
            message = without_thinking(message)  # noqa: PLW2901 - as this model sees it
        for part in message.parts:
            body = render_anthropic_block(part, is_own)
            if body is None or (is_claude and is_unsigned_thinking(body)):
                continue
            empty = False
            is_result = isinstance(part, ToolResult)
            block = PromptBlock(role=role, body=body, message_index=index)
            (results if is_result else target).append(block)
        if empty:
            body = {"type": "text", "text": EMPTY_MESSAGE_TEXT}
            target.append(PromptBlock(role=role, body=body, message_index=index))
    while is_claude and replies and replies[-1].body.get("type") in THINKING_BLOCK_TYPES:
        # A reply that was cut off while the model was thinking. Claude accepts no such end.
        end = replies.pop()
        if not replies:
            replies = [replace(end, body={"type": "text", "text": EMPTY_MESSAGE_TEXT})]
    if results and any(block.role == "assistant" for block in results):
        results = [replace(block, role="user") for block in results]
    return replies + results + others


def build_request_kwargs(prompt: Prompt) -> dict[str, Any]:
    system, tools, bodies = add_cache_marks(prompt, _render_system_blocks(prompt.system))
    sent_blocks = _resolve_blocks(prompt, bodies)
    messages = join_blocks([*_render_opening(sent_blocks), *sent_blocks, *_render_volatile(prompt)])
    params = _select_accepted_params(prompt, messages)
    out = {**params, "model": prompt.model, prompt.output_param: prompt.max_output}
    if system:
        first = system[0]
        plain = len(system) == 1 and len(first) == 2 and first.get("type") == "text"
        out["system"] = first["text"] if plain else system
    if tools:
        out["tools"] = tools
    out["messages"] = messages
    if prompt.stream:
        out["stream"] = True
    return out


def _render_system_blocks(messages: Sequence[Message]) -> list[WireObject]:
    system_blocks: list[WireObject] = []
    for message in messages:
        is_own = message.origin == name
        bodies = (render_anthropic_block(part, is_own) for part in message.parts)
        system_blocks.extend(body for body in bodies if body is not None and "text" in body)
    return system_blocks


def _select_accepted_params(prompt: Prompt, messages: Sequence[WireObject]) -> dict[str, Any]:
    """Return the parameters that the model accepts.

    Thinking is left out in an open tool loop that did not begin with it: it was turned on, erased,
    or written by another model since.
    """
    params = drop_foreign_parameters(name, prompt.params)
    thinking_param = dict_or_none(params.get("thinking"))
    if thinking_param is None:
        return params
    thinking = adapt_thinking_to_model(prompt.rules_model, thinking_param)
    if (
        thinking is not None
        and thinking.get("type") == "enabled"
        and not may_enable_thinking(messages)
    ):
        thinking = None
    if thinking is not None:
        return {**params, "thinking": thinking}
    del params["thinking"]
    management = dict_or_none(params.get("context_management"))
    if management is not None:
        # Thinking that is off cannot be cleared, and the API refuses to be asked to.
        edits = [
            edit
            for edit in dicts_in_list(management.get("edits"))
            if not is_clear_thinking_edit(edit)
        ]
        params["context_management"] = {**management, "edits": edits}
        if not edits:
            del params["context_management"]
    return params


def _resolve_block_roles(prompt: Prompt) -> list[str]:
    """Return the role of each block's message.

    A system message must directly follow a user message, and be the last or precede an assistant's.
    Not every model accepts one. Otherwise it gets the user's role.
    """
    roles = [block.role for block in prompt.blocks]
    accepts_system = accepts_inline_system_messages(prompt.rules_model)
    for index, role in enumerate(roles):
        if role != "system":
            continue
        before = roles[index - 1] if index else ""
        after = next((role for role in roles[index + 1 :] if role != "system"), "")
        is_last = not after and not prompt.volatile
        is_in_place = before in ("user", "system") and (is_last or after == "assistant")
        if not accepts_system or not is_in_place:
            roles[index] = "user"
    return roles


def _with_system_prefix(body: WireObject) -> WireObject:
    """Mark a system message in a user message by a line before it."""
    if body.get("type") != "text":
        return body
    return {**body, "text": f"{SYSTEM_MESSAGE_PREFIX}\n{body['text']}"}


def _without_system_prefix(body: WireObject) -> WireObject:
    """Indent the lines of a user's text that look like the mark of a system message."""
    text = body.get("text")
    if body.get("type") != "text" or not isinstance(text, str) or SYSTEM_MESSAGE_PREFIX not in text:
        return body
    return {**body, "text": indent_lines_that_begin_with(text, SYSTEM_MESSAGE_PREFIX)}


def _resolve_blocks(prompt: Prompt, bodies: Sequence[WireObject]) -> list[PromptBlock]:
    """Return the blocks with the roles and bodies that are sent."""
    blocks: list[PromptBlock] = []
    roles = _resolve_block_roles(prompt)
    for block, body, role in zip(prompt.blocks, bodies, roles, strict=True):
        if role != block.role:
            body = _with_system_prefix(body)  # noqa: PLW2901 - as it stands there
        elif role == "user":
            body = _without_system_prefix(body)  # noqa: PLW2901 - as it stands there
        is_same = role == block.role and body is block.body
        blocks.append(block if is_same else replace(block, role=role, body=body))
    if blocks and blocks[-1].role == "assistant" and not prompt.volatile:
        last = blocks[-1]
        body = _without_trailing_space(last.body)
        blocks[-1] = last if body is last.body else replace(last, body=body)
    return blocks


def _render_opening(blocks: Sequence[PromptBlock]) -> list[PromptBlock]:
    """Return a user's block for a conversation that does not begin with the user."""
    if not blocks or blocks[0].role == "user":
        return []
    return [PromptBlock(role="user", body={"type": "text", "text": _CONVERSATION_START_TEXT})]


def _render_volatile(prompt: Prompt) -> list[PromptBlock]:
    if not prompt.volatile:
        return []
    return [PromptBlock(role="user", body={"type": "text", "text": prompt.volatile})]


def _without_trailing_space(body: WireObject) -> WireObject:
    """Remove trailing white space, which is not allowed in a reply to be continued."""
    if body.get("type") != "text" or not body["text"][-1:].isspace():
        return body
    return {**body, "text": body["text"].rstrip()}


def render_sent_blocks(prompt: Prompt) -> SentBlocks:
    _, _, bodies = add_cache_marks(prompt, _render_system_blocks(prompt.system))
    sent_blocks = _resolve_blocks(prompt, bodies)
    pairs = enumerate(zip(prompt.blocks, sent_blocks, strict=True))
    return SentBlocks(
        changed={index: block for index, (was, block) in pairs if block is not was},
        marked=find_cache_marks(bodies),
        opening=next(iter(_render_opening(sent_blocks)), None),
        volatile=next(iter(_render_volatile(prompt)), None),
    )


def must_join(first: PromptBlock, second: PromptBlock, model: str) -> bool:  # noqa: ARG001 - the interface
    """The API joins messages of one role itself."""
    return False


def join_blocks(blocks: Sequence[PromptBlock], model: str = "") -> list[dict[str, Any]]:  # noqa: ARG001 - the interface
    """Join adjacent blocks of one role to one message."""
    messages: list[dict[str, Any]] = []
    for block in blocks:
        if not messages or messages[-1]["role"] != block.role:
            messages.append({"role": block.role, "content": []})
        messages[-1]["content"].append(block.body)
    return messages
