"""The ways in and out that the agents' files name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimtab.cli.serve.crew import Crew
from trimtab.stores.files import FileStore
from trimtab.worker.delivery import TRIES, Deliver, Later, Never, wait_after
from trimtab.worker.door import Door
from trimtab.worker.letters import Outbound
from trimtab.worker.naming import address_of
from trimtab.worker.schedules.schedules import Schedules
from trimtab.worker.service import Service

EVERYBODY = "all agents"
"""Whose the clock is."""
MISSED = 10_000
"""Replies for doors of other processes whose attempts are counted."""


async def doors_of(crew: Crew, service: Service, *, now: float) -> list[tuple[str, Door]]:
    """All doors, each with its agent."""
    found: list[tuple[str, Door]] = []
    for name, member in crew.members.items():
        if member.spec.telegram is not None:
            found.append((name, _telegram(service, name, member.spec.telegram)))
        if member.spec.discord is not None:
            found.append((name, _discord(service, name, member.spec.discord)))
    if clocked := [name for name, member in crew.members.items() if _needs_clock(member.spec)]:
        found.append((EVERYBODY, await _clock(crew, service, clocked, now)))
    return found


def delivering(doors: Sequence[tuple[str, Door]], *, alone: bool) -> dict[str, Deliver]:
    """By a door's name, who sends; of several agents with such a door, the reply's own.

    Whoever is not `alone` leaves a reply whose door he lacks to other processes for a while.
    """
    by_name: dict[str, dict[str, Door]] = {}
    for agent, door in doors:
        by_name.setdefault(door.name, {})[agent] = door
    tries = 1 if alone else TRIES
    return {name: _dispatch(name, agents, tries) for name, agents in by_name.items()}


def _dispatch(name: str, agents: dict[str, Door], tries: int) -> Deliver:
    missed = Counter[str]()

    async def deliver(reply: Outbound) -> None:
        address = address_of(reply.session)
        agent = address.agent if address is not None else ""
        door = agents.get(agent) or agents.get(EVERYBODY)
        if door is None:
            raise _missed(missed, reply, tries, f"the agent {agent} has no {name} here")
        await door.deliver(reply)

    return deliver


def _missed(missed: Counter[str], reply: Outbound, tries: int, why: str) -> Later | Never:
    """What becomes of a reply whose door is not here. Nothing was sent, so it is not marked: its
    attempts are counted in this process alone."""
    made = missed.pop(reply.key, 0)
    if made + 1 >= tries:
        return Never(f"{why}; name it in the agent's file, start again and revive the reply")
    if len(missed) >= MISSED:
        missed.clear()
    missed[reply.key] = made + 1
    return Later(wait_after(made), f"{why}; another process may have it")


def _telegram(service: Service, name: str, block: Any) -> Door:
    try:
        from trimtab.gateways.telegram import door
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "telegram":
            raise
        raise ValueError(
            f"the agent {name} has a bot on Telegram, which needs its library: pip install "
            "'trimtab[telegram]'"
        ) from error
    return door(service, name, block)


def _discord(service: Service, name: str, block: Any) -> Door:
    from trimtab.gateways.discord import door

    try:
        return door(service, name, block)
    except ImportError as error:
        raise ValueError(
            f"the agent {name} has a bot on Discord, which needs its library: pip install "
            "'trimtab[discord]'"
        ) from error


def _needs_clock(spec: Any) -> bool:
    """Agents in chats can be asked for reminders; for all others the file must say so."""
    return bool(spec.schedules or spec.telegram or spec.discord)


async def _clock(crew: Crew, service: Service, agents: Sequence[str], now: float) -> Door:
    from trimtab.worker.schedules.bring_in import bring_in
    from trimtab.worker.schedules.door import ScheduleDoor
    from trimtab.worker.schedules.tools import forgetting, schedule_tools

    schedules = await _schedules(crew, service)
    service.forgetting.append(schedules.forget)
    service.erasing.append(forgetting(schedules))
    door = ScheduleDoor(schedules, agents)
    try:
        for name in agents:
            await bring_in(schedules, name, crew.members[name].spec.schedules, now=now)
            agent = service.agents[name]
            agent.tools = [*agent.tools, *schedule_tools(schedules, service.mail, wake=door.wake)]
    except BaseException:
        await door.close()
        raise
    return door


async def _schedules(crew: Crew, service: Service) -> Schedules:
    if isinstance(service.store, FileStore):
        from trimtab.worker.schedules.files import FileSchedules

        return await FileSchedules.open(
            Path(crew.place), post=service.post, find_key=service.store.find_key
        )
    from trimtab.worker.postgres.mail import PostgresMail
    from trimtab.worker.schedules.postgres import PostgresSchedules

    mail = service.mail
    assert isinstance(mail, PostgresMail)  # noqa: S101 - what goes with that store
    return PostgresSchedules(mail.lend, mail.post_within)
