"""Run a program for a tool in its own process group, which is gone when the call is over."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trimtab.session.tools import ToolError
from trimtab_serve.agent.tools.output import HeadTailBuffer

TERMINATION_GRACE_S = 2.0
"""Seconds between the request to end and the kill."""
STOP_GRACE_S = 0.5
"""The same if the user stopped the turn, so that the turn is over within one second."""
OUTPUT_LINGER_S = 0.2
"""Seconds to wait for output from other processes after the program has ended."""
MAX_OUTPUT_FACTOR = 1_000
"""A program is stopped if it prints more than this many times the bytes that are kept."""
PIPE_READ_BYTES = 1 << 16
"""Number of bytes to read at a time."""
GROUP_POLL_INTERVAL_S = 0.01
"""Seconds between two checks whether a process group is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """The result of a program."""

    output: str
    """The output, stdout and stderr together, in order. The middle of a long output is omitted."""
    exit_status: int
    """The exit status. A negative number is the signal that ended the program."""
    stop_reason: str | None
    """Why the program was stopped, if it was."""
    left_processes_running: bool
    """Whether the program left processes running, which were then stopped."""

    def describe(self) -> str:
        """Describe the whole result in words, with the exit status last."""
        lines = [self.output.rstrip("\n")] if self.output.strip() else []
        if self.left_processes_running and not self.stop_reason:
            lines.append("[what it left running in the background was ended with the call]")
        if self.stop_reason:
            lines.append(f"[{self.stop_reason}]")
        elif self.exit_status < 0:
            lines.append(f"[ended by signal {_signal_name(-self.exit_status)}]")
        elif self.exit_status:
            lines.append(f"[exit status {self.exit_status}]")
        return "\n".join(lines) or "[no output]"

    def to_tool_result(self) -> str:
        """Return the same text for the model. Raise `ToolError` with it if the program was
        stopped."""
        if self.stop_reason:
            raise ToolError(self.describe())
        return self.describe()


async def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109 - what is printed until then is part of the result
    max_output_bytes: int,
    is_sandboxed: bool = False,
) -> ProcessResult:
    """Start a program, read its output, and make sure that nothing of it is left. `is_sandboxed`
    says that its processes are in a sandbox and end with it."""
    ours, its = os.pipe()
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(limit=PIPE_READ_BYTES, loop=loop),
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
    output = _OutputPipe(ours, max_output_bytes)
    try:
        return await _watch_process(process, output, timeout, is_sandboxed=is_sandboxed)
    except BaseException:
        # The call was cancelled; when that happens once more meanwhile, there is no grace.
        try:
            await terminate_process_group(process, grace_s=STOP_GRACE_S)
        finally:
            if kill_process_group(process):
                # It ends at once, and must be fetched before the event loop is gone.
                await asyncio.wait(
                    (asyncio.ensure_future(process.wait()),), timeout=TERMINATION_GRACE_S
                )
        raise
    finally:
        output.close()
        # The loop would do so when it hears of the end; it may be gone before.
        transport.close()


async def _watch_process(
    process: Process, output: _OutputPipe, timeout_s: float, *, is_sandboxed: bool
) -> ProcessResult:
    exit_wait = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait(
            (exit_wait, output.flooded), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        stop_reason = None
        if not exit_wait.done():
            stop_reason = (
                f"stopped: it had printed {output.kept.total_bytes:,} bytes and continued; write "
                "to a file and look at parts of it"
                if output.flooded.done()
                else f"stopped: it had not ended after {timeout_s:g} seconds (`timeout` in "
                "agent.yaml)"
            )
            await terminate_process_group(process)
        await asyncio.wait((output.closed,), timeout=OUTPUT_LINGER_S)
        # A sandbox ends all that is in it. What is left of itself waits to be fetched by init.
        left_behind = not is_sandboxed and _signal_group(process, 0)
        if left_behind:
            await terminate_process_group(process, grace_s=OUTPUT_LINGER_S)
        output.drain()
        status = process.returncode
        return ProcessResult(
            output=output.kept.to_text(),
            exit_status=0 if status is None else status,
            stop_reason=stop_reason,
            left_processes_running=left_behind,
        )
    finally:
        exit_wait.cancel()


class _OutputPipe:
    """The reading end of a pipe. It counts what arrives and discards most of it."""

    def __init__(self, fd: int, limit: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._most = limit * MAX_OUTPUT_FACTOR
        self.kept = HeadTailBuffer(limit)
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done when no process can write to the pipe any longer."""
        self.flooded: asyncio.Future[None] = self._loop.create_future()
        """Done when more arrived than anybody would read."""
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> bool:
        """Read what is in the pipe. Return False if that was nothing."""
        try:
            chunk = os.read(self._fd, PIPE_READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(self._fd)
            if not self.closed.done():
                self.closed.set_result(None)
            return False
        self.kept.add(chunk)
        if self.kept.total_bytes > self._most and not self.flooded.done():
            # Nobody reads from here on, so a process that goes on printing blocks.
            self._loop.remove_reader(self._fd)
            self.flooded.set_result(None)
        return True

    def drain(self) -> None:
        """Read what is in the pipe now, without waiting for a detached process that still
        prints."""
        most = self.kept.total_bytes + 16 * PIPE_READ_BYTES
        while not self.closed.done() and self.kept.total_bytes < most and self._read():
            pass

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        for each in (self.closed, self.flooded):
            each.cancel()


async def terminate_process_group(process: Process, grace_s: float = TERMINATION_GRACE_S) -> None:
    """Ask the whole group to end, and kill what has not ended after a while."""
    if not _signal_group(process, signal.SIGTERM):
        return
    for _ in range(int(grace_s / GROUP_POLL_INTERVAL_S)):
        # There is nothing to wait on for a group: a child is waited for, its children are not.
        if not _signal_group(process, 0):
            return
        await asyncio.sleep(GROUP_POLL_INTERVAL_S)
    kill_process_group(process)
    for _ in range(int(TERMINATION_GRACE_S / GROUP_POLL_INTERVAL_S)):
        # Not wait(): it also waits for other processes that hold a pipe.
        if process.returncode is not None:
            return
        await asyncio.sleep(GROUP_POLL_INTERVAL_S)


def kill_process_group(process: Process) -> bool:
    """Kill the whole group at once. Return False if no process was left in it."""
    return _signal_group(process, signal.SIGKILL)


def _signal_group(process: Process, number: int) -> bool:
    """Send a signal to the group. Return False if no process is left in it."""
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
