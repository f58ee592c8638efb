"""Names, atomic writes, private files and disk errors for the file store.

Windows has no modes of files, cannot make the names in a folder durable, and does not replace a
file while somebody reads it. Files lie in the user's own profile there, closed to others by it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Generator
from pathlib import Path
from urllib.parse import quote, unquote

from trimtab.errors import StoreFull, StoreNotWritable, StoreUnavailable

MAX_FOLDER_NAME_BYTES = 255
"""Maximum bytes of a folder's name on common file systems."""

_DEVICE_NAME = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""A name that Windows takes for a device."""

UNFINISHED_SUFFIX = ".new"
"""Suffix of a file that is not complete yet. A leftover file with it was never finished."""

FILE_MODE = 0o600
FOLDER_MODE = 0o700
"""Modes of all files and folders of the store. Other users must not read conversations."""

HAS_POSIX_FILES = hasattr(os, "pread")
"""Whether files have modes, and can be replaced and moved while they are open: not on Windows."""
OPEN_FLAGS = (
    getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
)
"""Flags with which every file is opened: its bytes, not lines of text, and in this process only."""
REPLACE_ATTEMPTS = 50
REPLACE_INTERVAL_S = 0.02
"""How often, and how many seconds apart, Windows is asked to replace a file that others read."""

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
    if name.endswith("."):
        name = name[:-1] + "%2E"
    if _DEVICE_NAME.match(name):
        name = f"%{ord(name[0]):02X}{name[1:]}"
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
                f"writable for {_describe_user()}, or use another folder for the store"
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
    fd = os.open(path, flags | OPEN_FLAGS, FILE_MODE)
    if HAS_POSIX_FILES and stat.S_IMODE(os.fstat(fd).st_mode) != FILE_MODE:
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
    if not HAS_POSIX_FILES or stat.S_IMODE(path.stat().st_mode) & 0o777 == FOLDER_MODE:
        return
    with contextlib.suppress(PermissionError):
        path.chmod(FOLDER_MODE)
        for above, folders, names in os.walk(path):
            for name in (*folders, *names):
                inner = Path(above) / name
                if not inner.is_symlink():
                    inner.chmod(FOLDER_MODE if inner.is_dir() else FILE_MODE)


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Read up to this many bytes at an offset."""
    if HAS_POSIX_FILES:
        return os.pread(fd, size, offset)
    place = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)
    finally:
        os.lseek(fd, place, os.SEEK_SET)  # whoever reads line by line is there


def write_all_at(fd: int, offset: int, data: bytes) -> None:
    """Write all bytes, however few the system accepts at a time."""
    view = memoryview(data)
    while view:
        if HAS_POSIX_FILES:
            size = os.pwrite(fd, view, offset)
        else:
            os.lseek(fd, offset, os.SEEK_SET)
            size = os.write(fd, view)
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
        replace_file(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    if fsync:
        fsync_folder(path.parent)


def replace_file(new: Path, path: Path) -> None:
    """Put a new file in the place of another one. On Windows, wait for those who read it."""
    for _ in range(0 if HAS_POSIX_FILES else REPLACE_ATTEMPTS):
        with contextlib.suppress(PermissionError):
            new.replace(path)
            return
        time.sleep(REPLACE_INTERVAL_S)
    new.replace(path)


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable, where the system can do that."""
    if not HAS_POSIX_FILES:
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | OPEN_FLAGS)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def resolve_folder(location: str | os.PathLike[str]) -> Path:
    """Return the folder that a user names. `~` is the user's home."""
    text = os.fspath(location)
    if not text:
        raise ValueError(
            "the store's location is empty; it must be a folder such as 'sessions', or the address "
            "of a PostgreSQL database"
        )
    return Path(text).expanduser()


def _describe_user() -> str:
    return f"user {os.getuid()}" if HAS_POSIX_FILES else "this user"
