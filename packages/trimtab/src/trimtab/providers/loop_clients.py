"""The clients of an SDK, one for each event loop.

A connection belongs to the event loop that opened it. A request that another loop sends on it
reaches the provider, and its reply reaches nobody: it would be billed, and sent again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

ClientT = TypeVar("ClientT", bound=Any)


class LoopClients(Generic[ClientT]):
    """Clients of one provider by their event loop.

    Args:
        create: Creates a client. It is called at once, so that missing keys are found early.
        caller_client: The caller's own client, instead of those that `create` makes.
    """

    def __init__(self, create: Callable[[], ClientT], caller_client: ClientT | None = None) -> None:
        self._create = create
        self._is_callers = caller_client is not None
        self._unused: ClientT | None = create() if caller_client is None else caller_client
        self._by_loop: dict[asyncio.AbstractEventLoop, ClientT] = {}
        self._guard = threading.Lock()

    def get(self) -> ClientT:
        """Return the client of the running event loop.

        Raises:
            RuntimeError: If the client is the caller's own, and another loop has used it.
        """
        loop = asyncio.get_running_loop()
        with self._guard:  # two threads may use the provider for the first time at once
            client = self._by_loop.get(loop)
            if client is not None:
                return client
            client, self._unused = self._unused, None
            if client is None:
                if self._is_callers:
                    raise RuntimeError(
                        "the client of this provider was used in another event loop, and its "
                        "connections belong to that loop; create client and provider in this loop "
                        "as well, or give the provider api_key and base_url instead of a client: "
                        "then it has a client for each loop"
                    )
                client = self._create()
            for other_loop in [*self._by_loop]:
                if other_loop.is_closed():
                    del self._by_loop[other_loop]
            self._by_loop[loop] = client
            return client

    async def close(self) -> None:
        """Close the client of the running event loop, unless it is the caller's own, and forget
        those of other loops."""
        with self._guard:
            client = self._by_loop.get(asyncio.get_running_loop(), self._unused)
            if self._is_callers:
                return
            self._by_loop.clear()
            self._unused = None
        if client is not None:
            await client.close()
