"""Statistics of the summaries that models were asked for: results, cost, and when to ask again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trimtab.engine.log.event import SummaryAttempt, Usage, add_usage
from trimtab.engine.tokens.cost import compute_cost_usd

FIRST_RETRY_WAIT_MESSAGES = 4
"""Number of new messages after a failure before a model is asked again."""
MAX_RETRY_WAIT_MESSAGES = 64
"""Maximum number of messages to wait. The wait doubles up to this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryAttemptStats:
    """What became of the summaries of a session."""

    made: int = 0
    """Summaries that are or were in force, including patched ones."""
    patched: int = 0
    """The part of `made` that had to be corrected."""
    rejected: int = 0
    """Texts that a check rejected."""
    failed: int = 0
    """Attempts without a text."""
    in_a_row: int = 0
    """Attempts without a summary since the last successful one."""
    said: int = 0
    """Number of messages in force at the last attempt."""
    results: int = 0
    """Single tool results that were replaced by a summary; not included in `made`."""
    results_cut: int = 0
    """Results that a model failed to summarise, so that they were cut."""
    results_in_a_row: int = 0
    """Such results since the last one that was summarised."""
    results_said: int = 0
    """Number of messages in force when a result was last tried."""
    usage: Usage = field(default_factory=lambda: Usage(input=0))
    """Usage of all attempts, as reported."""
    cost: float | None = 0.0
    """Cost in US dollars by the prices of the models; None if it is not known for one of them."""

    def with_attempt(self, attempt: SummaryAttempt, message_count: int) -> SummaryAttemptStats:
        """Return the statistics with one more attempt, after this number of messages."""
        stands = attempt.outcome in ("made", "patched")
        usage = attempt.usage or Usage(input=0)
        price = compute_cost_usd(usage, attempt.prices)
        if attempt.usage is None:  # a call that failed is not billed; a text without usage is
            price = 0.0 if attempt.outcome == "failed" else None
        stats = replace(
            self,
            usage=add_usage(self.usage, usage),
            cost=None if self.cost is None or price is None else self.cost + price,
        )
        if attempt.part is not None:
            return replace(
                stats,
                results=self.results + stands,
                results_cut=self.results_cut + (not stands),
                results_in_a_row=0 if stands else self.results_in_a_row + 1,
                results_said=message_count,
            )
        return replace(
            stats,
            made=self.made + stands,
            patched=self.patched + (attempt.outcome == "patched"),
            rejected=self.rejected + (attempt.outcome == "rejected"),
            failed=self.failed + (attempt.outcome == "failed"),
            in_a_row=0 if stands else self.in_a_row + 1,
            said=message_count,
        )

    def messages_until_retry(self, message_count: int) -> int:
        """Return the number of messages to wait before a model is asked again; 0 for none."""
        return _messages_to_wait(self.in_a_row, message_count - self.said)

    def messages_until_result_retry(self, message_count: int) -> int:
        """Return the same number for summaries of tool results."""
        return _messages_to_wait(self.results_in_a_row, message_count - self.results_said)

    def describe(self) -> str:
        """Return one line for people; empty if no model was asked."""
        has_attempts = self.made or self.rejected or self.failed
        results = self.results or self.results_cut
        if not (has_attempts or results):
            return ""
        price = "" if self.cost is None else f", ${self.cost:.4f}"
        counts = f"{self.made} made ({self.patched} patched), {self.rejected} rejected"
        line = f"summaries: {counts}, {self.failed} failed"
        if results:
            line = f"{line}; {self.results} results summarised, {self.results_cut} cut instead"
        return f"{line}; {self.usage.input:,} tokens in{price}"

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SummaryAttemptStats:
        """Return the statistics of `to_json`'s output."""
        return replace(cls(**data), usage=Usage(**data["usage"]))


def _messages_to_wait(failures_in_a_row: int, messages_since: int) -> int:
    """Return the messages to wait after this number of failures, given the messages since the last
    one."""
    if not failures_in_a_row:
        return 0
    wait = min(
        FIRST_RETRY_WAIT_MESSAGES * 2 ** min(failures_in_a_row - 1, 10), MAX_RETRY_WAIT_MESSAGES
    )
    # Fewer messages than then: something was undone, and what failed may be gone.
    return wait - messages_since if 0 <= messages_since < wait else 0
