"""A message that an agent gets at set times, and the log of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from trimtab.log.message import make_text_message
from trimtab.server.queue.inbound_outbound import InboundMessage, ReplyRoute
from trimtab.server.schedules.triggers import Trigger, find_next_due_time
from trimtab.server.tenant_agent_session_ids import parse_session_address

CatchUpPolicy = Literal["skip", "once", "all"]
ScheduleOrigin = Literal["file", "tool"]
SCHEDULE_FORMAT_VERSION = 1
"""Of the stored shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    id: str
    """`tenant/agent/name` from a file, `tenant/agent/session/number` from a tool."""
    session: str
    """The id of the session that it happens in."""
    message: str
    """What the agent gets, as if a user had written it."""
    trigger: Trigger
    """When it is due."""
    origin: ScheduleOrigin
    """Who made it: the agent's file, or the agent."""
    created_at: float
    """When it was made, in seconds since the epoch."""
    next_run_at: float | None
    """When it is due next, in seconds since the epoch; None where it is done."""
    route: ReplyRoute | None = None
    """Where the result goes; None where it stays in the session."""
    catch_up: CatchUpPolicy = "once"
    """What to do about runs that were missed."""
    catch_up_window: int = 86_400
    """Seconds after which a missed run is skipped in any case."""
    paused: bool = False
    """Whether somebody has put it aside: it does not run, and misses nothing meanwhile."""

    @property
    def agent(self) -> str:
        """Who is told."""
        address = parse_session_address(self.session)
        return address.agent if address is not None else ""

    @property
    def name(self) -> str:
        """The last part of its id."""
        return self.id.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRunLogEntry:
    """A line of the run log."""

    schedule: str
    """Its id."""
    due: float
    """When it was due, in seconds since the epoch; the first time where several were skipped."""
    at: float
    """When that was decided."""
    reason: str = ""
    """Why it was skipped; empty if it ran."""
    until: float | None = None
    """Where it was skipped: so were all that were due before this moment."""


def apply_schedule_change(current: Schedule, wanted: Schedule) -> Schedule:
    """A schedule as it is wanted now: what is due at the same times goes on as it was."""
    same = current.trigger == wanted.trigger
    due = current.next_run_at if same else wanted.next_run_at
    return replace(wanted, created_at=current.created_at, next_run_at=due, paused=current.paused)


def paused_schedule(schedule: Schedule) -> Schedule:
    """A schedule that does not run until it is resumed."""
    return replace(schedule, paused=True)


def resumed_schedule(schedule: Schedule, now: float) -> Schedule:
    """A schedule that goes on: what came meanwhile was not wanted, what is due once still is."""
    if not schedule.paused:
        return schedule
    again = schedule.trigger.cron is not None and schedule.next_run_at is not None
    due = find_next_due_time(schedule.trigger, now) if again else schedule.next_run_at
    return replace(schedule, paused=False, next_run_at=due)


def build_run_message(schedule: Schedule, due_at: float, now: float) -> InboundMessage:
    """What a due run posts. Its key is the run's own, so that the same run is never two."""
    return InboundMessage(
        session=schedule.session,
        message=make_text_message("user", schedule.message),
        key=f"schedule/{schedule.id}/{int(due_at)}",
        at=now,
        route=schedule.route,
    )


def schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """Plain JSON values."""
    route = schedule.route
    return {
        "v": SCHEDULE_FORMAT_VERSION,
        "id": schedule.id,
        "session": schedule.session,
        "says": schedule.message,
        "cron": schedule.trigger.cron,
        "at": schedule.trigger.at,
        "timezone": schedule.trigger.timezone,
        "origin": schedule.origin,
        "created_at": schedule.created_at,
        "next_run_at": schedule.next_run_at,
        "route": route and {"door": route.channel, "address": dict(route.address)},
        "missed": schedule.catch_up,
        "late": schedule.catch_up_window,
        "paused": schedule.paused,
    }


def schedule_from_json(data: Mapping[str, Any]) -> Schedule:
    """The inverse of `schedule_to_json`."""
    if data["v"] != SCHEDULE_FORMAT_VERSION:
        raise ValueError(f"a schedule of version {data['v']} is of a later release; upgrade")
    route = cast("Mapping[str, Any] | None", data["route"])
    return Schedule(
        id=data["id"],
        session=data["session"],
        message=data["says"],
        trigger=Trigger(cron=data["cron"], at=data["at"], timezone=data["timezone"]),
        origin=data["origin"],
        created_at=data["created_at"],
        next_run_at=data["next_run_at"],
        route=None
        if route is None
        else ReplyRoute(channel=route["door"], address=route["address"]),
        catch_up=data["missed"],
        catch_up_window=data["late"],
        paused=data["paused"],
    )


def schedule_run_to_json(run: ScheduleRunLogEntry) -> dict[str, Any]:
    """Plain JSON values."""
    return {
        "schedule": run.schedule,
        "due": run.due,
        "at": run.at,
        "why": run.reason,
        "until": run.until,
    }


def schedule_run_from_json(data: Mapping[str, Any]) -> ScheduleRunLogEntry:
    """The inverse of `schedule_run_to_json`."""
    return ScheduleRunLogEntry(
        schedule=data["schedule"],
        due=data["due"],
        at=data["at"],
        reason=data["why"],
        until=data["until"],
    )
