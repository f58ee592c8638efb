"""Limits of one request besides tokens: bytes, pictures and pixels.

A provider checks the bytes of a request before it counts tokens. A session with screenshots can
reach that limit while most of its window is free. Then every request is refused. The limits depend
on the model's name and the dialect. The user's own limits and limits learned from refusals can only
lower them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from trimtab.engine.log.event import Settings
from trimtab.engine.window.accounting import LearnedRequestLimits

BYTES_PER_MB = 1_000_000
BYTES_PER_MIB = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of one request besides tokens; 0 means no limit."""

    max_bytes: int = 0
    """Maximum bytes of the whole request as it is sent."""
    max_pictures: int = 0
    """Maximum number of pictures."""
    max_picture_bytes: int = 0
    """Maximum bytes of one picture as it is sent, in Base64."""
    max_side_px: int = 0
    """Maximum width and height of a picture, in pixels."""
    many_pictures: int = 0
    """Number of pictures above which `max_side_of_many_px` applies to each of them."""
    max_side_of_many_px: int = 0
    """Maximum width and height of a picture among many, in pixels."""


# platform.claude.com/docs: vision, api/overview (read in November 2026). A request of 33.57 MB was
# seen refused, and a picture of 10.59 MB. Models with a window of 200,000 tokens take 100 pictures,
# all others 600.
_ANTHROPIC = RequestLimits(
    max_bytes=32 * BYTES_PER_MB,
    max_pictures=600,
    max_picture_bytes=10 * BYTES_PER_MIB,
    max_side_px=8_000,
    many_pictures=20,
    max_side_of_many_px=2_000,
)
_SMALL_CLAUDE_WINDOW_TOKENS = 200_000
_SMALL_CLAUDE_MAX_PICTURES = 100
# docs.aws.amazon.com/bedrock: a payload of 20 MB, pictures of 3.75 MB before base64.
_BEDROCK_CLAUDE = replace(
    _ANTHROPIC, max_bytes=20 * BYTES_PER_MB, max_picture_bytes=5 * BYTES_PER_MB
)
# Claude on Vertex AI takes 30 MB.
_VERTEX_CLAUDE = replace(
    _ANTHROPIC, max_bytes=30 * BYTES_PER_MB, max_picture_bytes=5 * BYTES_PER_MB
)
# developers.openai.com names 512 MB and 1,500 pictures since April 2026. Until then it named 50 MB,
# and in September 2026 that was still enforced ("Total image size is 50.56MB") at 49.3 MB as sent.
_OPENAI = RequestLimits(max_bytes=48 * BYTES_PER_MB, max_pictures=1_500)
# ai.google.dev: 100 MB of inline data since July 2026; 3,000 pictures in a prompt.
_GEMINI = RequestLimits(max_bytes=100 * BYTES_PER_MB, max_pictures=3_000)
# api-docs.deepseek.com: 48 MiB, 600 pictures; both seen enforced in September 2026.
_DEEPSEEK = RequestLimits(max_bytes=48 * BYTES_PER_MIB, max_pictures=600)

_BEDROCK_NAME = re.compile(r"(?:^|[./])anthropic\.claude|^arn:aws", re.IGNORECASE)
_VERTEX_NAME = re.compile(r"claude[\w.-]*@", re.IGNORECASE)
_CLAUDE_NAME = re.compile(r"claude", re.IGNORECASE)
_LIMITS_BY_NAME = (
    (re.compile(r"gemini", re.IGNORECASE), _GEMINI),
    (re.compile(r"deepseek", re.IGNORECASE), _DEEPSEEK),
    (re.compile(r"(?:^|/)(?:gpt-(?!oss)|chatgpt|o\d)", re.IGNORECASE), _OPENAI),
)


def find_request_limits(
    settings: Settings, learned: LearnedRequestLimits | None = None
) -> RequestLimits:
    """Return the provider's limits, lowered by the user's own and by those learned from
    refusals."""
    window: int | None = settings.entry.get("context_window")
    limits = _find_provider_limits(settings.dialect, settings.model, settings.rules_model, window)
    user_limits = cast("Mapping[str, Any]", settings.policy_params.get("context") or {})
    own_bytes: int | None = user_limits.get("max_request_bytes")
    own_pictures: int | None = user_limits.get("max_pictures")
    learned = learned or LearnedRequestLimits()
    if not (own_bytes or own_pictures or any(learned)):
        return limits
    # What the user sets is what a gateway or another provider takes: it may be higher.
    return replace(
        limits,
        max_bytes=_lower(own_bytes or limits.max_bytes, learned.max_bytes),
        max_pictures=_lower(own_pictures or limits.max_pictures, learned.max_pictures),
        max_picture_bytes=_lower(limits.max_picture_bytes, learned.max_picture_bytes),
        max_side_px=_lower(limits.max_side_px, learned.max_side_px),
    )


@lru_cache(maxsize=256)
def _find_provider_limits(
    dialect: str, model: str, rules_model: str, window: int | None
) -> RequestLimits:
    names = (model, rules_model)
    if dialect == "anthropic" or any(map(_CLAUDE_NAME.search, names)):
        limits = _ANTHROPIC
        if _BEDROCK_NAME.search(model):
            limits = _BEDROCK_CLAUDE
        elif _VERTEX_NAME.search(model):
            limits = _VERTEX_CLAUDE
        small = window is not None and window <= _SMALL_CLAUDE_WINDOW_TOKENS
        return replace(limits, max_pictures=_SMALL_CLAUDE_MAX_PICTURES) if small else limits
    for pattern, limits in _LIMITS_BY_NAME:
        if any(map(pattern.search, names)):
            return limits
    return RequestLimits()


def _lower(first: int, second: int) -> int:
    """Return the lower of two limits. 0 means no limit."""
    return min(first, second) if first and second else first or second


def format_megabytes(byte_count: int) -> str:
    """Format bytes for people: `2.0 MB`, `640 kB`."""
    if byte_count < BYTES_PER_MB:
        return f"{byte_count / 1_000:.0f} kB"
    return f"{byte_count / BYTES_PER_MB:.1f} MB"
