"""The sidecar over standard input and output: a call a line, an answer a line.

The program that starts it holds both ends, so nobody else can call. Calls of different
conversations are answered in the order in which they are done.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any, BinaryIO

from trimtab.sidecar.call import Answer, Refusal, may_ask_to_redact, read_call
from trimtab.sidecar.sidecar import Sidecar, refuse

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Bytes of a call. Providers take at most half of it."""
MAX_OPEN_CALLS = 64
"""Calls that are answered at a time. More wait in the pipe."""
log = logging.getLogger("trimtab.sidecar")


async def serve_stdio(sidecar: Sidecar, calls: BinaryIO, answers: BinaryIO) -> None:
    """Answer calls until the input ends, and then those that are still open.

    Raises:
        BrokenPipeError: If nobody reads the answers any more.
    """
    loop, free = asyncio.get_running_loop(), asyncio.Semaphore(MAX_OPEN_CALLS)
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    read_next = threading.Semaphore(MAX_OPEN_CALLS)

    def read() -> None:
        while True:
            read_next.acquire()
            try:
                line = calls.readline(MAX_LINE_BYTES + 1)
                if len(line) > MAX_LINE_BYTES:
                    _skip_line(calls)
            except OSError as error:  # a terminal that is gone, or a folder
                log.error("the calls cannot be read: %s", error)  # noqa: TRY400 - its own words
                line = b""
            loop.call_soon_threadsafe(lines.put_nowait, line)
            if not line:
                return

    async def answer(line: bytes) -> None:
        async with free:
            text = await _answer_line(sidecar, line)
        answers.write(text.encode() + b"\n")
        answers.flush()

    threading.Thread(target=read, daemon=True).start()
    async with asyncio.TaskGroup() as open_calls:
        while line := await lines.get():
            task = open_calls.create_task(answer(line))
            task.add_done_callback(lambda _: read_next.release())


async def _answer_line(sidecar: Sidecar, line: bytes) -> str:
    name: Any = None
    try:
        call = await read_call(_decode(line))
        name = call.fields.get("id")
        operation = call.fields.get("op")
        answer = await sidecar.answer_read(operation if isinstance(operation, str) else "", call)
    except Refusal as refusal:
        answer = refuse(refusal)
    except Exception as error:
        log.exception("a line cannot be answered")
        answer = Answer(status=500, fields={"error": f"{type(error).__name__}: {error}"})
    if not isinstance(name, str | int | None):
        name = None
    return answer.write(id=name, status=answer.status)


def _decode(line: bytes) -> str:
    if len(line) > MAX_LINE_BYTES:
        error = f"a line has at most {MAX_LINE_BYTES:,} bytes"
        raise Refusal(413, error, is_blocked=may_ask_to_redact(line.decode(errors="replace")))
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        is_blocked = may_ask_to_redact(line.decode(errors="replace"))
        reason = f"the line is not UTF-8: {error.reason}"
        raise Refusal(400, reason, is_blocked=is_blocked) from None


def _skip_line(calls: BinaryIO) -> None:
    """Read the rest of a line that is too long."""
    while (piece := calls.readline(MAX_LINE_BYTES)) and not piece.endswith(b"\n"):
        pass
