"""OpenAI's Chat Completions API, and the many servers that speak it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from trimtab.core.event import Usage
from trimtab.core.message import Media, Message, Opaque, Part, Role, Text, ToolCall, ToolResult
from trimtab.core.prompt import RENDERER, Block, Prompt
from trimtab.dialects.contents import (
    content_of,
    listed,
    named,
    output_of,
    parts_of,
    without_role,
)
from trimtab.dialects.dialect import Reply, Wire
from trimtab.dialects.families import (
    at_openai,
    is_foreign,
    is_openai,
    unsigned,
    without_thinking,
)
from trimtab.dialects.foreign import NOTHING, failed, tool_name, wire_id
from trimtab.dialects.openai_chat_parts import (
    ID,
    LONGEST_NAME,
    read_call,
    read_part,
    render_call,
    render_content,
    render_result,
    write_call,
    write_part,
)
from trimtab.dialects.openai_chat_rules import REASONING
from trimtab.dialects.openai_chat_rules import check as check
from trimtab.dialects.openai_chat_stream import gather as gather
from trimtab.dialects.openai_marks import has_breakpoints, mark_messages
from trimtab.dialects.parameters import known_to
from trimtab.dialects.shapes import as_dict, as_int, as_list, objects, rest
from trimtab.dialects.tools import to_openai_chat
from trimtab.dialects.tools import write_tools as tools_in

name: str = "openai_chat"
system_notices: bool = True

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_OUTPUT_PARAMS = ("max_tokens", "max_completion_tokens")


def read(wire: Wire) -> Message:
    if "role" not in wire:
        raise without_role(wire)
    role = _ROLES.get(wire["role"]) if isinstance(wire["role"], str) else None
    if wire.get("role") == "function" or wire.get("function_call") is not None:
        raise ValueError(
            "function_call and the role function cannot be read; use tool_calls and messages of "
            "the role tool, which have replaced them"
        )
    if role is None:
        raise ValueError(
            f"role {wire.get('role')!r} cannot be read; it is one of {', '.join(_ROLES)}"
        )
    if role == "tool":
        return _read_result(wire)
    held = ["role"]
    parts: list[Part] = []
    if role == "assistant" and any(wire.get(key) for key in REASONING):
        reasoning = {key: wire[key] for key in REASONING if wire.get(key)}
        # A part of its own, so that it is sized, and kept while its tool loop is open.
        parts.append(Opaque(data=reasoning, thinking=True))
        held += reasoning
    content = content_of(wire, optional=role == "assistant")
    if isinstance(content, str):
        parts.append(Text(text=content))
        held.append("content")
    elif content is not None:
        parts += [read_part(part) for part in content]
        held.append("content")
    if calls := listed(wire, "tool_calls"):
        parts += [named(read_call(call)) for call in calls]
        held.append("tool_calls")
    extra = _telling(rest(wire, *held))
    if wire["role"] == "developer":
        extra = {**(extra or {}), "role": "developer"}
    plain = not isinstance(content, list)
    return Message(role=role, parts=tuple(parts), plain=plain, origin=name, extra=extra)


def _telling(extra: dict[str, Any] | None) -> dict[str, Any] | None:
    """Extra keys that say something. An SDK's `model_dump()` has a null for all that was not said,
    and some servers an empty list; others refuse both."""
    if extra is None:
        return None
    told = {
        key: value
        for key, value in extra.items()
        if key == "content"
        or (value is not None and value != [] and (value or key not in REASONING))
    }
    return told or None


def _read_result(wire: Wire) -> Message:
    # A tool that returned nothing has said so.
    content = output_of(wire, optional="content" in wire)
    parts: tuple[Text | Media | Opaque, ...] = ()
    if isinstance(content, str):
        parts = (Text(text=content),)
    elif content is not None:
        parts = tuple(read_part(part) for part in content)
    held = ["role", "tool_call_id"]
    if content is not None:
        held.append("content")
    plain = not isinstance(content, list)
    result = ToolResult(call_id=wire.get("tool_call_id") or "", content=parts, plain=plain)
    extra = _telling(rest(wire, *held))
    return Message(role="tool", parts=(named(result),), origin=name, extra=extra)


def read_history(wires: Sequence[Wire]) -> list[Message]:
    return [read(wire) for wire in wires]


def write_history(messages: Sequence[Message]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for message in messages:
        if message.origin != name:
            out += (dict(block.body) for block in blocks([message]))
        elif message.role == "tool":
            out.append(_write_result(message))
        else:
            out.append(_write(message, [write_call(call) for call in message.calls]))
    return out


def _write_result(message: Message) -> dict[str, Any]:
    result = message.results[0]
    out: dict[str, Any] = {**(message.extra or {}), "role": "tool", "tool_call_id": result.call_id}
    if result.content or not result.plain:
        out["content"] = render_result(result, own=True)
    return out


def _write(message: Message, calls: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role, **(unsigned(message).extra or {})}
    content: list[Text | Media | Opaque] = []
    for part in message.parts:
        if isinstance(part, Opaque) and "type" not in part.data:
            out.update(part.data)
        elif not isinstance(part, ToolCall | ToolResult):
            content.append(part)
    first = content[0] if len(content) == 1 else None
    if message.plain and isinstance(first, Text) and first.extra is None:
        out["content"] = first.text
    elif content or not message.plain:
        out["content"] = [write_part(part) for part in content]
    if calls:
        out["tool_calls"] = calls
    return out


def is_reply(wire: Wire) -> bool:
    choices = objects(wire.get("choices"))
    return bool(choices) and all("message" in choice for choice in choices)


def read_reply(wire: Wire) -> Reply:
    choices = objects(wire.get("choices"))
    if len(choices) != 1:
        raise ValueError(
            f"the reply has {len(choices)} choices, and a conversation goes on from one: "
            "ask with n=1, or pass a reply that holds only the choice you keep"
        )
    usage, said = as_dict(wire.get("usage")), as_dict(choices[0]["message"])
    if said is None:
        kind = type(choices[0]["message"]).__name__
        raise ValueError(f"the message of the reply's choice is {kind}; it must be an object")
    return Reply(
        message=read({"role": "assistant", **said}),
        usage=None if usage is None else read_usage(usage),
        stop=choices[0].get("finish_reason"),
        id=wire.get("id"),
    )


def read_usage(usage: Wire) -> Usage:
    details = as_dict(usage.get("prompt_tokens_details")) or {}
    cached = details.get("cached_tokens")
    if cached is None:
        # DeepSeek's name for it.
        cached = usage.get("prompt_cache_hit_tokens")
    return Usage(
        input=as_int(usage.get("prompt_tokens")),
        output=as_int(usage.get("completion_tokens")),
        cache_read=as_int(cached),
        cache_write=as_int(details.get("cache_write_tokens")),
    )


def read_system(system: str | Sequence[Wire]) -> tuple[Message, ...]:
    if isinstance(system, str):
        return (Message(role="system", parts=(Text(text=system),), origin=name),) if system else ()
    if all("role" in wire for wire in system):
        return tuple(read(wire) for wire in system)
    parts = tuple(read_part(part) for part in parts_of(system))
    return (Message(role="system", parts=parts, plain=False, origin=name),)


def write_tools(tools: Sequence[Wire]) -> list[dict[str, Any]]:
    return tools_in(tools, name, to_openai_chat)


def blocks(messages: Sequence[Message], renderer: int = RENDERER, model: str = "") -> list[Block]:
    """One assistant message, then the results, then the rest: calls must be answered at once."""
    said: dict[str, Any] | None = None
    results: list[Block] = []
    others: list[Block] = []
    for message in messages:
        own = message.origin == name
        if renderer > 4 and (is_foreign(message, model) or at_openai(model)):
            message = without_thinking(message)  # noqa: PLW2901 - as this model sees it
        results += (_result_block(message, result, own, renderer) for result in message.results)
        if message.role == "assistant":
            if renderer > 4:
                message = _named(message, model)  # noqa: PLW2901 - as this server takes it
            wire = _render_assistant(message, own)
            said = wire if said is None else _merged(said, wire)
        elif body := _render_other(message, own):
            if renderer > 4 and body["role"] == "developer" and model and not is_openai(model):
                body["role"] = "system"  # as everybody else calls it
            others.append(Block(role=body["role"], body=body))
    start = [] if said is None else [Block(role="assistant", body=said)]
    return start + results + others


def _named(message: Message, model: str) -> Message:
    """The message with names of tools that the server takes: OpenAI refuses some that a model made
    up. On other servers they may be those of real tools, but for an empty one."""
    parts = (
        replace(part, name=tool_name(part.name, LONGEST_NAME))
        if isinstance(part, ToolCall) and (at_openai(model) or not part.name)
        else part
        for part in message.parts
    )
    return replace(message, parts=tuple(parts)) if message.calls else message


def _result_block(message: Message, result: ToolResult, own: bool, renderer: int) -> Block:
    body: dict[str, Any] = {"role": "tool", "tool_call_id": wire_id(result.call_id, ID)}
    if own and message.extra is not None:
        body = {**message.extra, **body}
    said = failed(result) if renderer > 4 else result
    body["content"] = render_result(said, own) or ([] if renderer < 5 and not said.plain else "")
    return Block(role="tool", body=body)


def _render_assistant(message: Message, own: bool) -> dict[str, Any]:
    calls = [render_call(call, own) for call in message.calls]
    if own:
        wire = _write(message, calls)
        if not calls and not any(wire.get(key) for key in ("content", "refusal", "audio")):
            wire["content"] = NOTHING
        if "audio" in wire and (audio := as_dict(wire["audio"])) is not None and "id" in audio:
            wire["audio"] = {"id": audio["id"]}
        return wire
    content = render_content(_content(message), media=False)
    wire = {"role": "assistant", "content": content or (None if calls else NOTHING)}
    if calls:
        wire["tool_calls"] = calls
    return wire


def _render_other(message: Message, own: bool) -> dict[str, Any] | None:
    """What a message says beside results; None where it says nothing else."""
    if own and message.role != "tool":
        return _write(message, [])
    content = _content(message)
    if not content and message.results:
        return None
    role = "user" if message.role == "tool" else message.role
    rendered = render_content(content, media=role == "user")
    return {"role": role, "content": rendered or NOTHING}


def _content(message: Message) -> list[Text | Media | Opaque]:
    return [part for part in message.parts if not isinstance(part, ToolCall | ToolResult)]


def _merged(first: Wire, second: Wire) -> dict[str, Any]:
    out = {**first, **second}
    contents = [wire["content"] for wire in (first, second) if wire.get("content")]
    if all(isinstance(content, str) for content in contents):
        out["content"] = "\n\n".join(contents) or None
    else:
        out["content"] = [part for content in contents for part in _listed(content)]
    calls = [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())]
    if calls:
        out["tool_calls"] = calls
    return out


def join(text: str, block: Block) -> Block:
    """The text as the first of the message: many chat templates refuse a system message that is not
    the first of all, and two messages of the user's in a row."""
    said = block.body.get("content") or ""
    if isinstance(said, str):
        content = f"{text}\n\n{said}" if said else text
    else:
        content = [{"type": "text", "text": text}, *said]
    return Block(role=block.role, body={**block.body, "content": content})


def _is_new(prompt: Prompt, *, openai: bool) -> bool:
    """Whether a request is rendered by today's rules, for a model of OpenAI's or for another."""
    return prompt.renderer > 4 and is_openai(prompt.model) is openai


def _alternating(messages: Sequence[Wire]) -> list[Wire]:
    """The messages with neighbours of one role in one: the chat templates of many open models
    refuse two in a row."""
    out: list[Wire] = []
    for message in messages:
        if out and _joins(out[-1], message):
            out[-1] = _merged(out[-1], message)
        else:
            out.append(message)
    return out


def _joins(first: Wire, second: Wire) -> bool:
    """Whether two neighbours can be one message: of one role, by nobody with a name of his own,
    and with calls in the second at most, whose results are behind it."""
    role = first.get("role")
    named = "name" in first or "name" in second
    return (
        role in ("user", "assistant")
        and second.get("role") == role
        and not (named or first.get("tool_calls"))
    )


def _listed(content: Any) -> list[Any]:
    return as_list(content) or [{"type": "text", "text": content}]


def request(prompt: Prompt) -> dict[str, Any]:
    # Who serves other models is not known, and some of them take more.
    params = known_to(name, prompt.params) if _is_new(prompt, openai=True) else prompt.params
    kept = {key: value for key, value in params.items() if key not in _OUTPUT_PARAMS}
    out = {**kept, "model": prompt.model, prompt.output_param: prompt.max_output}
    if prompt.tools:
        out["tools"] = list(prompt.tools)
    head = (blocks([message], prompt.renderer, prompt.model) for message in prompt.system)
    system = [block.body for found in head for block in found]
    messages = [*system, *(block.body for block in prompt.blocks)]
    if has_breakpoints(prompt.model):
        messages = mark_messages(messages, len(system), prompt.marks)
    elif _is_new(prompt, openai=False):
        messages = _alternating(messages)
    if prompt.volatile:
        tail = {"role": "user", "content": prompt.volatile}
        joined = prompt.renderer > 4 and bool(messages) and _joins(messages[-1], tail)
        messages = [*messages[:-1], _merged(messages[-1], tail)] if joined else [*messages, tail]
    out["messages"] = messages
    if prompt.stream:
        out["stream"] = True
        options = cast("Mapping[str, Any]", prompt.params.get("stream_options") or {})
        out["stream_options"] = {**options, "include_usage": True}
    return out
