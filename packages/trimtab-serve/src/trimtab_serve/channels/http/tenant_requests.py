"""What the requests of one tenant may take of a process at the same time.

A tenant that asks for more waits for its own requests, and the others do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager

from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.channels.keyed_locks import KeyedLocks

MAX_READS = 2
"""Reads of logs by one tenant at the same time. Each may take a thread, and threads take time from
the event loop."""


class TenantRequests:
    """Counts the requests and the reads of each tenant."""

    def __init__(self, max_requests: int | None) -> None:
        """Initialise the counts. `max_requests` is the number of requests of one tenant that are
        answered at the same time, streams included. None for no limit."""
        self._max_requests = max_requests
        self._requests: Counter[str] = Counter()
        self._reads = KeyedLocks(MAX_READS)

    @contextmanager
    def hold_request(self, tenant: str) -> Generator[None]:
        """Answer a request in the block. Raises `HttpProblem` with 429 if there are too many."""
        if self._max_requests is not None and self._requests[tenant] >= self._max_requests:
            raise HttpProblem(
                "too-many-requests",
                f"{self._max_requests:,} requests and streams of tenant {tenant} are open; close "
                "some of them",
                headers={"Retry-After": "1"},
            )
        self._requests[tenant] += 1
        try:
            yield
        finally:
            self._requests[tenant] -= 1
            if not self._requests[tenant]:
                del self._requests[tenant]

    def hold_read(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """Read logs in the block, after earlier reads of the tenant."""
        return self._reads.hold(tenant)
