"""The schedules of `agent.yaml` are brought in when an agent is served: added, changed, removed.

Who gets the result of a schedule, as a file names them: `telegram:123456`.

The run happens in that chat's own session unless another is named. Whoever answers to what they got
is then understood: it was said where they speak.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.agent.config.spec import ScheduleSpec as Block
from trimtab.agent.config.spec import parse_chat_address
from trimtab.server.queue.inbound_outbound import ReplyRoute
from trimtab.server.schedules.protocol import ScheduleStore
from trimtab.server.schedules.schedule import Schedule
from trimtab.server.schedules.triggers import (
    Trigger,
    find_next_due_time,
    parse_cron_trigger,
    parse_one_time_trigger,
)
from trimtab.server.tenant_agent_session_ids import DEFAULT_TENANT, SessionAddress, is_valid_name


async def sync_schedules_from_config(
    schedules: ScheduleStore,
    agent: str,
    blocks: Mapping[str, Block],
    *,
    now: float,
    tenant: str = DEFAULT_TENANT,
) -> None:
    """Let an agent have the schedules of its file, and no others but those of its tools.

    One that is due at the same times as before goes on where it was: what was missed meanwhile is
    made up for as it says. Raises `ValueError` where a schedule cannot be read; then none changes.
    """
    wanted = {
        one.id: one
        for name, block in blocks.items()
        for one in (build_schedule_from_config(agent, name, block, now=now, tenant=tenant),)
    }
    for one in await schedules.find(agent=agent, limit=100_000):
        if one.origin == "file" and one.id not in wanted and one.id.startswith(f"{tenant}/"):
            await schedules.remove(one.id)
    for one in wanted.values():
        await schedules.upsert(one)


def build_schedule_from_config(
    agent: str, name: str, block: Block, *, now: float, tenant: str = DEFAULT_TENANT
) -> Schedule:
    """A schedule as a file has it. Raises `ValueError`."""
    try:
        when = _parse_trigger_config(block)
        route = parse_chat_route(block.to) if block.to is not None else None
    except ValueError as error:
        raise ValueError(f"schedules.{name}: {error}") from None
    session = block.session or (
        name_chat_session(route) if route is not None else f"schedule:{name}"
    )
    if not is_valid_name(session):
        raise ValueError(
            f"schedules.{name}: {session[:60]!r} is no name for a session; take letters, digits "
            "and _.:@+=-, 128 at most"
        )
    return Schedule(
        id=f"{tenant}/{agent}/{name}",
        session=str(SessionAddress(tenant=tenant, agent=agent, name=session)),
        message=block.message,
        trigger=when,
        origin="file",
        created_at=now,
        # What is due once is due even if that is over: whether it is made up for is judged then.
        next_run_at=when.at if when.at is not None else find_next_due_time(when, now),
        route=route,
        catch_up=block.catch_up,
        catch_up_window=block.catch_up_window,
    )


def _parse_trigger_config(block: Block) -> Trigger:
    if block.cron is not None and block.at is None:
        return parse_cron_trigger(block.cron, block.timezone)
    if block.at is not None and block.cron is None:
        return parse_one_time_trigger(block.at, block.timezone)
    raise ValueError("needs `cron` or `at`, and not both")


def parse_chat_route(target: str) -> ReplyRoute:
    """The route to a chat. Raises `ValueError` where it names none."""
    platform, chat, topic = parse_chat_address(target)
    if platform == "discord":
        return ReplyRoute(channel=platform, address={"channel": chat})
    return ReplyRoute(
        channel=platform, address={"chat": chat, **({"topic": topic} if topic else {})}
    )


def name_chat_session(route: ReplyRoute) -> str:
    """What the session of a chat is called."""
    return ":".join([route.channel, *map(str, route.address.values())])
