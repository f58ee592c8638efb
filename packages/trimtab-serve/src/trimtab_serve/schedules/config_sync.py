"""Add, change and remove the schedules of `agent.yaml` when an agent is served.

A file names the receiver of the result as `telegram:123456`. The run happens in the session of that
chat, unless the file names another session. So the agent understands what the user answers to the
result.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab_serve.agent.config.checks import parse_chat_address
from trimtab_serve.agent.config.spec import ScheduleSpec as Block
from trimtab_serve.queue.address import DEFAULT_TENANT, SessionAddress, is_valid_name
from trimtab_serve.queue.messages import ReplyRoute
from trimtab_serve.schedules.schedule import Schedule
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.schedules.triggers import (
    find_next_due_time,
    parse_cron_trigger,
    parse_one_time_trigger,
)


async def sync_schedules_from_config(
    schedules: ScheduleStore,
    agent: str,
    blocks: Mapping[str, Block],
    *,
    now: float,
    tenant: str = DEFAULT_TENANT,
) -> None:
    """Give an agent exactly the schedules of its file, and keep those of its tools.

    A schedule with the same due times continues, and makes up for missed runs as configured. Raises
    `ValueError` if a schedule is invalid. Then nothing changes.
    """
    schedules_by_id = {
        one.id: one
        for name, block in blocks.items()
        for one in (build_schedule_from_config(agent, name, block, now=now, tenant=tenant),)
    }
    for one in await schedules.find(agent=agent, limit=100_000):
        if (
            one.origin == "file"
            and one.id not in schedules_by_id
            and one.id.startswith(f"{tenant}/")
        ):
            await schedules.remove(one.id)
    for one in schedules_by_id.values():
        await schedules.upsert(one)


def build_schedule_from_config(
    agent: str, name: str, block: Block, *, now: float, tenant: str = DEFAULT_TENANT
) -> Schedule:
    """Build a schedule from its block in the file. Raises `ValueError`."""
    try:
        if block.cron is not None:
            when = parse_cron_trigger(block.cron, block.timezone)
        else:
            when = parse_one_time_trigger(block.at or "", block.timezone)
    except ValueError as error:
        raise ValueError(f"schedules.{name}: {error}") from None
    route = parse_chat_route(block.to) if block.to is not None else None
    session = block.session or (
        name_chat_session(route) if route is not None else f"schedule:{name}"
    )
    if not is_valid_name(session):
        raise ValueError(
            f"schedules.{name}: invalid session name {session[:60]!r}: use letters, digits and "
            "_.:@+=-, at most 128 characters"
        )
    return Schedule(
        id=f"{tenant}/{agent}/{name}",
        session=str(SessionAddress(tenant=tenant, agent=agent, name=session)),
        message=block.message,
        trigger=when,
        origin="file",
        created_at=now,
        # A one-time schedule is due even if its time is over. `catch_up` decides what happens then.
        next_run_at=when.at if when.at is not None else find_next_due_time(when, now),
        route=route,
        catch_up=block.catch_up,
        catch_up_window=block.catch_up_window,
    )


def parse_chat_route(target: str) -> ReplyRoute:
    """Return the route to a chat. Raises `ValueError` if the target is invalid."""
    platform, chat, topic = parse_chat_address(target)
    if platform == "discord":
        return ReplyRoute(channel=platform, address={"channel": chat})
    return ReplyRoute(
        channel=platform, address={"chat": chat, **({"topic": topic} if topic else {})}
    )


def name_chat_session(route: ReplyRoute) -> str:
    """Return the name of the session of a chat."""
    return ":".join([route.channel, *map(str, route.address.values())])
