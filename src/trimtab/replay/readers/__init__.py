"""Recorded conversations, from whatever file they were recorded in.

What a file holds is told by its content: a log or an export of our own, conversations as records,
plain messages, a Claude Code transcript or a Codex rollout. Compressed or not makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from trimtab.replay.conversation import Conversation
from trimtab.replay.readers import claude_code, codex, own, records
from trimtab.replay.readers.lines import Line, Unreadable, lines_of, whole

__all__ = ["ENDINGS", "KINDS", "Unreadable", "read"]

ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
"""Of the files of a directory that are looked into."""
KINDS = (
    "a trimtab log or export, conversations with `messages`, OpenAI or Anthropic messages as a "
    "list or one a line, a Claude Code transcript or a Codex rollout"
)
"""What a file may hold."""
_Reader = Callable[[Path, Iterator[Line]], Iterator[Conversation]]
_FORMATS: tuple[tuple[Callable[[Line], bool], _Reader], ...] = (
    (own.fits, own.read),
    (records.fits, records.read),
    (codex.fits, codex.read),
    (claude_code.fits, claude_code.read),
    (records.is_message, records.read_messages),
)


def read(path: Path, skipped: Callable[[Unreadable], None] | None = None) -> Iterator[Conversation]:
    """The conversations of a file, or of all files below a directory.

    Raises Unreadable with the file, the line and what was expected. In a directory, files that are
    none of the formats are told to `skipped` and passed over, where it is given.
    """
    if not path.is_dir():
        yield from _file(path)
        return
    for inner in sorted(path.rglob("*")):
        if inner.name.endswith(ENDINGS) and inner.is_file():
            try:
                yield from _file(inner)
            except Unreadable as error:
                if skipped is None:
                    raise
                skipped(error)


def _file(path: Path) -> Iterator[Conversation]:
    document = whole(path)
    if document is not None:
        yield from records.read_document(path, document)
        return
    lines = lines_of(path)
    seen: list[Line] = []
    for line in lines:
        seen.append(line)
        for fits, reader in _FORMATS:
            if fits(line):
                yield from reader(path, chain(seen, lines))
                return
    raise Unreadable(path, seen[0].number if seen else 1, f"expected {KINDS}")
