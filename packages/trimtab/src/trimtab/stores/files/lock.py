"""The lock of a session's single writer. It ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from trimtab.errors import SessionLockedByOtherProcess
from trimtab.stores.files.disk import open_private_file, translate_write_errors, write_all_at

LOCK_FILE = "lock"


class FolderLock:
    """A lock from construction until `release`. The file names its holder and is never removed."""

    def __init__(self, folder: Path, owner_name: str) -> None:
        path = folder / LOCK_FILE
        with translate_write_errors(path):
            self._fd = _open_locked(path, owner_name)
        try:
            with translate_write_errors(path):
                os.ftruncate(self._fd, 0)
                write_all_at(self._fd, 0, f"{os.getpid()}\n".encode())
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        os.close(self._fd)


def find_lock_holder(folder: Path) -> str | None:
    """Return the id of the process that writes to a session; None if there is none. It takes no
    lock."""
    try:
        fd = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(fd)
    return None


def _open_locked(path: Path, owner_name: str) -> int:
    while True:
        fd = open_private_file(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_at_path(fd, path):
                return fd
        except BlockingIOError:
            holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise SessionLockedByOtherProcess(_describe_holder(path, owner_name, holder)) from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _describe_holder(path: Path, owner_name: str, holder: str) -> str:
    begin = f"session {owner_name!r} is written to by process {holder or 'unknown'}"
    if holder == str(os.getpid()):
        return (
            f"{begin}, this one, through another store, which holds {path}; open the folder once "
            "and share the store, or let the other release the session"
        )
    return (
        f"{begin}, which holds {path}; only one process may write at a time: end that "
        "process, or let it release the session"
    )


def _is_still_at_path(fd: int, path: Path) -> bool:
    """Whether the path still has that file. The session may have been deleted in between."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)
