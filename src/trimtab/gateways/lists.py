"""Who is meant by a list of ids and names in `agent.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Set

EVERYBODY = "*"


def is_listed(listed: Iterable[int | str], known: Set[str]) -> bool:
    """Whether one of a sender's ids or names is in a list; names are known in small letters."""
    return any(str(one) == EVERYBODY or str(one).casefold() in known for one in listed)
