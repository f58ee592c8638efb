"""The word index in PostgreSQL: lexemes that begin with their session's tag."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from trimtab.engine.log.event import Event
from trimtab.engine.recall.search import get_searchable_text, split_index_words

MAX_LEXEME_BYTES = 512 * 1024
"""Maximum bytes of lexemes in one tsvector. PostgreSQL allows a megabyte."""


def build_lexeme_chunks(session_key: UUID, event: Event) -> Iterator[list[str]]:
    """Yield the words of a message, for one row after another; nothing if it has none."""
    tag = _session_tag(session_key)
    chunk: list[str] = []
    size = 0
    for word in sorted(split_index_words(get_searchable_text(event))):
        chunk.append(tag + word)
        size += len(chunk[-1].encode())
        if size > MAX_LEXEME_BYTES:
            yield chunk
            chunk = []
            size = 0
    if chunk:
        yield chunk


def build_word_and_prefix_tsqueries(session_key: UUID, words: list[str]) -> list[str]:
    """Return two tsqueries for each word: for messages that contain it, and for those with a word
    that begins with it.

    The number of matching queries is a message's score: a message that contains a word matches
    both.
    """
    tag = _session_tag(session_key)
    lexemes = [(tag + word).replace("\\", "\\\\").replace("'", "''") for word in words]
    return [query for word in lexemes for query in (f"'{word}'", f"'{word}':*")]


def _session_tag(session: UUID) -> str:
    # The last digits: a UUID of version 7 begins with its time, which many sessions share.
    return session.hex[-8:]
