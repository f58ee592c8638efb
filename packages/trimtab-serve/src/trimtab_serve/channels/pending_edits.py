"""Edits of messages that wait until their author stops editing.

People correct a message several times in a row. Without a pause, each correction would be a turn of
its own. A process that is killed in the pause loses the edit, but never the message itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from trimtab_serve.service.retries import compute_backoff_s

EDIT_PAUSE_S = 5.0
"""Seconds without a further edit of the same message before the agent reads the last one."""
MAX_PENDING_EDITS = 1_000
"""Maximum number of messages whose edits wait. A further one ends the pause of the oldest."""
MAX_POST_ATTEMPTS = 10
"""Attempts to store an edit."""
FIRST_RETRY_S = 0.5
MAX_RETRY_S = 30.0

PostEdit = Callable[[], Awaitable[None]]

log = logging.getLogger("trimtab.server")


class PendingEdits:
    """The last edit of each message, by a key of the message."""

    def __init__(self, pause_s: float = EDIT_PAUSE_S) -> None:
        self._pause_s = pause_s
        self._waiting: dict[str, tuple[asyncio.TimerHandle, PostEdit]] = {}
        self._posting: set[asyncio.Task[None]] = set()

    def add(self, key: str, post: PostEdit) -> None:
        """Replace the edit of a message that waits. `post` is called after the pause, and again if
        it fails."""
        if (earlier := self._waiting.pop(key, None)) is not None:
            earlier[0].cancel()
        elif len(self._waiting) >= MAX_PENDING_EDITS:
            self._post(next(iter(self._waiting)))
        timer = asyncio.get_running_loop().call_later(self._pause_s, self._post, key)
        self._waiting[key] = timer, post

    async def close(self) -> None:
        """Post at once what waits, and try it only once."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for timer, _ in waiting:
            timer.cancel()
        results = await asyncio.gather(*(post() for _, post in waiting), return_exceptions=True)
        for error in filter(None, results):
            log.warning("an edit is lost, because the server stops: %r", error)
        for task in self._posting:
            task.cancel()
        await asyncio.gather(*self._posting, return_exceptions=True)

    def _post(self, key: str) -> None:
        timer, post = self._waiting.pop(key)
        timer.cancel()
        task = asyncio.create_task(_post_with_retries(post), name=f"edit of {key}")
        self._posting.add(task)
        task.add_done_callback(self._posting.discard)


async def _post_with_retries(post: PostEdit) -> None:
    for attempt in range(1, MAX_POST_ATTEMPTS + 1):
        try:
            await post()
        except Exception as error:  # noqa: BLE001 - nobody waits for it
            log.warning("an edit is not stored yet: %r", error)
            await asyncio.sleep(
                compute_backoff_s(attempt, first_s=FIRST_RETRY_S, max_s=MAX_RETRY_S)
            )
        else:
            return
    log.error("an edit could not be stored after %d attempts", MAX_POST_ATTEMPTS)
