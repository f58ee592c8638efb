"""`layered`: cap each result, bound the history, mask the middle, drop the oldest rounds."""

import pytest

from tests.conversations import (
    calls,
    chat,
    claude,
    contents,
    prose,
    result,
    results,
    said,
    system,
    talk,
    texts,
    use,
    user,
)
from tests.pictures import png, text
from tests.snapshots import snapshot
from trimtab.log.event import Edit
from trimtab.log.message import Media, Message, Text
from trimtab.policy.budget import bytes_to_tokens
from trimtab.policy.presets import (
    LAYERED_KEPT_FIRST_RESULTS,
    LAYERED_KEPT_LAST_RESULTS,
    LAYERED_MAX_HISTORY_TOKENS,
    LAYERED_MAX_RESULT_TOKENS,
)

MASKED = "[result masked"


def loop(context, rounds, text="ok " * 40):
    """A turn of so many rounds, each sent; the last request."""
    context.add(user("go"))
    request = {}
    for number in range(rounds):
        request = use(context, f"c{number}", text)
    return request


def visible(request):
    return [not text.startswith(MASKED) for text in results(request)]


def test_the_defaults_are_those_of_document_0():
    assert (LAYERED_MAX_HISTORY_TOKENS, LAYERED_MAX_RESULT_TOKENS) == (20_000, 8_000)
    assert (LAYERED_KEPT_FIRST_RESULTS, LAYERED_KEPT_LAST_RESULTS) == (2, 5)


@pytest.mark.parametrize(
    ("strategy", "indicator"),
    [
        ("head", "[truncated: kept first ~8000 of ~52000 tokens (head)]"),
        ("tail", "[truncated: kept last ~8000 of ~52000 tokens (tail)]"),
        ("both", "[truncated: kept first+last ~8000 of ~52000 tokens (both)]"),
    ],
)
def test_a_result_over_the_cap_is_cut_and_says_so(strategy, indicator):
    whole = prose(52_000 * 4)
    context = chat(limits={"tool_result_truncation": strategy})
    context.add(user("go"))
    [shown] = results(use(context, "c1", whole))
    head, found, tail = shown.partition(indicator)
    assert found
    assert 31_900 < len(shown) <= 32_000
    assert whole.startswith(head.removesuffix("\n"))
    assert whole.endswith(tail.removeprefix("\n"))
    assert (bool(head), bool(tail)) == (strategy != "tail", strategy != "head")


def test_the_strategy_both_keeps_two_equal_halves():
    context = chat(limits={"tool_result_truncation": "both"})
    context.add(user("go"))
    [shown] = results(use(context, "c1", prose(100_000)))
    head, tail = shown.split("\n[truncated: kept first+last ~8000 of ~25000 tokens (both)]\n")
    assert len(head) == len(tail)


def test_head_is_the_strategy_where_none_is_set():
    context = chat()
    context.add(user("go"))
    [shown] = results(use(context, "c1", prose(100_000)))
    assert shown.endswith("\n[truncated: kept first ~8000 of ~25000 tokens (head)]")


def test_a_result_within_the_cap_is_whole():
    context = chat()
    context.add(user("go"))
    whole = prose(32_000)
    assert results(use(context, "c1", whole)) == [whole]


@pytest.mark.parametrize(("words", "whole"), [(2_001, True), (2_005, True), (2_006, False)])
def test_a_cut_that_would_not_make_a_result_smaller_is_not_made(words, whole):
    """Tokens are counted as words; 2,000 words of 16 bytes are 8,000 tokens by bytes."""
    context = chat(tokenizer=lambda text: len(text.split()))
    context.add(user("go"))
    text = "fifteen-letters " * words
    [shown] = results(use(context, "c1", text))
    assert (shown == text) == whole
    assert shown.endswith("[truncated: kept first ~8000 of ~8024 tokens (head)]") == (not whole)
    assert len(shown.split()) <= 2_005


def test_a_cut_never_falls_inside_a_character():
    context = chat()
    context.add(user("go"))
    [shown] = results(use(context, "c1", "x" + "🙂" * 20_000))
    kept = shown.partition("\n[truncated: ")[0]
    assert set(kept) == {"x", "🙂"}


def test_a_result_is_cut_before_it_is_first_sent_and_never_again():
    context = chat()
    context.add(user("go"))
    first = results(use(context, "c1", prose(100_000)))
    assert results(use(context, "c2", "small"))[:1] == first
    assert sum(isinstance(event.body, Edit) for event in context.events) == 1


def test_results_outside_the_first_and_last_are_masked():
    request = loop(chat(), 9)
    assert visible(request) == [True, True, False, False, True, True, True, True, True]


def test_eight_rounds_with_two_and_three_kept_mask_three_in_the_middle():
    context = chat(limits={"tool_result_keep_first": 2, "tool_result_keep_last": 3})
    request = loop(context, 8)
    assert visible(request) == [True, True, False, False, False, True, True, True]


def test_a_masked_result_says_how_much_is_gone_and_keeps_its_call():
    context = chat(
        limits={
            "max_tool_result_tokens": 12_000,
            "tool_result_keep_first": 0,
            "tool_result_keep_last": 1,
        }
    )
    context.add(user("go"))
    context.add(calls("c1", arguments='{"path":"a.py"}'))
    context.add(result("c1", prose(48_000)))
    context.request()
    request = use(context, "c2", "ok")
    assert request["messages"][1:3] == snapshot(
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "read", "arguments": '{"path":"a.py"}'},
                    }
                ],
            },
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": "[result masked — ~12000 tokens removed]",
            },
        ]
    )


@pytest.mark.parametrize("rounds", [1, 6, 7])
def test_as_many_results_as_are_kept_are_all_visible(rounds):
    assert all(visible(loop(chat(), rounds)))


def test_one_result_more_than_is_kept_masks_one():
    assert visible(loop(chat(), 8)).count(False) == 1


def test_both_keeps_at_zero_disable_masking():
    context = chat(limits={"tool_result_keep_first": 0, "tool_result_keep_last": 0})
    assert all(visible(loop(context, 20)))


@pytest.mark.parametrize(
    ("first", "last", "seen"),
    [
        (0, 2, [False, False, False, True, True]),
        (2, 0, [True, True, False, False, True]),
    ],
)
def test_one_keep_at_zero_leaves_the_other(first, last, seen):
    """The newest result has not been seen by the model when it is first sent."""
    context = chat(limits={"tool_result_keep_first": first, "tool_result_keep_last": last})
    assert visible(loop(context, 5)) == seen


def test_results_the_model_has_not_seen_are_never_masked():
    context = chat(limits={"tool_result_keep_first": 0, "tool_result_keep_last": 2})
    context.add(user("go"))
    ids = [f"c{number}" for number in range(6)]
    context.add(calls(*ids))
    for each in ids:
        context.add(result(each, prose(400)))
    assert all(visible(context.request()))
    assert visible(use(context, "c6", "ok")) == [False] * 5 + [True] * 2


def test_a_placeholder_is_never_masked_again():
    context = chat(limits={"tool_result_keep_first": 0, "tool_result_keep_last": 1})
    context.add(user("go"))
    use(context, "c0", prose(4_000))
    shown = [results(use(context, f"c{number}", prose(40)))[0] for number in range(1, 6)]
    assert set(shown) == {"[result masked — ~1000 tokens removed]"}


def test_a_result_shorter_than_its_placeholder_stays():
    context = chat(limits={"tool_result_keep_first": 0, "tool_result_keep_last": 1})
    context.add(user("go"))
    use(context, "c0", "ok")
    assert results(use(context, "c1", "done")) == ["ok", "done"]


def test_a_new_turn_leaves_the_masks_of_the_last_one_as_they_are():
    context = chat()
    before = results(loop(context, 9))
    context.add(said("done"))
    context.add(user("more"))
    assert results(context.request()) == before


def test_the_history_is_cut_to_20000_tokens_oldest_first():
    context = chat()
    talk(context, 50, size=2_000)
    context.add(user("now"))
    request = context.request()
    notice, *kept = contents(request)
    assert "omitted" in notice
    assert kept[-1] == "now"
    assert bytes_to_tokens(sum(len(text) for text in kept[:-1])) <= 20_000
    assert kept[-2].startswith("answer 49\n")
    assert len(kept) == 40


def test_the_notice_counts_the_messages_that_are_gone():
    context = chat(limits={"max_history_tokens": 1_000})
    for number in range(47):
        context.add(user(prose(100)) if number % 2 else said(prose(100)))
    context.add(user(prose(3_900)))
    context.add(user("now"))
    assert contents(context.request())[0] == "[conversation truncated — 47 older messages omitted]"


def test_the_notice_has_the_system_role_where_the_dialect_allows_it():
    context = chat(
        dialect="openai_responses", system="Be brief.", limits={"max_history_tokens": 100}
    )
    talk(context, 3, size=300)
    context.add(user("now"))
    assert context.request()["input"] == snapshot(
        [
            {"role": "system", "content": "[conversation truncated — 5 older messages omitted]"},
            {"role": "assistant", "content": prose(300, "answer 2")},
            {"role": "user", "content": "now"},
        ]
    )


def test_the_notice_is_the_first_text_of_a_users_message_elsewhere():
    context = claude(limits={"max_history_tokens": 30})
    talk(context, 3, size=300)
    context.add(user("now"))
    [message] = context.request()["messages"]
    assert message["role"] == "user"
    assert [block["text"] for block in message["content"]] == [
        "[conversation truncated — 6 older messages omitted]",
        "now",
    ]


def test_the_notice_is_a_users_message_of_its_own_before_an_assistants():
    context = claude(limits={"max_history_tokens": 100})
    talk(context, 3, size=300)
    context.add(user("now"))
    first, second, _ = context.request()["messages"]
    assert (first["role"], second["role"]) == ("user", "assistant")
    assert [block["text"] for block in first["content"]] == [
        "[conversation truncated — 5 older messages omitted]"
    ]


def test_no_notice_stands_where_nothing_is_missing():
    context = chat()
    talk(context, 3)
    context.add(user("now"))
    assert "omitted" not in texts(context.request())


def test_zero_is_no_cap_on_the_history():
    context = chat(limits={"max_history_tokens": 0})
    talk(context, 50, size=2_000)
    context.add(user("now"))
    assert len(context.request()["messages"]) == 101


@pytest.mark.parametrize("cap", [0, 50_000])
def test_without_a_cap_or_with_one_above_it_the_history_is_bound_by_what_is_available(cap):
    """Counted as words there is room for more, so that the guard has nothing to do."""
    context = chat(
        limits={"max_history_tokens": cap},
        context_window=20_000,
        tokenizer=lambda text: len(text.split()),
    )
    talk(context, 50, size=2_000)
    context.add(user("now"))
    request = context.request()
    sent = bytes_to_tokens(sum(len(m["content"]) for m in request["messages"]))
    available = context.budget().available
    assert len(request["messages"]) < 101
    assert available - 1_000 < sent <= available
    drops = {event.body.why for event in context.events if isinstance(event.body, Edit)}
    assert drops == {f"history over {available} tokens"}


def test_a_round_of_the_history_goes_whole_or_not_at_all():
    context = chat(limits={"max_history_tokens": 600})
    context.add(user("go"))
    context.add(calls("a", "b"))
    context.add(result("a", prose(1_000)))
    context.add(result("b", prose(1_000)))
    context.request()
    context.add(said(prose(800)))
    context.add(user("now"))
    assert [m["role"] for m in context.request()["messages"]] == ["user", "assistant", "user"]


def test_a_newest_message_larger_than_the_cap_is_still_sent():
    context = chat(limits={"max_history_tokens": 100})
    talk(context, 2)
    context.add(user(prose(4_000)))
    assert contents(context.request())[-1] == prose(4_000)


def test_the_oldest_rounds_of_the_turn_are_dropped_as_a_last_resort():
    context = chat(
        context_window=20_000,
        max_output_tokens=1_000,
        limits={"tool_result_keep_first": 0, "tool_result_keep_last": 0},
    )
    talk(context, 2)
    request = {}
    context.add(user("go"))
    for number in range(12):
        request = use(context, f"c{number}", prose(7_000))
    assert bytes_to_tokens(context.window.bytes) <= context.budget().available
    assert contents(request)[:6] == [
        "[conversation truncated — 6 older messages omitted]",
        prose(40, "question 0"),
        prose(40, "answer 0"),
        prose(40, "question 1"),
        prose(40, "answer 1"),
        "go",
    ]
    ids = [m["tool_call_id"] for m in request["messages"] if m["role"] == "tool"]
    assert ids == [f"c{number}" for number in range(3, 12)]


def test_many_rounds_never_reach_the_limit():
    context = chat(context_window=40_000)
    context.add(user("go"))
    for number in range(40):
        use(context, f"c{number}", prose(60_000))
        call = context.window.last_call
        assert call is not None
        assert call.body.bound + call.body.max_output <= 40_000


def test_recall_stands_before_the_closing_bracket_of_every_text():
    context = chat(
        recall=True,
        limits={
            "max_history_tokens": 20,
            "max_tool_result_tokens": 100,
            "tool_result_keep_first": 0,
            "tool_result_keep_last": 1,
        },
    )
    talk(context, 2)
    context.add(user("go"))
    use(context, "c1", prose(4_000))
    request = use(context, "c2", prose(4_000))
    assert contents(request)[0] == snapshot(
        "[conversation truncated — 4 older messages omitted · recall m2-m7]"
    )
    masked, cut = results(request)
    assert masked == snapshot("[result masked — ~98 tokens removed · recall m10.0]")
    assert cut.endswith("\n[truncated: kept first ~100 of ~1000 tokens (head) · recall m15.0]")
    assert context.recall("m15.0") == prose(4_000)


def test_a_tool_may_have_a_cap_and_a_strategy_of_its_own():
    context = chat(
        limits={"tools": {"log": {"max_tool_result_tokens": 50, "tool_result_truncation": "tail"}}}
    )
    context.add(user("go"))
    use(context, "c1", prose(4_000))
    whole, cut = results(use(context, "c2", prose(4_000), tool="log"))
    assert whole == prose(4_000)
    assert cut.startswith("[truncated: kept last ~50 of ~1000 tokens (tail)]\n")
    assert len(cut) <= 200


def test_an_exempt_tool_is_neither_cut_nor_masked():
    context = chat(
        limits={
            "tool_result_keep_first": 0,
            "tool_result_keep_last": 1,
            "tools": {"plan": {"exempt": True}},
        }
    )
    context.add(user("go"))
    use(context, "c1", prose(100_000), tool="plan")
    use(context, "c2", prose(400))
    assert results(use(context, "c3", "ok")) == [
        prose(100_000),
        "[result masked — ~100 tokens removed]",
        "ok",
    ]


def test_a_picture_counts_by_its_tokens_not_by_its_payload():
    context = chat()
    picture = Media(kind="image", mime="image/png", data=text(png(weight=300_000)))
    context.add(Message(role="user", parts=(Text(text="look"), picture)))
    context.request()
    context.add(said("seen"))
    context.add(user("now"))
    assert len(context.request()["messages"]) == 3


def test_two_system_messages_never_meet_in_a_dialect_without_them():
    context = claude(system="Be brief.", limits={"max_history_tokens": 30})
    talk(context, 3, size=300)
    context.add(system("steer"))
    context.add(user("now"))
    request = context.request()
    roles = [message["role"] for message in request["messages"]]
    assert "Be brief." in str(request["system"])
    assert "omitted" in texts(request)
    assert roles.count("system") <= 1
