"""The lock of a session's single writer. It ends with its process, however that ends."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from trimtab.errors import SessionLockedByOtherProcess
from trimtab.stores.files.disk import (
    OPEN_FLAGS,
    open_private_file,
    read_at,
    translate_write_errors,
    write_all_at,
)
from trimtab.stores.forks import leave_at_fork

try:
    import fcntl
except ModuleNotFoundError:  # on Windows
    fcntl = None

LOCK_FILE = "lock"
_LOCKED_BYTE = 1 << 30
"""The byte that is locked on Windows, where nobody else can read it: far behind the text."""


class FolderLock:
    """A lock from construction until `release`. The file names its holder and is never removed.

    A forked process does not have it, and does not keep it when its parent ends.
    """

    def __init__(self, folder: Path, owner_name: str) -> None:
        path = folder / LOCK_FILE
        with translate_write_errors(path):
            self._fd: int | None = _open_locked(path, owner_name)
        leave_at_fork(self)
        try:
            with translate_write_errors(path):
                os.ftruncate(self._fd, 0)
                write_all_at(self._fd, 0, f"{os.getpid()}\n".encode())
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def leave_to_parent(self) -> None:
        """Close this process's copy, which would hold the lock for the parent."""
        self.release()


def find_lock_holder(folder: Path) -> str | None:
    """Return the id of the process that writes to a session; None if there is none. It takes no
    lock."""
    try:
        fd = os.open(folder / LOCK_FILE, os.O_RDONLY | OPEN_FLAGS)
    except OSError:
        return None
    try:
        return None if _try_lock(fd, shared=True) else _read_holder(fd) or "unknown"
    finally:
        os.close(fd)


def _open_locked(path: Path, owner_name: str) -> int:
    while True:
        fd = open_private_file(path, os.O_RDWR | os.O_CREAT)
        try:
            is_locked = _try_lock(fd)
            if is_locked and _is_still_at_path(fd, path):
                return fd
            holder = _read_holder(fd)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        if not is_locked:
            raise SessionLockedByOtherProcess(_describe_holder(path, owner_name, holder))


def _try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed. Return False if somebody else has locked it."""
    try:
        if fcntl is not None:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        else:
            msvcrt: Any = import_module("msvcrt")
            os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _read_holder(fd: int) -> str:
    return read_at(fd, 20, 0).decode("ascii", "replace").strip()


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
