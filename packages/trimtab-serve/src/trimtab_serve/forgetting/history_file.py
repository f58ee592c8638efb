"""The file of lines that users typed into chats, in the format of prompt_toolkit: `# when`, then
`+` before each row of a line. Text that is erased from a session is also removed from this file."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import Collection, Generator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.engine.log.event import MessageAdded
from trimtab.stores.base import Store
from trimtab.stores.files.disk import (
    UNFINISHED_SUFFIX,
    make_private_folder,
    open_private_file,
    write_file_atomically,
)

if TYPE_CHECKING:
    from trimtab_serve.service.message_erasure import ErasedMessagesRecord
    from trimtab_serve.service.service import AgentService


def locate_history_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the history file."""
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "trimtab" / "history"


def create_history_file(path: Path) -> None:
    """Create the file, readable only by its owner, before anything is written to it."""
    make_private_folder(path.parent)
    os.close(open_private_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND))


def remove_history_lines(path: Path, texts: Collection[str]) -> int:
    """Remove every line that equals one of these texts, and return how many there were."""
    # As the file has them: what UTF-8 cannot say is a question mark in it.
    file_texts = {text.encode("utf-8", "replace").decode().strip() for text in texts}
    if not file_texts or not path.exists():
        return 0
    with lock_history_file(path):
        path.with_name(path.name + UNFINISHED_SUFFIX).unlink(
            missing_ok=True
        )  # as a crash has left it
        rest, line_count = _drop_lines(path.read_bytes(), file_texts)
        if line_count:
            write_file_atomically(path, rest, fsync=True)
    return line_count


async def list_user_texts_to_forget(store: Store, session_id: str) -> list[str]:
    """Return all user messages of a session: somebody may have typed them into a chat."""
    return [
        event.body.message.text
        async for event in store.events(session_id)
        if isinstance(event.body, MessageAdded) and event.body.message.role == "user"
    ]


def forget_history_lines_with(service: AgentService, log: logging.Logger) -> None:
    """Remove lines from the user's history file whenever the service erases their message."""
    path = locate_history_file(os.environ)

    async def forget(said: Collection[str]) -> None:
        try:
            await asyncio.to_thread(remove_history_lines, path, said)
        except OSError as error:
            log.warning(
                "%s may still contain a line that was erased from a session: %s", path, error
            )

    async def deleted(session: str) -> None:
        if path.exists() and await service.store.position(session):
            await forget(await list_user_texts_to_forget(service.store, session))

    async def erased(gone: ErasedMessagesRecord) -> None:
        await forget(gone.user_texts)

    service.delete_hooks.append(deleted)
    service.erase_hooks.append(erased)


@contextlib.contextmanager
def lock_history_file(path: Path) -> Generator[None]:
    """Keep other chats from writing to the file. The lock is on the folder, because the file may be
    replaced."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # If the file system has no locks, a line that is typed meanwhile may be lost.
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _drop_lines(content: bytes, texts: Collection[str]) -> tuple[bytes, int]:
    rest = bytearray()
    head = bytearray()
    rows = list[bytes]()
    line_count = 0
    # One more that is no row: it ends the last line as any other does.
    for row in (*BytesIO(content), b""):
        if row.startswith(b"+"):
            rows.append(row)
            continue
        if rows:
            text = b"".join(one[1:] for one in rows).decode("utf-8", "replace")
            if text.strip() in texts:
                line_count += 1
            else:
                rest += head + b"".join(rows)
            head = bytearray()
            rows = []
        head += row
    return bytes(rest + head), line_count
