"""Health checks and metrics for operators."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from starlette.responses import PlainTextResponse, Response

from trimtab.errors import StoreError, StoreUnavailable
from trimtab_serve.channels.http.api_route import (
    PUBLIC,
    ApiRequest,
    create_api_router,
    describe_problems,
    requires,
)
from trimtab_serve.channels.http.problems import (
    HttpProblem,
    build_unavailable_problem,
    describe_store_trouble,
)
from trimtab_serve.client.types import HealthStatus
from trimtab_serve.metrics.recording import (
    mark_store_unreachable,
    set_provider_circuits,
    set_queue_state,
    set_waiting_retries,
)
from trimtab_serve.service.service import AgentService

STORE_TIMEOUT_S = 0.8
"""Seconds in which the store must answer."""
METRICS_TIMEOUT_S = 0.5
"""Seconds in which the queue must answer for metrics.

Otherwise they contain no number of it, and `trimtab_store_reachable` is 0.
"""
MAX_COUNTED_DEAD_LETTERS = 1_000
"""Maximum number of sessions with dead letters that are counted."""


router = create_api_router("operations")


@router.get("/healthz", openapi_extra=PUBLIC)
async def health() -> HealthStatus:
    """Check that the server runs."""
    return HealthStatus(status="ok")


@router.get("/readyz", openapi_extra=PUBLIC, responses=describe_problems(503))
async def readiness(request: ApiRequest) -> HealthStatus:
    """Check that the store is available and the server is not shutting down."""
    if request.server_state.draining:
        raise build_unavailable_problem("the server is shutting down")
    try:
        await _within(STORE_TIMEOUT_S, _ask_store(request.service))
    except StoreError as error:
        raise build_unavailable_problem(describe_store_trouble(error)) from None
    return HealthStatus(status="ok")


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    openapi_extra=requires("metrics"),
    responses=describe_problems(403, 404),
)
async def metrics(request: ApiRequest) -> Response:
    """Read the Prometheus metrics of all tenants. It needs a key with the role `metrics`, which
    cannot do anything else."""
    if request.server_state.render_metrics is None:
        raise HttpProblem(
            "not-found", "metrics are not available here: prometheus_client is not installed"
        )
    service = request.service
    set_provider_circuits(service.list_provider_circuits())
    # Report what works even if a part is down, because that is when operators look.
    try:
        await _within(METRICS_TIMEOUT_S, _measure_queue(service))
    except StoreError:
        mark_store_unreachable()
    raw, media = request.server_state.render_metrics()
    return Response(raw, media_type=media)


async def _ask_store(service: AgentService) -> None:
    await service.queue.check_writable()
    await service.store.sessions(limit=1)


async def _measure_queue(service: AgentService) -> None:
    waiting = await service.queue.depth()
    dead = await service.queue.list_dead_letters(limit=MAX_COUNTED_DEAD_LETTERS)
    oldest = await service.queue.oldest_waiting_at()
    set_queue_state(waiting, len(dead), 0.0 if oldest is None else time.time() - oldest)
    if service.count_waiting_retries is not None:
        set_waiting_retries(await service.count_waiting_retries())


async def _within(timeout_s: float, work: Coroutine[Any, Any, None]) -> None:
    """Run the work, or raise `StoreUnavailable` after the timeout.

    A cancelled query may also wait for its server, so its end is not awaited.
    """
    task = asyncio.ensure_future(work)
    await asyncio.wait((task,), timeout=timeout_s)
    if not task.done():
        task.cancel()
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise StoreUnavailable(f"the store did not answer within {timeout_s:g} s")
    task.result()
