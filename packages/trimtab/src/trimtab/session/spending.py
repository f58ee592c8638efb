"""Cost ceilings: before each model call, check that its maximum cost is still available.

The account is found in the context of the task. A sub-agent's turn runs within a tool of its
parent's turn, and so do summaries in the background. A call reserves the upper bound of its input
and all of its requested output, and is settled at the reported usage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import ceil
from types import TracebackType
from typing import Any

from trimtab.engine.log.event import Usage
from trimtab.engine.tokens.cost import compute_cost_usd
from trimtab.engine.window.window import Window
from trimtab.errors import CostCeilingReached, CostCeilingUncheckable, ProviderError, StoreError
from trimtab.session.session import Session
from trimtab.stores.spending import CallReservation, CostCeilings, SpendingLedger

log = logging.getLogger("trimtab.spending")

DEFAULT_TENANT_NAME = "default"
"""The tenant of a session that belongs to no other."""
MICROS_PER_DOLLAR = 1_000_000

_SESSION_CEILING_TEXT = (
    "I stopped here: this conversation has used up its budget. Start a new one to continue."
)
_DAY_CEILING_TEXT = (
    "I stopped here: today's budget for answers is used up. Write to me again after midnight UTC."
)


def describe_reached_ceiling(ceiling: str) -> str:
    """Return the text for the user. The amounts are for the operator."""
    return _SESSION_CEILING_TEXT if ceiling == "session" else _DAY_CEILING_TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingAccount:
    """The account that pays for the calls of a turn."""

    ledger: SpendingLedger
    """Stores what was spent."""
    ceilings: CostCeilings
    """The maximum that may be spent."""
    session: Session
    """The session of the turn, whoever makes the calls."""
    agent: str
    """The agent's name."""
    tenant: str = DEFAULT_TENANT_NAME
    """The session's tenant."""
    expires_after_s: float = 600.0
    """Seconds that a call may take. After that, the session considers it lost."""
    clock: Callable[[], float] = field(default=time.time)
    """A function that returns seconds since the epoch."""


_account: ContextVar[SpendingAccount | None] = ContextVar("trimtab_spending_account", default=None)


def clear_spending_account() -> None:
    """Remove the account from this task, for a turn that is not part of another turn."""
    _account.set(None)


@contextmanager
def charge_calls_to(account: SpendingAccount | None) -> Generator[None]:
    """Charge all calls within to an account, unless an outer account already pays."""
    if account is None or _account.get() is not None:
        yield
        return
    token = _account.set(account)
    try:
        yield
    finally:
        _account.reset(token)


class CallCharge:
    """The price of one call: reserved at the beginning of an `async with`, settled at its end.

    Without an account it does nothing. `record_usage` takes the reported usage. A call that failed
    before any part of its reply arrived is free. For a stream that was interrupted or stopped, the
    input and one token for each received byte are counted. Any other call without usage counts as
    reserved.
    """

    def __init__(self, window: Window, *, streamed: bool = False) -> None:
        self._account = _account.get()
        self._window = window
        self._streamed = streamed
        self._reservation: int | None = None
        self._usage: Usage | None = None
        self._received_bytes = 0
        self._at = 0.0

    async def __aenter__(self) -> CallCharge:
        """Reserve the price. Raise `CostCeilingReached` or `CostCeilingUncheckable`."""
        account = self._account
        if account is None:
            return self
        self._at = account.clock()
        call = CallReservation(
            agent=account.agent,
            tenant=account.tenant,
            session=account.session.id,
            micros=self._price_micros(),
            session_log_micros=count_session_log_micros(account.session.window),
            now=self._at,
            expires_after_s=account.expires_after_s,
        )
        try:
            self._reservation = await account.ledger.reserve(call, account.ceilings)
        except CostCeilingReached as refusal:
            _log_refusal(account, refusal)
            raise
        return self

    @property
    def is_charged(self) -> bool:
        """Whether an account with ceilings pays for the call."""
        return self._account is not None

    def record_usage(self, usage: Usage | None) -> None:
        """Record the usage that the provider reported; None for nothing."""
        self._usage = usage

    def count_received(self, piece: object) -> None:
        """Count a part of the reply that has arrived: a text, or an event of the stream."""
        if self._account is not None:
            self._received_bytes += len(str(piece).encode("utf-8", "surrogatepass"))

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._account is None or self._reservation is None:
            return
        if error is not None and not isinstance(error, Exception):
            return  # cancelled: the reservation stands for what it may have cost
        try:
            await self._account.ledger.settle(self._reservation, self._cost_micros(error))
        except StoreError as failure:
            # The reply is worth more than the exact sum: the reservation goes on to count.
            log.warning(
                "session %s: the cost of a call was not recorded, so its reserved price counts "
                "today: %s",
                self._account.session.id,
                failure,
            )

    def _cost_micros(self, error: Exception | None) -> int:
        if self._usage is not None:
            return self._micros(self._usage)
        if isinstance(error, ProviderError) and not self._received_bytes:
            return 0
        if error is not None and self._streamed:
            return self._price_micros(max_output=self._received_bytes)
        return self._price_micros()

    def _price_micros(self, *, max_output: int | None = None) -> int:
        """Return the maximum cost of the call: all input fresh, or all written to the cache, if
        that costs more."""
        call = self._window.last_call
        assert call is not None  # noqa: S101 - the call was recorded
        input_bound = call.body.bound
        output = call.body.max_output
        output = output if max_output is None else min(output, max_output)
        hour = self._window.settings.entry.get("cache_marks") == "1h"
        return max(
            self._micros(Usage(input=input_bound, output=output)),
            self._micros(
                Usage(
                    input=input_bound,
                    output=output,
                    cache_write=input_bound,
                    cache_write_long=input_bound if hour else 0,
                )
            ),
        )

    def _micros(self, usage: Usage) -> int:
        settings = self._window.settings
        cost = compute_cost_usd(usage, settings.entry, at=self._at)
        if cost is None:
            raise CostCeilingUncheckable(explain_unknown_price(settings.model))
        return _count_micros(cost)


def explain_unknown_price(model: str) -> str:
    """Explain why no cost ceiling can be enforced for a model."""
    return (
        f"the price of {model} is unknown, so no cost ceiling can be enforced; set `input_price` "
        "and `output_price` in `model.model_info`, in US dollars per million tokens"
    )


def count_session_log_micros(window: Window) -> int:
    """Return what a session has cost by its own log.

    Calls without a known price count as nothing.
    """
    accounting = window.accounting
    cost_usd = accounting.total_cost_usd + (accounting.summary_stats.cost or 0.0)
    return _count_micros(cost_usd)


def _count_micros(usd: float) -> int:
    """Round dollars up, but not for the error of a sum of floats."""
    return ceil(round(usd * MICROS_PER_DOLLAR, 3))


def _log_refusal(account: SpendingAccount, reached: CostCeilingReached) -> None:
    fields: dict[str, Any] = {
        "event": "cost_ceiling_reached",
        "session": account.session.id,
        "agent": account.agent,
        "tenant": account.tenant,
        "ceiling": reached.ceiling,
        "ceiling_usd": reached.ceiling_usd,
        "counted_usd": round(reached.counted_usd, 6),
        "price_usd": round(reached.price_usd, 6),
    }
    log.warning(
        "a model call of session %s was not made: %s", account.session.id, reached, extra=fields
    )
