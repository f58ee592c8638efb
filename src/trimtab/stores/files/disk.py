"""What the file store asks of a disk: names, whole writes, no other readers, and errors that say
what to do."""

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
"""Bytes of a folder's name, which is what common file systems allow."""

UNFINISHED_SUFFIX = ".new"
"""How a file's name ends until it is whole; one that is left over was never finished."""

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Modes of all that is ours: what was said is nobody else's to read."""

_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}


def session_to_folder_name(session: str) -> str:
    """The id with all but letters, digits and `_-~.` percent-encoded, so that any id is safe.

    An ASCII id keeps its length but for signs, which take three bytes each; a letter of another
    script takes six or nine. Over 255 bytes is refused. Where a file system takes `A` for `a`, so
    must whoever makes the ids.
    """
    name = quote(session, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if not name or len(name) > MAX_FOLDER_NAME_BYTES:
        raise ValueError(
            f"the session id {session[:40]!r} makes a folder's name of {len(name)} bytes; it must "
            f"be of 1 to {MAX_FOLDER_NAME_BYTES}: give the session a shorter id"
        )
    return name


def folder_name_to_session(encoded_name: str) -> str:
    """The inverse of `session_to_folder_name`."""
    return unquote(encoded_name)


@contextlib.contextmanager
def translate_write_errors(path: Path) -> Generator[None]:
    """Turn what the disk refuses to write into an error that names its cause."""
    try:
        yield
    except OSError as error:
        where, why = error.filename or path, error.strerror or str(error)
        if error.errno in _DISK_FULL_ERRNOS:
            raise StoreFull(
                f"no space is left to write {where} ({why}); nothing was written: free some and "
                "try again"
            ) from error
        if error.errno in _READ_ONLY_ERRNOS:
            raise StoreNotWritable(
                f"{where} may not be written to ({why}); nothing was written: make it writable for "
                f"user {os.getuid()}, or give the store another folder"
            ) from error
        raise StoreUnavailable(
            f"{where} cannot be written ({why}); nothing was written: see to the disk, or give the "
            "store another folder"
        ) from error


@contextlib.contextmanager
def translate_read_errors(path: Path) -> Generator[None]:
    """Turn what the disk refuses to read into an error that says so."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreUnavailable(f"{error.filename or path} cannot be read ({why})") from error


def open_private_file(path: Path, flags: int) -> int:
    """A file that its owner alone can read, from its first moment on and whatever the umask; one
    that others could read is closed to them."""
    fd = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    if stat.S_IMODE(os.fstat(fd).st_mode) != FILE_MODE:
        # Whoever may write to another one's file may not change who reads it.
        with contextlib.suppress(PermissionError):
            os.fchmod(fd, FILE_MODE)
    return fd


def make_private_folder(path: Path) -> None:
    """A folder that its owner alone can look into, with those above it that are missing.

    For folders that hold nothing but ours: one that was there is closed to others, with all that
    is in it.
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
    """Let nobody else look into a folder, nor into what is in it; nothing where nobody can."""
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
    """All of the bytes, however few the system takes at a time."""
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view = view[done:]
        offset += done


def write_file_atomically(path: Path, data: bytes, *, fsync: bool) -> None:
    """Write a file that is there as a whole or, after a crash, as it was before."""
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
