"""Read recorded conversations from any supported file format.

The content decides the format: a log or an export of Trimtab, conversations as records, plain
messages, a Claude Code transcript or a Codex rollout. Files may be compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from trimtab.replay.readers import claude_code, codex, trimtab_logs
from trimtab.replay.readers import records as conversation_records
from trimtab.replay.readers.json_files import (
    JsonLine,
    UnreadableRecording,
    iter_json_lines,
    load_json_document_unless_lines,
)
from trimtab.replay.selection import RecordedConversation

__all__ = ["RECORDING_FORMATS_TEXT", "RECORDING_SUFFIXES", "UnreadableRecording", "read_recordings"]

RECORDING_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
"""Suffixes of the files to read in a folder."""
RECORDING_FORMATS_TEXT = (
    "a trimtab log or export, conversations with `messages`, a list of OpenAI or Anthropic "
    "messages, one such message per line, a Claude Code transcript or a Codex rollout"
)
"""The supported formats."""
_Reader = Callable[[Path, Iterator[JsonLine]], Iterator[RecordedConversation]]
_FORMATS: tuple[tuple[Callable[[JsonLine], bool], _Reader], ...] = (
    (trimtab_logs.is_trimtab_log_line, trimtab_logs.read_trimtab_log),
    (
        conversation_records.is_whole_conversation_line,
        conversation_records.read_conversation_records,
    ),
    (codex.is_codex_line, codex.read_codex_rollout),
    (claude_code.is_claude_code_line, claude_code.read_claude_code_transcript),
    (conversation_records.is_message_line, conversation_records.read_message_lines),
)


def read_recordings(
    path: Path, on_skipped: Callable[[UnreadableRecording], None] | None = None
) -> Iterator[RecordedConversation]:
    """Yield the conversations of a file, or of all files in a folder and its subfolders.

    Args:
        path: The file or folder.
        on_skipped: Called for each unreadable file of a folder. Without it, such a file raises.

    Raises:
        UnreadableRecording: A file is damaged or has none of the formats. The message names the
            file, the line and what was expected.
    """
    if not path.is_dir():
        yield from _read_recording_file(path)
        return
    for inner in sorted(path.rglob("*")):
        if inner.name.endswith(RECORDING_SUFFIXES) and inner.is_file():
            try:
                yield from _read_recording_file(inner)
            except UnreadableRecording as error:
                if on_skipped is None:
                    raise
                on_skipped(error)


def _read_recording_file(path: Path) -> Iterator[RecordedConversation]:
    document = load_json_document_unless_lines(path)
    if document is not None:
        yield from conversation_records.read_json_document(path, document)
        return
    lines = iter_json_lines(path)
    seen: list[JsonLine] = []
    for line in lines:
        seen.append(line)
        for fits, reader in _FORMATS:
            if fits(line):
                yield from reader(path, chain(seen, lines))
                return
    raise UnreadableRecording(
        path, seen[0].number if seen else 1, f"expected {RECORDING_FORMATS_TEXT}"
    )
