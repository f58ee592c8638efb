"""The messages that a model is shown, each with where it stands in the caller's own list."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from trimtab.log.message import Message, make_text_message
from trimtab.prompt.render import build_summary_and_notice_messages, order_round_entries
from trimtab.window.entries_rounds_groups import Entry
from trimtab.window.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """One message of the next request, in its place there."""

    message: Message
    """As the model sees it."""
    handle: str
    """By what it is recalled, as `m12`; empty for what was written for the model alone: a summary,
    a notice, what the user said earlier."""
    positions: range
    """Where it stands in the list that `sync` was given last. One item of Chat or Anthropic, some
    of Responses; empty for a message that is not in the list."""
    is_edited: bool
    """Whether the model sees something else than the caller gave: it was hidden, cut, redacted,
    erased, or written by Trimtab."""

    @property
    def is_callers_own(self) -> bool:
        """Whether the caller's own objects, at `positions`, can be sent as they are, with all that
        only they carry. All others have to be made from `message`."""
        return bool(self.positions) and not self.is_edited


def list_shown_messages(
    window: Window, find_positions: Callable[[int], range], changed_seqs: Container[int]
) -> list[ShownMessage]:
    """What stands before the messages, then the messages, in the order in which they are sent.
    Changed are those that the log has otherwise than the caller."""
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
