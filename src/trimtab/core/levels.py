"""A summary opened by one level: the summary inside it, then what was said since, by handle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trimtab.core.edits import Handle
from trimtab.core.event import Edit
from trimtab.core.message import Message, ToolCall, words_of_part

LINE_CHARS = 100
"""Of a message's first line."""
LEAST_CHARS = 40
"""Of it, where there are many."""
DEPTH = 400
"""Summaries of summaries that are gone through to find one."""


def names(named: Handle, summary: Edit) -> bool:
    """Whether a handle is that of a whole summary, and not of one message."""
    span = (summary.first, summary.last)
    return named.part is None and named.first < named.last and (named.first, named.last) == span


def opened(
    named: Handle, chain: Iterable[Edit], said: Mapping[int, Message], *, limit: int
) -> str | None:
    """What stands one level below the summary that a handle names; None where it names none.

    `chain` is a summary, the one it carries on, and so on. Summaries of the same span are one
    level: the oldest of them, from before it was shortened, says most.
    """
    levels = list(chain)
    own = [i for i, edit in enumerate(levels) if names(named, edit)]
    if not own:
        return None
    at = own[-1]
    made = levels[at]
    inner = levels[at + 1] if at + 1 < len(levels) else None
    head = [f"[a summary of m{made.first}-m{made.last}; it was made from:]"]
    if at > own[0]:
        head = [f"[the summary as it was first made]\n{made.text}", *head]
    if inner is not None:
        head.append(f"[the summary before it · recall {inner.handle}]\n{inner.text}")
    before = inner.last if inner is not None else 0
    since = {seq: message for seq, message in said.items() if seq > before}
    start = "\n".join(head)
    return f"{start}\n{_listed(since, limit - len(start) - 1)}"


def _listed(said: Mapping[int, Message], room: int) -> str:
    """One line for each message; where there are too many the middle is named by its handle."""
    if not said:
        return "[no messages of its own]"
    each = max(LEAST_CHARS, min(LINE_CHARS, room // len(said) - 20))
    lines = [
        f"m{seq} {message.role}: {_first_line(message, each)}" for seq, message in said.items()
    ]
    seqs = list(said)
    if sum(len(line) + 1 for line in lines) <= room:
        return "\n".join(lines)
    keep = max(1, (room - 60) // (2 * (each + 20)))
    cut = f"[… recall m{seqs[keep]}-m{seqs[-keep - 1]}]"
    return "\n".join([*lines[:keep], cut, *lines[len(lines) - keep :]])


def _first_line(message: Message, limit: int) -> str:
    for part in message.parts:
        text = words_of_part(part) or ""
        if isinstance(part, ToolCall):
            text = f"{part.name} {text}"
        if line := next((line.strip() for line in text.splitlines() if line.strip()), ""):
            return line if len(line) <= limit else f"{line[: limit - 1]}…"
    return ""
