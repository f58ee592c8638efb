"""Work on long texts runs in a few threads, so that the event loop is free for other sessions.

A thread reads a session's window and never changes it, and works for one caller at a time. So what
the loop reads of a window meanwhile is whole.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar, cast

from trimtab.engine.log.event import Event, MessageAdded, ToolResultRepair
from trimtab.engine.log.message import Message
from trimtab.engine.tokens.counter import estimate_message_tokens

T = TypeVar("T")

MAX_INLINE_BYTES = 256 * 1024
"""Bytes of text up to which work is done at once, without a thread: they take about 25 ms."""
MAX_THREADS = 2
"""Threads for long work. Each one takes time from the loop's own thread, and what waits for a
thread is long itself."""
EVENT_BYTES = 1_000
"""Bytes of text that take as long as folding an event."""
MESSAGE_BYTES = 100
"""Bytes of text that take as long as reading a message of a window, however short it is."""


@cache
def _get_executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="trimtab-long-work")


if hasattr(os, "register_at_fork"):
    # The threads are not in the child.
    os.register_at_fork(after_in_child=_get_executor.cache_clear)


def is_long_work(text_bytes: int) -> bool:
    """Whether work on this many bytes of text runs in a thread."""
    return text_bytes > MAX_INLINE_BYTES


async def run_in_thread_if_long(work: Callable[[], T], text_bytes: int) -> T:
    """Run work on this many bytes of text, in a thread if that takes long.

    A caller that is cancelled waits for the end of the work, because it holds what the work reads.
    """
    if not is_long_work(text_bytes):
        return work()
    try:
        running = _get_executor().submit(copy_context().run, work)
    except RuntimeError:  # Python is ending, and starts no more work in threads
        return work()
    waiting = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        running.cancel()
        while not waiting.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([waiting])
        if not waiting.cancelled():
            waiting.exception()  # reading the exception avoids asyncio's warning
        raise


def estimate_item_bytes(item: Any) -> int:
    """Return about how many bytes of text a message has, in any form that `Session.add` takes.

    It stops as soon as they are many. A list counts as a byte, so that one in itself has an end.
    """
    total = 0
    rest: list[Any] = [item]
    while rest and total <= MAX_INLINE_BYTES:
        value = rest.pop()
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, Message):
            total += 4 * estimate_message_tokens(value)
        elif isinstance(value, Mapping):
            total += 1
            rest.extend(cast("Mapping[str, Any]", value).values())
        elif isinstance(value, list | tuple):
            total += 1
            rest.extend(cast("Sequence[Any]", value))
    return total


def estimate_list_bytes(messages: Sequence[Any], *, first: int) -> int:
    """Return how many bytes of text take as long as reading a list from an index on."""
    total = EVENT_BYTES * max(0, len(messages) - first)
    for index in range(first, len(messages)):
        if total > MAX_INLINE_BYTES:
            break
        total += estimate_item_bytes(messages[index])
    return total


def estimate_fold_bytes(events: Sequence[Event]) -> int:
    """Return how many bytes of text take as long as folding events."""
    return EVENT_BYTES * len(events) + sum(
        size.bytes
        for event in events
        if isinstance(event.body, MessageAdded | ToolResultRepair)
        for size in event.body.sizes
    )
