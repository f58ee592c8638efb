"""The event loop of all conversations, in a thread of its own.

A framework calls from threads and from event loops that come and go. Stores and locks belong to one
event loop, so there is one for them that stays.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread. It starts at its first use, in a forked process again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_again)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and block this thread until it ends."""
        loop = self._get_loop()
        if _get_running_loop() is loop:
            coroutine.close()
            raise RuntimeError(
                "run() would wait for its own thread, for example in on_edit; call it elsewhere"
            )
        running = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()  # nobody waits for it any more
            raise

    async def run_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and await it on any loop."""
        loop = self._get_loop()
        if _get_running_loop() is loop:
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="trimtab-conversations", daemon=True
                ).start()
            return self._loop

    def _begin_again(self) -> None:
        """Forget the thread: the child of a fork does not have it."""
        self._lock, self._loop = threading.Lock(), None


def _get_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
