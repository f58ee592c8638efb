from dataclasses import replace
from typing import Any

import pytest

from trimtab.replay.billing import CacheRules, InputBill, ProviderPricing
from trimtab.replay.needs import NeedCounts
from trimtab.replay.runner import ConversationRun, ReplayedCall
from trimtab.replay.setup_costs import (
    compute_call_cost_in_input_tokens,
    compute_refetch_cost,
    split_call_cost,
    summarise_runs_by_setup,
)

RULES = CacheRules(read=0.1, write=1.25, output=5.0)
PROVIDER = ProviderPricing(name="A", model="m", rules=RULES, price=3.0)
CALL = ReplayedCall(
    index=1,
    at=0.0,
    tokens=1_110,
    head=400,
    new=60,
    is_cold=False,
    bill={"A": InputBill(read=1_000, write=100, fresh=10)},
    output=20,
    edits=0,
    broke=False,
    summarised=0,
    needs=NeedCounts(references=4, seen=4, far=2, far_seen=2),
    missing=0,
)


def call(**changes: Any) -> ReplayedCall:
    return replace(CALL, **changes)


def run(
    setup: str, *calls: ReplayedCall, conversation: str = "c", cannot_fit: int = 0
) -> ConversationRun:
    return ConversationRun(
        conversation=conversation, setup=setup, calls=calls, cannot_fit=cannot_fit
    )


def test_a_call_costs_its_input_as_billed_and_its_output():
    assert compute_call_cost_in_input_tokens(call(), "A", RULES) == pytest.approx(
        100 + 125 + 10 + 20 * 5
    )


def test_a_summary_is_read_and_400_tokens_written_at_a_third_of_the_price():
    extra = compute_call_cost_in_input_tokens(
        call(summarised=3_000), "A", RULES
    ) - compute_call_cost_in_input_tokens(call(), "A", RULES)
    assert extra == pytest.approx((3_000 + 400 * 5) / 3)


def test_a_lost_reference_pays_the_write_and_one_more_call():
    assert compute_refetch_cost(call(), RULES) == 0
    needs = NeedCounts(references=4, seen=3)
    lost = compute_refetch_cost(call(needs=needs, missing=600), RULES)
    assert lost == pytest.approx(1.25 * 600 + 0.1 * 1_110 + 100 * 5)


def test_the_parts_of_a_cost_add_up_to_it():
    lossy = call(needs=NeedCounts(references=4, seen=3), missing=600, summarised=3_000)
    parts = split_call_cost(lossy, "A", RULES)
    cost = compute_call_cost_in_input_tokens(lossy, "A", RULES) + compute_refetch_cost(lossy, RULES)
    assert sum(parts.values()) == pytest.approx(cost)


def test_what_was_cached_before_and_is_written_again_is_the_price_of_an_edit_or_of_a_pause():
    bill = {"A": InputBill(read=500, write=600, fresh=0)}
    after_edit = split_call_cost(call(bill=bill), "A", RULES)
    after_pause = split_call_cost(call(bill=bill, is_cold=True), "A", RULES)
    assert after_edit["head"] == pytest.approx(40)
    assert after_edit["reading"] == pytest.approx(10)
    assert after_edit["new_content"] == pytest.approx(75)
    assert (after_edit["edit_rewrites"], after_edit["cold_rewrites"]) == pytest.approx((675, 0))
    assert (after_pause["edit_rewrites"], after_pause["cold_rewrites"]) == pytest.approx((0, 675))


def test_a_row_adds_up_its_calls():
    needs = NeedCounts(
        references=4,
        seen=2,
        far=2,
        quoting_edits=2,
        hidden_edits=1,
        far_4grams=8,
        far_4grams_seen=6,
    )
    lossy = call(needs=needs, missing=600, broke=True, edits=3)
    (row,) = summarise_runs_by_setup([run("one", call(), lossy, cannot_fit=1)], [PROVIDER])
    priced = row.prices["A"]
    assert (row.setup, row.calls, row.cannot_fit) == ("one", 2, 1)
    assert (row.recall, row.far, row.tool) == (6 / 8, 2 / 4, None)
    assert (row.hidden_edits, row.far_4grams) == (1 / 2, 6 / 8)
    assert (row.breaks, row.edits, row.tokens) == (0.5, 1.5, 1_110)
    assert priced.cost == pytest.approx(335)
    assert priced.with_refetch == pytest.approx(335 + (750 + 111 + 500) / 2)
    assert priced.cache_hit == pytest.approx(1_000 / 1_110)
    assert priced.uncached == pytest.approx(110)
    assert priced.dollars == pytest.approx(335 * 3 / 1_000)
    assert row.cheaper == {}


def test_dollars_are_unknown_where_the_price_is():
    (row,) = summarise_runs_by_setup([run("one", call())], [replace(PROVIDER, price=None)])
    assert row.prices["A"].dollars is None


def test_setups_are_compared_with_the_first_one():
    half = call(bill={"A": InputBill(read=675, write=0, fresh=0)})
    rows = summarise_runs_by_setup([run("full", call()), run("half", half)], [PROVIDER])
    assert [row.setup for row in rows] == ["full", "half"]
    ratio = rows[1].cheaper["A"]
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2, 2, 2))


def test_the_interval_covers_the_ratio_and_repeats():
    runs = [
        run(setup, call(output=size * n), conversation=f"c{n}")
        for n in range(1, 12)
        for setup, size in (("base", 50), ("other", 25 if n % 3 else 60))
    ]
    (_, one), (_, again) = (
        summarise_runs_by_setup(runs, [PROVIDER]),
        summarise_runs_by_setup(runs, [PROVIDER]),
    )
    ratio = one.cheaper["A"]
    assert ratio.low < ratio.value < ratio.high
    assert again.cheaper == one.cheaper


def test_a_ratio_is_of_costs_per_call_where_a_setup_made_fewer_calls():
    rows = summarise_runs_by_setup([run("full", call(), call()), run("less", call())], [PROVIDER])
    assert rows[1].cheaper["A"].value == pytest.approx(1)
