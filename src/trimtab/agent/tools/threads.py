"""Synchronous functions beside the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def in_thread(call: Callable[[], Any]) -> Any:
    """Run it beside the event loop. A thread cannot be ended: one that hangs is left behind, and
    does not keep the process from ending, as one of the loop's own pool would."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(given: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(given)
        elif isinstance(error, StopIteration):
            done.set_exception(RuntimeError("the function raised StopIteration"))
        else:
            done.set_exception(error)

    def work() -> None:
        given, error = None, None
        try:
            given = context.run(call)
        except BaseException as raised:  # noqa: BLE001 - whoever waits is told
            error = raised if isinstance(raised, Exception) else RuntimeError(repr(raised))
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, given, error)

    threading.Thread(target=work, name="trimtab-tool", daemon=True).start()
    return await done
