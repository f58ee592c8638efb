"""Tools with which an agent schedules messages to itself, lists and cancels them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from trimtab.engine.log.redaction import Redact
from trimtab.engine.text.quoting import indent_further_lines
from trimtab.session.tools import Tool, ToolError, ToolInvocation
from trimtab_serve.agent.tools.permissions.rules import (
    PermissionGate,
    PermissionRules,
    decline_unattended,
    format_arguments_for_patterns,
)
from trimtab_serve.queue.address import parse_session_address
from trimtab_serve.queue.messages import ReplyRoute
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.schedules.schedule import Schedule
from trimtab_serve.schedules.store import ScheduleStore, TooManySchedules
from trimtab_serve.schedules.triggers import find_next_due_time, format_time_in_zone, parse_trigger
from trimtab_serve.service.message_erasure import ErasedMessagesRecord, EraseHook
from trimtab_serve.service.turn import MAX_MESSAGES_PER_TURN

MAX_SCHEDULES_PER_SESSION = 20
"""Maximum number of schedules of one session."""
MAX_SCHEDULED_TEXT_CHARS = 4_000
"""Maximum number of characters of the message."""

SCHEDULE_TASK_TOOL: Mapping[str, Any] = {
    "name": "schedule_task",
    "description": (
        "Send yourself a message later, once or repeatedly; your answer to it goes to the chat you "
        "are in now. Use it when the user wants a reminder or something done at set times."
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
            "message": {
                "type": "string",
                "description": (
                    "The message you will get, marked as scheduled by you. Write it so that it "
                    "can be understood by itself: `Remind the user to call Ada.`"
                ),
            },
            "timezone": {
                "type": "string",
                "description": "The user's time zone, as in `Europe/Zurich`; UTC if missing.",
            },
        },
        "required": ["when", "message"],
        "additionalProperties": False,
    },
}
LIST_SCHEDULES_TOOL: Mapping[str, Any] = {
    "name": "list_schedules",
    "description": "The messages that are scheduled in this chat and when, and the time it is now.",
    "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
}
CANCEL_SCHEDULE_TOOL: Mapping[str, Any] = {
    "name": "cancel_schedule",
    "description": "Cancel something that you scheduled with schedule_task in this chat.",
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
class _ScheduleTools:
    """The three tools for one schedule store."""

    schedules: ScheduleStore
    queue: MessageQueue
    clock: Callable[[], float]
    on_added: Callable[[], None]
    limit: int
    tenant_limit: Callable[[str], int] | None
    redact: Redact | None

    async def schedule_task(self, invocation: ToolInvocation) -> str:
        number = derive_schedule_number(invocation.key)
        now = self.clock()
        schedule = await self.schedules.get(f"{invocation.session}/{number}")
        if schedule is None:
            schedule = await self._add_schedule(invocation, number, now)
            self.on_added()
        if schedule.next_run_at is None:
            return f"{number} was scheduled and has run."
        zone = schedule.trigger.timezone
        again = f", then again by cron {schedule.trigger.cron}" if schedule.trigger.cron else ""
        where = "to this chat" if schedule.route is not None else "into this session"
        return (
            f"Scheduled as {number}: due {format_time_in_zone(schedule.next_run_at, zone)}{again}. "
            "Now it is "
            f"{format_time_in_zone(now, zone)}. The result goes {where}."
        )

    async def list_schedules(self, invocation: ToolInvocation) -> str:
        now = self.clock()
        schedules = await self.schedules.find(session=invocation.session)
        lines = [_format_schedule_line(one) for one in schedules if one.next_run_at is not None]
        return "\n".join(
            [f"Now it is {format_time_in_zone(now, 'UTC')}.", *(lines or ["Nothing is scheduled."])]
        )

    async def cancel_schedule(self, invocation: ToolInvocation) -> str:
        schedule_name = str(invocation.arguments.get("id", "")).strip()
        schedule = await self.schedules.get(f"{invocation.session}/{schedule_name}")
        if schedule is None:
            raise ToolError(
                f"there is no schedule {schedule_name[:60]!r} here; list_schedules shows all"
            )
        await self.schedules.remove(schedule.id)
        return f"{schedule_name} is cancelled."

    async def _add_schedule(self, invocation: ToolInvocation, number: str, now: float) -> Schedule:
        message = invocation.arguments.get("message")
        when = invocation.arguments.get("when")
        zone = invocation.arguments.get("timezone") or "UTC"
        if not (isinstance(message, str) and isinstance(when, str) and isinstance(zone, str)):
            raise ToolError("`when`, `message` and `timezone` are texts")
        if not message.strip() or len(message) > MAX_SCHEDULED_TEXT_CHARS:
            raise ToolError(
                f"`message` has {len(message):,} characters; it may have 1 to "
                f"{MAX_SCHEDULED_TEXT_CHARS:,}"
            )
        try:
            trigger = parse_trigger(when, now, zone)
        except ValueError as error:
            raise ToolError(str(error)) from None
        if parse_session_address(invocation.session) is None:
            raise ToolError("nothing can be scheduled in a session that is not served")
        first = find_next_due_time(trigger, now)
        if first is None:
            raise ToolError(f"{trigger} is over; now it is {format_time_in_zone(now, zone)}")
        schedule = Schedule(
            id=f"{invocation.session}/{number}",
            session=invocation.session,
            message=message if self.redact is None else self.redact(message),
            trigger=trigger,
            origin="tool",
            created_at=now,
            next_run_at=first,
            route=await self._find_reply_route(invocation.session),
        )
        try:
            tenant = schedule.session.partition("/")[0]
            tenant_limit = None if self.tenant_limit is None else self.tenant_limit(tenant)
            return await self.schedules.add(schedule, limit=self.limit, tenant_limit=tenant_limit)
        except TooManySchedules as error:
            raise ToolError(str(error)) from None

    async def _find_reply_route(self, session: str) -> ReplyRoute | None:
        """Return the route of the newest message of this turn. Messages stay queued until it
        ends."""
        messages = await self.queue.pending(session, limit=MAX_MESSAGES_PER_TURN)
        return next((one.route for one in reversed(messages) if one.route is not None), None)


def build_schedule_tools(
    schedules: ScheduleStore,
    queue: MessageQueue,
    *,
    clock: Callable[[], float] = time.time,
    on_added: Callable[[], None] = lambda: None,
    limit: int = MAX_SCHEDULES_PER_SESSION,
    tenant_limit: Callable[[str], int] | None = None,
    rules: PermissionRules | None = None,
    redact: Redact | None = None,
) -> list[Tool]:
    """Build the tools for a served agent. They call `wake` after each addition.

    `limit` is for each session, and `tenant_limit` returns that of a tenant. Without `rules` every
    call is allowed. `redact` redacts what is scheduled.
    """
    permit = None
    if rules is not None:
        permit = PermissionGate(approve=decline_unattended).make_permission_check(
            rules, lambda call: format_arguments_for_patterns(call.arguments)
        )
    doing = _ScheduleTools(
        schedules=schedules,
        queue=queue,
        clock=clock,
        on_added=on_added,
        limit=limit,
        tenant_limit=tenant_limit,
        redact=redact,
    )
    # A call that is repeated after a crash has the same effect: its key gives the schedule number.
    runs = {
        "schedule_task": doing.schedule_task,
        "list_schedules": doing.list_schedules,
        "cancel_schedule": doing.cancel_schedule,
    }
    return [
        Tool(
            definition=dict(definition),
            run=runs[definition["name"]],
            on_interrupt="rerun",
            check_permission=permit,
        )
        for definition in (SCHEDULE_TASK_TOOL, LIST_SCHEDULES_TOOL, CANCEL_SCHEDULE_TOOL)
    ]


def build_erased_call_schedules_hook(schedules: ScheduleStore) -> EraseHook:
    """Build the hook that removes schedules of erased calls, because they repeat the erased
    text."""

    async def clear(gone: ErasedMessagesRecord) -> None:
        for key in gone.tool_keys:
            await schedules.remove(f"{gone.session}/{derive_schedule_number(key)}")

    return clear


def derive_schedule_number(call_key: str) -> str:
    """Return ten digits that are the same for each attempt at a call."""
    return str(10**9 + int.from_bytes(sha256(call_key.encode()).digest()[:8], "big") % (9 * 10**9))


def _format_schedule_line(schedule: Schedule) -> str:
    when = schedule.trigger
    zone = schedule.trigger.timezone
    again = f", cron {when.cron}" if when.cron else ""
    file_note = " (from the agent's file: it cannot be cancelled here)"
    coming = format_time_in_zone(schedule.next_run_at or 0.0, zone)
    whose = file_note if schedule.origin == "file" else ""
    put_aside = " once it is no longer paused" if schedule.paused else ""
    message = indent_further_lines(schedule.message)  # no line of it is another schedule
    return f"{schedule.name}{whose}: due {coming}{again}{put_aside}: {message}"
