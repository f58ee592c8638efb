"""What OpenAI's Chat Completions and the many servers that speak it refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.provider_rules.rules import Broken

Message = Mapping[str, Any]

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LONGEST_ID = 40
OPENAI = re.compile(r"gpt-(?!oss)|chatgpt|o\d")
"""Models that OpenAI itself serves."""
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")
PARTS = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}
"""By role: the parts that its content may hold."""


def check(request: Mapping[str, Any]) -> Iterator[Broken]:
    """All rules that a request breaks."""
    messages = request.get("messages") or []
    if not messages:
        yield Broken("there is at least one message")
    model = str(request.get("model"))
    ours = OPENAI.match(model) is not None
    if ours and "thinking" in request:
        yield Broken("there is no parameter `thinking`")
    for name in ("context_management", "output_config", "reasoning") if ours else ():
        if name in request:
            yield Broken("every parameter is known", name)
    for message in messages if ours else ():
        yield from _fields(message)
    for message in messages:
        if message.get("role") not in PARTS:
            yield Broken("every role is known", str(message.get("role")))
            continue
        yield from _content(message)
        if message["role"] == "assistant":
            yield from _calls(message)
    yield from _pairs(messages)


def _fields(message: Message) -> Iterator[Broken]:
    """What OpenAI's own schema of a message has no place for."""
    for key in ("tool_calls", "function_call"):
        if key in message and message[key] is None:
            yield Broken("calls are left out rather than null", key)
    if keys := [key for key in THOUGHTS if key in message]:
        yield Broken("what other servers' models think is not sent", str(keys))


def check_template(request: Mapping[str, Any]) -> Iterator[Broken]:
    """What chat templates of open models refuse as well, and OpenAI's own models accept.

    It can only be asked of a conversation in which user and assistant take turns.
    """
    messages = request.get("messages") or []
    roles = [message["role"] for message in messages]
    others = [role for role in roles if role not in ("system", "developer")]
    if any(role in ("system", "developer") for role in roles[len(roles) - len(others) :]):
        yield Broken("system messages stand before all others")
    for before, role in pairwise(others):
        if role == before != "tool":
            yield Broken(f"no two {role} messages follow each other")


def _content(message: Message) -> Iterator[Broken]:
    role, content = message["role"], message.get("content")
    if content is None and role == "assistant":
        return
    if not isinstance(content, str | list) or content == []:
        yield Broken("content is a text or a list of parts", f"{role}: {content!r}")
        return
    for part in content if isinstance(content, list) else ():
        if part.get("type") not in PARTS[role]:
            yield Broken("parts are such as the role may have", f"{role}: {part.get('type')}")
        elif part["type"] == "text" and not isinstance(part.get("text"), str):
            yield Broken("a text part holds a text", f"{role}: {part.get('text')!r}")


def _calls(message: Message) -> Iterator[Broken]:
    calls = message.get("tool_calls")
    if calls is not None and not calls:
        yield Broken("a list of calls is not empty")
    says = message.get("content") or message.get("refusal") or message.get("audio")
    if not calls and not says and not isinstance(message.get("content"), str):
        yield Broken("an assistant's message says or calls something")
    ids = [str(call.get("id")) for call in calls or ()]
    if len(set(ids)) < len(ids):
        yield Broken("ids of calls are unique in a message", str(ids))
    for call in calls or ():
        function = call.get("function") or {}
        if len(str(call.get("id"))) > LONGEST_ID:
            yield Broken("an id of a call has at most 40 characters", str(call.get("id")))
        if not TOOL_NAME.fullmatch(str(function.get("name"))):
            yield Broken("a tool's name is of letters, digits, _ and -", str(function.get("name")))
        if not isinstance(function.get("arguments"), str):
            yield Broken("the arguments of a call are a text")


def _pairs(messages: Sequence[Message]) -> Iterator[Broken]:
    """An assistant's calls are followed by their results, with nothing in between."""
    open_calls: list[str] = []
    end: Message = {"role": "end"}
    for message in [*messages, end]:
        if message.get("role") != "tool":
            if open_calls:
                yield Broken("every call has its result before the next message", str(open_calls))
            open_calls = [str(call.get("id")) for call in message.get("tool_calls") or ()]
        elif message.get("tool_call_id") in open_calls:
            open_calls.remove(message["tool_call_id"])
        else:
            yield Broken("every result has its call before it", str(message.get("tool_call_id")))
