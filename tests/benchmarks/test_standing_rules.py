"""The figures of lasting rules count what they say: they would see a rule that is gone, and a list
that no cache has."""

from itertools import accumulate

import pytest

from benchmarks import standing_rules
from benchmarks.standing_rules import (
    COUNTER,
    LONG,
    PLACES,
    SHORTER,
    SMALL,
    SUMMARY,
    Case,
    Provider,
    Talk,
    broken,
    broken_plans,
    kept_by_codex,
    lead,
    lead_plan,
    rules,
    texts_of,
    user_messages,
)

MARK = {"cache_control": {"type": "ephemeral"}}


def test_thirty_different_rules_stand_ten_in_each_place_of_their_messages():
    planted, said = rules(), user_messages(LONG["full"])
    assert len({rule.text for rule in planted}) == len({rule.file for rule in planted}) == 30
    for rule in planted:
        (message,) = (text for text in said if rule.text in text)
        before, _, behind = message.partition(rule.text)
        assert (bool(before), bool(behind)) == {
            "first": (False, True),
            "middle": (True, True),
            "last": (True, False),
        }[rule.place]
    assert [sum(rule.place == place for rule in planted) for place in PLACES] == [10, 10, 10]


@pytest.mark.parametrize(
    ("talk", "least", "most"),
    [
        (LONG["full"], 34_000, 38_000),
        (LONG["quick"], 34_000, 38_000),
        (SHORTER, 14_000, 20_000),
        (SMALL, 3_000, 4_800),
    ],
)
def test_the_users_words_are_as_many_as_is_told(talk, least, most):
    assert least <= sum(map(COUNTER.count, user_messages(talk))) <= most


def test_a_text_is_found_wherever_it_stands_in_a_request():
    result = {"type": "tool_result", "content": [{"type": "text", "text": "deep"}]}
    said = [{"role": "user", "content": "plain"}, {"role": "user", "content": [result]}]
    assert {"plain", "deep"} <= set(texts_of(said))


def test_codex_keeps_the_newest_messages_up_to_its_allowance():
    said = [f"{rule.text} {'word ' * 990}" for rule in rules()]
    sizes = list(accumulate(COUNTER.count(text) for text in reversed(said)))
    assert kept_by_codex(said) == sum(size <= 20_000 for size in sizes) > 5
    assert kept_by_codex([rule.text for rule in rules()]) == 30


def request(listed, summary, **mark):
    """What Anthropic is sent: a list in blocks, the last of them marked, then a summary."""
    blocks = [{"type": "text", "text": text} for text in listed]
    blocks[-1] |= mark
    blocks.append({"type": "text", "text": f"{SUMMARY}]\n{summary}"})
    return {"system": "Be brief.", "messages": [{"role": "user", "content": blocks}]}


OLD = ["word " * 3_000, "more " * 1_000]


@pytest.mark.parametrize(
    ("later", "mark", "least", "most"),
    [
        ([*OLD, "new"], MARK, 1.0, 1.0),
        ([OLD[0], "another", "new"], MARK, 0.0, 0.0),
        (["another", *OLD], MARK, 0.0, 0.0),
        ([*OLD, "new"], {}, 0.0, 0.0),
    ],
    ids=["the same", "its end is another", "its beginning is another", "nothing is marked"],
)
def test_of_the_old_list_the_share_is_counted_that_is_read_from_the_cache(later, mark, least, most):
    provider = Provider()
    provider.usage(request(OLD, "one", **mark))
    provider.usage(request(later, "two", **mark))
    assert provider.later == 1
    assert provider.old > 3_000
    assert least <= provider.old_read / provider.old <= most


def test_a_cache_that_has_gone_cold_reads_nothing_of_the_list():
    provider = Provider()
    provider.usage(request(OLD, "one", **MARK))
    provider.now += 600
    provider.usage(request([*OLD, "new"], "two", **MARK))
    assert (provider.later, provider.old_read) == (1, 0)


def test_a_row_is_broken_only_where_words_within_the_allowance_lack_a_rule():
    row = {"goal": "balanced", "window": 200_000, "turns": 600, "words": 36_000}
    assert list(broken([row | {"within": True, "visible": 30}])) == []
    assert list(broken([row | {"within": False, "visible": 3}])) == []
    (told,) = broken([row | {"within": True, "visible": 29}])
    assert told.startswith("29 of 30 rules are visible")


@pytest.mark.parametrize("policy", ["auto", "full"])
def test_a_conversation_that_fits_shows_every_rule(policy):
    row = lead(Case(policy=policy, talk=Talk(turns=30, tokens=30)))
    assert (row["visible"], row["names"]) == (30, 30)
    assert [row[place] for place in PLACES] == [10, 10, 10]
    assert (row["allowance"], row["within"]) == (
        (40_000, True) if policy == "auto" else (None, False)
    )
    assert row["mean"] <= row["request"]


def test_rules_whose_words_are_within_the_allowance_are_visible_in_a_small_window():
    row = lead(Case(window=32_000, talk=SMALL))
    assert row["within"]
    assert row["visible"] == standing_rules.COUNT


def test_a_plan_is_counted_and_one_that_lacks_an_item_is_broken():
    row = lead_plan(Case(goal="cost", window=32_000, talk=SMALL), 12)
    assert row["plan_visible"] == 30
    assert list(broken_plans([row])) == []
    (broken_plan,) = broken_plans([row | {"plan_visible": 29}])
    assert broken_plan.startswith("29 of 30 items")
