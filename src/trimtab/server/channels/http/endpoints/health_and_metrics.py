"""What those ask who run the server."""

from __future__ import annotations

import asyncio

from trimtab.errors import StoreError
from trimtab.http_api_response_types import HealthStatus
from trimtab.observe.server_metrics import set_dead_sessions, set_waiting_messages
from trimtab.server.channels.http.problems import HttpProblem, build_unavailable_problem
from trimtab.server.channels.http.request_context_and_operations import (
    EndpointResponse,
    RequestContext,
)

STORE_TIMEOUT_S = 2.0
"""Seconds that the store has to answer."""
MAX_COUNTED_DEAD_LETTERS = 1_000
"""Sessions that were given up, as many as are counted."""


async def handle_liveness_check(request: RequestContext) -> EndpointResponse:
    del request
    return EndpointResponse(value=HealthStatus(status="ok"))


async def handle_readiness_check(request: RequestContext) -> EndpointResponse:
    if request.server_state.draining:
        raise build_unavailable_problem("the server is shutting down")
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            await request.service.store.sessions(limit=1)
            await request.service.queue.depth("\x7f/")
    except (StoreError, TimeoutError):
        raise build_unavailable_problem("the store is unavailable") from None
    return EndpointResponse(value=HealthStatus(status="ok"))


async def handle_read_metrics(request: RequestContext) -> EndpointResponse:
    if request.server_state.render_metrics is None:
        raise HttpProblem(
            "not-found", "metrics are not available here: prometheus_client is not installed"
        )
    set_waiting_messages(await request.service.queue.depth())
    set_dead_sessions(
        len(await request.service.queue.list_dead_letters(limit=MAX_COUNTED_DEAD_LETTERS))
    )
    raw, media = request.server_state.render_metrics()
    return EndpointResponse(raw_body=raw, media_type=media)
