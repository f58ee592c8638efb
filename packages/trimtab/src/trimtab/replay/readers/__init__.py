"""Read recorded conversations from any supported file format.

The content decides the format: a log or an export of Trimtab, conversations as records, plain
messages, a Claude Code transcript, a Codex rollout, a session of pi or the database of opencode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from trimtab.replay.locations import list_recording_files
from trimtab.replay.readers import claude_code, codex, opencode, pi, trimtab_logs
from trimtab.replay.readers import records as conversation_records
from trimtab.replay.readers.json_files import (
    READ_ERRORS,
    JsonLine,
    LogFile,
    OnSkipped,
    UnreadableRecording,
)
from trimtab.replay.selection import RecordedConversation

__all__ = ["RECORDING_FORMATS_TEXT", "UnreadableRecording", "read_recordings"]

RECORDING_FORMATS_TEXT = (
    "a trimtab log or export, conversations with `messages`, a list of OpenAI or Anthropic "
    "messages, one such message per line, a Claude Code transcript, a Codex rollout, a pi session "
    "or the database of opencode"
)
"""The supported formats."""
_Reader = Callable[[LogFile, Iterator[JsonLine]], Iterator[RecordedConversation]]
_FORMATS: tuple[tuple[Callable[[JsonLine], bool], _Reader], ...] = (
    (trimtab_logs.is_trimtab_log_line, trimtab_logs.read_trimtab_log),
    (
        conversation_records.is_whole_conversation_line,
        conversation_records.read_conversation_records,
    ),
    (codex.is_codex_line, codex.read_codex_rollout),
    (pi.is_pi_line, pi.read_pi_session),
    (claude_code.is_claude_code_line, claude_code.read_claude_code_transcript),
    (conversation_records.is_message_line, conversation_records.read_message_lines),
)


def read_recordings(
    path: Path, on_skipped: OnSkipped | None = None
) -> Iterator[RecordedConversation]:
    """Yield the conversations of a file, or of all files in a folder and its subfolders.

    A session that its client compacted is read as several conversations, one for each part.

    Args:
        path: The file or folder.
        on_skipped: Called for each line or file that cannot be read. Without it, the first of
            them raises.

    Raises:
        UnreadableRecording: A file is damaged or has none of the formats. The message names the
            file, the line and what was expected.
    """
    for inner in list_recording_files(path):
        try:
            yield from _read_recording_file(LogFile(inner, on_skipped))
        except UnreadableRecording as error:
            if on_skipped is None:
                raise
            on_skipped(error)


def _read_recording_file(file: LogFile) -> Iterator[RecordedConversation]:
    try:
        with file.path.open("rb") as start:
            is_database = start.read(16) == opencode.SQLITE_START
        if is_database:
            yield from opencode.read_opencode_database(file)
        else:
            yield from _read_json_file(file)
    except UnreadableRecording:
        raise
    except READ_ERRORS as error:
        expectation = f"expected {RECORDING_FORMATS_TEXT}"
        raise UnreadableRecording(file.path, 1, expectation) from error


def _read_json_file(file: LogFile) -> Iterator[RecordedConversation]:
    document = file.load_document_unless_lines()
    if document is not None:
        yield from conversation_records.read_json_document(file, document)
        return
    lines = file.iter_lines()
    first_lines: list[JsonLine] = []
    for line in lines:
        first_lines.append(line)
        for fits, reader in _FORMATS:
            if fits(line):
                yield from reader(file, chain(first_lines, lines))
                return
    raise UnreadableRecording(
        file.path, first_lines[0].number if first_lines else 1, f"expected {RECORDING_FORMATS_TEXT}"
    )
