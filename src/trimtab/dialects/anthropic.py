"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.core.event import Usage
from trimtab.core.message import Message, Role, Text, ToolResult
from trimtab.core.prompt import RENDERER, Block, Join, Prompt
from trimtab.dialects.anthropic_marks import mark
from trimtab.dialects.anthropic_models import takes_system_messages, thinking_for
from trimtab.dialects.anthropic_parts import read_part, render_part, write_part
from trimtab.dialects.anthropic_rules import check as check
from trimtab.dialects.anthropic_rules import clears_thinking, may_think
from trimtab.dialects.anthropic_stream import gather as gather
from trimtab.dialects.contents import content_of, listed, parts_of, without_role
from trimtab.dialects.dialect import Reply, Wire
from trimtab.dialects.families import is_foreign, unsigned, without_thinking
from trimtab.dialects.foreign import NOTHING, SYSTEM
from trimtab.dialects.parameters import known_to
from trimtab.dialects.shapes import as_dict, as_int, objects, rest
from trimtab.dialects.tools import to_anthropic
from trimtab.dialects.tools import write_tools as tools_in

name: str = "anthropic"
system_notices: bool = False
join: Join | None = None

_START = "(conversation start)"
_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def read(wire: Wire) -> Message:
    if "role" not in wire:
        raise without_role(wire)
    role = _ROLES.get(wire["role"]) if isinstance(wire["role"], str) else None
    if role is None:
        raise ValueError(
            f"role {wire.get('role')!r} is not an Anthropic role; "
            "expected user, assistant or system (tool results stand in user messages)"
        )
    content = content_of(wire, optional=role == "assistant")
    if isinstance(content, str):
        parts = (Text(text=content),)
        return Message(role=role, parts=parts, origin=name, extra=rest(wire, "role", "content"))
    if content is None:
        return Message(role=role, parts=(), origin=name, extra=rest(wire, "role"))
    return Message(
        role=role,
        parts=tuple(read_part(block) for block in content),
        plain=False,
        origin=name,
        extra=rest(wire, "role", "content"),
    )


def read_history(wires: Sequence[Wire]) -> list[Message]:
    return [read(wire) for wire in wires]


def write_history(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [_write(message) for message in messages]


def _write(message: Message) -> dict[str, Any]:
    if message.origin != name:
        return _write_foreign(message)
    message = unsigned(message)
    out: dict[str, Any] = {**(message.extra or {}), "role": message.role}
    first = message.parts[0] if len(message.parts) == 1 else None
    if message.plain and isinstance(first, Text) and first.extra is None:
        out["content"] = first.text
    elif message.parts or not message.plain:
        out["content"] = [write_part(part) for part in message.parts]
    return out


def _write_foreign(message: Message) -> dict[str, Any]:
    rendered = blocks([message])
    return {"role": rendered[0].role, "content": [block.body for block in rendered]}


def is_reply(wire: Wire) -> bool:
    return wire.get("type") == "message" and "stop_reason" in wire and "model" in wire


def read_reply(wire: Wire) -> Reply:
    message = Message(
        role="assistant",
        parts=tuple(read_part(block) for block in listed(wire, "content")),
        plain=False,
        origin=name,
    )
    usage = as_dict(wire.get("usage"))
    return Reply(
        message=message,
        usage=None if usage is None else read_usage(usage),
        stop=wire.get("stop_reason"),
        id=wire.get("id"),
        # A long turn of tools that the provider runs itself.
        paused=wire.get("stop_reason") == "pause_turn",
    )


def read_usage(usage: Wire) -> Usage:
    """Anthropic's `input_tokens` leaves cache reads and writes out; ours has them in."""
    cache_read = as_int(usage.get("cache_read_input_tokens"))
    cache_write = as_int(usage.get("cache_creation_input_tokens"))
    return Usage(
        input=as_int(usage.get("input_tokens")) + cache_read + cache_write,
        output=as_int(usage.get("output_tokens")),
        cache_read=cache_read,
        cache_write=cache_write,
    )


def read_system(system: str | Sequence[Wire]) -> tuple[Message, ...]:
    if isinstance(system, str):
        return (Message(role="system", parts=(Text(text=system),), origin=name),) if system else ()
    if not system:
        return ()
    if all("role" in wire for wire in system):
        return tuple(read(wire) for wire in system)
    parts = tuple(read_part(block) for block in parts_of(system))
    return (Message(role="system", parts=parts, plain=False, origin=name),)


def write_tools(tools: Sequence[Wire]) -> list[dict[str, Any]]:
    return tools_in(tools, name, to_anthropic)


def blocks(messages: Sequence[Message], renderer: int = RENDERER, model: str = "") -> list[Block]:
    """Results are put right behind the calls: Anthropic wants them first in the user message."""
    said: list[Block] = []
    results: list[Block] = []
    others: list[Block] = []
    for message in messages:
        own = message.origin == name
        role = "assistant" if message.role == "assistant" else "user"
        if message.role == "system" and (own or renderer > 4):
            role = "system"
        target = said if role == "assistant" else others
        empty = True
        if renderer > 4 and is_foreign(message, model):
            message = without_thinking(message)  # noqa: PLW2901 - as this model sees it
        for part in message.parts:
            body = render_part(part, own, renderer)
            if body is None:
                continue
            empty = False
            is_result = isinstance(part, ToolResult)
            (results if is_result else target).append(Block(role=role, body=body))
        if empty:
            target.append(Block(role=role, body={"type": "text", "text": NOTHING}))
    if results and any(block.role == "assistant" for block in results):
        results = [Block(role="user", body=block.body) for block in results]
    return said + results + others


def request(prompt: Prompt) -> dict[str, Any]:
    system, tools, bodies = mark(prompt, _system(prompt.system))
    messages = _messages(prompt, bodies)
    params = prompt.params if prompt.renderer < 5 else _params(prompt, messages)
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


def _system(messages: Sequence[Message]) -> list[Wire]:
    rendered: list[Wire] = []
    for message in messages:
        own = message.origin == name
        bodies = (render_part(part, own) for part in message.parts)
        rendered.extend(body for body in bodies if body is not None and "text" in body)
    return rendered


def _params(prompt: Prompt, messages: Sequence[Wire]) -> dict[str, Any]:
    """The parameters that the model takes. Thinking is left out while a tool loop is open that did
    not begin with it: it was turned on, erased or said by another model since."""
    params = known_to(name, prompt.params)
    asked = as_dict(params.get("thinking"))
    if asked is None:
        return params
    thinking = thinking_for(prompt.model, asked)
    if thinking is not None and thinking.get("type") == "enabled" and not may_think(messages):
        thinking = None
    if thinking is not None:
        return {**params, "thinking": thinking}
    del params["thinking"]
    managed = as_dict(params.get("context_management"))
    if managed is not None:
        # Thinking that is off cannot be cleared, and the API refuses to be asked to.
        edits = [edit for edit in objects(managed.get("edits")) if not clears_thinking(edit)]
        params["context_management"] = {**managed, "edits": edits}
        if not edits:
            del params["context_management"]
    return params


def _roles(prompt: Prompt) -> list[str]:
    """The role of each block's message. A system message may only stand right behind a user's, and
    before an assistant's or last, and not every model takes one; elsewhere it is the user's."""
    roles = [block.role for block in prompt.blocks]
    if prompt.renderer < 5:
        return roles
    taken = takes_system_messages(prompt.model)
    for index, role in enumerate(roles):
        if role != "system":
            continue
        before = roles[index - 1] if index else ""
        after = next((each for each in roles[index + 1 :] if each != "system"), "")
        last = not after and not prompt.volatile
        if not taken or before not in ("user", "system") or not (last or after == "assistant"):
            roles[index] = "user"
    return roles


def _as_user(body: Wire) -> Wire:
    """What the system says in a user's message, told apart by a line before it."""
    if body.get("type") != "text":
        return body
    return {**body, "text": f"{SYSTEM}\n{body['text']}"}


def _messages(prompt: Prompt, bodies: Sequence[Wire]) -> list[dict[str, Any]]:
    """Adjacent blocks of one role become one message."""
    messages: list[dict[str, Any]] = []
    content: list[Wire] = []
    last = ""
    roles = _roles(prompt)
    for block, body, role in zip(prompt.blocks, bodies, roles, strict=True):
        if role != block.role:
            body = _as_user(body)  # noqa: PLW2901 - as it stands there
        if role != last:
            last = role
            content = []
            messages.append({"role": last, "content": content})
        content.append(body)
    if prompt.volatile:
        text = {"type": "text", "text": prompt.volatile}
        if last == "user":
            content.append(text)
        else:
            messages.append({"role": "user", "content": [text]})
    elif last == "assistant":
        content[-1] = _without_trailing_space(content[-1])
    if messages and messages[0]["role"] != "user":
        messages.insert(0, {"role": "user", "content": [{"type": "text", "text": _START}]})
    return messages


def _without_trailing_space(body: Wire) -> Wire:
    """A reply to be continued may not end in white space."""
    if body.get("type") != "text" or not body["text"][-1:].isspace():
        return body
    return {**body, "text": body["text"].rstrip()}
