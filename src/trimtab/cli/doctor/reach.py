"""Whether the keys of this process are within the reach of its tools."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from trimtab.agent.secrets import withheld
from trimtab.cli.doctor.finding import Finding, ok, skip, warn
from trimtab.cli.doctor.secrets import secrets_in
from trimtab.cli.words import counted

_PROC = Path("/proc")
_OPEN_MEMORY = 'exec < "/proc/$PPID/mem"'
"""What a program needs to read the memory of the process that has started it."""


async def reach(environ: Mapping[str, str]) -> Finding:
    """What a program that a tool starts could read, by trying it."""
    if sys.platform != "linux":
        return skip("secrets", "on this system programs of one user can see each other's keys")
    if await _memory_is_open():
        return warn(
            "secrets",
            "tools can read the memory of this process, with all keys in it",
            "start it as the command `trimtab`; run it as an ordinary user and not as root",
        )
    for pid, program, name in _shown_above(environ):
        return warn(
            "secrets",
            f"tools can read {name} in the environment of {program} (process {pid}), which "
            "started this process or a parent of it",
            "set it for trimtab alone; docs/tools.md says how, under Secrets",
        )
    told = counted(len(withheld()), "variable")
    return ok("secrets", f"tools cannot read the memory of this process, nor {told} of yours")


async def _memory_is_open() -> bool:
    nothing = asyncio.subprocess.DEVNULL
    tried = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", _OPEN_MEMORY, stdin=nothing, stdout=nothing, stderr=nothing, env={}
    )
    return await tried.wait() == 0


def _shown_above(environ: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    """Processes above this one that show a secret of its environment: id, program and name."""
    wanted = {f"{name}={value}": name for name, value in secrets_in(environ).items()}
    for pid in _parents():
        # What this process may not read, its tools may not either.
        with suppress(OSError):
            told = (_PROC / str(pid) / "environ").read_bytes()
            program = (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace")
            for entry in told.decode("utf-8", "surrogateescape").split("\0"):
                if entry in wanted:
                    yield pid, program.strip(), wanted[entry]


def _parents() -> Iterator[int]:
    pid = "self"
    with suppress(OSError):
        while pid != "0":
            stat = (_PROC / pid / "stat").read_text(encoding="utf-8", errors="replace")
            pid = stat.rpartition(")")[2].split()[1]
            yield int(pid)
