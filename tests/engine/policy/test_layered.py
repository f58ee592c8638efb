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
from trimtab.engine.log.event import Edit
from trimtab.engine.log.message import Media, Message, Text
from trimtab.engine.policy.budget import bytes_to_tokens

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


def test_a_result_is_cut_before_it_is_first_sent_and_never_again():
    context = chat()
    context.add(user("go"))
    first = results(use(context, "c1", prose(100_000)))
    assert results(use(context, "c2", "small"))[:1] == first
    assert sum(isinstance(event.body, Edit) for event in context.events) == 1


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
