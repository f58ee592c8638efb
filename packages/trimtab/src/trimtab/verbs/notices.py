"""Notices of edits: what the model no longer sees in full, for hooks and for the program's log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction

from trimtab.engine.log.event import Edit, EditKind, Event
from trimtab.engine.text.arguments import describe_wrong_value
from trimtab.engine.window.window import Window

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
"""Hears of each edit. What it returns is ignored."""


def check_on_edit(on_edit: object) -> None:
    """Raise `TypeError` if this cannot be called with a notice."""
    if on_edit is not None and (not callable(on_edit) or iscoroutinefunction(on_edit)):
        right = "a function that takes an EditNotice and is not async"
        raise TypeError(describe_wrong_value("on_edit", on_edit, right))


def are_notices_heard(on_edit: OnEdit | None) -> bool:
    """Whether a hook or the program's log gets notices."""
    return on_edit is not None or _logger.isEnabledFor(logging.INFO)


def build_notices(window: Window, events: Iterable[Event]) -> list[EditNotice]:
    """Build the notices of the edits among events that were folded just now."""
    return [
        _build_notice(window, event.seq, event.body)
        for event in events
        if isinstance(event.body, Edit) and event.body.op != "reveal"
    ]


def _build_notice(window: Window, seq: int, edit: Edit) -> EditNotice:
    if edit.part is not None:
        count = 1
        tokens_before = window.entries[edit.first].sizes[edit.part].tokens
    else:
        groups = window.conversation.groups_hidden_by.get(seq, [])
        count = sum(group.message_count for group in groups)
        tokens_before = sum(group.tokens for group in groups)
        if (summary := window.conversation.summaries_replaced_by.get(seq)) is not None:
            tokens_before += summary.size.tokens
    return EditNotice(
        handle=edit.handle,
        op=edit.op,
        count=count,
        tokens_before=tokens_before,
        tokens_after=edit.size.tokens,
        reason=edit.why,
    )


def report_notices(notices: Sequence[EditNotice], on_edit: OnEdit | None) -> None:
    """Log edits and pass each to the hook.

    An exception of the hook is logged and not raised: the edits are in the log, and the request
    must still be sent.
    """
    if notices and _logger.isEnabledFor(logging.INFO):
        _logger.info("%s", _format_log_line(notices))
    if on_edit is None:
        return
    for notice in notices:
        try:
            on_edit(notice)
        except Exception:
            _logger.warning("on_edit failed for %s %s", notice.op, notice.handle, exc_info=True)


def _format_log_line(notices: Sequence[EditNotice]) -> str:
    """Format one decision: what was edited, how much and why, without any content."""
    edits = ", ".join(f"{each.op} {each.handle}" for each in notices[:MAX_LOGGED_HANDLES])
    more = len(notices) - MAX_LOGGED_HANDLES
    before = sum(each.tokens_before for each in notices)
    after = sum(each.tokens_after for each in notices)
    reasons = "; ".join(dict.fromkeys(each.reason for each in notices[:MAX_LOGGED_HANDLES]))
    return (
        f"context edited: {edits}{f' and {more} more' if more > 0 else ''} "
        f"({before:,} tokens became {after:,}): {reasons}"
    )
