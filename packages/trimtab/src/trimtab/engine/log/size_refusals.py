"""Parse the messages with which providers refuse requests for their size: bytes, pictures, pixels,
or the context window."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

SizeRefusalCause = Literal["bytes", "pictures", "picture_bytes", "pixels"]
BYTES_PER_MB = 1_000_000

_CONTEXT_WINDOW = re.compile(r"\bcontext[ _-]?(?:window|length|limit|size)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRefusal:
    """What was too large, and the limit if the provider named one."""

    cause: SizeRefusalCause
    """`bytes` of the request, the number of `pictures`, or the `picture_bytes` or `pixels` of one
    picture."""
    limit: int | None = None
    """The limit in the unit of the cause. Pixels are those of one side."""


_PATTERNS: tuple[tuple[SizeRefusalCause, str], ...] = (
    # Anthropic, then Alibaba, DeepSeek.
    ("picture_bytes", r"image exceeds [\d.]+ ?MB maximum(?:: \d+ bytes > (?P<n>\d+) bytes)?"),
    ("picture_bytes", r"max bytes per data-uri item ?: ?(?P<n>\d+)"),
    ("picture_bytes", r"image file size exceeds limit (?P<mb>\d+) ?MB"),
    # Anthropic.
    ("pixels", r"image dimensions? exceeds? max allowed size[^:]{0,60}: (?P<n>\d+) pixels"),
    ("pixels", r"\bimages?\b.{0,80}\bexceeds?\b.{0,60}?(?P<n>\d{3,6}) ?(?:px|pixels)"),
    # Anthropic, vLLM and others, Fireworks, Alibaba.
    ("pictures", r"too much media:.{0,80}> (?P<n>\d+)"),
    ("pictures", r"\b(?:at most|maximum of|up to) (?P<n>\d+) image"),
    ("pictures", r"number of images\b[^\d]{0,60}(?P<n>\d+)"),
    ("pictures", r"max data-uri per request ?: ?(?P<n>\d+)"),
    ("pictures", r"too many images|too much media"),
    # OpenAI, then web servers and gateways.
    ("bytes", r"total image size .{0,60}limit of (?P<mb>[\d.]+) ?MB"),
    ("bytes", r"request too large \(max (?P<mb>[\d.]+) ?MB"),
    (
        "bytes",
        (
            r"request_?too_?large|request (?:size )?exceeds the maximum"
            r"|(?:request|payload|entity|content|body) (?:is )?too large"
            r"|(?:http|status|code:?) ?413\b|^\W*413\b"
        ),
    ),
)


def parse_size_refusal(provider_message: str) -> SizeRefusal | None:
    """Return what a provider's message says about the size of a request.

    Return None if it is about something else, such as tokens.
    """
    for cause, pattern in _PATTERNS:
        match = re.search(pattern, provider_message, re.IGNORECASE | re.DOTALL)
        if match is None:
            continue
        figures = match.groupdict()
        if figures.get("n"):
            return SizeRefusal(cause=cause, limit=int(figures["n"]))
        if figures.get("mb"):
            return SizeRefusal(cause=cause, limit=int(float(figures["mb"]) * BYTES_PER_MB))
        return SizeRefusal(cause=cause)
    return None


def names_context_window(provider_message: str) -> bool:
    """Whether a provider's message says that the model's context window is too small."""
    return _CONTEXT_WINDOW.search(provider_message) is not None
