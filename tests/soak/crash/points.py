"""Ends this process at a chosen write to the disk: before it, in its midst, or right after."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

from tests.soak.crash.sqlite_calls import wrap_sqlite_writes

NAMES = ("pwrite", "fsync", "ftruncate", "replace", "rename", "unlink", "mkdir", "rmdir", "open")
"""What the file store changes a disk by; files that are written through a buffer are beside."""
MODES = ("before", "midst", "after")


class Points:
    """Counts the writes from `install` on; at the chosen one the process is killed."""

    def __init__(self, point: int = 0, mode: str = "") -> None:
        self.seen: list[str] = []
        """The writes so far, by what they were."""
        self._point = point
        self._mode = mode

    def install(self) -> None:
        for name in NAMES:
            setattr(os, name, self._wrapped(name, getattr(os, name)))
        wrap_sqlite_writes(self.at)
        points, plain = self, io.open

        class Raw(io.FileIO):
            def write(self, data: Any, /) -> int:
                whole = bytes(data)
                write = super().write
                return points.at("write", lambda: write(whole), lambda: write(_half(whole)))

        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if mode not in ("wb", "ab"):
                return plain(file, mode, *args, **kwargs)
            return io.BufferedWriter(Raw(file, mode[0]))

        io.open = opened

    def at(self, name: str, act: Callable[[], Any], half: Callable[[], Any] | None) -> Any:
        self.seen.append(name)
        if len(self.seen) != self._point:
            return act()
        try:
            if self._mode == "midst" and half is not None:
                half()
            elif self._mode == "after":
                act()
        finally:
            die()  # also where it was refused, as making a folder that is there is

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            half = None
            if name == "pwrite":
                fd, data, offset = args
                half = lambda: real(fd, _half(bytes(data)), offset)  # noqa: E731 - a thunk
            return self.at(name, lambda: real(*args, **kwargs), half)

        return call


def modes_of(name: str) -> tuple[str, ...]:
    """The ways to end at a write of a kind; what is one step for the system has no midst."""
    return MODES if name.endswith(("pwrite", "pwrite64", "write")) else ("before", "after")


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]
