"""Every exception of the library, with one common base class.

Each exception also keeps the built-in base that fits it, so `except ValueError` still works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class TrimtabError(Exception):
    """The base class of every exception that Trimtab raises on purpose."""


class StoreError(TrimtabError):
    """The base class of all errors of stores."""


class SessionNotFound(StoreError, LookupError):
    """The store has no session with this id."""

    def __init__(self, session: str, *, similar_ids: Sequence[str] = ()) -> None:
        meant = f"did you mean {' or '.join(similar_ids)}? " if similar_ids else ""
        super().__init__(
            f"there is no session {session!r}; {meant}`trimtab session list` shows all"
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
        told = f"session {session!r} already exists, at position {position}"
        what = "open it with `Session.open`, or open or create it with `Session.open_or_create`"
        self.args = (f"{told}; {what}",)


class StaleOwner(StoreError):
    """Another process has claimed the turn since. The previous owner must stop."""

    def __init__(self, session: str, epoch: int, newest: int) -> None:
        self.epoch = epoch
        """The epoch of the writer."""
        self.newest = newest
        """The newest epoch of the session."""
        super().__init__(
            f"the turn with epoch {epoch} of session {session!r} was taken over by epoch {newest}; "
            "nothing was written and this turn must stop"
        )


class SessionMoved(StoreError):
    """The session is, or soon will be, in another database."""

    def __init__(self, session: str, shard: str | None) -> None:
        self.shard = shard
        """The name of the database that has it now. None while it is being moved."""
        super().__init__(
            f"session {session!r} is being moved to another database; try again in a second"
            if shard is None
            else f"session {session!r} was moved to the database {shard!r}"
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


class UnreleasedLogError(TrimtabError, ValueError):
    """The log was written before the first release of Trimtab."""


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


class MissingSdkError(TrimtabError, ImportError):
    """The SDK of the requested provider is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the {name} SDK is not installed; install it with: pip install 'trimtab[{name}]'",
            name=name,
        )


class SessionImportError(TrimtabError, ValueError):
    """The base class of all errors of `import_session`. Nothing was written."""


class NotAnExportError(SessionImportError):
    """The file was not written by `export`."""


class NewerExportError(SessionImportError):
    """The file was written by a newer version of Trimtab."""


class UnreleasedExportError(SessionImportError):
    """The file was written before the first release of Trimtab."""


class TruncatedExportError(SessionImportError):
    """The end of the file is missing."""


class ExportChecksumError(SessionImportError):
    """The events differ from those that were exported."""


class ImportTargetExistsError(SessionImportError):
    """The store already has a session with this id."""
