"""The exceptions of the library, with one common base class.

Each exception also keeps the built-in base that fits it, so `except ValueError` still works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CannotFit",
    "CostCeilingReached",
    "CostCeilingUncheckable",
    "DatabaseNotMigrated",
    "DatabaseSchemaTooNew",
    "DuplicateIdempotencyKey",
    "ErasedError",
    "ExportChecksumError",
    "FailureKind",
    "HistoryNotInMemory",
    "ImportTargetExistsError",
    "LimitUnit",
    "LogDamaged",
    "MediaField",
    "MissingApiKeyError",
    "MissingBaseUrlError",
    "MissingPackageError",
    "MissingSdkError",
    "NewerExportError",
    "NewerLogError",
    "NewerSnapshotError",
    "NoReplyDue",
    "NotAnExportError",
    "PositionTaken",
    "ProviderError",
    "ProviderFailureDetails",
    "ProviderPaused",
    "RequestChangedError",
    "SessionBusy",
    "SessionClosed",
    "SessionExists",
    "SessionImportError",
    "SessionLockedByOtherProcess",
    "SessionNotFound",
    "StaleOwner",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreNotWritable",
    "StoreUnavailable",
    "TrimtabError",
    "TruncatedExportError",
    "UnsupportedMedia",
    "UnusableSummary",
]

MARGIN_PART = "margin of the estimate"
"""The part of a request that is only there because its tokens are estimated."""
OTHER_MESSAGES_PART = "other messages that must stay"
"""The part of a request that an error does not name message by message."""
_USER_SET_LIMITS = ("max_input_tokens", "context_window")
_ADVICE_BY_PART = {
    "system prompt and tools": "a shorter system prompt or fewer tools",
    "requested output": "a smaller max_output_tokens",
    "volatile tail": "a shorter volatile text",
}
"""Advice on how to make each part smaller."""
LimitUnit = Literal["tokens", "bytes", "pictures"]
"""What a limit counts."""
_ADVICE_BY_UNIT: dict[LimitUnit, str] = {
    "bytes": "limits={'max_request_bytes': …} if the provider accepts more",
    "pictures": "limits={'max_pictures': …} if the provider accepts more",
}
MediaField = Literal["mime", "data", "url"]
"""A field of a picture or a file."""
FailureKind = Literal[
    "overflow",  # the request is larger than the model takes
    "malformed",  # the history breaks a rule of the API: a call without its result, a wrong order
    "rate_limit",
    "overloaded",
    "server",  # 5xx, or a stream that broke off
    "network",
    "timeout",
    "auth",
    "rejected",  # what was said: a picture it cannot read, a text its policy forbids
    "refused",  # any other 4xx, such as the account, the model, a parameter
]
"""Why a model call failed, which decides what to do."""


class TrimtabError(Exception):
    """The base class of every exception that Trimtab raises on purpose."""


class StoreError(TrimtabError):
    """The base class of all errors of stores."""


class SessionNotFound(StoreError, LookupError):
    """The store has no session with this id."""

    def __init__(self, session: str, *, similar_ids: Sequence[str] = ()) -> None:
        suggestion = f"did you mean {' or '.join(similar_ids)}? " if similar_ids else ""
        super().__init__(
            f"there is no session {session!r}; {suggestion}`trimtab session list` shows all"
        )


class PositionTaken(StoreError):
    """Somebody else has written to the log since it was read."""

    def __init__(self, session: str, requested: int, position: int) -> None:
        self.requested = requested
        """The position at which the first event should have been stored."""
        self.position = position
        """The log's last position."""
        super().__init__(
            f"session {session!r} is at position {position}; cannot add an event at {requested}: "
            "read the new events and decide again"
        )


class SessionExists(PositionTaken):
    """A session should be new, but the store has one with this id."""

    def __init__(self, session: str, position: int) -> None:
        super().__init__(session, 1, position)
        cause = f"session {session!r} already exists, at position {position}"
        what = "open it with `Session.open`, or open or create it with `Session.open_or_create`"
        self.args = (f"{cause}; {what}",)


class StaleOwner(StoreError):
    """Another process has claimed the turn since. The previous owner must stop."""

    def __init__(self, session: str, epoch: int, newest: int) -> None:
        self.epoch = epoch
        """The epoch of the writer."""
        self.newest = newest
        """The newest epoch of the session."""
        super().__init__(
            f"the turn with epoch {epoch} of session {session!r} was taken over by epoch {newest}; "
            "no message was added and this turn must stop"
        )


class SessionBusy(StoreError):
    """Another request has the turn of this session."""

    def __init__(self, session: str, waited_s: float) -> None:
        self.waited_s = waited_s
        """Seconds that were waited for the turn."""
        super().__init__(
            f"another request has the turn of session {session!r}, and it did not end within "
            f"{waited_s:g} seconds; answer 409, or wait longer with `wait=`"
        )


class DuplicateIdempotencyKey(StoreError):
    """The log already has a message with this idempotency key."""

    def __init__(self, session: str, key: str, position: int) -> None:
        self.key = key
        """The sender's key."""
        self.position = position
        """The position of the message."""
        super().__init__(f"session {session!r} already has a message with key {key!r}: m{position}")


class SessionLockedByOtherProcess(StoreError):
    """Another process is writing to this session."""


store_error_listeners: list[Callable[[StoreError], None]] = []
"""Functions that are called with each `StoreUnavailable` when it is created, to count them."""


class StoreUnavailable(StoreError):
    """The database is unreachable, or the disk returned an error. Nothing was acknowledged."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        for listen in store_error_listeners:
            listen(self)


class StoreFull(StoreUnavailable):
    """The disk or the database has no space left."""


class StoreNotWritable(StoreUnavailable):
    """The process has no permission to write there."""


class StoreClosed(StoreError, RuntimeError):
    """The store was closed."""

    def __init__(self) -> None:
        super().__init__("the store is closed; open it again to use it")


class SessionClosed(TrimtabError, RuntimeError):
    """The session was closed, or this process is a fork of the one that opened it."""

    def __init__(self, session: str, reason: str) -> None:
        self.session = session
        """The session id."""
        super().__init__(f"session {session!r} {reason}; open it again to use it")


class LogDamaged(StoreError):
    """The log is damaged: it has a gap, or a line in its middle cannot be read."""


class DatabaseSchemaTooNew(StoreError):
    """A newer version of Trimtab has migrated the database, and this version cannot run on it."""


class DatabaseNotMigrated(StoreError):
    """The database has no tables of Trimtab, or those of an older version."""


class ErasedError(TrimtabError, LookupError):
    """The content was destroyed, by request or by a retention rule."""


class NewerLogError(TrimtabError, ValueError):
    """The log was written by a newer version of Trimtab."""


class NewerSnapshotError(TrimtabError, ValueError):
    """The snapshot was written by a newer version of Trimtab."""


class HistoryNotInMemory(TrimtabError, LookupError):
    """The operation needs events that are no longer in memory.

    Load the log again from before them.
    """

    def __init__(self, refold_from: int) -> None:
        self.position = refold_from
        """A fold from a snapshot at or before this position has everything that is needed."""
        super().__init__(f"events after position {refold_from} are no longer in memory")


class NoReplyDue(TrimtabError, ValueError):
    """A request was asked for, but no message waits for the model."""


class UnusableSummary(TrimtabError, ValueError):
    """A summary would not make the context smaller, or it is no longer true."""


class RequestChangedError(TrimtabError, ValueError):
    """A past request was rendered again, and it differs from what its call recorded."""


class CostCeilingReached(TrimtabError, RuntimeError):
    """A model call was not made because it might have exceeded a cost ceiling."""

    def __init__(
        self, ceiling: str, *, ceiling_usd: float, counted_usd: float, price_usd: float
    ) -> None:
        self.ceiling = ceiling
        """Which ceiling: `session`, `tenant_per_day` or `day`."""
        self.ceiling_usd = ceiling_usd
        """The ceiling in US dollars."""
        self.counted_usd = counted_usd
        """US dollars that are spent, or reserved by running calls."""
        self.price_usd = price_usd
        """The maximum that the call may cost, in US dollars."""
        super().__init__(
            f"the cost ceiling {ceiling} is ${ceiling_usd:,.2f}: ${counted_usd:,.4f} is spent or "
            f"reserved, and the call may cost up to ${price_usd:,.4f}"
        )


class CostCeilingUncheckable(TrimtabError, ValueError):
    """A cost ceiling cannot be enforced: a model's price is unknown, or no call fits under it."""


class MissingApiKeyError(TrimtabError, LookupError):
    """No API key is known for the server of a model."""


class MissingBaseUrlError(MissingApiKeyError):
    """The address of the server is unknown."""


class MissingPackageError(TrimtabError, ModuleNotFoundError):
    """A package that an extra of `trimtab` brings is not installed."""

    def __init__(self, cause: str, *, extra: str, name: str | None) -> None:
        super().__init__(f"{cause}: pip install 'trimtab[{extra}]'", name=name)


class MissingSdkError(MissingPackageError):
    """The SDK of the requested provider is not installed."""

    def __init__(self, name: str) -> None:
        cause = f"the {name} SDK is not installed; install it with"
        super().__init__(cause, extra=name, name=name)


class SessionImportError(TrimtabError, ValueError):
    """The base class of all errors of `import_session`. Nothing was written."""


class NotAnExportError(SessionImportError):
    """The file was not written by `export`."""


class NewerExportError(SessionImportError):
    """The file was written by a newer version of Trimtab."""


class TruncatedExportError(SessionImportError):
    """The end of the file is missing."""


class ExportChecksumError(SessionImportError):
    """The events differ from those that were exported."""


class ImportTargetExistsError(SessionImportError):
    """The store already has a session with this id."""


class CannotFit(TrimtabError, ValueError):
    """The smallest possible request is larger than the model or the provider accepts."""

    def __init__(
        self,
        limit: int,
        needed: int,
        parts: dict[str, int],
        refusal: str | None = None,
        source: str = "model",
        *,
        unit: LimitUnit = "tokens",
    ) -> None:
        self.limit = limit
        """Maximum tokens for input and output together, or the maximum in `unit`."""
        self.needed = needed
        """Upper bound of the smallest possible request, in `unit`."""
        self.parts = parts
        """Names of the parts that cannot shrink, with their size in `unit`."""
        self.unit: LimitUnit = unit
        """What is counted: `tokens`, or the `bytes` or `pictures` of a request."""
        self.refusal = refusal
        """The provider's message, if it refused a request that should fit by all known limits."""
        sizes = ", ".join(f"{name} {size:,}" for name, size in parts.items() if size)
        if refusal is None:
            origin = f" ({source})" if source in _USER_SET_LIMITS else ""
            origin = " learned from the provider's answers" if source == "learned" else origin
            what = (
                f"the request needs up to {needed:,} {unit}, but the limit{origin} is "
                f"{limit:,}. These parts"
            )
            then = "Use"
        else:
            words = f" The provider said: {refusal!r}." if refusal else ""
            what = (
                "the provider refused the request for its length. By our count it has at "
                f"most {needed:,} tokens, including output.{words} The known limit is "
                f"{limit:,}. These parts"
            )
            then = "Set context_window to what the provider really accepts, or use"
        larger = f"a larger {source}" if refusal is None and source in _USER_SET_LIMITS else ""
        advice = [larger or "a model with a larger window", *_advice(parts, limit, needed)]
        if unit != "tokens":
            advice = [_ADVICE_BY_UNIT[unit], *_advice(parts, limit, needed)]
        super().__init__(f"{what} cannot shrink: {sizes}. {then} {', or '.join(advice)}")


def _advice(parts: Mapping[str, int], limit: int, need: int) -> Iterator[str]:
    """Yield advice that makes the largest parts smaller."""
    part_names = [name for name in parts if name not in (MARGIN_PART, OTHER_MESSAGES_PART)]
    for name in sorted(part_names, key=lambda part: -parts[part])[:2]:
        handle = name.split()[-1]
        if name.startswith("pinned"):
            yield f"pin({handle!r}, pinned=False)"
        elif parts[name] * 10 > need:
            yield _ADVICE_BY_PART.get(name, f"rewind() to before {handle}")
    if need - parts.get(MARGIN_PART, 0) <= limit < need:
        yield "your own tokenizer that counts exactly"


class UnsupportedMedia(TrimtabError, ValueError):
    """A picture or a file that the model's provider would reject."""

    def __init__(self, reason: str, *, media_field: MediaField = "data") -> None:
        self.media_field: MediaField = media_field
        """Which field of it is wrong."""
        self.reason = reason
        """What is wrong with it, and what is accepted."""
        super().__init__(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFailureDetails:
    """The meaning of a provider's error, stop reason or stream event."""

    kind: FailureKind
    """The kind of failure, which decides what to do."""
    message: str
    """The provider's error text."""
    status: int | None = None
    """The status of the HTTP response; None for an error inside a stream or without a response."""
    limit: int | None = None
    """Tokens that the model accepts, if the provider named them."""
    input: int | None = None
    """Tokens of input that the provider counted."""
    requested: int | None = None
    """Tokens of output that were requested, as the provider counted them."""
    retry_after: float | None = None
    """Seconds that the provider asks to wait."""


class ProviderError(TrimtabError):
    """A model call failed. `failure` has the details."""

    def __init__(self, failure: ProviderFailureDetails) -> None:
        self.failure = failure
        status = f" (HTTP {failure.status})" if failure.status else ""
        super().__init__(f"{failure.kind}{status}: {failure.message}")


class ProviderPaused(ProviderError):
    """A call was not made because the provider has failed too often; see `CircuitBreaker`.

    `failure` is the last failure, and its `retry_after` says when to try again.
    """
