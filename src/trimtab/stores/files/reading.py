"""What is read from a log, a piece at a time, and no file is kept open between two pieces."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from trimtab.core.event import Event, Fork
from trimtab.core.search import best, score, searchable, words_of
from trimtab.stores.files.disk import session_id
from trimtab.stores.files.events import from_line
from trimtab.stores.files.log import LogView
from trimtab.stores.store import Span, Stored

CHUNK = 4 * 1024 * 1024
"""Bytes of lines that are read in one go."""


def read_some(
    view: LogView, spans: Sequence[Span], upto: int | None
) -> tuple[list[Event], list[Span]]:
    """Some of the events at these positions, and the spans that are left."""
    found: list[Event] = []
    size = 0
    end = view.last.seq if upto is None else min(upto, view.last.seq)
    for index, (first, last) in enumerate(spans):
        for seq, line in view.lines(max(first, 1), end if last is None else min(last, end)):
            found.append(from_line(view, seq, line))
            size += len(line)
            if size >= CHUNK:
                return found, [(seq + 1, last), *spans[index + 1 :]]
    return found, []


@dataclass(slots=True, kw_only=True)
class Found:
    """A search, and the best of what it has met so far."""

    words: list[str]
    """What is asked for."""
    limit: int
    """How many positions are wanted."""
    scored: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Hits and positions, at most `limit`."""
    next: int = 1
    """The position from which to search on."""
    whole: bool = False
    """Whether all has been searched."""

    def search_some(self, view: LogView) -> None:
        """Search one more piece of the log."""
        plain = [word.encode() for word in self.words if word.isascii()]
        scored, size, upto = list(self.scored), 0, self.next - 1
        for seq, line in view.lines(self.next, view.last.seq):
            if _may_say(line, plain):
                text = searchable(from_line(view, seq, line))
                scored.append((score(self.words, words_of(text)), seq))
            size, upto = size + len(line), seq
            if size >= CHUNK:
                break
        self.scored = heapq.nlargest(self.limit, scored)
        self.next, self.whole = upto + 1, upto >= view.last.seq

    def best(self) -> list[int]:
        return best(self.scored, self.limit)


def stored(view: LogView) -> Stored:
    """What a list of sessions says of this one."""
    last = view.last
    event = next(from_line(view, *line) for line in view.lines(last.seq, last.seq))
    return Stored(
        session=session_id(view.folder.name),
        position=last.seq,
        messages=last.messages,
        updated=event.at,
        parent=parent_of(view),
    )


def parent_of(view: LogView) -> str | None:
    """The session that this one was last forked from."""
    fork = view.last.fork
    for seq, line in view.lines(fork, fork):
        body = from_line(view, seq, line).body
        return (body.parent or None) if isinstance(body, Fork) else None
    return None


def _may_say(line: bytes, plain: Sequence[bytes]) -> bool:
    """False only if no word can be in it: in a line of ASCII alone a word stands as it is.

    An escaped character may become a plain one in lower case, and a blob is not in the line.
    """
    if b"\\u" in line or b'"blobs":' in line:
        return True
    lower = line.lower()
    return any(word in lower for word in plain)
