"""Keep other programs from reading this process's environment and memory. Linux only."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_CAPABILITIES = (17, 19)
"""CAP_SYS_RAWIO and CAP_SYS_PTRACE: with one of them, root can read the memory of every process."""
_CAPABILITY_VERSION = 0x20080522
_KEYCTL = {"x86_64": 250, "aarch64": 219}
"""The number of the system call by machine, because the C library has no function for it."""
_JOIN_SESSION_KEYRING = 1
_ENV_START = 47
_ENV_END = 48
"""Fields of /proc/PID/stat, counted from the one after the program's name."""


def overwrite_process_environment(is_kept: Callable[[str], bool]) -> None:
    """Overwrite the copy of the environment that the kernel shows for this process.

    The kernel shows the memory from the start of the process, also to root and regardless of later
    changes to `os.environ`. Variables to keep stay in place, because libraries may refer to their
    text.
    """
    # Without /proc nobody sees anything. If it has another form, as in some sandboxes, the address
    # is unknown. Writing through a file cannot crash, as writing to an address can.
    with suppress(OSError, ValueError, IndexError):
        stat_line = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat_line.rpartition(")")[2].split()
        start = int(fields[_ENV_START])
        end = int(fields[_ENV_END])
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

    Only programs that may trace all processes can read a process that is not dumpable. The
    capability to trace is removed from the bounding set, so that programs started by root cannot
    regain it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    for number in _CAPABILITIES:
        # An ordinary user may not do this, and does not need to.
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    _drop_capabilities(libc)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Remove the capabilities from this thread also, because programs inherit what it can pass
    on."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable ones, of numbers below 32 and above.
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) == 0:
        for number in _CAPABILITIES:
            for which in range(3):
                sets[which] &= ~(1 << number)
        libc.capset(header, sets)


def leave_session_keyring() -> None:
    """Give this process an empty keyring of its own. Programs inherit the keyring, also into a
    sandbox, and could read, change and revoke the keys of the user's session."""
    number = _KEYCTL.get(platform.machine())
    if number is not None:
        # A kernel without keyrings refuses, and has nothing to protect.
        ctypes.CDLL(None).syscall(number, _JOIN_SESSION_KEYRING, None)
