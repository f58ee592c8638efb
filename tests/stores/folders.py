"""A file store's folder, looked at from outside."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

from tests.stores.events import held
from trimtab.engine.log.event import Event, dump_event_line
from trimtab.errors import SessionNotFound
from trimtab.stores.base import PositionSpan
from trimtab.stores.files import FileStore

SESSION = "s"


def append(root: Path, *batches: list[Event]) -> None:
    async def go():
        store = FileStore(root, fsync=False)
        try:
            for batch in batches:
                await store.append(SESSION, batch)
        finally:
            await store.close()

    asyncio.run(go())


def lines(root: Path, *spans: PositionSpan) -> list[str]:
    """What a reader sees; empty without a session."""

    async def go():
        try:
            return await held(FileStore(root), SESSION, spans or [(1, None)])
        except SessionNotFound:
            return []

    return asyncio.run(go())


def dumped(*events: Event) -> list[str]:
    return [dump_event_line(event) for event in events]


def holding(root: Path, text: str) -> list[str]:
    """Names of the files in which a text stands, as it is or compressed."""
    found: list[str] = []
    wanted = [text.encode(), text.encode("utf-16-le"), text.encode("utf-16-be")]
    for path in root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if path.parent.name == "blobs":
                data += zlib.decompress(data)
            if any(form in data for form in wanted):
                found.append(path.name)
    return sorted(found)
