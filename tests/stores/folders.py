"""A file store's folder, looked at from outside."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

from tests.stores.make import held
from trimtab.core.event import Event, dump
from trimtab.stores.errors import NoSession
from trimtab.stores.files import FileStore
from trimtab.stores.store import Span

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


def lines(root: Path, *spans: Span) -> list[str]:
    """What a reader sees; empty without a session."""

    async def go():
        try:
            return await held(FileStore(root), SESSION, spans or [(1, None)])
        except NoSession:
            return []

    return asyncio.run(go())


def dumped(*events: Event) -> list[str]:
    return [dump(event) for event in events]


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
