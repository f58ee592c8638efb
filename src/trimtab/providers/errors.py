"""What a provider's error, stop reason or stream event means: one `Failure` for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.dialects.shapes import as_dict, as_int, objects
from trimtab.providers.error_body import Said, said_in
from trimtab.providers.provider import Failure, Kind
from trimtab.providers.retry_after import retry_after
from trimtab.providers.wordings import (
    CODES,
    CONTENT,
    DECISIVE,
    FIGURES,
    GENERAL,
    MALFORMED,
    NOT_OVERFLOW,
    NOT_TAKEN,
    OVERFLOW,
    SETTINGS,
    STOPS,
    compiled,
    number,
)

SMALLEST_LIMIT = 256
"""Tokens. Nobody serves a smaller window; a version of vLLM printed what was left of it (`is 3
tokens`), and a session that learned that could never send anything again."""

_NAME = re.compile(r"[.\[]")
_TEXT_LIMIT = 20_000
"""Characters of a text that are read: an error may carry a page of HTML or a whole request."""


def read_error(
    status: int | None, body: Any, *, headers: Mapping[str, str] | None = None
) -> Failure:
    """An HTTP response that is an error, or an error without one: `status` is None in a stream."""
    said = said_in(body)
    # A 200 or a stream may carry the status of an error within.
    inner = status if status is not None and status >= 400 else next(iter(said.status), None)
    kind, text = _kind_of(inner, said, bare=not body)
    figures = _figures(said) if kind == "overflow" else {}
    return Failure(
        kind=kind,
        message=_message(text, said, status),
        status=status,
        limit=figures.get("limit"),
        input=figures.get("input"),
        requested=figures.get("requested"),
        retry_after=retry_after(headers),
    )


def read_stop(reply: Mapping[str, Any]) -> Failure | None:
    """A whole reply whose stop reason is a failure; None where it simply stopped.

    A full window is an overflow although the request was accepted, and what was written until
    then is in the reply. What was read and written together is the window that was met.
    """
    if (failure := read_event(reply)) is not None:
        return failure
    details = as_dict(reply.get("incomplete_details")) or {}
    stops = [reply.get("stop_reason"), details.get("reason")]
    stops += [choice.get("finish_reason") for choice in objects(reply.get("choices"))]
    for stop in stops:
        if isinstance(stop, str) and stop.lower() in STOPS:
            given, written = _reported(reply)
            window = given + written if given and written else 0
            return Failure(
                kind="overflow",
                message=stop,
                limit=window if window >= SMALLEST_LIMIT else None,
                input=given or None,
            )
    return None


def read_event(event: Mapping[str, Any]) -> Failure | None:
    """A stream event, or a whole body behind a 200, that is an error; None for any other."""
    response = as_dict(event.get("response")) or {}
    if event.get("type") == "response.failed" or event.get("status") == "failed":
        return read_error(
            None, response.get("error") or event.get("error") or "the response failed"
        )
    if event.get("error") or event.get("type") == "error" or event.get("object") == "error":
        return read_error(None, event)
    for choice in objects(event.get("choices")):
        if choice.get("error") or choice.get("finish_reason") == "error":
            return read_error(None, choice.get("error") or "the reply broke off with an error")
    return None


def _kind_of(status: int | None, said: Said, *, bare: bool) -> tuple[Kind, str | None]:
    """The kind, and the text that told it where one did."""
    for code in said.codes:
        if code in DECISIVE:
            return CODES[code], None
    texts = [text[:_TEXT_LIMIT] for text in said.texts]
    if status in (400, 403, 404, 422) and (text := _first(texts, NOT_TAKEN)):
        return "rejected", text
    if status in (401, 403):
        return "auth", None
    for kind, pattern in NOT_OVERFLOW:
        if text := _first(texts, pattern):
            return ("refused" if kind == "rejected" and _of_settings(said) else kind), text
    if status == 429:
        return "rate_limit", None
    for _, pattern in MALFORMED:
        if text := _first(texts, pattern):
            return "malformed", text
    for _, pattern in OVERFLOW:
        if text := _first(texts, pattern):
            return "overflow", text
    return _kind_without_words(status, said, bare=bare), None


def _kind_without_words(status: int | None, said: Said, *, bare: bool) -> Kind:
    # What wraps an error names it generally (`invalid_request_error`), what is within exactly.
    exact: list[Kind] = [CODES[code] for code in said.codes if code in CODES]
    if exact:
        return exact[0]
    # Cerebras answers a request that is too long with a bare 400.
    if status == 413 or (status == 400 and bare):
        return "overflow"
    if status is None and not GENERAL.intersection(said.codes):
        return "server"  # something broke while it ran
    if status in (None, 400, 415, 422):
        return "refused" if _of_settings(said) else "rejected"
    if status in (408, 504):
        return "timeout"
    if status in (503, 529):
        return "overloaded"
    return "server" if status >= 500 else "refused"


def _of_settings(said: Said) -> bool:
    """Whether the fault is named to be a parameter, a tool or the model, and nothing that was
    said."""
    for param in said.params:
        if _NAME.split(param, maxsplit=1)[0] not in CONTENT:
            return True
    return _first(said.texts, SETTINGS) is not None


def _first(texts: Iterable[str], pattern: str) -> str | None:
    return next((text for text in texts if compiled(pattern).search(text)), None)


def _figures(said: Said) -> dict[str, int]:
    """`limit`, `input` and `requested`, as far as the words name them and they make sense."""
    found = dict(said.figures)
    more = total = 0
    patterns = (*(pattern for _, pattern in OVERFLOW), *FIGURES)
    for text in said.texts:
        for pattern in patterns:
            match = compiled(pattern).search(text[:_TEXT_LIMIT])
            for name, value in (match.groupdict() if match else {}).items():
                if value is None:
                    continue
                if name == "more":
                    more += number(value)
                elif name == "total":
                    total = number(value)
                else:
                    found.setdefault(name, number(value))
    if "input" in found:
        found["input"] += more
    elif total and "requested" in found:
        found["input"] = total - found["requested"]
    return _believed(found, total)


def _believed(found: dict[str, int], total: int) -> dict[str, int]:
    limit = found.get("limit")
    counted = max(total, found.get("input", 0) + found.get("requested", 0))
    # An overflow of a limit that is not exceeded is not understood, and nothing is learned from it.
    if limit is not None and (limit < SMALLEST_LIMIT or 0 < counted < limit):
        del found["limit"]
    return found


def _message(text: str | None, said: Said, status: int | None) -> str:
    words = text or next(iter(said.texts), None) or ", ".join(said.codes)
    if not words:
        words = "an error without words" if status is None else f"HTTP {status} without a body"
    if said.params and said.params[0] not in words:
        words = f"{words} ({said.params[0]})"
    short = re.sub(r"\s+", " ", words)
    return short if len(short) <= 1_000 else short[:1_000] + "…"


def _reported(reply: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens of input and of output; 0 where they are not told."""
    usage = as_dict(reply.get("usage")) or {}
    if "prompt_tokens" in usage:
        return as_int(usage["prompt_tokens"]), as_int(usage.get("completion_tokens"))
    # Anthropic counts what its cache was read and written for apart.
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(as_int(usage.get(part)) for part in parts), as_int(usage.get("output_tokens"))
