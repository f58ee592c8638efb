"""Reports of a context's own edits: to the caller's `on_edit`, and as a log line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trimtab.log.event import Edit, EditKind, Event
from trimtab.window.window import Window

_logger = logging.getLogger("trimtab.context")
MAX_LOGGED_HANDLES = 8
"""How many handles one log line names. For the rest it gives the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditNotice:
    """A notice that the model no longer sees something in full, from now on."""

    handle: str
    """What was edited: a part (`m12.0`), a message (`m12`) or a range (`m3-m50`). `recall` reads
    it."""
    op: EditKind
    """The kind of edit: `truncate`, `mask`, `summarise` or `drop`."""
    count: int
    """How many messages were edited; 1 for a part of a message."""
    tokens_before: int
    """Estimated tokens of the original."""
    tokens_after: int
    """Estimated tokens of its replacement."""
    reason: str
    """The rule that caused the edit, with its numbers."""


OnEdit = Callable[[EditNotice], object]


def tell_edits(window: Window, events: Sequence[Event], on_edit: OnEdit | None) -> None:
    """Report the edits among events that are already folded.

    An exception of the hook is logged and not raised: the edits are in the log, and the request
    must still be sent.
    """
    is_logged = _logger.isEnabledFor(logging.INFO)
    if not is_logged and on_edit is None:
        return
    notices = [
        _build_notice(window, event.seq, event.body)
        for event in events
        if isinstance(event.body, Edit) and event.body.op != "reveal"
    ]
    if not notices:
        return
    if is_logged:
        _logger.info("%s", _format_log_line(notices))
    if on_edit is None:
        return
    for notice in notices:
        try:
            on_edit(notice)
        except Exception:
            _logger.warning("on_edit failed for %s %s", notice.op, notice.handle, exc_info=True)


def _build_notice(window: Window, seq: int, edit: Edit) -> EditNotice:
    count, before = 1, 0
    if edit.part is not None:
        before = window.entries[edit.first].sizes[edit.part].tokens
    else:
        hidden = window.conversation.groups_hidden_by.get(seq, [])
        count, before = sum(g.message_count for g in hidden), sum(g.tokens for g in hidden)
    return EditNotice(
        handle=edit.handle,
        op=edit.op,
        count=count,
        tokens_before=before,
        tokens_after=edit.size.tokens,
        reason=edit.why,
    )


def _format_log_line(notices: Sequence[EditNotice]) -> str:
    """Format one decision: what was edited, how much and why, without any content."""
    named = ", ".join(f"{each.op} {each.handle}" for each in notices[:MAX_LOGGED_HANDLES])
    more = len(notices) - MAX_LOGGED_HANDLES
    before = sum(each.tokens_before for each in notices)
    after = sum(each.tokens_after for each in notices)
    reasons = "; ".join(dict.fromkeys(each.reason for each in notices[:MAX_LOGGED_HANDLES]))
    return (
        f"context edited: {named}{f' and {more} more' if more > 0 else ''} "
        f"({before:,} tokens became {after:,}): {reasons}"
    )
