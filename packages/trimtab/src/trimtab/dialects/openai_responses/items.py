"""Responses items: an assistant's items become parts of one message, and items again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, cast

from trimtab.dialects.json_values import (
    collect_extra_keys,
    dict_or_none,
    dicts_in_list,
    list_or_none,
    to_compact_json,
)
from trimtab.dialects.openai_responses.parts import (
    parse_responses_part,
    render_responses_content,
    serialize_responses_part,
)
from trimtab.dialects.provider_safe_values import (
    EMPTY_MESSAGE_TEXT,
    ensure_arguments_json,
    make_valid_call_id,
    make_valid_tool_name,
    omitted_media_text,
    with_error_prefix,
)
from trimtab.dialects.wire_content import (
    convert_tool_output_to_content,
    require_string_call_fields,
    require_valid_content,
)
from trimtab.engine.log.message import Media, Message, OpaqueBlock, Part, Text, ToolCall, ToolResult
from trimtab.models.families import has_foreign_thinking, without_thinking

DIALECT_NAME = "openai_responses"
MAX_CALL_ID_CHARS = 64
CALL_ID_PATTERN = re.compile(rf".{{1,{MAX_CALL_ID_CHARS}}}", re.DOTALL)
MAX_TOOL_NAME_CHARS = 64
_Wire = Mapping[str, Any]

_TEXT_KEY_BY_CALL_TYPE = {"function_call": "arguments", "custom_tool_call": "input"}
TEXT_RESULT_ITEM_TYPES = tuple(f"{kind}_output" for kind in _TEXT_KEY_BY_CALL_TYPE)
_CLIENT_CALL_ITEM_TYPES = ("computer_call", "shell_call", "apply_patch_call", "tool_search_call")
CALL_ITEM_TYPES = (*_TEXT_KEY_BY_CALL_TYPE, *_CLIENT_CALL_ITEM_TYPES)
RESULT_ITEM_TYPES = (
    "function_call_output",
    "custom_tool_call_output",
    "computer_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "tool_search_output",
)
_USER_ITEM_TYPES = (
    "local_shell_call_output",
    "mcp_approval_response",
    "additional_tools",
    "compaction_trigger",
    "configuration_update",
)


def is_message_item(item: _Wire) -> bool:
    """Whether it is a message; some other items also have a role."""
    return "role" in item and item.get("type", "message") == "message"


def get_result_item_type(call_item_type: str) -> str:
    """Return the type of the item that answers a call."""
    return (
        "tool_search_output" if call_item_type == "tool_search_call" else f"{call_item_type}_output"
    )


def is_run_by_provider(item: _Wire) -> bool:
    """Whether it belongs to a tool search that the provider runs itself."""
    kind = item.get("type")
    return kind in ("tool_search_call", "tool_search_output") and (
        item.get("execution") == "server" or not isinstance(item.get("call_id"), str)
    )


def find_item_role(item: _Wire) -> str:
    """Return the role of an item: `user`, `system`, `assistant` or `tool`.

    Unknown ones are the model's.
    """
    if is_message_item(item):
        role = item["role"]
        return "system" if role == "developer" else role
    kind = item.get("type")
    if (
        kind in RESULT_ITEM_TYPES
        and isinstance(item.get("call_id"), str)
        and not is_run_by_provider(item)
    ):
        return "tool"
    return "user" if kind in _USER_ITEM_TYPES else "assistant"


def parse_assistant_parts(reply_items: Sequence[_Wire]) -> tuple[Part, ...]:
    """Read the parts of one reply.

    A call that the provider answered itself stays opaque with its answer.
    """
    answered_ids = [
        item.get("call_id") for item in reply_items if item.get("type") in RESULT_ITEM_TYPES
    ]
    parts: list[Part] = []
    for item in reply_items:
        kind = item.get("type")
        if (
            kind in CALL_ITEM_TYPES
            and isinstance(item.get("call_id"), str)
            and item["call_id"] not in answered_ids
            and not is_run_by_provider(item)
        ):
            parts.append(_parse_call_item(item))
        elif is_message_item(item):
            parts += _parse_message_item(item)
        else:
            parts.append(OpaqueBlock(data=item, thinking=kind == "reasoning"))
    return tuple(parts)


def _parse_call_item(item: _Wire) -> ToolCall:
    kind = item["type"]
    key = _TEXT_KEY_BY_CALL_TYPE.get(kind)
    if key is not None:
        keys = ["call_id", "name", key]
        if kind == "function_call":
            keys.append("type")
        call = ToolCall(
            id=item["call_id"],
            name=item.get("name", ""),
            arguments=item.get(key, ""),
            extra=collect_extra_keys(item, *keys),
        )
        return require_string_call_fields(call)
    header_keys = ("type", "id", "status", "call_id")
    body = {key: value for key, value in item.items() if key not in header_keys}
    extra = {key: item[key] for key in ("type", "id", "status") if key in item}
    name = kind.removesuffix("_call")
    return ToolCall(id=item["call_id"], name=name, arguments=to_compact_json(body), extra=extra)


def _parse_message_item(item: _Wire) -> list[Part]:
    """Read texts whose extras name their item; an item with more than texts is opaque."""
    head = collect_extra_keys(item, "content") or {}
    content = require_valid_content(item, optional=True)
    if isinstance(content, str):
        return [Text(text=content, extra={"item": head, "plain": True})]
    texts = [_as_output_text(part) for part in dicts_in_list(content)]
    if not texts:
        return [OpaqueBlock(data=item)]
    if any(not _is_text(part, "output_text") for part in texts):
        return [OpaqueBlock(data={**item, "content": texts})]
    parts: list[Part] = []
    for number, part in enumerate(texts):
        extra: dict[str, Any] = {"part": collect_extra_keys(part, "type", "text") or {}}
        if number == 0:
            extra["item"] = head
        parts.append(Text(text=part["text"], extra=extra))
    return parts


def _as_output_text(part: _Wire) -> _Wire:
    """Return a text of another API, or of a user's message, as one that the model wrote."""
    if not _is_text(part, "text", "input_text"):
        return part
    return {"type": "output_text", "text": part["text"], "annotations": []}


def _is_text(part: _Wire, *types: str) -> bool:
    return part.get("type") in types and isinstance(part.get("text"), str)


def parse_result_message(result_item: _Wire) -> Message:
    output = result_item.get("output")
    if result_item["type"] in TEXT_RESULT_ITEM_TYPES:
        # Any JSON that a tool has returned is the text of it; other results are objects by kind.
        output = convert_tool_output_to_content(
            result_item, key="output", optional="output" in result_item
        )
    output_parts = list_or_none(output)
    single = dict_or_none(output)
    if single is None and result_item["type"] not in TEXT_RESULT_ITEM_TYPES:
        require_valid_content(result_item, key="output", optional=True)
    content: tuple[Text | Media | OpaqueBlock, ...] = ()
    if output_parts is not None:
        content = tuple(parse_responses_part(part) for part in output_parts)
    elif single is not None:
        content = (OpaqueBlock(data=single),)
    elif isinstance(output, str):
        content = (Text(text=output),)
    keys = ["call_id"]
    if result_item["type"] == "function_call_output":
        keys.append("type")
    if output is not None or result_item["type"] in TEXT_RESULT_ITEM_TYPES:
        keys.append("output")
    extra = collect_extra_keys(result_item, *keys)
    result = ToolResult(
        call_id=result_item["call_id"], content=content, plain=output_parts is None, extra=extra
    )
    return Message(role="tool", parts=(result,), origin=DIALECT_NAME)


def serialize_assistant_items(message: Message) -> list[dict[str, Any]]:
    """Return the original items of one reply; the inverse of `parse_assistant_parts`."""
    items: list[dict[str, Any]] = []
    content: list[Any] | None = None
    for part in message.parts:
        if not isinstance(part, Text):
            content = None
            items.append(_serialize_item(part))
            continue
        extra = part.extra or {}
        if extra.get("plain"):
            content = None
            items.append({**extra["item"], "content": part.text})
            continue
        if content is None or "item" in extra or "part" not in extra:
            head = extra.get("item", {"type": "message", "role": "assistant"})
            content = []
            items.append({**head, "content": content})
        body = {"type": "output_text", "text": part.text, **extra.get("part", {"annotations": []})}
        content.append(body)
    return items


def _serialize_item(part: Media | OpaqueBlock | ToolCall | ToolResult) -> dict[str, Any]:
    match part:
        case OpaqueBlock():
            return cast("dict[str, Any]", part.data)
        case ToolCall():
            return serialize_call_item(part)
        case ToolResult():
            return serialize_result_item(part)
        case Media():
            return {"role": "assistant", "content": omitted_media_text(part)}


def serialize_call_item(call: ToolCall) -> dict[str, Any]:
    extra = call.extra or {}
    kind = extra.get("type", "function_call")
    out = {**extra, "type": kind, "call_id": call.id}
    if kind in _TEXT_KEY_BY_CALL_TYPE:
        out["name"] = call.name
        out[_TEXT_KEY_BY_CALL_TYPE[kind]] = call.arguments
        return out
    return {**out, **json.loads(call.arguments)}


def serialize_result_item(result: ToolResult) -> dict[str, Any]:
    extra = result.extra or {}
    kind = extra.get("type", "function_call_output")
    out = {**extra, "type": kind, "call_id": result.call_id}
    first = result.content[0] if len(result.content) == 1 else None
    if result.plain and isinstance(first, Text) and first.extra is None:
        out["output"] = first.text
    elif result.plain and isinstance(first, OpaqueBlock):
        out["output"] = first.data
    elif result.content or not result.plain:
        out["output"] = [serialize_responses_part(part) for part in result.content]
    return out


def render_assistant_items(
    messages: Sequence[Message], *, model: str = "", model_reasons: bool = True
) -> tuple[list[dict[str, Any]], list[int]]:
    """Render everything that the model wrote in one round, and count the items of each message.

    Reasoning without a following item would be rejected. So would any reasoning for a model that
    does not reason, or from another model.
    """
    items: list[dict[str, Any]] = []
    ends: list[int] = []
    for message in messages:
        if message.origin == DIALECT_NAME:
            bare = without_thinking(message)
            left_out = bare.parts != message.parts and (
                not model_reasons or has_foreign_thinking(message, model)
            )
            wire_items = serialize_assistant_items(bare if left_out else message)
            # By its id the server would know that an item was made with reasoning.
            bare_items = (_without_id(item) for item in wire_items) if left_out else wire_items
            items += (_with_required_values(_with_wire_id(item)) for item in bare_items)
        else:
            items += _render_foreign(message)
        ends.append(len(items))
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    if not items:
        items.append({"role": "assistant", "content": EMPTY_MESSAGE_TEXT})
        ends[0] = 1
    ends = [min(end, len(items)) for end in ends]
    return items, [max(0, end - start) for start, end in pairwise([0, *accumulate(ends, max)])]


def _with_required_values(item: dict[str, Any]) -> dict[str, Any]:
    """Return the item with required values: a message with content, a call with a valid name."""
    if is_message_item(item) and item.get("content") is None:
        return {**item, "content": EMPTY_MESSAGE_TEXT}
    if item.get("type") in _TEXT_KEY_BY_CALL_TYPE and isinstance(item.get("name"), str):
        return {**item, "name": make_valid_tool_name(item["name"], MAX_TOOL_NAME_CHARS)}
    return item


def _without_id(item: dict[str, Any]) -> dict[str, Any]:
    if not is_message_item(item) and item.get("type") not in CALL_ITEM_TYPES:
        return item  # a provider's own, which is known by its id
    return {key: value for key, value in item.items() if key != "id"}


def _with_wire_id(item: dict[str, Any]) -> dict[str, Any]:
    call_id = item.get("call_id")
    if (
        item.get("type") not in CALL_ITEM_TYPES
        or not isinstance(call_id, str)
        or CALL_ID_PATTERN.fullmatch(call_id)
    ):
        return item
    return {**item, "call_id": make_valid_call_id(call_id, CALL_ID_PATTERN)}


def _render_foreign(message: Message) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            items.append({"role": "assistant", "content": part.text})
        elif isinstance(part, Media):
            items.append({"role": "assistant", "content": omitted_media_text(part)})
        elif isinstance(part, ToolCall):
            name = make_valid_tool_name(part.name, MAX_TOOL_NAME_CHARS)
            item = {
                "type": "function_call",
                "call_id": make_valid_call_id(part.id, CALL_ID_PATTERN),
                "name": name,
            }
            items.append({**item, "arguments": ensure_arguments_json(part.arguments)})
    return items


def render_result_item(result: ToolResult, is_native: bool) -> dict[str, Any]:
    if is_native:
        out = serialize_result_item(result)
        out["call_id"] = make_valid_call_id(result.call_id, CALL_ID_PATTERN)
        if out["type"] == "tool_search_output":
            return out  # it has tools instead of an output
        out.setdefault("output", "")
        if out["type"] in TEXT_RESULT_ITEM_TYPES:
            out["output"] = _to_sendable_output(out["output"])
        return out
    call_id = make_valid_call_id(result.call_id, CALL_ID_PATTERN)
    output = render_responses_content(with_error_prefix(result).content, allow_media=True)
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _to_sendable_output(output: Any) -> str | list[Any]:
    """Return an output that a function call accepts: no object, no null, no empty list."""
    if isinstance(output, str | list):
        return cast("str | list[Any]", output) or ""
    return "" if output is None else json.dumps(output, ensure_ascii=False)


def match_result_types_to_calls(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give each result the type of its call.

    A result that was masked, erased or repaired no longer says which type it had.
    """
    calls_and_results = [item for item in items if _is_identified_call_or_result(item)]
    calls = {
        item["call_id"]: item["type"]
        for item in calls_and_results
        if item.get("type") in CALL_ITEM_TYPES
    }
    result_types = {
        item["call_id"]: item["type"]
        for item in calls_and_results
        if item.get("type") in RESULT_ITEM_TYPES
    }
    apart = {
        name
        for name, kind in result_types.items()
        if name in calls and kind != get_result_item_type(calls[name])
    }
    return [
        _as_text_item(item, calls)
        if _is_identified_call_or_result(item) and item["call_id"] in apart
        else item
        for item in items
    ]


def _is_identified_call_or_result(item: _Wire) -> bool:
    """Whether it is a call or a result with an id. Other items are the provider's own."""
    return (
        item.get("type") in (*CALL_ITEM_TYPES, *RESULT_ITEM_TYPES)
        and isinstance(item.get("call_id"), str)
        and not is_run_by_provider(item)
    )


def _as_text_item(item: dict[str, Any], calls: Mapping[str, str]) -> dict[str, Any]:
    """Convert a call or a result of a mismatched pair to text, for a call that accepts it."""
    kind = calls[item["call_id"]]
    kind = kind if kind in _TEXT_KEY_BY_CALL_TYPE else "function_call"
    if item["type"] in RESULT_ITEM_TYPES:
        output = item.get("output", "")
        is_text = (
            isinstance(output, str)
            or item["type"].removesuffix("_output") in _TEXT_KEY_BY_CALL_TYPE
        )
        text = output if is_text else to_compact_json(output)
        return {"type": f"{kind}_output", "call_id": item["call_id"], "output": text}
    if item["type"] in _TEXT_KEY_BY_CALL_TYPE:
        return item
    body = collect_extra_keys(item, "type", "id", "status", "call_id") or {}
    name = item["type"].removesuffix("_call")
    return {
        "type": kind,
        "call_id": item["call_id"],
        "name": name,
        "arguments": to_compact_json(body),
    }
