"""Recorded Claude Code conversations, as replay reads them."""

from __future__ import annotations

from benchmarks import corpus
from trimtab.replay.readers import read_recordings
from trimtab.replay.selection import RecordedConversation, select_conversations


def held_out() -> list[RecordedConversation]:
    """The half of them that had no part in tuning, each up to where its agent itself compacted."""
    where = corpus.folder()
    paths = sorted(where.glob("entire_claude_code*.jsonl.gz")) if where else []
    return select_conversations(
        (one for path in paths for one in read_recordings(path) if one.part == 1), half="odd"
    )
