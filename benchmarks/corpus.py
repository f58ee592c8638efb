"""Recorded conversations, read from the folder named by TRIMTAB_CORPUS.

The folder holds `*.jsonl.gz`, one conversation a line: {"id", "source", "tools"?, "messages",
"meta"?}, the messages as Chat Completions dicts, each call with its result right behind it.
"""

from __future__ import annotations

import gzip
import hashlib
import heapq
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.replay.readers import read_recordings
from trimtab.replay.selection import RecordedConversation

VARIABLE = "TRIMTAB_CORPUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    id: str
    """Unique in the corpus."""
    source: str
    """The file it stands in, without its endings."""
    messages: list[dict[str, Any]]
    """Chat Completions dicts, in the order they were said."""
    tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Tool definitions, where they were recorded."""
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    """What else was recorded: `usage` by message index, `compact` with the places."""


def folder() -> Path | None:
    """The corpus, if there is one here."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named and any(Path(named).glob("*.jsonl.gz")) else None


def conversations(*, each: int | None = None) -> Iterator[Conversation]:
    """All conversations of the corpus in a fixed order, or a fixed sample: so many of each file."""
    where = folder()
    if where is None:
        return
    for path in sorted(where.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            read = (_read(line, path.name.removesuffix(".jsonl.gz")) for line in lines)
            yield from read if each is None else heapq.nsmallest(each, read, key=_order)


def read_recorded(pattern: str) -> Iterator[RecordedConversation]:
    """The conversations of the files whose names match, as `trimtab replay` reads them."""
    where = folder()
    with tempfile.TemporaryDirectory() as name:
        for path in sorted(where.glob(pattern)) if where else ():
            plain = Path(name, path.stem)
            with gzip.open(path) as packed, plain.open("wb") as file:
                shutil.copyfileobj(packed, file)
            yield from read_recordings(plain)
            plain.unlink()


def falls_in(conversation: Conversation, one_in: int) -> bool:
    """Whether a conversation is in the sample that takes one in so many of the whole corpus."""
    return _order(conversation) % one_in == 0


def _order(conversation: Conversation) -> int:
    """A number that tells nothing about the conversation and is the same everywhere."""
    return int.from_bytes(hashlib.sha256(conversation.id.encode()).digest()[:8], "big")


def _read(line: str, source: str) -> Conversation:
    one = json.loads(line)
    return Conversation(
        id=one["id"],
        source=source,
        messages=one["messages"],
        tools=one.get("tools") or [],
        meta=one.get("meta") or {},
    )
