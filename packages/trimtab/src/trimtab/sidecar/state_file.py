"""`sidecar.json`: the address of a sidecar and its token, for clients of the same user.

Only the owner can read the file and open its folder. The token stays the same from start to start,
because a stored conversation belongs to it. A file that others could read or have written is not
trusted: a new token is made.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import trimtab

FILE_NAME, LOCK_NAME, SOCKET_NAME = "sidecar.json", "sidecar.lock", "sidecar.sock"
FILE_MODE, FOLDER_MODE = 0o600, 0o700
TOKEN_BYTES = 32
MAX_FILE_BYTES = 64 * 1024


class UnsafeStateFolder(Exception):
    """Others could read or replace what is in the folder."""


class SidecarRunning(Exception):
    """Another sidecar uses the folder."""


def find_state_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder in which the user's programs keep their state."""
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "trimtab"


class StateFile:
    """The file of one sidecar, in a folder that only its owner can open.

    Args:
        folder: The folder; it is made if it is missing.

    Raises:
        UnsafeStateFolder: If it belongs to somebody else, or is a link.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """The folder."""
        self.path = folder / FILE_NAME
        """The file."""
        _make_folder(folder)

    @contextmanager
    def hold(self) -> Generator[None]:
        """Keep other sidecars away.

        Raises:
            SidecarRunning: If there is one.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(self.folder / LOCK_NAME, flags, FILE_MODE)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SidecarRunning(
                    f"a sidecar already runs for {self.folder} (process "
                    f"{self._read().get('pid')}); use it, or name another folder with --state"
                ) from None
            yield
        finally:
            os.close(lock)

    def read_or_make_token(self) -> str:
        """Return the token of the last start, or a new one."""
        token = self._read().get("token")
        is_whole = isinstance(token, str) and len(token) >= TOKEN_BYTES and token.isascii()
        return cast("str", token) if is_whole else secrets.token_urlsafe(TOKEN_BYTES)

    def write(self, *, token: str, url: str = "", socket: str = "") -> None:
        """Write the address of the sidecar; none if it has stopped."""
        pid = os.getpid() if url or socket else 0
        fields: dict[str, Any] = {"version": trimtab.__version__, "url": url, "socket": socket}
        text = json.dumps({**fields, "token": token, "pid": pid}) + "\n"
        new = self.path.with_name(f"{FILE_NAME}.{os.getpid()}.new")
        with suppress(FileNotFoundError):
            new.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(new, flags, FILE_MODE)
        try:
            os.fchmod(file, FILE_MODE)
            os.write(file, text.encode())
        finally:
            os.close(file)
        new.replace(self.path)  # a link in its place is replaced, not followed

    def _read(self) -> dict[str, Any]:
        """Return the fields of the file; none if it is missing, damaged or not trusted."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(self.path, flags)
        except OSError:
            return {}
        try:
            if not _is_private(os.fstat(file)):
                return {}
            fields = json.loads(os.read(file, MAX_FILE_BYTES))
        except ValueError:
            return {}
        finally:
            os.close(file)
        return cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}


def _is_private(status: os.stat_result) -> bool:
    is_own = status.st_uid == os.getuid()
    return stat.S_ISREG(status.st_mode) and is_own and not status.st_mode & 0o077


def _make_folder(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(FOLDER_MODE)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise UnsafeStateFolder(
            f"{folder} is not a folder of this user; name another one with --state"
        )
    if status.st_mode & 0o077:
        folder.chmod(FOLDER_MODE)
