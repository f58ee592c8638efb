"""The family of a model, by its name. Thinking of one family is not sent to another family."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from trimtab.engine.log.message import MODEL_FAMILY_KEY, Message, OpaqueBlock

_VENDOR_PREFIX = re.compile(r"^(?:([a-z][a-z-]*)\.)+(?=[a-z])")
_FAMILY_NAME = re.compile(r"[a-z]+")
_OPENAI_MODEL = re.compile(r"gpt-(?!oss)|chatgpt|o\d|codex|computer-use")


@lru_cache(maxsize=256)
def detect_model_family(model: str) -> str:
    """Return the family that a model's name indicates: `openai`, `claude`, `deepseek`, `qwen`, …"""
    name = model.strip().lower().rsplit("/", 1)[-1].removeprefix("ft:")
    vendor = _VENDOR_PREFIX.match(name)
    base = name[vendor.end() :] if vendor else name
    if _OPENAI_MODEL.match(base):
        return "openai"
    match = _FAMILY_NAME.match(base)
    if vendor and match and len(match[0]) == 1:
        return vendor[1]  # `deepseek.r1`, `deepseek.v3`: the letter is of a version
    return match[0] if match else base


def is_openai_model(model: str) -> bool:
    """Return whether the model is one of OpenAI's own, so that its provider is known."""
    return detect_model_family(model) == "openai"


def is_served_by_openai(model: str) -> bool:
    """Return whether the name is OpenAI's own name. A name with a path belongs to another
    server."""
    return is_openai_model(model) and "/" not in model


def tag_thinking_family(message: Message, model: str) -> Message:
    """Return a reply that contains thinking with a note of the family that wrote it."""
    if not any(isinstance(part, OpaqueBlock) and part.thinking for part in message.parts):
        return message
    return replace(
        message, extra={**(message.extra or {}), MODEL_FAMILY_KEY: detect_model_family(model)}
    )


def has_foreign_thinking(message: Message, model: str) -> bool:
    """Return whether the thinking in a message is known to be from another family than the
    model."""
    by = (message.extra or {}).get(MODEL_FAMILY_KEY)
    return by is not None and bool(model) and by != detect_model_family(model)


def without_thinking(message: Message) -> Message:
    """Return the message without its thinking."""
    parts = [
        part for part in message.parts if not (isinstance(part, OpaqueBlock) and part.thinking)
    ]
    return message if len(parts) == len(message.parts) else replace(message, parts=tuple(parts))


def without_family_tag(message: Message) -> Message:
    """Return the original message, without the note of the family."""
    if message.extra is None or MODEL_FAMILY_KEY not in message.extra:
        return message
    extra = {key: value for key, value in message.extra.items() if key != MODEL_FAMILY_KEY}
    return replace(message, extra=extra or None)
