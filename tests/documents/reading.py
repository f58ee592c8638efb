"""What a request says, read from the wire formats of Anthropic and of OpenAI."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

NOTICE = re.compile(r"\[conversation truncated — (\d+) older messages omitted\]")
MASK = re.compile(r"\[result masked — ~(\d+) tokens removed\]")

Request = Mapping[str, Any]


def dumped(value: Any) -> str:
    """Return all of it as one text, to look for words in."""
    return json.dumps(value, ensure_ascii=False)


def text_of(content: Any) -> str:
    """Return the text of a message's content, whatever its form."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or () if isinstance(part, dict))


def messages(request: Request) -> list[dict[str, Any]]:
    """Return what the request sends as conversation, without the system prompt."""
    if "input" in request:
        return list(request["input"])
    wire_messages = request["messages"]
    return list(wire_messages[1:] if wire_messages[0]["role"] == "system" else wire_messages)


def texts(request: Request) -> list[str]:
    """Return each text that is sent, in order; a notice before a text stands apart."""
    all_texts: list[str] = []
    for message in messages(request):
        content = message.get("content") or ()
        parts = (content,) if isinstance(content, str) else (p.get("text") for p in content)
        for text in filter(None, parts):
            notice = NOTICE.match(text)
            rest = text[notice.end() :].lstrip("\n") if notice else text
            all_texts += [notice[0], rest] if notice and rest else [text]
    return all_texts


def omitted(request: Request) -> list[int]:
    """Return the number that each notice of omitted messages states."""
    return [int(number) for number in NOTICE.findall(dumped(request))]


def _blocks(request: Request, kind: str) -> list[dict[str, Any]]:
    return [
        block
        for message in messages(request)
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == kind
    ]


def results(request: Request) -> list[str]:
    """Return the texts of an Anthropic request's tool results, oldest first."""
    return [text_of(block["content"]) for block in _blocks(request, "tool_result")]


def calls(request: Request) -> list[dict[str, Any]]:
    """Return an Anthropic request's tool calls, oldest first."""
    return _blocks(request, "tool_use")


def paths(request: Request) -> list[str]:
    """Return what each tool call was given as its path."""
    return [call["input"]["path"] for call in calls(request)]


def said_bytes(request: Request) -> int:
    """Return the bytes of an Anthropic request's messages: texts, results, calls."""
    text_bytes = sum(len(text_of(m["content"]).encode()) for m in messages(request))
    call_bytes = sum(len((c["name"] + dumped(c["input"])).encode()) for c in calls(request))
    return text_bytes + call_bytes + sum(len(text.encode()) for text in results(request))


def assert_paired(request: Request) -> None:
    """Fail unless each call is answered in the next message, and each result has its call."""
    waiting: list[str] = []
    for message in messages(request):
        blocks = message["content"] if isinstance(message["content"], list) else []
        result_ids = [b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"]
        assert sorted(result_ids) == sorted(waiting)
        waiting = [b["id"] for b in blocks if b.get("type") == "tool_use"]
    assert waiting == []
