"""Who is meant by a list of ids and names in `agent.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Set

EVERYONE_WILDCARD = "*"


def matches_access_list(access_list: Iterable[int | str], sender_identities: Set[str]) -> bool:
    """Whether one of a sender's ids or names is in a list; names are known in small letters."""
    return any(
        str(one) == EVERYONE_WILDCARD or str(one).casefold() in sender_identities
        for one in access_list
    )
