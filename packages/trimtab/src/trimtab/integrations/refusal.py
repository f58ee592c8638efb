"""A refusal for length, found in whatever exception a framework raises for it, or in a reply that a
full window cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from trimtab.engine.log.event import Usage
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.providers.error_parser import parse_error_response, parse_stop_failure

MAX_CAUSES = 16
"""Maximum number of wrapped exceptions to read."""


def find_refusal(error: BaseException) -> ProviderFailureDetails | None:
    """Return the refusal for length that an exception is or wraps; None for any other error.

    It reads the status and the body of the exceptions of SDKs and frameworks, and follows
    `__cause__` and exception groups.
    """
    for cause in _iterate_causes(error):
        failure = _read_failure(cause)
        if failure is not None and failure.kind == "overflow":
            return failure
    return None


class ReplyCut(ProviderError):
    """A full window ended a reply before it was complete."""

    def __init__(self, failure: ProviderFailureDetails, usage: Usage | None) -> None:
        self.usage = usage
        """What the provider billed; None if it is unknown."""
        super().__init__(failure)


def find_full_window(stop_reason: Any, usage: Usage | None = None) -> ReplyCut | None:
    """Return as an error that a reply ended because the window was full; None for any other end.

    A module passes the error to `Conversations.retry` and asks again, as after a refusal. If
    nothing can be made smaller, `retry` raises `CannotFit`, and the module keeps the part of the
    reply.

    `usage` is the reply's; None if it is unknown.
    """
    counts = usage or Usage(input=0)
    tokens = {"prompt_tokens": counts.input, "completion_tokens": counts.output}
    failure = parse_stop_failure({"stop_reason": stop_reason, "usage": tokens})
    return None if failure is None else ReplyCut(failure, usage)


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it wraps, the outermost first."""
    ids: set[int] = set()
    causes: list[BaseException | None] = [error]
    while causes and len(ids) < MAX_CAUSES:
        cause = causes.pop(0)
        if cause is None or id(cause) in ids:
            continue
        ids.add(id(cause))
        yield cause
        causes.append(cause.__cause__)
        if isinstance(cause, BaseExceptionGroup):
            causes.extend(cast("BaseExceptionGroup[BaseException]", cause).exceptions)


def _read_failure(error: BaseException) -> ProviderFailureDetails | None:
    """Classify an exception that has the status or the body of a provider's response."""
    if isinstance(error, ProviderError):
        return error.failure
    response: Any = getattr(error, "response", None)
    if isinstance(response, Mapping):  # of Amazon's SDK
        fields = cast("Mapping[str, Any]", response)
        metadata: Any = fields.get("ResponseMetadata") or {}
        return parse_error_response(metadata.get("HTTPStatusCode"), fields.get("Error"))
    names = ("status_code", "status", "code")
    numbers: list[Any] = [
        getattr(source, name, None) for source in (error, response) for name in names
    ]
    statuses = [number for number in numbers if isinstance(number, int) and 400 <= number < 600]
    body: Any = getattr(error, "body", None)
    if not statuses and body is None:
        return None
    status = statuses[0] if statuses else None
    if body is None:
        # LiteLLM's exceptions have an empty body, and the provider's text in their message.
        failure = parse_error_response(status, _read_response_text(response) or str(error))
        if failure.kind == "overflow" or not hasattr(error, "body"):
            return failure
    return parse_error_response(status, body)


def _read_response_text(response: Any) -> str:
    """Return the text of an HTTP response; empty if there is none, or if it was not read."""
    try:
        text: Any = getattr(response, "text", "")
    except Exception:  # noqa: BLE001 - each HTTP library has its own for a stream that was not read
        return ""
    return text if isinstance(text, str) else ""
