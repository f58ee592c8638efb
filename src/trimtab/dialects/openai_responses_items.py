"""Responses items: an assistant's items are parts of one message, and come back as items."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.core.message import Media, Message, Opaque, Part, Text, ToolCall, ToolResult
from trimtab.core.prompt import RENDERER
from trimtab.dialects.contents import content_of, named, output_of
from trimtab.dialects.families import is_foreign, without_thinking
from trimtab.dialects.foreign import (
    NOTHING,
    failed,
    omitted,
    tool_arguments,
    tool_name,
    wire_id,
)
from trimtab.dialects.openai_responses_parts import read_part, render_content, write_part
from trimtab.dialects.shapes import as_dict, as_list, compact, objects, rest

ORIGIN = "openai_responses"
LONGEST_ID = 64
ID = re.compile(rf".{{1,{LONGEST_ID}}}", re.DOTALL)
LONGEST_NAME = 64
_Wire = Mapping[str, Any]

_TEXT_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
TEXT_OUTPUTS = tuple(f"{kind}_output" for kind in _TEXT_CALLS)
_CLIENT_CALLS = ("computer_call", "shell_call", "apply_patch_call")
CALLS = (*_TEXT_CALLS, *_CLIENT_CALLS)
RESULTS = (
    "function_call_output",
    "custom_tool_call_output",
    "computer_call_output",
    "shell_call_output",
    "apply_patch_call_output",
)
_USER_ITEMS = (
    "local_shell_call_output",
    "mcp_approval_response",
    "additional_tools",
    "compaction_trigger",
    "configuration_update",
)


def is_message(item: _Wire) -> bool:
    """Whether it is a message; some other items have a role, too."""
    return "role" in item and item.get("type", "message") == "message"


def side(item: _Wire) -> str:
    """Whose item it is: `user`, `system`, `assistant` or `tool`. Unknown ones are the model's."""
    if is_message(item):
        role = item["role"]
        return "system" if role == "developer" else role
    kind = item.get("type")
    if kind in RESULTS and isinstance(item.get("call_id"), str):
        return "tool"
    return "user" if kind in _USER_ITEMS else "assistant"


def read_assistant(items: Sequence[_Wire]) -> tuple[Part, ...]:
    """The parts of one reply. A call that the provider answered itself stays opaque with it."""
    done = [item.get("call_id") for item in items if item.get("type") in RESULTS]
    parts: list[Part] = []
    for item in items:
        kind = item.get("type")
        if kind in CALLS and isinstance(item.get("call_id"), str) and item["call_id"] not in done:
            parts.append(_read_call(item))
        elif is_message(item):
            parts += _read_message(item)
        else:
            parts.append(Opaque(data=item, thinking=kind == "reasoning"))
    return tuple(parts)


def _read_call(item: _Wire) -> ToolCall:
    kind = item["type"]
    key = _TEXT_CALLS.get(kind)
    if key is not None:
        held = ["call_id", "name", key]
        if kind == "function_call":
            held.append("type")
        call = ToolCall(
            id=item["call_id"],
            name=item.get("name", ""),
            arguments=item.get(key, ""),
            extra=rest(item, *held),
        )
        return named(call)
    kept = ("type", "id", "status", "call_id")
    body = {key: value for key, value in item.items() if key not in kept}
    extra = {key: item[key] for key in ("type", "id", "status") if key in item}
    name = kind.removesuffix("_call")
    return ToolCall(id=item["call_id"], name=name, arguments=compact(body), extra=extra)


def _read_message(item: _Wire) -> list[Part]:
    """Texts whose extras say which item they stood in; an item with more than texts is opaque."""
    head = rest(item, "content") or {}
    content = content_of(item, optional=True)
    if isinstance(content, str):
        return [Text(text=content, extra={"item": head, "plain": True})]
    texts = objects(content)
    if not texts or any(
        part.get("type") != "output_text" or not isinstance(part.get("text"), str) for part in texts
    ):
        return [Opaque(data=item)]
    parts: list[Part] = []
    for number, part in enumerate(texts):
        extra: dict[str, Any] = {"part": rest(part, "type", "text") or {}}
        if number == 0:
            extra["item"] = head
        parts.append(Text(text=part["text"], extra=extra))
    return parts


def read_result(item: _Wire) -> Message:
    output = item.get("output")
    if item["type"] in TEXT_OUTPUTS:
        # Any JSON that a tool has returned is the text of it; other results are objects by kind.
        output = output_of(item, key="output", optional="output" in item)
    listed = as_list(output)
    single = as_dict(output)
    if single is None and item["type"] not in TEXT_OUTPUTS:
        content_of(item, key="output", optional=True)
    content: tuple[Text | Media | Opaque, ...] = ()
    if listed is not None:
        content = tuple(read_part(part) for part in listed)
    elif single is not None:
        content = (Opaque(data=single),)
    elif isinstance(output, str):
        content = (Text(text=output),)
    held = ["call_id"]
    if item["type"] == "function_call_output":
        held.append("type")
    if output is not None or item["type"] in TEXT_OUTPUTS:
        held.append("output")
    extra = rest(item, *held)
    result = ToolResult(call_id=item["call_id"], content=content, plain=listed is None, extra=extra)
    return Message(role="tool", parts=(result,), origin=ORIGIN)


def write_assistant(message: Message) -> list[dict[str, Any]]:
    """The items of one reply as they came; the inverse of `read_assistant`."""
    items: list[dict[str, Any]] = []
    content: list[Any] | None = None
    for part in message.parts:
        if not isinstance(part, Text):
            content = None
            items.append(_write_item(part))
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


def _write_item(part: Media | Opaque | ToolCall | ToolResult) -> dict[str, Any]:
    match part:
        case Opaque():
            return cast("dict[str, Any]", part.data)
        case ToolCall():
            return write_call(part)
        case ToolResult():
            return write_result(part)
        case Media():
            return {"role": "assistant", "content": omitted(part)}


def write_call(call: ToolCall) -> dict[str, Any]:
    extra = call.extra or {}
    kind = extra.get("type", "function_call")
    out = {**extra, "type": kind, "call_id": call.id}
    if kind in _TEXT_CALLS:
        out["name"] = call.name
        out[_TEXT_CALLS[kind]] = call.arguments
        return out
    return {**out, **json.loads(call.arguments)}


def write_result(result: ToolResult) -> dict[str, Any]:
    extra = result.extra or {}
    kind = extra.get("type", "function_call_output")
    out = {**extra, "type": kind, "call_id": result.call_id}
    first = result.content[0] if len(result.content) == 1 else None
    if result.plain and isinstance(first, Text) and first.extra is None:
        out["output"] = first.text
    elif result.plain and isinstance(first, Opaque):
        out["output"] = first.data
    elif result.content or not result.plain:
        out["output"] = [write_part(part) for part in result.content]
    return out


def render_assistant(
    messages: Sequence[Message],
    *,
    model: str = "",
    reasons: bool = True,
    renderer: int = RENDERER,
) -> list[dict[str, Any]]:
    """All that the model said in one round. Reasoning that leads to nothing would be refused, and
    so would any by a model that does not reason, or that is another's."""
    items: list[dict[str, Any]] = []
    for message in messages:
        if message.origin == ORIGIN:
            bare = without_thinking(message)
            left_out = bare.parts != message.parts and (not reasons or is_foreign(message, model))
            written = write_assistant(bare if left_out else message)
            # By its id the server would know that an item was made with reasoning.
            unnamed = (_without_id(item) for item in written) if left_out else written
            items += (_with_wire_id(item) for item in unnamed)
            if renderer > 4:
                items = [_filled(item) for item in items]
        else:
            items += _render_foreign(message)
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items or [{"role": "assistant", "content": NOTHING}]


def _filled(item: dict[str, Any]) -> dict[str, Any]:
    """The item with what the API wants of it: a message with content, a call with a valid name."""
    if is_message(item) and item.get("content") is None:
        return {**item, "content": NOTHING}
    if item.get("type") in _TEXT_CALLS and isinstance(item.get("name"), str):
        return {**item, "name": tool_name(item["name"], LONGEST_NAME)}
    return item


def _without_id(item: dict[str, Any]) -> dict[str, Any]:
    if not is_message(item) and item.get("type") not in CALLS:
        return item  # a provider's own, which is known by its id
    return {key: value for key, value in item.items() if key != "id"}


def _with_wire_id(item: dict[str, Any]) -> dict[str, Any]:
    call_id = item.get("call_id")
    if item.get("type") not in CALLS or not isinstance(call_id, str) or ID.fullmatch(call_id):
        return item
    return {**item, "call_id": wire_id(call_id, ID)}


def _render_foreign(message: Message) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            items.append({"role": "assistant", "content": part.text})
        elif isinstance(part, Media):
            items.append({"role": "assistant", "content": omitted(part)})
        elif isinstance(part, ToolCall):
            name = tool_name(part.name, LONGEST_NAME)
            item = {"type": "function_call", "call_id": wire_id(part.id, ID), "name": name}
            items.append({**item, "arguments": tool_arguments(part.arguments)})
    return items


def render_result(result: ToolResult, own: bool, renderer: int = RENDERER) -> dict[str, Any]:
    if own:
        out = write_result(result)
        out["call_id"] = wire_id(result.call_id, ID)
        out.setdefault("output", "")
        if renderer > 4 and out["type"] in TEXT_OUTPUTS:
            out["output"] = _sendable(out["output"])
        return out
    call_id = wire_id(result.call_id, ID)
    result = failed(result) if renderer > 4 else result
    output = render_content(result.content, media=True)
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _sendable(output: Any) -> str | list[Any]:
    """An output as a function's call takes it: no object, no null, no list of nothing."""
    if isinstance(output, str | list):
        return cast("str | list[Any]", output) or ""
    return "" if output is None else json.dumps(output, ensure_ascii=False)


def of_one_kind(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items with each result of the kind that its call is: one that was masked or erased, or
    that stands in for one that never came, no longer says which it was."""
    named = [item for item in items if _is_paired(item)]
    calls = {item["call_id"]: item["type"] for item in named if item.get("type") in CALLS}
    found = {item["call_id"]: item["type"] for item in named if item.get("type") in RESULTS}
    apart = {
        name for name, kind in found.items() if name in calls and kind != f"{calls[name]}_output"
    }
    return [
        _plain(item, calls) if _is_paired(item) and item["call_id"] in apart else item
        for item in items
    ]


def _is_paired(item: _Wire) -> bool:
    """Whether it is a call or a result with an id; what else a provider sends is its own."""
    return item.get("type") in (*CALLS, *RESULTS) and isinstance(item.get("call_id"), str)


def _plain(item: dict[str, Any], calls: Mapping[str, str]) -> dict[str, Any]:
    """A call or a result of a pair that does not agree: text, for a call that takes it."""
    kind = calls[item["call_id"]]
    kind = kind if kind in _TEXT_CALLS else "function_call"
    if item["type"] in RESULTS:
        output = item.get("output", "")
        is_text = isinstance(output, str) or item["type"].removesuffix("_output") in _TEXT_CALLS
        text = output if is_text else compact(output)
        return {"type": f"{kind}_output", "call_id": item["call_id"], "output": text}
    if item["type"] in _TEXT_CALLS:
        return item
    body = rest(item, "type", "id", "status", "call_id") or {}
    name = item["type"].removesuffix("_call")
    return {"type": kind, "call_id": item["call_id"], "name": name, "arguments": compact(body)}
