"""Redaction: what must not be kept is taken out before the event exists.

The model sees the redacted text, too: what is not in the log cannot be in a request. Opaque
provider blocks are signed and stay as they are; so do media.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from trimtab.core.message import Extra, Message, Part, Text, ToolCall, ToolResult

Redact = Callable[[str], str]
"""A text with what must not be kept taken out."""

PATTERNS: dict[str, str] = {
    # A run of letters without an @ is looked through once, not once from each of its letters.
    "email": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+",
    "iban": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b",
    "card": r"\b\d(?:[ -]?\d){12,18}\b",
    "secret": (
        r"\b(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abprs])[-_][\w-]{16,}"
        r"|\bAKIA[0-9A-Z]{16}\b|\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----"
    ),
}
"""Names that stand for patterns of ours; each misses some and finds some that are none."""


def redactor(*patterns: str, hook: Redact | None = None) -> Redact:
    r"""Take out what matches: names of `PATTERNS`, or regular expressions; then ask the hook.

    `redactor("email", r"ACC-\d+")` puts `[redacted: email]` and `[redacted]` in their place.
    """
    known = [
        (re.compile(PATTERNS.get(given, given)), _sign(given if given in PATTERNS else ""))
        for given in patterns
    ]

    def redact(text: str) -> str:
        for pattern, sign in known:
            text = pattern.sub(sign, text)
        return hook(text) if hook is not None else text

    return redact


def redacted(message: Message, redact: Redact | None) -> Message:
    """The message as it may be kept."""
    if redact is None:
        return message
    parts = tuple(_part(part, redact) for part in message.parts)
    kept = replace(message, parts=parts, extra=_extra(message.extra, redact))
    return message if kept == message else kept


def _sign(name: str) -> str:
    return f"[redacted: {name}]" if name else "[redacted]"


def _part(part: Part, redact: Redact) -> Part:
    match part:
        case Text():
            return replace(part, text=redact(part.text), extra=_extra(part.extra, redact))
        case ToolResult():
            content = tuple(_part(inner, redact) for inner in part.content)
            extra = _extra(part.extra, redact)
            return replace(part, content=cast("Any", content), extra=extra)
        case ToolCall():
            arguments = _arguments(part.arguments, redact)
            return replace(part, arguments=arguments, extra=_extra(part.extra, redact))
        case _:
            return part


def _arguments(text: str, redact: Redact) -> str:
    """Of a call: string by string, so that JSON stays JSON."""
    try:
        given = json.loads(text)
        kept = _values(given, redact)
    except (ValueError, RecursionError):
        return redact(text)
    return text if kept == given else json.dumps(kept, ensure_ascii=False)


def _extra(extra: Extra, redact: Redact) -> Extra:
    """What the wire had beside may quote the text: citations do. Its keys are the provider's."""
    if extra is None:
        return None
    return {key: _values(value, redact, keys=False) for key, value in extra.items()}


def _values(value: Any, redact: Redact, *, keys: bool = True) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        named = redact if keys else str
        return {named(key): _values(item, redact, keys=keys) for key, item in pairs}
    if isinstance(value, Sequence):
        return [_values(item, redact, keys=keys) for item in cast("Sequence[Any]", value)]
    return value
