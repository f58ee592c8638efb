"""Whether a schedule of a tenant may still run: its tenant needs a valid key that may talk.

The tenant `default` is the operator's own: chats on Telegram and Discord, callers on this machine
and the schedules of agent.yaml belong to it, and none of them has a key. Every other tenant acts
only by its keys. So a schedule that its agent created is skipped while the tenant has no key with
which it could have sent the message itself, or stores as much as it may.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from trimtab_serve.queue.address import DEFAULT_TENANT, parse_session_address
from trimtab_serve.queue.bounded_dict import BoundedDict
from trimtab_serve.schedules.catch_up import DueRunsDecision
from trimtab_serve.schedules.schedule import Schedule, ScheduleRunLogEntry
from trimtab_serve.schedules.triggers import find_next_due_time
from trimtab_serve.usage.tenant_limits import TenantLimitReached

MAX_REMEMBERED_TENANTS = 10_000

log = logging.getLogger("trimtab.schedules")


class ScheduleAccess:
    """Decides for one process, and logs once that the schedules of a tenant are skipped."""

    def __init__(self) -> None:
        self.check_storage: Callable[[str], None] = lambda _: None
        """Raises an error with the reason if a session may not grow."""
        self._skipped_tenants = BoundedDict[str, None](MAX_REMEMBERED_TENANTS)

    def decide(
        self, tenant: str, schedule: Schedule, now: float, *, has_key: bool
    ) -> DueRunsDecision | None:
        """Return the decision to skip all runs that are due. Each later run has its own decision.
        None if the schedule may run."""
        reason = self._find_reason(tenant, schedule, has_key=has_key)
        if reason is None:
            self._skipped_tenants.pop(tenant, None)
            return None
        if self._skipped_tenants.add_if_missing(tenant, None):
            log.warning(
                "schedules of tenant %s are skipped, first %s: %s",
                *(tenant, schedule.id, reason),
                extra={"event": "schedules_skipped", "tenant": tenant},
            )
        log_entry = ScheduleRunLogEntry(
            schedule=schedule.id,
            due=schedule.next_run_at or now,
            at=now,
            reason=reason,
            until=now,
        )
        following = find_next_due_time(schedule.trigger, now)
        return DueRunsDecision(due_times=(), skipped=log_entry, next_run_at=following)

    def _find_reason(self, tenant: str, schedule: Schedule, *, has_key: bool) -> str | None:
        if not has_key:
            return f"tenant {tenant} has no valid key that may talk to {schedule.agent}"
        try:
            self.check_storage(schedule.session)
        except TenantLimitReached as error:
            return str(error)
        return None


def find_tenant_that_needs_key(schedule: Schedule) -> str | None:
    """Return the tenant that must have a key for this schedule to run. None if none must."""
    address = parse_session_address(schedule.session)
    if schedule.origin != "tool" or address is None or address.tenant == DEFAULT_TENANT:
        return None
    return address.tenant
