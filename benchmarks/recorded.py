"""Recorded Claude Code conversations, as replay reads them."""

from __future__ import annotations

from benchmarks import corpus
from trimtab.replay.choose import choose
from trimtab.replay.conversation import Conversation
from trimtab.replay.readers import read


def held_out() -> list[Conversation]:
    """The half of them that had no part in tuning, each up to where its agent itself compacted."""
    where = corpus.folder()
    paths = sorted(where.glob("entire_claude_code*.jsonl.gz")) if where else []
    return choose((one for path in paths for one in read(path)), half="odd")
