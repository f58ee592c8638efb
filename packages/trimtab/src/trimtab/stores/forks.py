"""What becomes of files and connections in another process."""

from __future__ import annotations

import os
from typing import NoReturn, Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """What a forked process inherits and must not use."""

    def leave_to_parent(self) -> None:
        """Begin without what belongs to the parent process. Called in the forked process."""
        ...


_inherited: WeakSet[Inherited] = WeakSet()
_kept: list[object] = []


def leave_at_fork(value: Inherited) -> None:
    """Call `leave_to_parent` in each process that is forked while the value exists."""
    _inherited.add(value)


def keep_unused(value: object) -> None:
    """Keep what belongs to the parent process, because its destructor would write."""
    _kept.append(value)


def refuse_pickling(name: str) -> NoReturn:
    """Raise the error for a store that would be copied to another process."""
    raise TypeError(f"a {name} cannot be pickled; pass its location, and open the store there")


def _leave_all() -> None:
    for value in [*_inherited]:
        value.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
