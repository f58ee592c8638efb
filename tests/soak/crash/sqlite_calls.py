"""SQLite's own writes to the disk, so that a process can be ended at each of them.

SQLite lets a program put functions of its own in the place of the system calls it makes; here they
are wrapped by Python functions. For tests: this reaches into the library by `ctypes`.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
from collections.abc import Callable
from typing import Any

At = Callable[[str, Callable[[], int], Callable[[], int] | None], int]
"""Gets a write's name, what does it, and what does half of it; returns what the system said."""

_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_ssize_t
_SET = ctypes.CFUNCTYPE(_INT, _POINTER, ctypes.c_char_p, _POINTER)
_GET = ctypes.CFUNCTYPE(_POINTER, _POINTER, ctypes.c_char_p)
_CALLS: dict[str, Any] = {
    "pwrite64": ctypes.CFUNCTYPE(_SIZE, _INT, _POINTER, _SIZE, _SIZE, use_errno=True),
    "pwrite": ctypes.CFUNCTYPE(_SIZE, _INT, _POINTER, _SIZE, _SIZE, use_errno=True),
    "write": ctypes.CFUNCTYPE(_SIZE, _INT, _POINTER, _SIZE, use_errno=True),
    "ftruncate": ctypes.CFUNCTYPE(_INT, _INT, _SIZE, use_errno=True),
    "unlink": ctypes.CFUNCTYPE(_INT, ctypes.c_char_p, use_errno=True),
    "open": ctypes.CFUNCTYPE(_INT, ctypes.c_char_p, _INT, _INT, use_errno=True),
}
_WRITES = ("pwrite64", "pwrite", "write")

_kept: list[Any] = []
"""What SQLite calls must not be collected."""


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, as far as it is needed."""

    _fields_ = (
        *((name, _INT) for name in ("version", "file_size", "max_path")),
        *((f"member{n}", _POINTER) for n in range(16)),
        ("set_system_call", _SET),
        ("get_system_call", _GET),
    )


def can_wrap_sqlite_writes() -> bool:
    """Whether this Python's SQLite can be reached: not where it is built into the interpreter."""
    return hasattr(_sqlite3, "__file__") and hasattr(
        ctypes.CDLL(_sqlite3.__file__), "sqlite3_vfs_find"
    )


def wrap_sqlite_writes(at: At) -> None:
    """Have all that SQLite changes a disk by go through a function, if it can be reached."""
    if not can_wrap_sqlite_writes():
        return
    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = _POINTER
    address = library.sqlite3_vfs_find(None)
    vfs = _Vfs.from_address(address)
    for name, kind in _CALLS.items():
        pointer = vfs.get_system_call(address, name.encode())
        if pointer is None:
            continue  # another one does it on this system
        made = kind(_wrapped(name, kind(pointer), at))
        _kept.append(made)
        vfs.set_system_call(address, name.encode(), ctypes.cast(made, _POINTER))


def _wrapped(name: str, real: Callable[..., int], at: At) -> Callable[..., int]:
    def call(*args: Any) -> int:
        if name == "open" and not args[1] & os.O_CREAT:
            return real(*args)
        half = None
        if name in _WRITES:
            fd, data, size, *rest = args
            half = lambda: real(fd, data, size // 2, *rest)  # noqa: E731 - a thunk
        return at(f"sqlite {name}", lambda: real(*args), half)

    return call
