"""How summaries went, by what the log says of them."""

import json
from typing import Any

import pytest

from tests.conversations import chat, talk
from tests.recording import append, checkpoint
from trimtab import Context
from trimtab.engine.log.event import SummaryAttempt, Usage, dump_canonical_json
from trimtab.engine.window.summary_attempts import (
    FIRST_RETRY_WAIT_MESSAGES,
    MAX_RETRY_WAIT_MESSAGES,
    SummaryAttemptStats,
)

PRICES = {"input_price": 1.0, "output_price": 5.0}


def tried(outcome, **own: Any):
    given: dict[str, Any] = {"usage": Usage(input=1_000, output=100), "prices": PRICES, **own}
    return SummaryAttempt(first=2, last=3, outcome=outcome, **given)


def test_summaries_are_counted_with_what_they_cost():
    meter = SummaryAttemptStats()
    for outcome in ("made", "patched", "rejected", "failed"):
        meter = meter.with_attempt(tried(outcome), 10)
    assert (meter.made, meter.patched, meter.rejected, meter.failed) == (2, 1, 1, 1)
    assert meter.usage == Usage(input=4_000, output=400)
    assert meter.cost == pytest.approx(4 * 0.0015)
    assert meter.describe() == (
        "summaries: 2 made (1 patched), 1 rejected, 1 failed; 4,000 tokens in, $0.0060"
    )


def test_what_was_never_reported_costs_nothing_and_an_unknown_price_is_none():
    assert SummaryAttemptStats().with_attempt(tried("failed", usage=None), 1).cost == 0.0
    assert SummaryAttemptStats().with_attempt(tried("made", prices={}), 1).cost is None
    assert SummaryAttemptStats().with_attempt(tried("made", usage=None), 1).cost is None


def test_each_failure_in_a_row_is_waited_out_longer_and_a_success_ends_it():
    meter, waits = SummaryAttemptStats(), []
    for _ in range(7):
        meter = meter.with_attempt(tried("failed"), 100)
        waits.append(meter.messages_until_retry(100))
    assert waits == [4, 8, 16, 32, 64, 64, 64]
    assert (FIRST_RETRY_WAIT_MESSAGES, MAX_RETRY_WAIT_MESSAGES) == (4, 64)
    assert meter.messages_until_retry(163) == 1
    assert meter.messages_until_retry(164) == 0
    assert meter.messages_until_retry(99) == 0  # something was undone
    assert meter.with_attempt(tried("patched"), 100).messages_until_retry(100) == 0


def test_a_meter_is_the_same_from_a_snapshot():
    meter = SummaryAttemptStats().with_attempt(tried("failed"), 5).with_attempt(tried("made"), 9)
    assert SummaryAttemptStats.from_json(json.loads(dump_canonical_json(meter.to_json()))) == meter


def test_attempts_outlive_a_restart_a_checkpoint_and_a_rewind():
    context = chat("rolling", summaries="manual")
    talk(context, 10)
    append(context, tried("failed"))
    meter = context.window.accounting.summary_stats
    assert meter.in_a_row == 1
    assert Context.load(context.dump()).window.accounting.summary_stats == meter
    context.rewind(3)
    assert context.window.accounting.summary_stats == meter
    checkpoint(context)
    assert context.window.accounting.summary_stats == meter


def test_the_ledger_has_summaries_apart_from_the_calls():
    context = chat("rolling", summaries="manual")
    talk(context, 2)
    before = context.report()
    append(context, tried("made"))
    after = context.report()
    assert after.cost == before.cost
    assert after.summaries.usage.input == 1_000
    assert "summaries: 1 made" in after.breakdown()
    assert "summaries:" not in before.breakdown()
    assert after.to_dict()["summaries"]["made"] == 1


def test_results_are_counted_apart_and_their_failures_hold_no_summary_of_messages_up():
    meter = SummaryAttemptStats()
    for outcome in ("made", "rejected", "failed"):
        meter = meter.with_attempt(tried(outcome, part=0), 10)
    assert (meter.results, meter.results_cut, meter.made, meter.failed) == (1, 2, 0, 0)
    assert (meter.messages_until_result_retry(10), meter.messages_until_retry(10)) == (8, 0)
    assert meter.messages_until_result_retry(18) == 0
    assert meter.describe() == (
        "summaries: 0 made (0 patched), 0 rejected, 0 failed; 1 results summarised, "
        "2 cut instead; 3,000 tokens in, $0.0045"
    )
    assert meter.with_attempt(tried("failed"), 10).messages_until_result_retry(10) == 8
    assert meter.with_attempt(tried("patched", part=1), 10).messages_until_result_retry(10) == 0
    assert SummaryAttemptStats.from_json(json.loads(dump_canonical_json(meter.to_json()))) == meter
