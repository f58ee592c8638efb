"""Names, atomic writes, private files and disk errors for the file store."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from pathlib import Path
from urllib.parse import quote, unquote

from trimtab.errors import StoreFull, StoreNotWritable, StoreUnavailable

MAX_FOLDER_NAME_BYTES = 255
"""Maximum bytes of a folder's name on common file systems."""

UNFINISHED_SUFFIX = ".new"
"""Suffix of a file that is not complete yet. A leftover file with it was never finished."""

FILE_MODE = 0o600
FOLDER_MODE = 0o700
"""Modes of all files and folders of the store. Other users must not read conversations."""

_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}


def session_to_folder_name(session: str) -> str:
    """Percent-encode everything in an id except letters, digits and `_-~.`, so that any id is safe.

    An ASCII id keeps its length, except for signs, which take three bytes each. A character of
    another script takes six or nine. An id of more than 255 bytes is refused. If a file system
    ignores case, ids must not differ only in case.
    """
    name = quote(session, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if not name or len(name) > MAX_FOLDER_NAME_BYTES:
        raise ValueError(
            f"invalid session id {session[:40]!r}: its folder name would have {len(name)} "
            f"bytes; use an id that gives 1 to {MAX_FOLDER_NAME_BYTES} bytes"
        )
    return name


def folder_name_to_session(encoded_name: str) -> str:
    """Return the session id of a folder name."""
    return unquote(encoded_name)


@contextlib.contextmanager
def translate_write_errors(path: Path) -> Generator[None]:
    """Turn a write error of the disk into an error that names its cause."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        why = error.strerror or str(error)
        if error.errno in _DISK_FULL_ERRNOS:
            raise StoreFull(
                f"no space is left to write {where} ({why}); nothing was written: free some "
                "space and try again"
            ) from error
        if error.errno in _READ_ONLY_ERRNOS:
            raise StoreNotWritable(
                f"{where} may not be written to ({why}); nothing was written: make it "
                f"writable for user {os.getuid()}, or use another folder for the store"
            ) from error
        raise StoreUnavailable(
            f"{where} cannot be written ({why}); nothing was written: check the disk, or "
            "use another folder for the store"
        ) from error


@contextlib.contextmanager
def translate_read_errors(path: Path) -> Generator[None]:
    """Turn a read error of the disk into an error that names its cause."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreUnavailable(f"{error.filename or path} cannot be read ({why})") from error


def open_private_file(path: Path, flags: int) -> int:
    """Open a file that only its owner can read, whatever the umask. If others could read it, close
    it to them."""
    fd = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    if stat.S_IMODE(os.fstat(fd).st_mode) != FILE_MODE:
        # Writing to another user's file does not allow changing its permissions.
        with contextlib.suppress(PermissionError):
            os.fchmod(fd, FILE_MODE)
    return fd


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner can open, with its missing parents.

    Use it only for folders of the store: an existing folder and everything in it is closed to
    others.
    """
    try:
        path.mkdir(FOLDER_MODE)
    except FileNotFoundError:
        make_private_folder(path.parent)
        path.mkdir(FOLDER_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise
    restrict_folder_tree_to_owner(path)


def restrict_folder_tree_to_owner(path: Path) -> None:
    """Close a folder and everything in it to other users. Do nothing if it is already closed."""
    if stat.S_IMODE(path.stat().st_mode) & 0o777 == FOLDER_MODE:
        return
    with contextlib.suppress(PermissionError):
        path.chmod(FOLDER_MODE)
        for above, folders, names in os.walk(path):
            for name in (*folders, *names):
                inner = Path(above) / name
                if not inner.is_symlink():
                    inner.chmod(FOLDER_MODE if inner.is_dir() else FILE_MODE)


def write_all_at(fd: int, offset: int, data: bytes) -> None:
    """Write all bytes, however few the system accepts at a time."""
    view = memoryview(data)
    while view:
        size = os.pwrite(fd, view, offset)
        view = view[size:]
        offset += size


def write_file_atomically(path: Path, data: bytes, *, fsync: bool) -> None:
    """Write a file so that after a crash it is complete or unchanged."""
    new = path.with_name(path.name + UNFINISHED_SUFFIX)
    try:
        fd = open_private_file(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all_at(fd, 0, data)
            if fsync:
                os.fsync(fd)
        finally:
            os.close(fd)
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    if fsync:
        fsync_folder(path.parent)


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
