"""What an agent can do about set times itself: be told something later, see what is to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from trimtab.session.tools import Failed, Invocation, Tool
from trimtab.worker.erasing import Beside, Erasure
from trimtab.worker.letters import Route
from trimtab.worker.mail import Mail
from trimtab.worker.naming import address_of
from trimtab.worker.schedules.schedule import Schedule
from trimtab.worker.schedules.schedules import Schedules, TooMany
from trimtab.worker.schedules.when import due, following, shown
from trimtab.worker.turns import BATCH

MOST = 20
"""Schedules that one session may have."""
LONGEST = 4_000
"""Characters that it may be told."""

SCHEDULE: Mapping[str, Any] = {
    "name": "schedule_task",
    "description": (
        "Be told something later, once or again and again; what you answer then goes to the chat "
        "you are in now. Use it when the user wants a reminder or something done at set times."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "when": {
                "type": "string",
                "description": (
                    "`in 20 minutes`, `2027-01-31 08:00`, or cron: minute, hour, day, month, "
                    "weekday, as in `0 8 * * mon-fri`."
                ),
            },
            "says": {
                "type": "string",
                "description": (
                    "What you will be told, as if the user said it. Write it so that it can be "
                    "understood by itself: `Remind me to call Ada about the invoice.`"
                ),
            },
            "timezone": {
                "type": "string",
                "description": "The user's time zone, as in `Europe/Zurich`; UTC if missing.",
            },
        },
        "required": ["when", "says"],
        "additionalProperties": False,
    },
}
LIST: Mapping[str, Any] = {
    "name": "list_schedules",
    "description": "What you will be told in this chat and when, and the time it is now.",
    "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
}
CANCEL: Mapping[str, Any] = {
    "name": "cancel_schedule",
    "description": "Take back something that you made with schedule_task in this chat.",
    "input_schema": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "Its number, as list_schedules shows it."}
        },
        "required": ["id"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doing:
    """The three tools over one set of schedules."""

    schedules: Schedules
    mail: Mail
    clock: Callable[[], float]
    wake: Callable[[], None]
    most: int

    async def schedule(self, asked: Invocation) -> str:
        number, now = number_of(asked.key), self.clock()
        found = await self.schedules.get(f"{asked.session}/{number}")
        if found is None:
            found = await self._add(asked, number, now)
            self.wake()
        if found.next_run_at is None:
            return f"{number} was scheduled and has run."
        zone = found.when.timezone
        again = f", then again by cron {found.when.cron}" if found.when.cron else ""
        where = "to this chat" if found.route is not None else "into this session"
        return (
            f"Scheduled as {number}: due {shown(found.next_run_at, zone)}{again}. Now it is "
            f"{shown(now, zone)}. The result goes {where}."
        )

    async def listed(self, asked: Invocation) -> str:
        now = self.clock()
        found = await self.schedules.find(session=asked.session)
        lines = [_line(one) for one in found if one.next_run_at is not None]
        return "\n".join([f"Now it is {shown(now, 'UTC')}.", *(lines or ["Nothing is scheduled."])])

    async def cancel(self, asked: Invocation) -> str:
        given = str(asked.arguments.get("id", "")).strip()
        found = await self.schedules.get(f"{asked.session}/{given}")
        if found is None:
            raise Failed(f"there is no schedule {given[:60]!r} here; list_schedules shows all")
        await self.schedules.remove(found.id)
        return f"{given} is cancelled."

    async def _add(self, asked: Invocation, number: str, now: float) -> Schedule:
        says = asked.arguments.get("says")
        when = asked.arguments.get("when")
        zone = asked.arguments.get("timezone") or "UTC"
        if not (isinstance(says, str) and isinstance(when, str) and isinstance(zone, str)):
            raise Failed("`when`, `says` and `timezone` are texts")
        if not says.strip() or len(says) > LONGEST:
            raise Failed(f"`says` has {len(says):,} characters; it may have 1 to {LONGEST:,}")
        try:
            wanted = due(when, now, zone)
        except ValueError as error:
            raise Failed(str(error)) from None
        if address_of(asked.session) is None:
            raise Failed("nothing can be scheduled in a session that is not served")
        first = following(wanted, now)
        if first is None:
            raise Failed(f"{wanted} is over; now it is {shown(now, zone)}")
        made = Schedule(
            id=f"{asked.session}/{number}",
            session=asked.session,
            says=says,
            when=wanted,
            origin="tool",
            created_at=now,
            next_run_at=first,
            route=await self._route(asked.session),
        )
        try:
            return await self.schedules.add(made, most=self.most)
        except TooMany as error:
            raise Failed(str(error)) from None

    async def _route(self, session: str) -> Route | None:
        """Where the newest letter of this turn came from: they wait until it is finished."""
        letters = await self.mail.pending(session, limit=BATCH)
        return next((one.route for one in reversed(letters) if one.route is not None), None)


def schedule_tools(
    schedules: Schedules,
    mail: Mail,
    *,
    clock: Callable[[], float] = time.time,
    wake: Callable[[], None] = lambda: None,
    most: int = MOST,
) -> list[Tool]:
    """The tools for an agent that is served; `wake` is called when something was added."""
    doing = _Doing(schedules=schedules, mail=mail, clock=clock, wake=wake, most=most)
    # Made again after a crash, each does what it did: a schedule has the number of its call.
    return [
        Tool(definition=dict(SCHEDULE), run=doing.schedule, on_interrupt="rerun"),
        Tool(definition=dict(LIST), run=doing.listed, on_interrupt="rerun"),
        Tool(definition=dict(CANCEL), run=doing.cancel, on_interrupt="rerun"),
    ]


def forgetting(schedules: Schedules) -> Beside:
    """What the calls of erased messages have scheduled goes with them: it says what they said."""

    async def clear(gone: Erasure) -> None:
        for key in gone.tools:
            await schedules.remove(f"{gone.session}/{number_of(key)}")

    return clear


def number_of(key: str) -> str:
    """Ten digits, the same for each attempt at a call."""
    return str(10**9 + int.from_bytes(sha256(key.encode()).digest()[:8], "big") % (9 * 10**9))


def _line(schedule: Schedule) -> str:
    when, zone = schedule.when, schedule.when.timezone
    again = f", cron {when.cron}" if when.cron else ""
    fixed = " (from the agent's file: it cannot be cancelled here)"
    coming = shown(schedule.next_run_at or 0.0, zone)
    whose = fixed if schedule.origin == "file" else ""
    put_aside = " once it is no longer paused" if schedule.paused else ""
    return f"{schedule.name}{whose}: due {coming}{again}{put_aside}: {schedule.says}"
