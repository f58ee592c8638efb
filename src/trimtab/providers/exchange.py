"""One request through an official SDK: what comes back as plain dicts, what fails as a Failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from json import JSONDecodeError
from types import ModuleType
from typing import Any

from trimtab.dialects import dialect, to_wire
from trimtab.providers.errors import read_error, read_event
from trimtab.providers.provider import CUT_SHORT, Failure, ProviderError

Ends = Callable[[Mapping[str, Any]], bool]


class MissingSDK(ImportError):
    """A provider was asked for whose SDK is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the {name} SDK is not installed; install it with: pip install 'trimtab[{name}]'",
            name=name,
        )


class Exchange:
    """Sends requests by one method of an SDK's client and says what its errors mean.

    Both SDKs come from one generator: their errors have the same names and shapes.
    """

    def __init__(
        self, sdk: ModuleType, create: Callable[..., Awaitable[Any]], *, name: str, ends: Ends
    ) -> None:
        self._sdk: Any = sdk
        self._create = create
        self._dialect = dialect(name)
        self._ends = ends

    async def send(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """The events of a streamed reply, or the one whole reply."""
        began = ended = False
        try:
            answer = await self._create(**request)
            began = True
            if not request.get("stream"):
                yield self._whole(answer)
                return
            async with answer:
                async for event in answer:
                    wire = _no_error(to_wire(event))
                    ended = ended or self._ends(wire)
                    yield wire
        except Exception as error:
            # What breaks behind the last event has cost nothing of the reply.
            if ended and self._is_break(error):
                return
            if (failure := self._meaning(error, began=began)) is None:
                raise
            raise ProviderError(failure) from error
        if not ended:
            raise ProviderError(CUT_SHORT)

    async def names(self, listing: AsyncIterable[Any]) -> list[str]:
        """The models that a listing of the SDK names."""
        try:
            return [str(model.id) async for model in listing]
        except Exception as error:
            if (failure := self._meaning(error, began=False)) is None:
                raise
            raise ProviderError(failure) from error

    def _whole(self, answer: Any) -> dict[str, Any]:
        if isinstance(answer, str | bytes):
            # The SDKs hand out the bare text of a 200 that is not declared to be JSON.
            words = f"the reply is not JSON: {answer[:200]!r}"
            raise ProviderError(Failure(kind="server", message=words))
        wire = _no_error(to_wire(answer))
        if not self._dialect.is_reply(wire):
            words = (
                f"the reply is not one of {self._dialect.name}: it has {', '.join(wire) or '{}'}"
            )
            raise ProviderError(Failure(kind="server", message=words))
        return wire

    def _is_break(self, error: Exception) -> bool:
        import httpx2

        return isinstance(error, httpx2.HTTPError | self._sdk.APIConnectionError)

    def _meaning(self, error: Exception, *, began: bool) -> Failure | None:
        """What an error of the SDK means; None for one that says it, or is a fault of ours."""
        import httpx2

        sdk, words = self._sdk, str(error) or type(error).__name__
        told: Any = error
        if isinstance(error, sdk.APITimeoutError | httpx2.TimeoutException):
            return Failure(kind="timeout", message=words)
        if isinstance(error, sdk.APIConnectionError | httpx2.HTTPError):
            cause = f" {error.__cause__}" if error.__cause__ else ""
            return Failure(kind="server" if began else "network", message=words + cause)
        if isinstance(error, sdk.APIStatusError):
            # An error event of a stream has the stream's own 200.
            status = told.status_code if told.status_code >= 400 else None
            return read_error(status, told.body, headers=told.response.headers)
        if isinstance(error, sdk.APIResponseValidationError | JSONDecodeError | UnicodeDecodeError):
            return Failure(kind="server", message=f"an unreadable reply: {words}")
        if isinstance(error, sdk.APIError):
            return read_error(None, told.body or words)
        return None


def _no_error(wire: dict[str, Any]) -> dict[str, Any]:
    if (failure := read_event(wire)) is not None:
        raise ProviderError(failure)
    return wire
