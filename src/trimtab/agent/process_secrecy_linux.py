"""A process whose environment and memory other programs cannot read. Linux alone."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_CAPABILITIES = (17, 19)
"""CAP_SYS_RAWIO and CAP_SYS_PTRACE: with one of them root reads the memory of every process."""
_CAPABILITY_VERSION = 0x20080522
_ENV_START, _ENV_END = 47, 48
"""Fields of /proc/PID/stat, counted from the one after the program's name."""


def overwrite_process_environment(is_kept: Callable[[str], bool]) -> None:
    """Overwrite what the kernel shows as the environment that this process was started with.

    It shows the process's own memory, to root as well, and whatever `os.environ` has become since.
    Variables to keep stay where they are: libraries may hold on to their texts.
    """
    # Without /proc nobody sees anything; where it has another form, as in some sandboxes, nothing
    # is known about the place. Writing through a file cannot crash, as writing to an address can.
    with suppress(OSError, ValueError, IndexError):
        told = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        fields = told.rpartition(")")[2].split()
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            at = start
            for text in os.pread(memory, end - start, start).split(b"\0"):
                if not is_kept(os.fsdecode(text.partition(b"=")[0])):
                    os.pwrite(memory, bytes(len(text)), at)
                at += len(text) + 1
        finally:
            os.close(memory)


def protect_process_memory() -> None:
    """Keep other programs, debuggers and core dumps from the memory of this process.

    A process that is not dumpable is read by those alone who may trace all processes. So that
    programs which root starts do not get that right again, it leaves the set of what they can get.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    for number in _CAPABILITIES:
        # An ordinary user may not, and has no need to.
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    _drop_capabilities(libc)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Take the capabilities from this thread as well: what it can hand on, programs inherit."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable ones, of numbers below 32 and above.
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) == 0:
        for number in _CAPABILITIES:
            for which in range(3):
                sets[which] &= ~(1 << number)
        libc.capset(header, sets)
