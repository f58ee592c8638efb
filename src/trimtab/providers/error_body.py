"""What an error's body says, however deep it is wrapped: its texts, codes and numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from trimtab.providers.wordings import FIELDS

_TEXTS = frozenset(
    {
        *("message", "msg", "error", "detail", "details", "description", "reason", "title", "raw"),
        *("error_message", "error_msg", "errormessage", "status_msg", "body", "cause"),
    }
)
_CODES = frozenset({"code", "type", "status", "__type", "error_code", "error_type"})
_PARAM = "param"
_ECHOES = frozenset(
    # What a server repeats of the request or the model: it may say anything, also `rate limit`.
    {"input", "messages", "prompt", "request", "content", "output", "failed_generation", "tools"}
)
_DEPTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An error's body, flat."""

    texts: list[str] = field(default_factory=list[str])
    """Sentences, the outermost first."""
    codes: list[str] = field(default_factory=list[str])
    """Values of `type`, `code` and the like, in lower case, the outermost first."""
    params: list[str] = field(default_factory=list[str])
    """Places in the request that are named as the fault, the outermost first."""
    status: list[int] = field(default_factory=list[int])
    """Numbers among the codes that are HTTP statuses of errors."""
    figures: dict[str, int] = field(default_factory=dict[str, int])
    """`limit` and `input`, where they have keys of their own."""


def said_in(body: Any) -> Said:
    """A body as the server sent it: JSON, text that holds JSON, or plain text."""
    said = Said()
    _walk(body, "error", said, _DEPTH)
    return said


def _walk(value: Any, key: str, said: Said, depth: int) -> None:
    if depth == 0:
        return
    if isinstance(value, Mapping):
        _walk_object(cast("Mapping[str, Any]", value), said, depth)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            _walk(inner, key, said, depth - 1)
    elif isinstance(value, bytes):
        _walk(value.decode("utf-8", "replace"), key, said, depth)
    elif isinstance(value, str):
        _hear(value.strip(), key, said, depth)
    elif isinstance(value, int) and not isinstance(value, bool):
        if key in FIELDS:
            said.figures.setdefault(FIELDS[key], value)
        elif key in _CODES and 400 <= value <= 599:
            said.status.append(value)


def _walk_object(value: Mapping[str, Any], said: Said, depth: int) -> None:
    # What it says itself comes before what it wraps.
    deeper = (dict, list)
    for key, inner in sorted(value.items(), key=lambda pair: isinstance(pair[1], deeper)):
        name = key.lower()
        if name not in _ECHOES:
            _walk(inner, name, said, depth - 1)


def _hear(text: str, key: str, said: Said, depth: int) -> None:
    wrapped = _json_in(text)
    if wrapped is not None:
        _walk(wrapped, key, said, depth - 1)
    elif key in _CODES:
        said.codes.append(text.lower())
        if text.isdecimal() and 400 <= int(text) <= 599:
            said.status.append(int(text))
    elif key == _PARAM and text:
        said.params.append(text)
    elif key in _TEXTS and text:
        said.texts.append(text)


def _json_in(text: str) -> Any:
    """The JSON that a text ends with: `400 {"error": …}` is how some gateways pass one on."""
    for opening, closing in ("{}", "[]"):
        start = text.find(opening)
        if start < 0 or not text.endswith(closing):
            continue
        try:
            return json.loads(text[start:])
        except ValueError:
            continue
    return None
