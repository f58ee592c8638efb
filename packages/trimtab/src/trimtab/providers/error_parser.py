"""Classifies a provider's error, stop reason or stream event as one `ProviderFailureDetails`.

It reads the texts, codes and numbers of an error's body, however deep they are nested, and how long
the provider asks to wait.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, cast

from trimtab.dialects.json_values import dict_or_none, dicts_in_list, int_or_zero
from trimtab.engine.text.arguments import MAX_TOKEN_COUNT, describe_wrong_value
from trimtab.errors import FailureKind, ProviderFailureDetails
from trimtab.providers.error_patterns import (
    CONTENT_PARAMS,
    DECISIVE_CODES,
    FULL_WINDOW_STOP_REASONS,
    GENERAL_CODES,
    KIND_BY_CODE,
    MALFORMED_PATTERNS,
    NOT_OVERFLOW_PATTERNS,
    OVERFLOW_PATTERNS,
    REJECTED_CONTENT_PATTERN,
    SETTING_NAME_PATTERN,
    TOKEN_FIGURE_KEYS,
    TOKEN_FIGURE_PATTERNS,
    compile_error_pattern,
    parse_printed_number,
)

MIN_PLAUSIBLE_LIMIT_TOKENS = 256
"""Minimum tokens of a believable limit. No server has a smaller window. A version of vLLM printed
the remaining tokens (`is 3 tokens`), and a session that learned that could never send again."""

_PARAM_SEPARATOR = re.compile(r"[.\[]")
_MAX_TEXT_CHARS = 20_000
"""How many characters of a text are read. An error may contain a page of HTML or a whole
request."""


def parse_error_response(
    status: int | None, body: Any, *, headers: Mapping[str, str] | None = None
) -> ProviderFailureDetails:
    """Classify an error response of a provider.

    Args:
        status: The HTTP status; None for an error inside a stream.
        body: The body as the server sent it: JSON, or text.
        headers: The response headers, for `retry-after`.

    Returns:
        The kind of failure, the provider's message, and the token numbers that it names.

    Example:
        Classify an SDK's exception::

            failure = parse_error_response(error.status_code, error.body)
    """
    if status is not None and not isinstance(status, int):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        raise TypeError(describe_wrong_value("status", status, "a number such as 429, or None"))
    error_fields = collect_error_fields(body)
    if amazon := _read_header(headers, "x-amzn-errortype"):
        # The kind of an error stands there alone, and behind it an address.
        error_fields.codes.insert(0, amazon.partition(":")[0].lower())
    # A 200 or a stream may carry the status of an error within.
    inner = (
        status if status is not None and status >= 400 else next(iter(error_fields.status), None)
    )
    kind, text = _classify_error(inner, error_fields, bare=not body)
    figures = _parse_token_figures(error_fields) if kind == "overflow" else {}
    return ProviderFailureDetails(
        kind=kind,
        message=_build_message(text, error_fields, status),
        status=status,
        limit=figures.get("limit"),
        input=figures.get("input"),
        requested=figures.get("requested"),
        retry_after=parse_retry_after(headers),
    )


def parse_stop_failure(reply: Mapping[str, Any]) -> ProviderFailureDetails | None:
    """Classify a whole reply whose stop reason is a failure; return None if it simply stopped.

    A full window is an overflow although the request was accepted, and the reply contains the text
    so far. Input and output together are then the size of the window.
    """
    if (failure := parse_error_event(reply)) is not None:
        return failure
    details = dict_or_none(reply.get("incomplete_details")) or {}
    stops = [reply.get("stop_reason"), details.get("reason")]
    stops += [choice.get("finish_reason") for choice in dicts_in_list(reply.get("choices"))]
    for stop in stops:
        if isinstance(stop, str) and stop.lower() in FULL_WINDOW_STOP_REASONS:
            input_tokens, output_tokens = _read_usage(reply)
            window = input_tokens + output_tokens if input_tokens else 0
            return ProviderFailureDetails(
                kind="overflow",
                message=stop,
                limit=window if window >= MIN_PLAUSIBLE_LIMIT_TOKENS else None,
                input=input_tokens or None,
            )
    return None


def parse_error_event(event: Mapping[str, Any]) -> ProviderFailureDetails | None:
    """Classify a stream event, or a body with status 200, that is an error; return None for any
    other."""
    response = dict_or_none(event.get("response")) or {}
    if event.get("type") == "response.failed" or event.get("status") == "failed":
        return parse_error_response(
            None, response.get("error") or event.get("error") or "the response failed"
        )
    if event.get("error") or event.get("type") == "error" or event.get("object") == "error":
        return parse_error_response(None, event)
    for choice in dicts_in_list(event.get("choices")):
        if choice.get("error") or choice.get("finish_reason") == "error":
            return parse_error_response(
                None, choice.get("error") or "the reply ended with an error"
            )
    return None


def _classify_error(
    status: int | None, fields: ErrorBodyFields, *, bare: bool
) -> tuple[FailureKind, str | None]:
    """Return the kind of failure, and the text that decided it, if one did."""
    for code in fields.codes:
        if code in DECISIVE_CODES:
            return KIND_BY_CODE[code], None
    texts = [text[:_MAX_TEXT_CHARS] for text in fields.texts]
    if status in (400, 403, 404, 422) and (
        text := _find_matching_text(texts, REJECTED_CONTENT_PATTERN)
    ):
        return "rejected", text
    if status in (401, 403):
        return "auth", None
    for kind, pattern in NOT_OVERFLOW_PATTERNS:
        if text := _find_matching_text(texts, pattern):
            return ("refused" if kind == "rejected" and _is_about_settings(fields) else kind), text
    if status == 429:
        return "rate_limit", None
    for _, pattern in MALFORMED_PATTERNS:
        if text := _find_matching_text(texts, pattern):
            return "malformed", text
    for _, pattern in OVERFLOW_PATTERNS:
        if text := _find_matching_text(texts, pattern):
            return "overflow", text
    return _classify_by_code_or_status(status, fields, bare=bare), None


def _classify_by_code_or_status(
    status: int | None, fields: ErrorBodyFields, *, bare: bool
) -> FailureKind:
    # What wraps an error names it generally (`invalid_request_error`), what is within exactly.
    exact: list[FailureKind] = [KIND_BY_CODE[code] for code in fields.codes if code in KIND_BY_CODE]
    if exact:
        return exact[0]
    # Cerebras answers a request that is too long with a bare 400.
    if status == 413 or (status == 400 and bare):
        return "overflow"
    if status is None and not GENERAL_CODES.intersection(fields.codes):
        return "server"  # something broke while it ran
    if status in (None, 400, 415, 422):
        return "refused" if _is_about_settings(fields) else "rejected"
    if status in (408, 504):
        return "timeout"
    if status in (503, 529):
        return "overloaded"
    return "server" if status >= 500 else "refused"


def _is_about_settings(fields: ErrorBodyFields) -> bool:
    """Whether the error names a parameter, a tool or the model as the cause, and not the
    content."""
    for param in fields.params:
        if _PARAM_SEPARATOR.split(param, maxsplit=1)[0] not in CONTENT_PARAMS:
            return True
    return _find_matching_text(fields.texts, SETTING_NAME_PATTERN) is not None


def _find_matching_text(texts: Iterable[str], pattern: str) -> str | None:
    return next((text for text in texts if compile_error_pattern(pattern).search(text)), None)


def _parse_token_figures(fields: ErrorBodyFields) -> dict[str, int]:
    """Return `limit`, `input` and `requested`, if the text names them and they are plausible."""
    figures = dict(fields.figures)
    more = whole = total = 0
    patterns = (*(pattern for _, pattern in OVERFLOW_PATTERNS), *TOKEN_FIGURE_PATTERNS)
    for text in fields.texts:
        for pattern in patterns:
            match = compile_error_pattern(pattern).search(text[:_MAX_TEXT_CHARS])
            for name, value in (match.groupdict() if match else {}).items():
                if value is None:
                    continue
                if name == "more":
                    more += parse_printed_number(value)
                elif name == "all":
                    whole = parse_printed_number(value)
                elif name == "total":
                    total = parse_printed_number(value)
                else:
                    figures.setdefault(name, parse_printed_number(value))
    if whole:
        figures["input"] = whole
    elif "input" in figures:
        figures["input"] += more
    elif total and "requested" in figures:
        figures["input"] = total - figures["requested"]
    return _drop_implausible_figures(figures, total)


def _drop_implausible_figures(figures: dict[str, int], total: int) -> dict[str, int]:
    figures = {name: count for name, count in figures.items() if 0 <= count <= MAX_TOKEN_COUNT}
    limit = figures.get("limit")
    tokens = max(total, figures.get("input", 0) + figures.get("requested", 0))
    # An overflow of a limit that is not exceeded is not understood, and nothing is learned from it.
    if limit is not None and (limit < MIN_PLAUSIBLE_LIMIT_TOKENS or 0 < tokens < limit):
        del figures["limit"]
    return figures


def _build_message(text: str | None, fields: ErrorBodyFields, status: int | None) -> str:
    words = text or next(iter(fields.texts), None) or ", ".join(fields.codes)
    if not words:
        words = "an error without a message" if status is None else f"HTTP {status} without a body"
    if fields.params and fields.params[0] not in words:
        words = f"{words} ({fields.params[0]})"
    short = re.sub(r"\s+", " ", words)
    return short if len(short) <= 1_000 else short[:1_000] + "…"


def _read_usage(reply: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens of input and of output; 0 if they are not reported."""
    usage = dict_or_none(reply.get("usage")) or {}
    if "prompt_tokens" in usage:
        return int_or_zero(usage["prompt_tokens"]), int_or_zero(usage.get("completion_tokens"))
    # Anthropic counts what its cache was read and written for apart.
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(int_or_zero(usage.get(part)) for part in parts), int_or_zero(
        usage.get("output_tokens")
    )


_TEXT_KEYS = frozenset(
    {
        *("message", "msg", "error", "detail", "details", "description", "reason", "title", "raw"),
        *("error_message", "error_msg", "errormessage", "status_msg", "body", "cause"),
    }
)
_CODE_KEYS = frozenset({"code", "type", "status", "__type", "error_code", "error_type"})
_PARAM_KEY = "param"
_ECHO_KEYS = frozenset(
    # What a server repeats of the request or the model: it may say anything, also `rate limit`.
    {"input", "messages", "prompt", "request", "content", "output", "failed_generation", "tools"}
)
_MAX_DEPTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBodyFields:
    """The fields of an error's body, without nesting."""

    texts: list[str] = field(default_factory=list[str])
    """Texts, the outermost first."""
    codes: list[str] = field(default_factory=list[str])
    """Values of `type`, `code` and the like, in lower case, the outermost first."""
    params: list[str] = field(default_factory=list[str])
    """Places in the request that are named as the cause, the outermost first."""
    status: list[int] = field(default_factory=list[int])
    """Numbers among the codes that are HTTP error statuses."""
    figures: dict[str, int] = field(default_factory=dict[str, int])
    """`limit` and `input`, if they have their own keys."""


def collect_error_fields(body: Any) -> ErrorBodyFields:
    """Collect the fields of a body: JSON, text that contains JSON, or plain text."""
    error_fields = ErrorBodyFields()
    _collect_value(body, "error", error_fields, _MAX_DEPTH)
    return error_fields


def _collect_value(value: Any, key: str, fields: ErrorBodyFields, depth: int) -> None:
    if depth == 0:
        return
    if isinstance(value, Mapping):
        _collect_object(cast("Mapping[str, Any]", value), fields, depth)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            _collect_value(inner, key, fields, depth - 1)
    elif isinstance(value, bytes):
        _collect_value(value.decode("utf-8", "replace"), key, fields, depth)
    elif isinstance(value, str):
        _collect_text(value.strip(), key, fields, depth)
    elif isinstance(value, int) and not isinstance(value, bool):
        if key in TOKEN_FIGURE_KEYS:
            fields.figures.setdefault(TOKEN_FIGURE_KEYS[key], value)
        elif key in _CODE_KEYS and 400 <= value <= 599:
            fields.status.append(value)


def _collect_object(value: Mapping[str, Any], fields: ErrorBodyFields, depth: int) -> None:
    # What it says itself comes before what it wraps.
    deeper = (dict, list)
    for key, inner in sorted(value.items(), key=lambda pair: isinstance(pair[1], deeper)):
        name = key.lower()
        if name not in _ECHO_KEYS:
            _collect_value(inner, name, fields, depth - 1)


def _collect_text(text: str, key: str, fields: ErrorBodyFields, depth: int) -> None:
    trailing_json = _find_trailing_json(text)
    if trailing_json is not None:
        _collect_value(trailing_json, key, fields, depth - 1)
    elif key in _CODE_KEYS:
        fields.codes.append(text.lower())
        if text.isdecimal() and len(text) == 3 and 400 <= int(text) <= 599:
            fields.status.append(int(text))
    elif key == _PARAM_KEY and text:
        fields.params.append(text)
    elif key in _TEXT_KEYS and text:
        fields.texts.append(text)


def _find_trailing_json(text: str) -> Any:
    """Return the JSON at the end of a text. Some gateways pass errors on as `400 {"error": …}`."""
    for opening, closing in ("{}", "[]"):
        start = text.find(opening)
        if start < 0 or not text.endswith(closing):
            continue
        try:
            value: Any = json.loads(text[start:])
        except ValueError:
            continue
        # A range such as `[1, 30720]` is part of the text.
        if opening == "{" or any(isinstance(each, dict) for each in value):
            return value
    return None


def _read_header(headers: Mapping[str, str] | None, name: str) -> str | None:
    return next((value for key, value in (headers or {}).items() if key.lower() == name), None)


def parse_retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Return the seconds of `retry-after-ms` or `retry-after` from now; None if there is
    neither."""
    if not headers:
        return None
    lower_headers = {name.lower(): value.strip() for name, value in headers.items()}
    if (milliseconds := _parse_seconds(lower_headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    retry_after = lower_headers.get("retry-after")
    if (seconds := _parse_seconds(retry_after)) is not None:
        return seconds
    if (then := _parse_http_date(retry_after)) is None:
        return None
    # Use the server's clock if it sends the time: ours may be off by more than the wait.
    now = _parse_http_date(lower_headers.get("date"))
    return max(0.0, then - (time.time() if now is None else now))


def _parse_seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _parse_http_date(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text or "").timestamp()
    except (ValueError, OverflowError):
        return None
