"""How the simulated provider counts: a small tokenizer of our own, and the tokens of a request.

It must not be Trimtab's estimate, and it must give the same numbers on every machine, so it needs
no vocabulary. On the texts of this package it is near o200k (`test_counting.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

Wire = Mapping[str, Any]

_TOKEN = re.compile(
    r" ?[A-Z]?[a-z]{1,11}| ?[A-Z]{1,2}| ?[0-9]{1,3}|\s{1,12}|[!-/:-@\[-`{-~]{1,3}"
    r"|[^\x20-\x7e]"
)
"""Each match is a token."""
_WIDE = re.compile(r"[\u2e80-\U0010ffff]")
"""Han, emoji and the like, which take two."""


def count(text: str) -> int:
    """Tokens of a text that an SDK could send; raises `UnicodeEncodeError` for half of a pair."""
    text.encode()
    return _count(text)


@lru_cache(maxsize=20_000)
def _count(text: str) -> int:
    return len(_TOKEN.findall(text)) + len(_WIDE.findall(text))


def sent(text: str) -> str:
    """A text as UTF-8 can say it."""
    return text.encode("utf-8", "replace").decode()


PER_REQUEST, PER_MESSAGE, PER_CALL = 3, 4, 8
"""Tokens that a provider adds for what stands around the texts."""


def count_request(request: Wire) -> int:
    """Tokens of a request's texts, as the provider bills them; pictures are free."""
    total = PER_REQUEST + sum(map(_count, _texts_of_head(request)))
    for message in request.get("messages", request.get("input")) or ():
        total += PER_MESSAGE + sum(_count(sent(text)) for text in texts_of(message))
        total += PER_CALL * len(message.get("tool_calls") or ())
        if message.get("type") == "function_call":
            total += PER_CALL
        if message.get("type") == "reasoning":
            total += _count(message.get("encrypted_content") or "") // 2
    return total


def _texts_of_head(request: Wire) -> Iterable[str]:
    yield from (json.dumps(tool) for tool in request.get("tools") or ())
    for name in ("system", "instructions"):
        head = request.get(name) or ""
        yield from [head] if isinstance(head, str) else (block["text"] for block in head)


def texts_of(message: Wire) -> Iterable[str]:
    """All that is said in a message, calls included."""
    for name in ("content", "output"):
        yield from _texts_of_content(message.get(name))
    for call in message.get("tool_calls") or ():
        yield from (call["function"]["name"], call["function"]["arguments"])
    if message.get("type") == "function_call":
        yield from (message["name"], message["arguments"])


def _texts_of_content(content: Any) -> Iterable[str]:
    if isinstance(content, str):
        yield content
        return
    for block in content or ():
        if block.get("type") == "tool_use":
            yield from (block["name"], json.dumps(block["input"]))
        for name in ("text", "thinking"):
            yield block.get(name) or ""
        yield from _texts_of_content(block.get("content"))


def has_picture(request: Wire) -> bool:
    """Whether a picture stands in a request: what it costs, each provider knows alone."""
    return any(map(_pictures, request.get("messages", request.get("input")) or ()))


def _pictures(part: Wire) -> bool:
    if part.get("type") in ("image", "image_url", "input_image"):
        return True
    inner = [part.get("content"), part.get("output")]
    return any(_pictures(each) for parts in inner if isinstance(parts, list) for each in parts)
