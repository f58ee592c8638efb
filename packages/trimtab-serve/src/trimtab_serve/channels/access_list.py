"""Decide which senders get an answer, by the lists of ids and names in `agent.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Protocol

EVERYONE_WILDCARD = "*"


class AccessLists(Protocol):
    """The two lists of a channel's block in `agent.yaml`."""

    @property
    def allow(self) -> Iterable[int | str]:
        """Senders and chats that get an answer."""
        ...

    @property
    def deny(self) -> Iterable[int | str]:
        """Senders and chats that get no answer, even if they are in `allow`."""
        ...


def matches_access_list(access_list: Iterable[int | str], identities: Set[str]) -> bool:
    """Return whether a list has one of these ids or names. Names are in lower case."""
    return any(
        str(one) == EVERYONE_WILDCARD or str(one).casefold() in identities for one in access_list
    )


def is_allowed(lists: AccessLists, identities: Set[str]) -> bool:
    """Return whether a sender gets an answer, by their identities or their chat's.

    One matching entry in `deny` is enough to refuse.
    """
    return matches_access_list(lists.allow, identities) and not matches_access_list(
        lists.deny, identities
    )
