"""The messages that a model sees, each with its place in the caller's own list."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from trimtab.engine.log.message import Message, make_text_message
from trimtab.engine.prompt.render import build_summary_and_notice_messages, order_round_entries
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """One message of the next request, in order."""

    message: Message
    """The message as the model sees it."""
    handle: str
    """The handle that recalls it, such as `m12`. It is empty for texts that Trimtab wrote: a
    summary, a notice, the list of the user's earlier messages."""
    positions: range
    """Its places in the list that was last passed to `sync`. One item in Chat or Anthropic, several
    in Responses; empty for a message that is not in the list."""
    is_edited: bool
    """Whether the model sees something else than the caller's message: it was hidden, cut, redacted
    or erased, or Trimtab wrote it."""

    @property
    def is_callers_own(self) -> bool:
        """Whether the caller's own objects, at `positions`, can be sent unchanged.

        Build every other message from `message`.
        """
        return bool(self.positions) and not self.is_edited


def list_shown_messages(
    window: Window, find_positions: Callable[[int], range], changed_seqs: Container[int]
) -> list[ShownMessage]:
    """List the texts before the messages, then the messages, in send order.

    `changed_seqs` are messages that differ in the log from the caller's.
    """
    settings = window.settings
    listed = window.conversation.user_words.render_blocks(show_handles=settings.recall)
    written = [
        *(make_text_message("user", text) for text in listed),
        *build_summary_and_notice_messages(window, "user"),
    ]
    shown = [
        ShownMessage(message=message, handle="", positions=range(0), is_edited=True)
        for message in written
    ]
    for group in window.visible_groups.values():
        for part in group.rounds:
            for entry, message in order_round_entries(part):
                positions = range(0) if entry.is_repair else find_positions(entry.seq)
                is_kept = message is entry.message and entry.seq not in changed_seqs
                shown.append(
                    ShownMessage(
                        message=message,
                        handle=f"m{entry.seq}",
                        positions=positions,
                        is_edited=entry.is_repair or not is_kept or _is_erased(window, entry),
                    )
                )
    return shown


def _is_erased(window: Window, entry: Entry) -> bool:
    parts = range(len(entry.message.parts))
    return any(window.base.find_erasing_event(entry.seq, part) is not None for part in parts)
