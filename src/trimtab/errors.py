"""Every exception of the library, under one base.

Each keeps the built-in base that fits it, so that `except ValueError` goes on to work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class TrimtabError(Exception):
    """The base of all that Trimtab raises on purpose."""


class StoreError(TrimtabError):
    """The base of all errors of stores."""


class SessionNotFound(StoreError, LookupError):
    """The store knows no session of that id."""

    def __init__(self, session: str, *, similar_ids: Sequence[str] = ()) -> None:
        meant = f"did you mean {' or '.join(similar_ids)}? " if similar_ids else ""
        super().__init__(
            f"there is no session {session!r}; {meant}`trimtab session list` shows all"
        )


class PositionTaken(StoreError):
    """Somebody else has written to the log since it was read."""

    def __init__(self, session: str, requested: int, position: int) -> None:
        self.requested = requested
        """Where the first event was to stand."""
        self.position = position
        """The log's last position."""
        super().__init__(
            f"session {session!r} stands at {position}, so no event can be put at {requested}; "
            "read "
            "what is new and decide again"
        )


class SessionExists(PositionTaken):
    """A session was to be new, and the store knows its id."""

    def __init__(self, session: str, position: int) -> None:
        super().__init__(session, 1, position)
        told = f"session {session!r} exists and stands at {position}"
        what = "`Session.open` goes on with it, `Session.open_or_create` goes on or begins"
        self.args = (f"{told}; {what}",)


class StaleOwner(StoreError):
    """Another turn has been claimed since: whoever owned the last one must stop."""

    def __init__(self, session: str, epoch: int, newest: int) -> None:
        self.epoch = epoch
        """The writer's."""
        self.newest = newest
        """The session's."""
        super().__init__(
            f"the turn with epoch {epoch} of session {session!r} was taken over by epoch {newest}; "
            "nothing was written and this turn must stop"
        )


class DuplicateIdempotencyKey(StoreError):
    """A message with this idempotency key is in the log already."""

    def __init__(self, session: str, key: str, position: int) -> None:
        self.key = key
        """The sender's key."""
        self.position = position
        """Where the message stands."""
        super().__init__(f"session {session!r} has a message with key {key!r} at m{position}")


class SessionLockedByOtherProcess(StoreError):
    """Another process writes to this session."""


store_error_listeners: list[Callable[[StoreError], None]] = []
"""Called with each `StoreUnavailable` when it is made, wherever that is: for those who count."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or the disk refuses; nothing was acknowledged."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        for listen in store_error_listeners:
            listen(self)


class StoreFull(StoreUnavailable):
    """No space is left."""


class StoreNotWritable(StoreUnavailable):
    """The place may not be written to."""


class LogDamaged(StoreError):
    """A log that is not one: a gap, or a line in its middle that cannot be read."""


class DatabaseSchemaTooNew(StoreError):
    """The database was migrated by a later release."""


class DatabaseNotMigrated(StoreError):
    """The database has no tables of ours, or those of an earlier release."""


class ErasedError(TrimtabError, LookupError):
    """What was asked for was destroyed, by request or by a retention rule."""


class NewerSnapshotError(TrimtabError, ValueError):
    """A snapshot that a later release wrote."""


class HistoryNotInMemory(TrimtabError, LookupError):
    """What this needs has left memory: fold the log again from before it."""

    def __init__(self, refold_from: int) -> None:
        self.position = refold_from
        """A fold from a snapshot at or before it has all that is needed."""
        super().__init__(f"what happened after position {refold_from} is no longer in memory")


class ContextInUse(TrimtabError, RuntimeError):
    """A second thread has called a context while the first was at it."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"{verb}() was called while another thread is changing this context; nothing was "
            "changed. A context is one conversation: give each thread one of its own, such as a "
            "fork(), or put a lock of yours around its calls"
        )


class UnusableSummary(TrimtabError, ValueError):
    """A summary that would not make the context smaller, or that is no longer true."""


class RequestChangedError(TrimtabError, ValueError):
    """A past request, rendered again, is not what its call recorded."""


class CostCeilingReached(TrimtabError, RuntimeError):
    """A model call was not made: it might have cost more than may be spent."""

    def __init__(
        self, ceiling: str, *, ceiling_usd: float, counted_usd: float, price_usd: float
    ) -> None:
        self.ceiling = ceiling
        """Which one: `session`, `tenant_per_day` or `day`."""
        self.ceiling_usd = ceiling_usd
        """US dollars that may be spent."""
        self.counted_usd = counted_usd
        """US dollars that are spent, or reserved by calls that are being made."""
        self.price_usd = price_usd
        """The most that the call may cost, in US dollars."""
        super().__init__(
            f"the cost ceiling {ceiling} is ${ceiling_usd:,.2f}: ${counted_usd:,.4f} are spent or "
            f"reserved, and the call may cost up to ${price_usd:,.4f}"
        )


class CostCeilingUncheckable(TrimtabError, ValueError):
    """A cost ceiling is set that cannot be kept: the price of a model is not known, or no call fits
    under it."""


class MissingApiKeyError(TrimtabError, LookupError):
    """No key is known for the server that a model would be asked from."""


class MissingBaseUrlError(MissingApiKeyError):
    """It is not known where the server is."""


class MissingSdkError(TrimtabError, ImportError):
    """A provider was asked for whose SDK is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the {name} SDK is not installed; install it with: pip install 'trimtab[{name}]'",
            name=name,
        )


class SessionImportError(TrimtabError, ValueError):
    """The base of all errors of `import_session`; nothing was written."""


class NotAnExportError(SessionImportError):
    """The file is not what `export` writes."""


class NewerExportError(SessionImportError):
    """A later release wrote it."""


class TruncatedExportError(SessionImportError):
    """The end of the file is missing."""


class ExportChecksumError(SessionImportError):
    """The events are not those that were exported."""


class ImportTargetExistsError(SessionImportError):
    """The store has a session of that id."""
