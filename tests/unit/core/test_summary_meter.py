"""How summaries went, by what the log says of them."""

import json
from typing import Any

import pytest

from tests.conversations import chat, talk
from trimtab import Context
from trimtab.core.event import Attempt, Usage, canonical
from trimtab.core.summary_meter import FIRST_WAIT, LONGEST_WAIT, SummaryMeter

PRICES = {"input_price": 1.0, "output_price": 5.0}


def tried(outcome, **own: Any):
    given: dict[str, Any] = {"usage": Usage(input=1_000, output=100), "prices": PRICES, **own}
    return Attempt(first=2, last=3, outcome=outcome, **given)


def test_summaries_are_counted_with_what_they_cost():
    meter = SummaryMeter()
    for outcome in ("made", "patched", "rejected", "failed"):
        meter = meter.heard(tried(outcome), 10)
    assert (meter.made, meter.patched, meter.rejected, meter.failed) == (2, 1, 1, 1)
    assert meter.usage == Usage(input=4_000, output=400)
    assert meter.cost == pytest.approx(4 * 0.0015)
    assert meter.told() == (
        "summaries: 2 made (1 patched), 1 rejected, 1 failed; 4,000 tokens in, $0.0060"
    )


def test_what_was_never_reported_costs_nothing_and_an_unknown_price_is_none():
    assert SummaryMeter().heard(tried("failed", usage=None), 1).cost == 0.0
    assert SummaryMeter().heard(tried("made", prices={}), 1).cost is None


def test_each_failure_in_a_row_is_waited_out_longer_and_a_success_ends_it():
    meter, waits = SummaryMeter(), []
    for _ in range(7):
        meter = meter.heard(tried("failed"), 100)
        waits.append(meter.waits(100))
    assert waits == [4, 8, 16, 32, 64, 64, 64]
    assert (FIRST_WAIT, LONGEST_WAIT) == (4, 64)
    assert meter.waits(163) == 1
    assert meter.waits(164) == 0
    assert meter.waits(99) == 0  # something was undone
    assert meter.heard(tried("patched"), 100).waits(100) == 0


def test_a_meter_is_the_same_from_a_snapshot():
    meter = SummaryMeter().heard(tried("failed"), 5).heard(tried("made"), 9)
    assert SummaryMeter.from_json(json.loads(canonical(meter.to_json()))) == meter


def test_attempts_outlive_a_restart_a_checkpoint_and_a_rewind():
    context = chat("rolling", summaries="manual")
    talk(context, 10)
    context.append(tried("failed"))
    meter = context.window.summaries
    assert meter.in_a_row == 1
    assert Context.load(context.dump()).window.summaries == meter
    context.rewind(3)
    assert context.window.summaries == meter
    context.checkpoint()
    assert context.window.summaries == meter


def test_the_ledger_has_summaries_apart_from_the_calls():
    context = chat("rolling", summaries="manual")
    talk(context, 2)
    before = context.report()
    context.append(tried("made"))
    after = context.report()
    assert after.cost == before.cost
    assert after.summaries.usage.input == 1_000
    assert "summaries: 1 made" in after.breakdown()
    assert "summaries:" not in before.breakdown()
    assert after.to_dict()["summaries"]["made"] == 1


def test_results_are_counted_apart_and_their_failures_hold_no_summary_of_messages_up():
    meter = SummaryMeter()
    for outcome in ("made", "rejected", "failed"):
        meter = meter.heard(tried(outcome, part=0), 10)
    assert (meter.results, meter.results_cut, meter.made, meter.failed) == (1, 2, 0, 0)
    assert (meter.waits_for_results(10), meter.waits(10)) == (8, 0)
    assert meter.waits_for_results(18) == 0
    assert meter.told() == (
        "summaries: 0 made (0 patched), 0 rejected, 0 failed; 1 results summarised, "
        "2 cut instead; 3,000 tokens in, $0.0045"
    )
    assert meter.heard(tried("failed"), 10).waits_for_results(10) == 8
    assert meter.heard(tried("patched", part=1), 10).waits_for_results(10) == 0
    assert SummaryMeter.from_json(json.loads(canonical(meter.to_json()))) == meter
