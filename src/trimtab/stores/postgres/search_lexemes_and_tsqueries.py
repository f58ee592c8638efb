"""The index of words in PostgreSQL's terms: lexemes that begin with their session's tag."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from trimtab.log.event import Event
from trimtab.recall.search_ranking import get_searchable_text, split_index_words

MAX_LEXEME_BYTES = 512 * 1024
"""Bytes of lexemes in one tsvector; PostgreSQL takes a megabyte."""


def build_lexeme_chunks(session_key: UUID, event: Event) -> Iterator[list[str]]:
    """The words of a message for one row after another; nothing if it says none."""
    tag = _session_tag(session_key)
    chunk: list[str] = []
    size = 0
    for word in sorted(split_index_words(get_searchable_text(event))):
        chunk.append(tag + word)
        size += len(chunk[-1].encode())
        if size > MAX_LEXEME_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def build_word_and_prefix_tsqueries(session_key: UUID, words: list[str]) -> list[str]:
    """Two tsqueries for each word: messages that hold it, and those where it begins some word.

    How many of them a message answers is its score: whoever holds a word answers both.
    """
    tag = _session_tag(session_key)
    quoted = [(tag + word).replace("\\", "\\\\").replace("'", "''") for word in words]
    return [query for word in quoted for query in (f"'{word}'", f"'{word}':*")]


def _session_tag(session: UUID) -> str:
    # The last digits: a UUID of version 7 begins with its time, which many sessions share.
    return session.hex[-8:]
