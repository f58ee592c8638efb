"""How a point of the dial is compared with another, and with what others send."""

from dataclasses import replace

import pytest

from benchmarks.peers.run import list_undominated
from benchmarks.recorded import (
    Row,
    Sums,
    build_rows,
    compare_points,
    describe_point,
    split_call_cost,
)
from benchmarks.samples import TUNING_REPOSITORIES, get_repository
from tests.replay.calls import PROVIDER, RULES, call
from tests.replay.conversations import conversation
from trimtab.replay.billing import InputBill
from trimtab.replay.call_costs import compute_call_cost_in_input_tokens, compute_refetch_cost
from trimtab.replay.calls import EVERYTHING, ConversationRun
from trimtab.replay.needs import NeedCounts

SUMS = Sums(
    calls=10,
    refused=0,
    cost=900,
    baseline=1_000,
    references=20,
    seen=18,
    far=10,
    far_seen=8,
    quoting_edits=4,
    hidden_edits=1,
    far_4grams=100,
    far_4grams_seen=90,
)


def test_a_point_has_the_shares_of_all_conversations_together():
    other = SUMS._replace(cost=500, hidden_edits=0)
    point = describe_point({"one": SUMS, "other": other})
    assert (point["saved"], point["saved_interval"]) == (0.3, [0.1, 0.5])
    assert (point["far"], point["hidden_edits"], point["far_4grams"]) == (0.8, 0.125, 0.9)
    assert (point["cost"], point["refused"]) == (70, 0)


def test_a_conversation_without_a_need_shows_all_of_it():
    point = describe_point({"one": SUMS._replace(far=0, quoting_edits=0, hidden_edits=0)})
    assert (point["far"], point["hidden_edits"]) == (1.0, 0.0)


def test_two_points_are_compared_conversation_by_conversation():
    before = {str(number): SUMS._replace(cost=100 * number) for number in range(1, 9)}
    now = {one: row._replace(cost=row.cost - 50) for one, row in before.items()}
    difference = compare_points({**now, "new": SUMS}, before)
    assert difference["conversations"] == 8
    # Each of them saves as much more, however much they differ from one another.
    assert (difference["saved"], difference["saved_interval"]) == (0.05, [0.05, 0.05])


def test_stored_sums_of_other_needs_are_refused():
    with pytest.raises(ValueError, match="counts other needs"):
        compare_points({"one": SUMS}, {"one": SUMS._replace(far_4grams=99)})


def test_a_repository_is_named_by_the_source():
    one = replace(conversation("one", 1), source="entireio/cli@entire/checkpoints/v1:5b/full.jsonl")
    assert get_repository(one) in TUNING_REPOSITORIES


def row(setup: str, saved: float, far: float, hidden_edits: float, far_4grams: float) -> Row:
    numbers = dict.fromkeys(Row.__slots__, 0)
    needs = {"far": far, "hidden_edits": hidden_edits, "far_4grams": far_4grams}
    return Row(**{**numbers, **needs, "setup": setup, "saved": saved, "costs": {}})


def test_a_peer_is_undominated_if_no_point_beats_it_in_cost_and_all_needs():
    rows = [
        row("everything", 0.0, 1.0, 0.0, 1.0),
        row("Trimtab auto, goal balanced", 0.10, 0.95, 0.02, 0.98),
        row("Trimtab auto, goal cost", 0.25, 0.80, 0.10, 0.80),
        row("beaten", 0.05, 0.95, 0.02, 0.98),
        row("cheaper than both", 0.30, 0.10, 0.90, 0.10),
        row("hides fewer edits", 0.20, 0.70, 0.05, 0.70),
        row("saves nothing", 0.0, 1.0, 0.0, 1.0),
    ]
    assert list_undominated(rows) == ["cheaper than both", "hides fewer edits"]


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
    lossy = call(needs=needs, missing=600, broke=True, summarised=300)
    runs = [
        ConversationRun(conversation="c", setup=EVERYTHING, calls=(call(), call()), cannot_fit=0),
        ConversationRun(conversation="c", setup="one", calls=(call(), lossy), cannot_fit=1),
    ]
    _, one = build_rows(runs, PROVIDER)
    assert (one.setup, one.calls, one.refused, one.tokens) == ("one", 2, 1, 1_110)
    assert (one.recall, one.far, one.tool) == (6 / 8, 2 / 4, 0)
    assert (one.hidden_edits, one.far_4grams) == (1 / 2, 6 / 8)
    assert (one.breaks, one.summaries, one.cache_hit) == (0.5, 1, 0.901)
