"""A summary opened by one level: the summary inside it, then the later messages by handle.

The text of a summary is indented, and each message has one line, so no text looks like a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trimtab.engine.log.edits import HandleTarget
from trimtab.engine.log.event import Edit
from trimtab.engine.log.message import Message, ToolCall, extract_text_or_arguments
from trimtab.engine.log.text_cuts import add_recall_handle, format_recall_hint
from trimtab.engine.text.quoting import collapse_whitespace, indent_lines

MAX_FIRST_LINE_CHARS = 100
"""Maximum number of characters of a message's first line."""
MIN_FIRST_LINE_CHARS = 40
"""The same, if there are many messages."""
MAX_SUMMARY_DEPTH = 400
"""Maximum number of nested summaries to search."""


def is_summary_handle(handle: HandleTarget, summary: Edit) -> bool:
    """Whether a handle names a whole summary, and not one message."""
    span = (summary.first, summary.last)
    return (
        handle.part_index is None
        and handle.first_seq < handle.last_seq
        and (handle.first_seq, handle.last_seq) == span
    )


def expand_summary(
    handle: HandleTarget,
    summary_chain: Iterable[Edit],
    messages: Mapping[int, Message],
    *,
    max_chars: int,
    recall_hint: str,
) -> str | None:
    """Return what is one level below the summary that a handle names, or None if it names none.

    `summary_chain` is a summary, the one it continues, and so on. Summaries of the same span are
    one level: the oldest, from before it was shortened, contains most.
    """
    levels = list(summary_chain)
    matches = [i for i, edit in enumerate(levels) if is_summary_handle(handle, edit)]
    if not matches:
        return None
    at = matches[-1]
    summary = levels[at]
    inner = levels[at + 1] if at + 1 < len(levels) else None
    head = [f"[a summary of m{summary.first}-m{summary.last}; it was made from:]"]
    if at > matches[0]:
        head = [f"[the summary as it was first made]\n{indent_lines(summary.text)}", *head]
    if inner is not None:
        title = add_recall_handle("[the summary before it]", inner.handle, recall_hint)
        head.append(f"{title}\n{indent_lines(inner.text)}")
    before = inner.last if inner is not None else 0
    since = {seq: message for seq, message in messages.items() if seq > before}
    start = "\n".join(head)
    return f"{start}\n{_list_messages(since, max_chars - len(start) - 1, recall_hint)}"


def _list_messages(messages: Mapping[int, Message], max_chars: int, recall_hint: str) -> str:
    """Return one line for each message. If there are too many, a handle stands for the middle."""
    if not messages:
        return "[no messages of its own]"
    line_chars = max(
        MIN_FIRST_LINE_CHARS, min(MAX_FIRST_LINE_CHARS, max_chars // len(messages) - 20)
    )
    lines = [
        f"m{seq} {message.speaker}: {_first_line(message, line_chars)}"
        for seq, message in messages.items()
    ]
    seqs = list(messages)
    if sum(len(line) + 1 for line in lines) <= max_chars:
        return "\n".join(lines)
    keep = max(1, (max_chars - 60) // (2 * (line_chars + 20)))
    middle = format_recall_hint(f"m{seqs[keep]}-m{seqs[-keep - 1]}", recall_hint)
    return "\n".join([*lines[:keep], f"[… {middle}]", *lines[len(lines) - keep :]])


def _first_line(message: Message, limit: int) -> str:
    for part in message.parts:
        text = extract_text_or_arguments(part) or ""
        if isinstance(part, ToolCall):
            text = f"{collapse_whitespace(part.name)} {text}"
        if line := next((line.strip() for line in text.splitlines() if line.strip()), ""):
            return line if len(line) <= limit else f"{line[: limit - 1]}…"
    return ""
