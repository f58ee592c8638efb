"""OpenAI's Responses API, with the conversation kept by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.core.event import Usage
from trimtab.core.message import Media, Message, Opaque, Role, Text, ToolCall, ToolResult
from trimtab.core.prompt import RENDERER, Block, Join, Prompt
from trimtab.dialects.contents import content_of, parts_of, without_role
from trimtab.dialects.dialect import Reply, Wire
from trimtab.dialects.foreign import NOTHING
from trimtab.dialects.guess import is_block
from trimtab.dialects.openai_marks import has_breakpoints, mark_items
from trimtab.dialects.openai_responses_items import (
    is_message,
    of_one_kind,
    read_assistant,
    read_result,
    render_assistant,
    render_result,
    side,
    write_assistant,
    write_result,
)
from trimtab.dialects.openai_responses_parts import read_part, render_content, write_part
from trimtab.dialects.openai_responses_rules import ENCRYPTED, reasons
from trimtab.dialects.openai_responses_rules import check as check
from trimtab.dialects.openai_responses_stream import gather as gather
from trimtab.dialects.parameters import known_to
from trimtab.dialects.shapes import as_dict, as_int, as_list, objects, rest
from trimtab.dialects.tools import to_openai_responses
from trimtab.dialects.tools import write_tools as tools_in

name: str = "openai_responses"
system_notices: bool = True
join: Join | None = None

_ITEM: Mapping[str, Any] = {"item": True}
_ROLES: Mapping[str, Role] = {"user": "user", "system": "system"}


def read(wire: Wire) -> Message:
    return read_history([wire])[0]


def read_history(wires: Sequence[Wire]) -> list[Message]:
    messages: list[Message] = []
    reply: list[Wire] = []
    for wire in wires:
        if "role" not in wire and not _is_item(wire):
            raise without_role(wire)
        whose = side(wire)
        if whose == "assistant":
            reply.append(wire)
            continue
        if reply:
            messages.append(_assistant(reply))
            reply = []
        is_result = whose == "tool" and not is_message(wire)
        messages.append(read_result(wire) if is_result else _read_input(wire, whose))
    if reply:
        messages.append(_assistant(reply))
    return messages


def _is_item(wire: Wire) -> bool:
    """Whether what has no role stands for itself; of one that refers to another the id is all."""
    kind = wire.get("type")
    return "id" in wire if kind is None else kind != "message" and not is_block(wire)


def _assistant(items: Sequence[Wire]) -> Message:
    return Message(role="assistant", parts=read_assistant(items), plain=False, origin=name)


def _read_input(wire: Wire, whose: object) -> Message:
    if not is_message(wire):
        part = Opaque(data=wire)
        return Message(role="user", parts=(part,), plain=False, origin=name, extra=_ITEM)
    role = _ROLES.get(whose) if isinstance(whose, str) else None
    if role is None:
        raise ValueError(
            f"role {wire['role']!r} is not a Responses role; expected user, system, developer or "
            "assistant (a tool's result is a function_call_output item)"
        )
    content = content_of(wire)
    plain = isinstance(content, str)
    parts: tuple[Text | Media | Opaque, ...]
    parts = (Text(text=content),) if plain else tuple(read_part(part) for part in content)
    held = ["content"] if wire["role"] == "developer" else ["role", "content"]
    return Message(role=role, parts=parts, plain=plain, origin=name, extra=rest(wire, *held))


def write_history(messages: Sequence[Message]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for message in messages:
        if message.origin != name:
            out += (dict(block.body) for block in blocks([message]))
        elif message.role == "assistant":
            out += write_assistant(message)
        elif message.role == "tool":
            out += (write_result(result) for result in message.results)
        else:
            out += _write_input(message)
    return out


def _write_input(message: Message) -> list[dict[str, Any]]:
    first = message.parts[0] if len(message.parts) == 1 else None
    if message.extra == _ITEM and isinstance(first, Opaque):
        return [cast("dict[str, Any]", first.data)]
    out: dict[str, Any] = {"role": message.role, **(message.extra or {})}
    if message.plain and isinstance(first, Text) and first.extra is None:
        out["content"] = first.text
    elif message.parts or not message.plain:
        parts = [part for part in message.parts if not isinstance(part, ToolCall | ToolResult)]
        out["content"] = [write_part(part) for part in parts]
    return [out]


def is_reply(wire: Wire) -> bool:
    return wire.get("object") == "response" and isinstance(wire.get("output"), list)


def read_reply(wire: Wire) -> Reply:
    if wire.get("status") == "failed":
        error = as_dict(wire.get("error")) or {}
        raise ValueError(f"the response failed and holds no reply: {error.get('message')}")
    details = as_dict(wire.get("incomplete_details")) or {}
    usage = as_dict(wire.get("usage"))
    return Reply(
        message=_assistant(objects(wire.get("output"))),
        usage=None if usage is None else read_usage(usage),
        stop=details.get("reason") or wire.get("status"),
        id=wire.get("id"),
    )


def read_usage(usage: Wire) -> Usage:
    details = as_dict(usage.get("input_tokens_details")) or {}
    return Usage(
        input=as_int(usage.get("input_tokens")),
        output=as_int(usage.get("output_tokens")),
        cache_read=as_int(details.get("cached_tokens")),
        cache_write=as_int(details.get("cache_write_tokens")),
    )


def read_system(system: str | Sequence[Wire]) -> tuple[Message, ...]:
    if isinstance(system, str):
        return (Message(role="system", parts=(Text(text=system),), origin=name),) if system else ()
    if all("role" in wire for wire in system):
        return tuple(read_history(system))
    parts = tuple(read_part(part) for part in parts_of(system))
    return (Message(role="system", parts=parts, plain=False, origin=name),)


def write_tools(tools: Sequence[Wire]) -> list[dict[str, Any]]:
    return tools_in(tools, name, to_openai_responses)


def blocks(messages: Sequence[Message], renderer: int = RENDERER, model: str = "") -> list[Block]:
    said = [message for message in messages if message.role == "assistant"]
    if renderer < 5:
        model = ""
    thinks = reasons(model) is not False
    bodies = render_assistant(said, model=model, reasons=thinks, renderer=renderer) if said else []
    others: list[dict[str, Any]] = []
    for message in messages:
        own = message.origin == name
        if message.role == "assistant" and own:
            continue
        bodies += (render_result(result, own, renderer) for result in message.results)
        if message.role != "assistant":
            others += _render_input(message, own)
    if renderer > 2:
        bodies = of_one_kind(bodies)
    return [Block(role="", body=body) for body in [*bodies, *others]]


def _render_input(message: Message, own: bool) -> list[dict[str, Any]]:
    if own and message.role != "tool":
        return _write_input(message)
    content = [part for part in message.parts if not isinstance(part, ToolCall | ToolResult)]
    if not content and message.results:
        return []
    role = "user" if message.role == "tool" else message.role
    rendered = render_content(content, media=role == "user")
    return [{"role": role, "content": rendered or NOTHING}]


def request(prompt: Prompt) -> dict[str, Any]:
    params = prompt.params if prompt.renderer < 5 else known_to(name, prompt.params)
    out = {"store": False, **params, "model": prompt.model}
    out[prompt.output_param] = prompt.max_output
    if not out["store"] and _wants_reasoning(prompt):
        # Nothing is kept over there, so the reasoning must come back with each reply.
        asked = as_list(prompt.params.get("include")) or []
        out["include"] = asked if ENCRYPTED in asked else [*asked, ENCRYPTED]
    if prompt.tools:
        out["tools"] = list(prompt.tools)
    marked = has_breakpoints(prompt.model)
    instructions = None if marked and -1 in prompt.marks else _one_text(prompt.system)
    if instructions is not None:
        out["instructions"] = instructions
    head = [] if instructions is not None else _system_items(prompt.system)
    items: list[Mapping[str, Any]] = [*head, *(block.body for block in prompt.blocks)]
    if marked:
        items = mark_items(items, len(head), prompt.marks)
    if prompt.volatile:
        items.append({"role": "user", "content": prompt.volatile})
    out["input"] = items
    if prompt.stream:
        out["stream"] = True
    return out


def _wants_reasoning(prompt: Prompt) -> bool:
    """Whether it is to come back: models without any refuse to be asked. Of one that is not known
    the caller's own `include` tells more."""
    if prompt.renderer < 3:
        return True
    known = reasons(prompt.model)
    return prompt.params.get("include") is None if known is None else known


def _one_text(system: Sequence[Message]) -> str | None:
    """The system prompt where it is one plain text, which is what `instructions` can hold."""
    if len(system) != 1 or len(system[0].parts) != 1 or system[0].extra is not None:
        return None
    part = system[0].parts[0]
    return part.text if isinstance(part, Text) and part.extra is None else None


def _system_items(system: Sequence[Message]) -> list[Mapping[str, Any]]:
    return [block.body for message in system for block in blocks([message])]
