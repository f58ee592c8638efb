"""The part of a window that a custom policy may read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from trimtab.engine.log.event import Edit, JsonMapping, LoggedModelCall, Settings
from trimtab.engine.tokens.counter import TokenCounter
from trimtab.engine.window.structure import Entry, Group, ToolResultView, TurnResultKeys


class WindowView(Protocol):
    """A read-only view of a window, for policies. Everything else of a window may change in any
    release.

    A position (`seq`) is the position of an event in the log. A policy must not change anything
    here.
    """

    @property
    def settings(self) -> Settings:
        """Everything that shapes a request except the messages: model, system prompt, tools and
        limits."""
        ...

    @property
    def counter(self) -> TokenCounter:
        """The token counter that the settings name."""
        ...

    @property
    def seq(self) -> int:
        """The position of the last event."""
        ...

    @property
    def entries(self) -> dict[int, Entry]:
        """All messages in memory by position, oldest first, including hidden ones."""
        ...

    @property
    def visible_groups(self) -> dict[int, Group]:
        """The groups that are not hidden, by index, oldest first."""
        ...

    @property
    def results(self) -> dict[tuple[int, int], ToolResultView]:
        """Tool results that are neither masked nor hidden, by message and part, oldest first."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of everything visible: messages, the list of the user's words, summary and
        notice."""
        ...

    @property
    def tokens(self) -> int:
        """Estimated tokens of everything visible: messages, the list of the user's words, summary
        and notice."""
        ...

    @property
    def visible_messages(self) -> int:
        """Number of visible messages, without summary and notice."""
        ...

    @property
    def newest_user_entry(self) -> Entry | None:
        """The newest user message, which began the turn; None before the first."""
        ...

    @property
    def turn_start_group(self) -> int:
        """Index of the group that holds the newest user message; -1 before the first."""
        ...

    @property
    def turn_results(self) -> TurnResultKeys:
        """All tool results since the newest user message, including hidden ones."""
        ...

    @property
    def summary(self) -> Edit | None:
        """The summary in force; None without one."""
        ...

    @property
    def last_call(self) -> LoggedModelCall | None:
        """The newest model call; None before the first."""
        ...

    @property
    def policy_note(self) -> JsonMapping | None:
        """The policy's own record of the last call. A fork starts without one."""
        ...

    @property
    def read_through_seq(self) -> int:
        """The last position to which the model has replied. A later call may have failed."""
        ...

    def unsent_results(self) -> Iterator[ToolResultView]:
        """Yield visible results that were never sent, newest first."""
        ...

    def is_protected(self, group: Group) -> bool:
        """Whether the group holds the newest user message or the active round."""
        ...
