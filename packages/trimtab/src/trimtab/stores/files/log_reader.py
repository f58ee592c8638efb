"""Read a log piece by piece. No file is kept open between two pieces."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from trimtab.engine.log.event import Event, Fork
from trimtab.engine.recall.search import (
    Query,
    get_searchable_text,
    rank_scored_positions,
    score_text,
)
from trimtab.stores.base import PositionSpan, SessionListEntry
from trimtab.stores.files.disk import folder_name_to_session
from trimtab.stores.files.event_lines import event_and_size_from_line, event_from_line
from trimtab.stores.files.log_file import LogView

READ_CHUNK_BYTES = 256 * 1024
"""Bytes of events to read at once. A stream that nobody reads keeps as many."""


def read_event_chunk(
    view: LogView, spans: Sequence[PositionSpan], last_position: int | None
) -> tuple[list[Event], list[PositionSpan]]:
    """Return some of the events at these positions, and the remaining spans."""
    events: list[Event] = []
    size = 0
    end = view.last.seq if last_position is None else min(last_position, view.last.seq)
    for index, (first, last) in enumerate(spans):
        for seq, line in view.read_lines(max(first, 1), end if last is None else min(last, end)):
            event, event_size = event_and_size_from_line(view, seq, line)
            events.append(event)
            size += event_size
            if size >= READ_CHUNK_BYTES:
                return events, [(seq + 1, last), *spans[index + 1 :]]
    return events, []


@dataclass(slots=True, kw_only=True)
class LogSearch:
    """A search, and the best results so far."""

    query: Query
    """What to search for."""
    limit: int
    """Maximum number of positions to return."""
    scored: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Scores and positions, at most `limit`."""
    next: int = 1
    """The position from which to continue."""
    is_complete: bool = False
    """Whether the whole log was searched."""

    def search_next_chunk(self, view: LogView) -> None:
        """Search one more piece of the log."""
        plain = [word.encode() for word in self.query.words if word.isascii()]
        scores = list(self.scored)
        size = 0
        upto = self.next - 1
        for seq, line in view.read_lines(self.next, view.last.seq):
            if _may_contain_word(line, plain):
                text = get_searchable_text(event_from_line(view, seq, line))
                scores.append((score_text(self.query, text), seq))
            size = size + len(line)
            upto = seq
            if size >= READ_CHUNK_BYTES:
                break
        self.scored = heapq.nlargest(self.limit, scores)
        self.next = upto + 1
        self.is_complete = upto >= view.last.seq

    def best_positions(self) -> list[int]:
        return rank_scored_positions(self.scored, self.limit)


def read_session_list_entry(view: LogView) -> SessionListEntry:
    """Return the entry of this session for a list of sessions."""
    last = view.last
    event = next(event_from_line(view, *line) for line in view.read_lines(last.seq, last.seq))
    return SessionListEntry(
        session=folder_name_to_session(view.folder.name),
        position=last.seq,
        messages=last.messages,
        updated=event.at,
        active=view.path.stat().st_mtime,
        parent=find_parent_session(view),
    )


def find_parent_session(view: LogView) -> str | None:
    """Return the session from which this one was last forked."""
    fork = view.last.fork
    for seq, line in view.read_lines(fork, fork):
        body = event_from_line(view, seq, line).body
        return (body.parent or None) if isinstance(body, Fork) else None
    return None


def _may_contain_word(line: bytes, plain: Sequence[bytes]) -> bool:
    """Whether a line may contain a word. It is False only if that is certain.

    In a line of pure ASCII a word is written as it is. An escaped character may become a plain one
    in lower case, and a blob is not in the line.
    """
    if b"\\u" in line or b'"blobs":' in line:
        return True
    lower = line.lower()
    return any(word in lower for word in plain)
