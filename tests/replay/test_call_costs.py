import pytest

from tests.replay.calls import RULES, call
from trimtab.replay.call_costs import compute_call_cost_in_input_tokens, compute_refetch_cost
from trimtab.replay.needs import NeedCounts


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
