"""The index of words in PostgreSQL's terms: lexemes that begin with their session's tag."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from trimtab.core.event import Event
from trimtab.core.search import searchable, words_of

ROOM = 512 * 1024
"""Bytes of lexemes in one tsvector; PostgreSQL takes a megabyte."""


def lexemes(session: UUID, event: Event) -> Iterator[list[str]]:
    """The words of a message for one row after another; nothing if it says none."""
    tag = _tag(session)
    chunk: list[str] = []
    size = 0
    for word in sorted(words_of(searchable(event))):
        chunk.append(tag + word)
        size += len(chunk[-1].encode())
        if size > ROOM:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def queries(session: UUID, wanted: list[str]) -> list[str]:
    """Two tsqueries for each word: messages that hold it, and those where it begins some word.

    How many of them a message answers is its score: whoever holds a word answers both.
    """
    tag = _tag(session)
    quoted = [(tag + word).replace("\\", "\\\\").replace("'", "''") for word in wanted]
    return [query for word in quoted for query in (f"'{word}'", f"'{word}':*")]


def _tag(session: UUID) -> str:
    # The last digits: a UUID of version 7 begins with its time, which many sessions share.
    return session.hex[-8:]
