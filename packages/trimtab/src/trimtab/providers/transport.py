"""One request through an official SDK: replies as plain dicts, failures as `ProviderError`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from json import JSONDecodeError
from types import ModuleType
from typing import Any

from trimtab.dialects import get_dialect
from trimtab.dialects.reading import to_plain_dict
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.providers.base import STREAM_CUT_SHORT
from trimtab.providers.error_parser import parse_error_event, parse_error_response

IsFinalEvent = Callable[[Mapping[str, Any]], bool]


class SdkRequestSender:
    """Sends requests by one method of an SDK's client and classifies its errors.

    Both SDKs come from one generator, so their errors have the same names and shapes.
    """

    def __init__(
        self,
        sdk: ModuleType,
        sdk_create_method: Callable[..., Awaitable[Any]],
        *,
        dialect_name: str,
        is_final_event: IsFinalEvent,
    ) -> None:
        self._sdk: Any = sdk
        self._create = sdk_create_method
        self._dialect = get_dialect(dialect_name)
        self._ends = is_final_event

    async def send(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Send a request; yield the events of a streamed reply, or the one whole reply."""
        began = has_ended = False
        try:
            answer = await self._create(**request)
            began = True
            if not request.get("stream"):
                yield self._read_whole_reply(answer)
                return
            async with answer:
                async for event in answer:
                    wire = _raise_if_error(to_plain_dict(event))
                    has_ended = has_ended or self._ends(wire)
                    yield wire
        except Exception as error:
            # What breaks behind the last event has cost nothing of the reply.
            if has_ended and self._is_connection_error(error):
                return
            if (failure := self._classify_sdk_error(error, began=began)) is None:
                raise
            raise ProviderError(failure) from error
        if not has_ended:
            raise ProviderError(STREAM_CUT_SHORT)

    async def list_model_names(self, listing: AsyncIterable[Any]) -> list[str]:
        """Return the model names of a listing of the SDK."""
        try:
            return [str(model.id) async for model in listing]
        except Exception as error:
            if (failure := self._classify_sdk_error(error, began=False)) is None:
                raise
            raise ProviderError(failure) from error

    def _read_whole_reply(self, answer: Any) -> dict[str, Any]:
        if isinstance(answer, str | bytes):
            # The SDKs hand out the bare text of a 200 that is not declared to be JSON.
            words = f"the reply is not JSON: {answer[:200]!r}"
            raise ProviderError(ProviderFailureDetails(kind="server", message=words))
        wire = _raise_if_error(to_plain_dict(answer))
        if not self._dialect.is_reply_body(wire):
            words = (
                f"the reply does not have the form of {self._dialect.name}: its fields are "
                f"{', '.join(wire) or '{}'}"
            )
            raise ProviderError(ProviderFailureDetails(kind="server", message=words))
        return wire

    def _is_connection_error(self, error: Exception) -> bool:
        return isinstance(error, (self._sdk.APIConnectionError, *_http_errors("HTTPError")))

    def _classify_sdk_error(
        self, error: Exception, *, began: bool
    ) -> ProviderFailureDetails | None:
        """Classify an error of the SDK; return None for one that is already classified or is our
        own bug."""
        sdk = self._sdk
        words = str(error) or type(error).__name__
        sdk_error: Any = error
        if isinstance(error, (sdk.APITimeoutError, *_http_errors("TimeoutException"))):
            return ProviderFailureDetails(kind="timeout", message=words)
        if self._is_connection_error(error):
            cause = f" {error.__cause__}" if error.__cause__ else ""
            return ProviderFailureDetails(
                kind="server" if began else "network", message=words + cause
            )
        if isinstance(error, sdk.APIStatusError):
            # An error event of a stream has the stream's own 200.
            status = sdk_error.status_code if sdk_error.status_code >= 400 else None
            return parse_error_response(status, sdk_error.body, headers=sdk_error.response.headers)
        if isinstance(error, sdk.APIResponseValidationError | JSONDecodeError | UnicodeDecodeError):
            return ProviderFailureDetails(kind="server", message=f"an unreadable reply: {words}")
        if isinstance(error, sdk.APIError):
            return parse_error_response(None, sdk_error.body or words)
        return None


def _http_errors(name: str) -> tuple[type[Exception], ...]:
    """Return the exceptions of this name in the HTTP libraries that are loaded.

    The SDKs let an error within a stream pass. Before openai 3 and anthropic 1 it is one of httpx,
    since then one of httpx2. Only the library that is loaded can have raised it.
    """
    libraries = (sys.modules.get(library) for library in ("httpx", "httpx2"))
    return tuple(getattr(library, name) for library in libraries if library is not None)


def _raise_if_error(wire: dict[str, Any]) -> dict[str, Any]:
    if (failure := parse_error_event(wire)) is not None:
        raise ProviderError(failure)
    return wire
