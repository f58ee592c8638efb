"""The schedules of `agent.yaml` are brought in when an agent is served: added, changed, removed."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.agent.doors import Schedule as Block
from trimtab.worker.naming import TENANT, Address, is_name
from trimtab.worker.schedules.reach import route_to, session_of
from trimtab.worker.schedules.schedule import Schedule
from trimtab.worker.schedules.schedules import Schedules
from trimtab.worker.schedules.when import When, by_cron, following, once


async def bring_in(
    schedules: Schedules,
    agent: str,
    blocks: Mapping[str, Block],
    *,
    now: float,
    tenant: str = TENANT,
) -> None:
    """Let an agent have the schedules of its file, and no others but those of its tools.

    One that is due at the same times as before goes on where it was: what was missed meanwhile is
    made up for as it says. Raises `ValueError` where a schedule cannot be read; then none changes.
    """
    wanted = {
        one.id: one
        for name, block in blocks.items()
        for one in (from_file(agent, name, block, now=now, tenant=tenant),)
    }
    for one in await schedules.find(agent=agent, limit=100_000):
        if one.origin == "file" and one.id not in wanted and one.id.startswith(f"{tenant}/"):
            await schedules.remove(one.id)
    for one in wanted.values():
        await schedules.keep(one)


def from_file(agent: str, name: str, block: Block, *, now: float, tenant: str = TENANT) -> Schedule:
    """A schedule as a file has it. Raises `ValueError`."""
    try:
        when = _when(block)
        route = route_to(block.to) if block.to is not None else None
    except ValueError as error:
        raise ValueError(f"schedules.{name}: {error}") from None
    session = block.session or (session_of(route) if route is not None else f"schedule:{name}")
    if not is_name(session):
        raise ValueError(
            f"schedules.{name}: {session[:60]!r} is no name for a session; take letters, digits "
            "and _.:@+=-, 128 at most"
        )
    return Schedule(
        id=f"{tenant}/{agent}/{name}",
        session=str(Address(tenant=tenant, agent=agent, name=session)),
        says=block.says,
        when=when,
        origin="file",
        created_at=now,
        # What is due once is due even if that is over: whether it is made up for is judged then.
        next_run_at=when.at if when.at is not None else following(when, now),
        route=route,
        missed=block.missed,
        late=block.late,
    )


def _when(block: Block) -> When:
    if block.cron is not None and block.at is None:
        return by_cron(block.cron, block.timezone)
    if block.at is not None and block.cron is None:
        return once(block.at, block.timezone)
    raise ValueError("needs `cron` or `at`, and not both")
