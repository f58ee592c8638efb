"""A program that a tool starts: in a group of its own, which is gone when the call is over."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trimtab.agent.tools.output import Kept
from trimtab.session.tools import Failed

GRACE = 2.0
"""Seconds between asking a program to end and ending it."""
LINGER = 0.2
"""Seconds for which a program that has ended may have somebody else finish its output."""
FLOOD = 1_000
"""How many times the bytes that are kept a program may print before it is stopped."""
CHUNK = 1 << 16
"""Bytes that are read at a time."""
TICK = 0.01
"""Seconds between two looks at whether a group is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a program."""

    text: str
    """What it printed, errors and all, in order; what is too long is left out in the middle."""
    status: int
    """Its exit status; negative is the signal that ended it."""
    stopped: str | None
    """Why it was stopped, if it was."""
    left_behind: bool
    """Whether it left processes running, which were ended."""

    def told(self) -> str:
        """All of it in words, the exit status last."""
        lines = [self.text.rstrip("\n")] if self.text.strip() else []
        if self.left_behind and not self.stopped:
            lines.append("[what it left running in the background was ended with the call]")
        if self.stopped:
            lines.append(f"[{self.stopped}]")
        elif self.status < 0:
            lines.append(f"[ended by signal {_signal_name(-self.status)}]")
        elif self.status:
            lines.append(f"[exit status {self.status}]")
        return "\n".join(lines) or "[no output]"

    def result(self) -> str:
        """The same for the model; raises Failed with it where it had to be stopped."""
        if self.stopped:
            raise Failed(self.told())
        return self.told()


async def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109 - what is printed until then is part of the result
    max_output_bytes: int,
) -> Ran:
    """Start it, read what it prints, and see to it that nothing of it is left."""
    ours, its = os.pipe()
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(limit=CHUNK, loop=loop),
            *argv,
            cwd=cwd,
            env=dict(env),
            stdin=DEVNULL,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(its)
    process = Process(transport, protocol, loop)
    output = _Output(ours, max_output_bytes)
    try:
        return await _watched(process, output, timeout)
    except BaseException:
        # The call was cancelled; when that happens once more meanwhile, there is no grace.
        try:
            await end_group(process)
        finally:
            if kill_group(process):
                # It ends at once, and must be fetched before the event loop is gone.
                await asyncio.wait((asyncio.ensure_future(process.wait()),), timeout=GRACE)
        raise
    finally:
        output.close()
        # The loop would do so when it hears of the end; it may be gone before.
        transport.close()


async def _watched(process: Process, output: _Output, seconds: float) -> Ran:
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait(
            (ended, output.flooded), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        stopped = None
        if not ended.done():
            stopped = (
                f"stopped: it had printed {output.kept.total:,} bytes and went on; write to a file "
                "and look at parts of it"
                if output.flooded.done()
                else f"stopped: it had not ended after {seconds:g} seconds (`timeout` in "
                "agent.yaml)"
            )
            await end_group(process)
        await asyncio.wait((output.closed,), timeout=LINGER)
        left_behind = _signal(process, 0)
        if left_behind:
            await end_group(process, grace=LINGER)
        output.drain()
        status = process.returncode
        return Ran(
            text=output.kept.text(),
            status=0 if status is None else status,
            stopped=stopped,
            left_behind=left_behind,
        )
    finally:
        ended.cancel()


class _Output:
    """The reading end of a pipe: what comes is counted, and mostly thrown away."""

    def __init__(self, fd: int, limit: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._most = limit * FLOOD
        self.kept = Kept(limit)
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done when nobody can write to it any more."""
        self.flooded: asyncio.Future[None] = self._loop.create_future()
        """Done when more came than anybody would read."""
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> bool:
        """Take what is there; False when that was nothing."""
        try:
            chunk = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(self._fd)
            if not self.closed.done():
                self.closed.set_result(None)
            return False
        self.kept.add(chunk)
        if self.kept.total > self._most and not self.flooded.done():
            # Whoever prints on has to wait from here: nobody reads.
            self._loop.remove_reader(self._fd)
            self.flooded.set_result(None)
        return True

    def drain(self) -> None:
        """What is in the pipe now; somebody who got away and prints on is not waited for."""
        most = self.kept.total + 16 * CHUNK
        while not self.closed.done() and self.kept.total < most and self._read():
            pass

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        for each in (self.closed, self.flooded):
            each.cancel()


async def end_group(process: Process, grace: float = GRACE) -> None:
    """Ask the whole group to end, and end what has not after a while."""
    if not _signal(process, signal.SIGTERM):
        return
    for _ in range(int(grace / TICK)):
        # There is nothing to wait on for a group: a child is waited for, its children are not.
        if not _signal(process, 0):
            return
        await asyncio.sleep(TICK)
    kill_group(process)
    for _ in range(int(GRACE / TICK)):
        # Not wait(): it waits for all who hold a pipe to it as well.
        if process.returncode is not None:
            return
        await asyncio.sleep(TICK)


def kill_group(process: Process) -> bool:
    """End the whole group at once; False where nobody was left in it."""
    return _signal(process, signal.SIGKILL)


def _signal(process: Process, number: int) -> bool:
    """Send it to the group; False where nobody is left in it."""
    with suppress(ProcessLookupError):
        try:
            os.killpg(process.pid, number)
        except PermissionError:
            # A member runs as somebody else, or has ended and waits to be fetched (macOS).
            return False
        return True
    return False


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
