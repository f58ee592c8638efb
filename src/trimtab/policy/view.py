"""What a policy of one's own may read of a window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from trimtab.log.event import Edit, JsonMapping, LoggedModelCall, Settings
from trimtab.tokens.counter import TokenCounter
from trimtab.window.entries_rounds_groups import Entry, Group, ToolResultView, TurnResultKeys


class WindowView(Protocol):
    """A window, read only: what a policy is given. All else of a window may change in any release.

    A position (`seq`) is that of an event in the log. Nothing here may be changed by a policy.
    """

    @property
    def settings(self) -> Settings:
        """All that shapes a request beside the messages: model, system prompt, tools, limits."""
        ...

    @property
    def counter(self) -> TokenCounter:
        """What counts tokens, as the settings name it."""
        ...

    @property
    def seq(self) -> int:
        """The position of the last event."""
        ...

    @property
    def entries(self) -> dict[int, Entry]:
        """By position: all messages in memory, oldest first, hidden ones included."""
        ...

    @property
    def visible_groups(self) -> dict[int, Group]:
        """By index: the groups that are not hidden, oldest first."""
        ...

    @property
    def results(self) -> dict[tuple[int, int], ToolResultView]:
        """By message and part: tool results that are neither masked nor hidden, oldest first."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of all that is visible: messages, the user's words, summary and notice."""
        ...

    @property
    def tokens(self) -> int:
        """Estimated tokens of all that is visible: messages, the user's words, summary, notice."""
        ...

    @property
    def visible_messages(self) -> int:
        """How many messages are visible, without summary and notice."""
        ...

    @property
    def newest_user_entry(self) -> Entry | None:
        """The newest message of the user, which began the turn; None before the first."""
        ...

    @property
    def turn_start_group(self) -> int:
        """Index of the group that holds the newest user message; -1 before the first."""
        ...

    @property
    def turn_results(self) -> TurnResultKeys:
        """All tool results since the newest user message, hidden or not."""
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
        """The policy's own record of the last call; a fork starts without one."""
        ...

    @property
    def read_through_seq(self) -> int:
        """The last position that the model has replied to: a call that was made may have failed."""
        ...

    def unsent_results(self) -> Iterator[ToolResultView]:
        """Visible results that were never sent, newest first."""
        ...

    def is_protected(self, group: Group) -> bool:
        """Whether the group holds the newest user message or the active round."""
        ...
