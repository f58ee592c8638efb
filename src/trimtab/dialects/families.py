"""Whose model it is, by its name: what one maker's models have thought is not for another's."""

from __future__ import annotations

import re
from dataclasses import replace

from trimtab.core.message import SAID_BY, Message, Opaque

_VENDORS = re.compile(r"^(?:[a-z][a-z-]*\.)+(?=[a-z])")
_NAME = re.compile(r"[a-z]+")
_OPENAI = re.compile(r"gpt-(?!oss)|chatgpt|o\d|codex|computer-use")


def family_of(model: str) -> str:
    """The family that a model's name tells: `openai`, `claude`, `deepseek`, `qwen`, …"""
    base = _VENDORS.sub("", model.strip().lower().rsplit("/", 1)[-1].removeprefix("ft:"))
    if _OPENAI.match(base):
        return "openai"
    found = _NAME.match(base)
    return found[0] if found else base


def is_openai(model: str) -> bool:
    """Whether the model is one of OpenAI's own, so that it is known who serves it."""
    return family_of(model) == "openai"


def at_openai(model: str) -> bool:
    """Whether it is called as OpenAI itself calls it; behind a path is somebody else's server."""
    return is_openai(model) and "/" not in model


def attributed(message: Message, model: str) -> Message:
    """A reply with thinking in it, with a note of the family that thought it."""
    if not any(isinstance(part, Opaque) and part.thinking for part in message.parts):
        return message
    return replace(message, extra={**(message.extra or {}), SAID_BY: family_of(model)})


def is_foreign(message: Message, model: str) -> bool:
    """Whether the thinking in a message is known to be another family's than the model's."""
    by = (message.extra or {}).get(SAID_BY)
    return by is not None and bool(model) and by != family_of(model)


def without_thinking(message: Message) -> Message:
    """The message without what was thought before it."""
    kept = (part for part in message.parts if not (isinstance(part, Opaque) and part.thinking))
    return replace(message, parts=tuple(kept))


def unsigned(message: Message) -> Message:
    """The message as it was said, without the note of who thought it."""
    if message.extra is None or SAID_BY not in message.extra:
        return message
    extra = {key: value for key, value in message.extra.items() if key != SAID_BY}
    return replace(message, extra=extra or None)
