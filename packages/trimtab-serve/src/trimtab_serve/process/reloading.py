"""Open the served agents, and replace them when their files are read again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from trimtab.providers.circuit_breaker import CircuitBreakers
from trimtab.stores.base import Store
from trimtab_serve.agent.agent import Agent, open_agent
from trimtab_serve.process.loading import AgentSetSpec, ServedAgentSpec
from trimtab_serve.service.service import AgentService

log = logging.getLogger("trimtab.serve")


class AgentsNotReloadable(ValueError):
    """A change in the files needs a restart."""


class ServedAgents:
    """Opens and closes agents. Each set of agents has its own task, because the task that opens a
    tool must also close it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._retire: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, members: Mapping[str, ServedAgentSpec]) -> dict[str, Agent]:
        """Open a set of agents. Raise the error if one cannot be opened."""
        future_agents: asyncio.Future[dict[str, Agent]] = asyncio.get_running_loop().create_future()
        retire = asyncio.Event()
        task = asyncio.create_task(self._hold(members, future_agents, retire), name="agents")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        agents = await future_agents
        self._retire = retire
        return agents

    async def reload(
        self,
        current: AgentSetSpec,
        changed: AgentSetSpec,
        service: AgentService,
        prepare: Callable[[Agent], None] | None,
    ) -> None:
        """Replace the agents with those in the files now. If one cannot be opened, raise the error
        and change nothing. Running turns finish with the agents that they started with."""
        check_reloadable(current, changed)
        before = self._retire
        agents = await self.open(changed.members)
        for agent in agents.values():
            if prepare is not None:
                prepare(agent)
        running = service.replace_agents(agents)
        if before is not None:
            task = asyncio.create_task(_retire_after(running, before), name="agents that go")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Close all agents."""
        if self._retire is not None:
            self._retire.set()
        for task in [*self._tasks]:
            if task.get_name() == "agents that go":
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _hold(
        self,
        members: Mapping[str, ServedAgentSpec],
        future_agents: asyncio.Future[dict[str, Agent]],
        retire: asyncio.Event,
    ) -> None:
        try:
            async with AsyncExitStack() as stack:
                breakers = CircuitBreakers()
                agents: dict[str, Agent] = {}
                specs_by_file = {member.file: member.spec for member in members.values()}
                for name, member in members.items():
                    agents[name] = await stack.enter_async_context(
                        open_agent(
                            member.spec,
                            member.folder,
                            store=self._store,
                            breakers=breakers,
                            served=specs_by_file,
                        )
                    )
                future_agents.set_result(agents)
                await retire.wait()
        except BaseException as error:
            if future_agents.done():
                raise
            future_agents.set_exception(error)


async def _retire_after(running: Sequence[asyncio.Future[Any]], retire: asyncio.Event) -> None:
    try:
        if running:
            await asyncio.wait(running)
    finally:
        retire.set()


def check_reloadable(current: AgentSetSpec, changed: AgentSetSpec) -> None:
    """Raise `AgentsNotReloadable` if a change needs a restart."""
    if changed.store_location != current.store_location:
        raise AgentsNotReloadable("session.store changed: restart the server")
    mine = current.serve_config.model_dump()
    theirs = changed.serve_config.model_dump()
    if differ := [f"serve.{name}" for name in mine if mine[name] != theirs[name]]:
        raise AgentsNotReloadable(f"{', '.join(differ)} changed: restart the server")
