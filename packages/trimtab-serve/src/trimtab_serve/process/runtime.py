"""Open everything that serving needs in order, and close it in reverse order."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from trimtab.stores.base import PoolUsage, Store
from trimtab.stores.factory import open_store
from trimtab.stores.files import FileStore
from trimtab_serve.agent.agent import Agent
from trimtab_serve.api_keys.store import ApiKeyStore
from trimtab_serve.channels.base import Channel
from trimtab_serve.forgetting.control_files import serve_control_requests
from trimtab_serve.forgetting.erasure import run_erasures
from trimtab_serve.forgetting.history_file import forget_history_lines_with
from trimtab_serve.forgetting.retention import RetentionRunner
from trimtab_serve.metrics.recording import watch_pool
from trimtab_serve.process.loading import AgentSetSpec
from trimtab_serve.process.local_turns import LocalTurnRunner
from trimtab_serve.process.logging_setup import log_store_errors
from trimtab_serve.process.reloading import ServedAgents
from trimtab_serve.process.wiring import create_configured_channels, map_channel_senders
from trimtab_serve.queue.sqlite.interrupted_turns import InterruptedTurns
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.service.delivery import ReplyDelivery
from trimtab_serve.service.erasure_records import FileErasureRecords
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.retries import abandon_interrupted_turn
from trimtab_serve.service.service import AgentService
from trimtab_serve.usage.sqlite import SqliteUsageCounters
from trimtab_serve.usage.tenant_limits import TenantLimits

MAX_STORE_CONNECTIONS = 16
"""Maximum number of database connections for sessions. The queue has its own."""
FOLDER_ERASURE_POLL_S = 1.0
DATABASE_ERASURE_POLL_S = 10.0
"""Seconds between two looks for erasures that another process requested or left unfinished."""
log = logging.getLogger("trimtab.serve")
MISSING_FLEET_PACKAGES = "turns on PostgreSQL need more packages: pip install 'trimtab[fleet]'"


class DrainableTurnRunner(Protocol):
    """Runs turns that are due."""

    async def drain(self, timeout_s: float) -> int:
        """Start no more turns, wait for running ones, and return how many were interrupted."""
        ...


@dataclass(slots=True, kw_only=True)
class ServerRuntime:
    """Everything that is open while serving."""

    service: AgentService
    """Agents, sessions and queue."""
    api_keys: ApiKeyStore
    """The keys of callers over HTTP."""
    schedule_turn: Callable[[str], Awaitable[None]]
    """Schedules a turn even if there is no new message."""
    turn_runner: DrainableTurnRunner | None = None
    """Runs turns in this process. None if other processes do."""
    channels: list[tuple[str, Channel]] = field(default_factory=list[tuple[str, Channel]])
    """Channels, each with its agent. All agents share the schedule channel."""
    background_tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]] = field(
        default_factory=dict[str, Callable[[], Coroutine[Any, Any, None]]]
    )
    """Tasks that run until they are cancelled, by name."""
    served_agents: ServedAgents | None = None
    """The agents of the service, which can be replaced."""
    prepare_agent: Callable[[Agent], None] | None = None
    """Called for each agent before it is served."""
    resumed_sessions: int = 0
    """Sessions with messages left by an earlier process."""
    pools: dict[str, Callable[[], PoolUsage]] = field(
        default_factory=dict[str, Callable[[], PoolUsage]]
    )
    """Measures the database connections of each pool, by its name."""


@asynccontextmanager
async def open_server_runtime(
    agent_set: AgentSetSpec, *, run_turns: bool = True, run_channels: bool = True
) -> AsyncGenerator[ServerRuntime]:
    """Open the runtime of these agents."""
    async with AsyncExitStack() as stack:
        stack.enter_context(log_store_errors())
        store = await open_store(
            agent_set.store_location,
            max_connections=min(
                MAX_STORE_CONNECTIONS, agent_set.serve_config.max_concurrent_turns + 2
            ),
        )
        stack.push_async_callback(store.close)
        served_agents = ServedAgents(store)
        stack.push_async_callback(served_agents.close)
        agents = await served_agents.open(agent_set.members)
        make = _open_on_database if agent_set.uses_database else _open_on_files
        runtime = await make(agent_set, store, agents, run_turns)
        runtime.served_agents = served_agents
        stack.push_async_callback(runtime.service.close)
        for name, measure in runtime.pools.items():
            stack.enter_context(watch_pool(name, measure))
        forget_history_lines_with(runtime.service, log)
        await _start_channels(agent_set, runtime, stack, run=run_channels)
        if isinstance(runtime.turn_runner, LocalTurnRunner):
            stack.callback(runtime.turn_runner.close)
            runtime.resumed_sessions = await runtime.turn_runner.resume_waiting()
        yield runtime


async def _open_on_files(
    agent_set: AgentSetSpec, store: Store, agents: dict[str, Agent], run_turns: bool
) -> ServerRuntime:
    if not run_turns:
        raise ValueError(
            "--no-turns needs PostgreSQL; with a store of files, one process does everything"
        )
    assert isinstance(store, FileStore)  # noqa: S101 - what a place that is no database opens as
    queue = await SqliteMessageQueue.open(store)
    await store.recover()
    service = AgentService(
        agents=agents,
        store=store,
        queue=queue,
        event_bus=LocalEventBus(),
        max_queued_messages=agent_set.serve_config.max_queued_messages,
        erasure_records=FileErasureRecords(store.root),
    )
    interrupted_turns = await InterruptedTurns.open(queue, store.root)
    for session in interrupted_turns.exhausted:
        await abandon_interrupted_turn(queue, session, interrupted_turns.times[session])
    counters = SqliteUsageCounters(queue.database, store)
    await counters.synchronise()
    limits = service.tenant_limits = TenantLimits(
        counters,
        agent_set.serve_config.tenant_limits,
        agent_set.serve_config.limits_by_tenant,
    )
    service.delete_hooks.append(limits.forget)
    turn_runner = LocalTurnRunner(
        service,
        interrupted=interrupted_turns,
        max_turns=agent_set.serve_config.max_concurrent_turns,
        max_turns_per_tenant=agent_set.serve_config.max_concurrent_turns_per_tenant,
        retry_for_s=agent_set.serve_config.retry_for,
    )
    queue.on_posted = turn_runner.request_turn

    async def due(session: str) -> None:
        turn_runner.request_turn(session)

    runtime = ServerRuntime(
        service=service,
        api_keys=ApiKeyStore(queue.transactions),
        schedule_turn=due,
        turn_runner=turn_runner,
    )
    runtime.background_tasks["tenant limits"] = limits.run
    runtime.background_tasks["local requests"] = partial(
        serve_control_requests, store.root, service
    )
    runtime.background_tasks["erasures"] = partial(
        run_erasures, service, poll_s=FOLDER_ERASURE_POLL_S
    )
    retention = RetentionRunner(service=service, tenant_ages=agent_set.serve_config.retain_for)
    runtime.background_tasks["retention"] = retention.run
    return runtime


async def _open_on_database(
    agent_set: AgentSetSpec, store: Store, agents: dict[str, Agent], run_turns: bool
) -> ServerRuntime:
    try:
        from trimtab.stores.postgres.store import PostgresStore
        from trimtab_serve.forgetting.postgres_records import (
            PostgresErasureRecords,
            hold_retention_lock,
        )
        from trimtab_serve.process.worker_pool import WorkerPool
        from trimtab_serve.queue.postgres.procrastinate_jobs import JobPayload
        from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
        from trimtab_serve.service.events.postgres_notify import PostgresEventBus
        from trimtab_serve.usage.postgres import PostgresUsageCounters
    except ModuleNotFoundError as error:
        if error.name not in ("procrastinate", "psycopg", "psycopg_pool"):
            raise
        raise ValueError(MISSING_FLEET_PACKAGES) from error
    queue = await PostgresMessageQueue.connect(agent_set.store_location)
    live = PostgresEventBus(agent_set.store_location)
    service = AgentService(
        agents=agents,
        store=store,
        queue=queue,
        event_bus=live,
        max_queued_messages=agent_set.serve_config.max_queued_messages,
        erasure_records=PostgresErasureRecords(queue.borrow_connection),
    )
    limits = service.tenant_limits = TenantLimits(
        PostgresUsageCounters(queue.borrow_connection),
        agent_set.serve_config.tenant_limits,
        agent_set.serve_config.limits_by_tenant,
    )
    live.on_stop_requested = service.stop_local_turn
    live.on_pause_requested = service.pause_local_turn

    async def due(session: str) -> None:
        await queue.defer_job(JobPayload(session=session))

    assert isinstance(store, PostgresStore)  # noqa: S101 - what a database opens as
    pools = {"sessions": store.pool_usage, "queue": queue.pool_usage}
    runtime = ServerRuntime(
        service=service,
        api_keys=ApiKeyStore(queue.transactions),
        schedule_turn=due,
        pools=pools,
    )
    runtime.background_tasks["events"] = live.run
    runtime.background_tasks["erasures"] = partial(
        run_erasures, service, poll_s=DATABASE_ERASURE_POLL_S
    )
    runtime.background_tasks["tenant limits"] = limits.run
    retention = RetentionRunner(
        service=service,
        tenant_ages=agent_set.serve_config.retain_for,
        hold_lock=partial(hold_retention_lock, queue.borrow_connection),
    )
    runtime.background_tasks["retention"] = retention.run
    if run_turns:
        serve = agent_set.serve_config
        fleet = WorkerPool(
            service,
            queue,
            max_turns=serve.max_concurrent_turns,
            max_turns_per_tenant=serve.max_concurrent_turns_per_tenant,
            retry_for_s=serve.retry_for,
        )
        runtime.turn_runner = fleet
        runtime.prepare_agent = fleet.prepare_agent
        runtime.background_tasks["turns"] = fleet.run
    return runtime


async def _start_channels(
    agent_set: AgentSetSpec, runtime: ServerRuntime, exit_stack: AsyncExitStack, *, run: bool
) -> None:
    """Start the channels and the delivery of replies. Channels that do not run still deliver."""
    runtime.channels = await create_configured_channels(agent_set, runtime.service, now=time.time())
    for agent, channel in runtime.channels:
        exit_stack.push_async_callback(channel.close)
        if run:
            runtime.background_tasks[f"{channel.name} of {agent}"] = channel.run
    ways = map_channel_senders(runtime.channels, is_only_process=not agent_set.uses_database)
    if not ways:
        return
    delivery = ReplyDelivery(runtime.service.queue, ways)
    runtime.service.queue.on_replies = delivery.wake
    runtime.background_tasks["delivery"] = delivery.run
