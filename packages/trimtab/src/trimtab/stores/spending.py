"""A ledger of the costs of model calls, so that a cost ceiling holds for all processes.

Before a call its maximum cost is reserved. Afterwards the reservation is replaced by the real cost.
Amounts are millionths of a US dollar. A day is a day in UTC. If a process is killed, its
reservation counts for the rest of the day, because the call may have been billed. Its session
counts the reservation until it expires.

There is one total for each session, for each tenant and day, and for each day. A ceiling that is
not set has no total: it counts from the first call after it is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from trimtab.errors import CostCeilingReached


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCeilings:
    """Maximum spending in millionths of a US dollar; None for no ceiling."""

    session: int | None = None
    """Maximum of one session, over all its days."""
    tenant_per_day: int | None = None
    """Maximum of one tenant with all agents, on one day."""
    day: int | None = None
    """Maximum of all tenants with the agent, on one day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReservation:
    """A call that is about to be made."""

    agent: str
    """The agent that makes the call."""
    tenant: str
    """The tenant of the call."""
    session: str
    """The session of the call."""
    micros: int
    """Maximum cost of the call, in millionths of a US dollar."""
    session_log_micros: int
    """Cost of the session so far, according to its log."""
    now: float
    """Current time in seconds since the epoch."""
    expires_after_s: float
    """Seconds after which its session no longer counts the reservation."""

    @property
    def day(self) -> str:
        """The day that the call counts for, such as `2026-11-17`."""
        return format_utc_day(self.now)


class SpendingLedger(Protocol):
    """Reservations and totals. Every method may raise `StoreUnavailable`."""

    async def reserve(self, call: CallReservation, ceilings: CostCeilings) -> int:
        """Count a call before it is made, and return the number of the reservation.

        Raise `CostCeilingReached` and count nothing if the call would exceed a ceiling.
        """
        ...

    async def settle(self, reservation: int, micros: int) -> None:
        """Replace a reservation by the real cost of the call. A second call does nothing."""
        ...

    async def find_tenant_total(self, tenant: str, day: str) -> int:
        """Return what the calls of a tenant have cost on a day, in millionths of a US dollar, with
        those that are being made. Only calls with a ceiling of the tenant are counted."""
        ...

    async def reset_session(self, session: str, session_log_micros: int) -> None:
        """Begin a new account for a session, which has cost this much according to its log. What it
        has spent still counts for the day."""
        ...


def format_utc_day(at: float) -> str:
    """Return the UTC day of a time in seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def refuse_above_ceiling(name: str, ceiling_micros: int, counted_micros: int, micros: int) -> None:
    """Raise `CostCeilingReached` if a call of this price would exceed the ceiling."""
    if counted_micros + micros > ceiling_micros:
        raise CostCeilingReached(
            name,
            ceiling_usd=ceiling_micros / 1e6,
            counted_usd=counted_micros / 1e6,
            price_usd=micros / 1e6,
        )
