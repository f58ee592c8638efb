"""A session in files on a system that has only what Windows has, as far as that can be imitated.

Run as `python -m tests.stores.without_posix FOLDER`. Nothing of POSIX that the store could use is
there, locks are those of Windows, and an open file is neither replaced, moved nor removed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random  # noqa: F401 - like the following ones it uses what is taken away below
import shutil
import subprocess
import sys
import tempfile  # noqa: F401
from pathlib import Path
from types import ModuleType
from typing import Any

_flock = fcntl.flock
_MISSING = ("pread", "pwrite", "fchmod", "getuid", "O_CLOEXEC", "O_DIRECTORY", "register_at_fork")


def imitate_windows() -> None:
    msvcrt: Any = ModuleType("msvcrt")
    msvcrt.LK_NBLCK = 2

    def locking(fd: int, mode: int, size: int) -> None:
        assert (mode, size) == (msvcrt.LK_NBLCK, 1)
        assert os.lseek(fd, 0, os.SEEK_CUR) > 1000, "nobody else could read the text"
        _flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    msvcrt.locking = locking
    sys.modules["msvcrt"] = msvcrt
    modules: dict[str, Any] = sys.modules
    modules["fcntl"] = None
    for name in _MISSING:
        delattr(os, name)
    for name in ("O_BINARY", "O_NOINHERIT"):
        setattr(os, name, 0)
    for name in ("replace", "rename", "unlink"):
        setattr(os, name, refuse_open_files(getattr(os, name)))


def refuse_open_files(change: Any) -> Any:
    def changed(path: Any, *others: Any, **options: Any) -> Any:
        for other in (path, *others):
            if "dir_fd" not in options and is_open(os.path.realpath(other)):
                raise PermissionError(13, "open in a process", str(other))
        return change(path, *others, **options)

    return changed


def is_open(path: str) -> bool:
    for fd in Path("/proc/self/fd").iterdir():
        try:
            target = str(fd.readlink())
        except OSError:
            continue
        if target == path or target.startswith(f"{path}/"):
            return True
    return False


async def live(root: Path) -> None:
    from tests.conversations import user
    from trimtab.errors import SessionLockedByOtherProcess, SessionNotFound
    from trimtab.session import Session
    from trimtab.stores.files import FileStore

    store = FileStore(root)
    session = await Session.create(store, "con", model="gpt-4o")
    handle = await session.add(user("secret " * 20_000))
    for number in range(300):
        await session.add(user(f"{number}\n"), key=f"{number}")
    async with session.claim_turn(wait=0):
        await session.add(user("in a turn"))
    await session.erase(handle)
    other = subprocess.run(  # noqa: ASYNC221 - nothing else runs
        [sys.executable, "-m", "tests.stores.without_posix", str(root), "other"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not other.stderr, other.stderr
    assert other.stdout == f"{SessionLockedByOtherProcess.__name__} {os.getpid()}\n", other.stdout
    fork = await session.fork("b.")
    await session.close()
    await fork.close()
    assert sorted(os.listdir(root)) == ["%63on", "b%2E"]  # noqa: PTH208 - as above
    reopened = await Session.open(store, "con")
    texts = [logged.message.text async for logged in reopened.messages()]
    assert texts == [*(f"{number}\n" for number in range(300)), "in a turn"]
    assert await store.find_key("con", "7") is not None
    assert "secret" not in "".join(path.read_text("latin-1") for path in files(root))
    await store.delete("con")
    try:
        await Session.open(store, "con")
    except SessionNotFound:
        print("ok")
    await store.close()


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


async def write_as_other_process(root: Path) -> None:
    from tests.conversations import user
    from trimtab.errors import SessionLockedByOtherProcess
    from trimtab.session import Session
    from trimtab.stores.files import FileStore

    store = FileStore(root)
    try:
        await (await Session.open(store, "con")).add(user("other"))
    except SessionLockedByOtherProcess as refusal:
        print(type(refusal).__name__, await store.held_by("con"))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    imitate_windows()
    if len(sys.argv) == 2:
        shutil.rmtree(place, ignore_errors=True)
        asyncio.run(live(place))
    else:
        asyncio.run(write_as_other_process(place))
