"""A message that an agent gets at set times, and the log of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from trimtab.engine.log.message import SCHEDULE_KEY, Message, Text
from trimtab.engine.text.quoting import indent_further_lines
from trimtab_serve.queue.address import parse_session_address
from trimtab_serve.queue.messages import InboundMessage, ReplyRoute
from trimtab_serve.schedules.triggers import Trigger, find_next_due_time, format_time_in_zone

CatchUpPolicy = Literal["skip", "once", "all"]
ScheduleOrigin = Literal["file", "tool"]
MAX_CLOCK_LEAD_S = 300.0
"""Seconds by which a clock may be ahead without consequences for the next run."""
SCHEDULE_FORMAT_VERSION = 1
"""Version of the stored format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    id: str
    """`tenant/agent/name` from a file, `tenant/agent/session/number` from a tool."""
    session: str
    """Id of the session in which it runs."""
    message: str
    """The message that the agent gets."""
    trigger: Trigger
    """When it is due."""
    origin: ScheduleOrigin
    """Whether the agent's file or the agent itself created it."""
    created_at: float
    """When it was created, in seconds since the epoch."""
    next_run_at: float | None
    """When it is due next, in seconds since the epoch. None if it is finished."""
    route: ReplyRoute | None = None
    """The chat that gets the result. None if the result stays in the session."""
    catch_up: CatchUpPolicy = "once"
    """What to do about missed runs."""
    catch_up_window: int = 86_400
    """Seconds after which a missed run is always skipped."""
    paused: bool = False
    """Whether it is paused. A paused schedule does not run, and misses no runs."""

    @property
    def agent(self) -> str:
        """The agent that gets the message."""
        address = parse_session_address(self.session)
        return address.agent if address is not None else ""

    @property
    def name(self) -> str:
        """The last part of its id."""
        return self.id.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRunLogEntry:
    """An entry of the run log."""

    schedule: str
    """Id of the schedule."""
    due: float
    """When it was due, in seconds since the epoch. If several runs were skipped, the first of
    them."""
    at: float
    """When the decision was made."""
    reason: str = ""
    """Why it was skipped. Empty if it ran."""
    until: float | None = None
    """If it was skipped, so were all runs that were due before this time."""


def apply_schedule_change(current: Schedule, wanted: Schedule) -> Schedule:
    """Return the changed schedule. It continues if its due times are the same."""
    same = current.trigger == wanted.trigger
    due = current.next_run_at if same else wanted.next_run_at
    return replace(wanted, created_at=current.created_at, next_run_at=due, paused=current.paused)


def paused_schedule(schedule: Schedule) -> Schedule:
    """Return the schedule in the paused state."""
    return replace(schedule, paused=True)


def resumed_schedule(schedule: Schedule, now: float) -> Schedule:
    """Return the schedule in the running state.

    Runs that were due during the pause are dropped. A one-time schedule is still due.
    """
    if not schedule.paused:
        return schedule
    again = schedule.trigger.cron is not None and schedule.next_run_at is not None
    due = find_next_due_time(schedule.trigger, now) if again else schedule.next_run_at
    return replace(schedule, paused=False, next_run_at=due)


def corrected_schedule(schedule: Schedule, now: float) -> Schedule:
    """Return the schedule with a next time that its rule gives from now.

    A clock that was ahead has made it too late. Small differences stay, because the clocks of
    several processes differ. A run that was made already is not made again: its key is known.
    """
    if schedule.paused or schedule.next_run_at is None or schedule.trigger.cron is None:
        return schedule
    due = find_next_due_time(schedule.trigger, now)
    if due is None or schedule.next_run_at <= due + MAX_CLOCK_LEAD_S:
        return schedule
    return replace(schedule, next_run_at=due)


def build_run_message(schedule: Schedule, due_at: float, now: float) -> InboundMessage:
    """Build the message of a due run. Its key identifies the run, so a run is never posted
    twice.

    It is not among the user's words. If the agent has written it, it says so: its text may come
    from a page that the agent has read.
    """
    text = schedule.message
    if schedule.origin == "tool":
        time = format_time_in_zone(schedule.created_at, schedule.trigger.timezone)
        mark = f"[scheduled by you on {time}, not written by the user]"
        text = f"{mark} {indent_further_lines(text)}"
    message = Message(role="user", parts=(Text(text=text),), extra={SCHEDULE_KEY: True})
    return InboundMessage(
        session=schedule.session,
        message=message,
        key=f"schedule/{schedule.id}/{int(due_at)}",
        at=now,
        route=schedule.route,
    )


def schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """Return the schedule as plain JSON values."""
    route = schedule.route
    return {
        "v": SCHEDULE_FORMAT_VERSION,
        "id": schedule.id,
        "session": schedule.session,
        "message": schedule.message,
        "cron": schedule.trigger.cron,
        "at": schedule.trigger.at,
        "timezone": schedule.trigger.timezone,
        "origin": schedule.origin,
        "created_at": schedule.created_at,
        "next_run_at": schedule.next_run_at,
        "route": route and {"channel": route.channel, "address": dict(route.address)},
        "catch_up": schedule.catch_up,
        "catch_up_window": schedule.catch_up_window,
        "paused": schedule.paused,
    }


def schedule_from_json(data: Mapping[str, Any]) -> Schedule:
    """Read what `schedule_to_json` wrote."""
    if data["v"] != SCHEDULE_FORMAT_VERSION:
        raise ValueError(f"unknown schedule version {data['v']}; upgrade trimtab")
    route = cast("Mapping[str, Any] | None", data["route"])
    return Schedule(
        id=data["id"],
        session=data["session"],
        message=data["message"],
        trigger=Trigger(cron=data["cron"], at=data["at"], timezone=data["timezone"]),
        origin=data["origin"],
        created_at=data["created_at"],
        next_run_at=data["next_run_at"],
        route=None
        if route is None
        else ReplyRoute(channel=route["channel"], address=route["address"]),
        catch_up=data["catch_up"],
        catch_up_window=data["catch_up_window"],
        paused=data["paused"],
    )
