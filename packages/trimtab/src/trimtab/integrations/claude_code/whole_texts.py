"""The folder of whole texts: what the hook has shortened, one file for each text.

A file belongs to the user alone and is deleted after seven days. Other users may be able to write
to the folders above, so no link is followed, and a folder of somebody else is refused. Paths are
strings here, because the import of `pathlib` takes a tenth of the time that a hook has.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress

FOLDER_IN_STATE = "trimtab/claude-code"
"""The folder below the user's state folder. A path with these names is one of ours."""
KEPT_SECONDS = 7 * 86_400
"""How long a whole text is kept."""
SWEEP_INTERVAL_SECONDS = 3_600
"""Seconds between two searches for old files."""
SUFFIX = ".txt"
"""The end of the name of a whole text. No other file is deleted."""
LOG_NAME = "hook.log"
MAX_LOG_BYTES = 64_000
"""A longer log begins again."""
_SWEEP_MARK = "last-sweep"
_MAX_NAME_CHARS = 64
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOG_FILE = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def locate_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of whole texts in the user's state folder."""
    base = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification says to ignore a relative one
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, FOLDER_IN_STATE)


def make_safe_name(name: str) -> str:
    """Return a name for a file or folder, whatever the characters of the original."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in name)
    return safe[:_MAX_NAME_CHARS] or "_"


def choose_file(folder: str, session: str, tool: str) -> str:
    """Return the path for a new file."""
    name = f"{make_safe_name(tool)}-{os.urandom(6).hex()}{SUFFIX}"
    return os.path.join(folder, make_safe_name(session), name)


def save_text(path: str, text: str) -> None:
    """Write a new file whose path `choose_file` has returned. Raise `OSError` if that fails."""
    from trimtab.engine.text.utf8 import replace_lone_surrogates

    session, name = os.path.split(path)
    data = memoryview(replace_lone_surrogates(text).encode())
    with _open_folder(os.path.dirname(session)) as top, _open_inner_folder(session, top) as inner:
        fd = os.open(name, _NEW_FILE, 0o600, dir_fd=inner)
        try:
            while data:
                data = data[os.write(fd, data) :]
        except OSError:
            os.unlink(name, dir_fd=inner)
            raise
        finally:
            os.close(fd)


def sweep_if_due(folder: str, now: float) -> None:
    """Delete what is older than seven days, at most once an hour."""
    with _open_folder(folder) as top:
        try:
            last = os.stat(_SWEEP_MARK, dir_fd=top, follow_symlinks=False).st_mtime
        except FileNotFoundError:
            last = 0.0
        if 0 <= now - last < SWEEP_INTERVAL_SECONDS:
            return
        with suppress(FileExistsError):
            os.close(os.open(_SWEEP_MARK, _NEW_FILE, 0o600, dir_fd=top))
        os.utime(_SWEEP_MARK, (now, now), dir_fd=top, follow_symlinks=False)
        for session in _list_sessions(top):
            _delete_files(top, session, before=now - KEPT_SECONDS)


def erase_texts(folder: str, session: str = "") -> int:
    """Delete the whole texts of a session, or all of them and the log. Return their number."""
    if not os.path.lexists(folder):
        return 0
    with _open_folder(folder) as top:
        names = [make_safe_name(session)] if session else _list_sessions(top)
        number = sum(_delete_files(top, name) for name in names)
        if not session:
            for name in (LOG_NAME, _SWEEP_MARK):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=top)
    return number


def count_texts(folder: str) -> tuple[int, int]:
    """Return the number of whole texts and their bytes."""
    if not os.path.lexists(folder):
        return 0, 0
    number = size = 0
    with _open_folder(folder) as top:
        for session in _list_sessions(top):
            path = os.path.join(folder, session)
            with _open_inner_folder(path, top) as inner, os.scandir(inner) as entries:
                for entry in entries:
                    number += 1
                    size += entry.stat(follow_symlinks=False).st_size
    return number, size


def log_fault(folder: str, line: str) -> None:
    """Add a line to the log of the hook."""
    with _open_folder(folder) as top:
        fd = os.open(LOG_NAME, _LOG_FILE, 0o600, dir_fd=top)
        try:
            if os.fstat(fd).st_size > MAX_LOG_BYTES:
                os.ftruncate(fd, 0)
            os.write(fd, f"{line}\n".encode("ascii", "backslashreplace"))
        finally:
            os.close(fd)


def read_log(folder: str) -> list[str]:
    """Return the lines of the log; none if there is no log."""
    if not os.path.lexists(folder):
        return []
    with _open_folder(folder) as top:
        try:
            fd = os.open(LOG_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        except FileNotFoundError:
            return []
        with os.fdopen(fd, encoding="ascii", errors="replace") as file:
            return file.read(2 * MAX_LOG_BYTES).splitlines()


@contextmanager
def _open_folder(folder: str) -> Generator[int]:
    """Open the folder of whole texts, and make it if it is missing."""
    above = os.path.dirname(folder)
    os.makedirs(os.path.dirname(above), mode=0o700, exist_ok=True)
    with _open_inner_folder(above, None) as fd, _open_inner_folder(folder, fd) as inner:
        yield inner


@contextmanager
def _open_inner_folder(path: str, above: int | None) -> Generator[int]:
    """Open a folder that only the user can open, and make it if it is missing."""
    name = path if above is None else os.path.basename(path)
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above)
    try:
        fd = os.open(name, _OPEN_FOLDER, dir_fd=above)
    except NotADirectoryError:
        raise NotADirectoryError(
            f"{path} is a file or a link, not a folder; move it away"
        ) from None
    try:
        state = os.fstat(fd)
        if state.st_uid != os.geteuid():
            raise PermissionError(f"the folder {path} belongs to another user")
        if stat.S_IMODE(state.st_mode) & 0o077:
            os.fchmod(fd, 0o700)
        yield fd
    finally:
        os.close(fd)


def _list_sessions(top: int) -> list[str]:
    with os.scandir(top) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _delete_files(top: int, session: str, *, before: float | None = None) -> int:
    """Delete files of a session, or only those that were written before a time. Return how many."""
    number = 0
    try:
        fd = os.open(session, _OPEN_FOLDER, dir_fd=top)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    try:
        # A hook that runs now may have made the folder for its first file.
        is_old = before is None or os.fstat(fd).st_mtime < before
        with os.scandir(fd) as entries:
            names = [
                entry.name
                for entry in entries
                if entry.name.endswith(SUFFIX)
                and (before is None or entry.stat(follow_symlinks=False).st_mtime < before)
            ]
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
                number += 1
    finally:
        os.close(fd)
    if is_old:
        with suppress(OSError):
            os.rmdir(session, dir_fd=top)
    return number
