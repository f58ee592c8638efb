"""What can go wrong with a store, each named by its cause."""

from __future__ import annotations

from collections.abc import Sequence


class StoreError(Exception):
    """Any of the below."""


class NoSession(StoreError, LookupError):
    """The store knows no session of that id; `like` are some that may be meant."""

    def __init__(self, session: str, *, like: Sequence[str] = ()) -> None:
        meant = f"did you mean {' or '.join(like)}? " if like else ""
        super().__init__(
            f"there is no session {session!r}; {meant}`trimtab session list` shows all"
        )


class PositionTaken(StoreError):
    """Somebody else has written to the log since it was read."""

    def __init__(self, session: str, wanted: int, position: int) -> None:
        self.wanted = wanted
        """Where the first event was to stand."""
        self.position = position
        """The log's last position."""
        super().__init__(
            f"session {session!r} stands at {position}, so no event can be put at {wanted}; read "
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


class KeyTaken(StoreError):
    """A message with this idempotency key is in the log already."""

    def __init__(self, session: str, key: str, position: int) -> None:
        self.key = key
        """The sender's key."""
        self.position = position
        """Where the message stands."""
        super().__init__(f"session {session!r} has a message with key {key!r} at m{position}")


class SessionBusy(StoreError):
    """Another process writes to this session."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or the disk refuses; nothing was acknowledged."""


class StoreFull(StoreUnavailable):
    """No space is left."""


class StoreReadOnly(StoreUnavailable):
    """The place may not be written to."""


class Damaged(StoreError):
    """A log that is not one: a gap, or a line in its middle that cannot be read."""


class NewerSchema(StoreError):
    """The database was migrated by a later release."""


class NotMigrated(StoreError):
    """The database has no tables of ours, or those of an earlier release."""
