"""The file of lines that were typed into chats, in prompt_toolkit's form: `# when`, then `+` before
each row of the line. What is erased elsewhere leaves it, too."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Generator, Mapping
from io import BytesIO
from pathlib import Path

from trimtab.core.event import Said
from trimtab.stores.files.disk import NEW, make_folder, open_file, put_file
from trimtab.stores.store import Store


def history_file(environ: Mapping[str, str]) -> Path:
    """Where it is."""
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "trimtab" / "history"


def make_history(path: Path) -> None:
    """Have the file there, for its owner alone, before anything is written to it."""
    make_folder(path.parent)
    os.close(open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND))


def forget_typed(path: Path, said: Collection[str]) -> int:
    """Take out all lines that say just one of these; returns how many there were."""
    # As the file has them: what UTF-8 cannot say is a question mark in it.
    wanted = {text.encode("utf-8", "replace").decode().strip() for text in said}
    if not wanted or not path.exists():
        return 0
    with only_writer(path):
        path.with_name(path.name + NEW).unlink(missing_ok=True)  # as a crash has left it
        kept, gone = _without(path.read_bytes(), wanted)
        if gone:
            put_file(path, kept, fsync=True)
    return gone


async def said_by_users(store: Store, session: str) -> list[str]:
    """All that users have said in a session: what may have been typed into a chat."""
    return [
        event.body.message.text
        async for event in store.events(session)
        if isinstance(event.body, Said) and event.body.message.role == "user"
    ]


@contextlib.contextmanager
def only_writer(path: Path) -> Generator[None]:
    """Let no other chat write to the file meanwhile. The folder is what is locked: the file may be
    replaced."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Where a file system knows no locks, a line that is typed meanwhile may be lost.
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _without(data: bytes, wanted: Collection[str]) -> tuple[bytes, int]:
    kept, head, rows = bytearray(), bytearray(), list[bytes]()
    gone = 0
    # One more that is no row: it ends the last line as any other does.
    for row in (*BytesIO(data), b""):
        if row.startswith(b"+"):
            rows.append(row)
            continue
        if rows:
            text = b"".join(one[1:] for one in rows).decode("utf-8", "replace")
            if text.strip() in wanted:
                gone += 1
            else:
                kept += head + b"".join(rows)
            head, rows = bytearray(), []
        head += row
    return bytes(kept + head), gone
