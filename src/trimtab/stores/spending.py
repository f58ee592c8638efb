"""What model calls have cost, kept beside the logs, so that a ceiling holds over all processes.

A call is reserved before it is made, at the most that it may cost, and settled afterwards at what
it did cost. Amounts are whole millionths of a US dollar. A day is a day of UTC. A reservation whose
process was killed counts for the rest of its day, for the call may have been billed; its session
counts it until it expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any, Protocol

from trimtab.errors import CostCeilingReached
from trimtab.stores.base import Store
from trimtab.stores.named_queries import parse_named_queries

KEPT_DAYS = 31
"""Days for which it is known what each tenant has spent."""

SPENDING_QUERIES = parse_named_queries(
    files("trimtab.stores").joinpath("spending.sql").read_text(encoding="utf-8")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCeilings:
    """What may be spent, in millionths of a US dollar; None is no ceiling."""

    session: int | None = None
    """By one session, over all its days."""
    tenant_per_day: int | None = None
    """By one tenant with the agent, on one day."""
    day: int | None = None
    """By all tenants with the agent, on one day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReservation:
    """A call that is about to be made."""

    agent: str
    """The agent that pays."""
    tenant: str
    """Its tenant."""
    session: str
    """Its session."""
    micros: int
    """The most that the call may cost, in millionths of a US dollar."""
    session_log_micros: int
    """What the session has cost by its own log."""
    now: float
    """Seconds since the epoch."""
    expires_after_s: float
    """Seconds after which its session no longer counts it."""

    @property
    def day(self) -> str:
        """The day that pays, such as `2026-11-17`."""
        return format_utc_day(self.now)


class SpendingLedger(Protocol):
    """Reservations and totals. Every method may raise `StoreUnavailable`."""

    async def reserve(self, call: CallReservation, ceilings: CostCeilings) -> int:
        """Count a call before it is made; returns the number of the reservation. Raises
        `CostCeilingReached` and counts nothing if a ceiling would be exceeded."""
        ...

    async def settle(self, reservation: int, micros: int) -> None:
        """Count what the call has cost in place of its reservation. The second time does
        nothing."""
        ...


def format_utc_day(at: float) -> str:
    """The day of UTC of a moment, in seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def list_days_to_forget(day: str) -> tuple[str, str]:
    """The days before which totals, and reservations, are of no use any more."""
    today = datetime.fromisoformat(day).date()
    return (
        (today - timedelta(days=KEPT_DAYS)).isoformat(),
        (today - timedelta(days=1)).isoformat(),
    )


def list_ceiling_queries(
    call: CallReservation, ceilings: CostCeilings, session_key: Any
) -> list[tuple[str, int, str, list[Any]]]:
    """For each ceiling that is set its name, its amount, and the query for what counts already."""
    every = (
        ("session", ceilings.session, "session_total", [session_key, call.now]),
        (
            "tenant_per_day",
            ceilings.tenant_per_day,
            "tenant_total",
            [call.agent, call.day, call.tenant],
        ),
        ("day", ceilings.day, "day_total", [call.agent, call.day]),
    )
    return [(name, most, query, given) for name, most, query, given in every if most is not None]


def refuse_above_ceiling(name: str, ceiling_micros: int, counted_micros: int, micros: int) -> None:
    """Raise `CostCeilingReached` if a call of this price is too much."""
    if counted_micros + micros > ceiling_micros:
        raise CostCeilingReached(
            name,
            ceiling_usd=ceiling_micros / 1e6,
            counted_usd=counted_micros / 1e6,
            price_usd=micros / 1e6,
        )


def find_spending_ledger(store: Store) -> SpendingLedger:
    """The ledger of a store: its own, else one in memory, for stores that keep none."""
    own: Any = getattr(store, "spending_ledger", None)
    if own is not None:
        return own()
    from trimtab.stores.files.spending_ledger import SqliteSpendingLedger

    return SqliteSpendingLedger(None)
