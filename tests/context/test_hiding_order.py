"""What goes first where a request must become smaller: the user's newest words are the last."""

import pytest

from tests.context.user_texts import (
    block,
    call,
    common,
    filler,
    fits,
    outside,
    person,
    reply,
    result,
    rules,
    talking,
    told,
    turns,
    work,
)
from tests.pictures import png, text
from trimtab.engine.policy.budget import PRESETS_HIDING_ON_REFUSAL
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.errors import CannotFit

QUESTION = "Which of the replicas lags, and since when?"
MOST = 60
"""Refusals after which something must have come to an end."""


def picture(side=1_092):
    source = {"type": "base64", "media_type": "image/png", "data": text(png(side, side))}
    return {"type": "image", "source": source}


def pictures_in(request):
    return sum(
        block["type"] == "image"
        for message in request["messages"]
        for block in message["content"]
        if isinstance(block, dict)
    )


def refused(context):
    """Each request until there is none that is smaller."""
    for _ in range(MOST):
        try:
            request = context.request()
        except CannotFit:
            return
        yield request
        try:
            context.fail("overflow")
        except CannotFit:
            return
    pytest.fail(f"{MOST} refusals, and still no end")


def bare(request):
    """The messages without cache marks."""
    return [
        {**m, "content": [{k: v for k, v in b.items() if k != "cache_control"} for b in c]}
        if isinstance(c := m["content"], list)
        else m
        for m in request["messages"]
    ]


def short_session(policy="auto"):
    context = talking(200_000, policy=policy)
    turns(context, rules(6), size=200, answer=80)
    context.add(person(QUESTION))
    return context


def test_after_a_refusal_without_numbers_auto_asks_for_less_output_first():
    context = short_session("auto")
    before = context.request()
    assert context.fail("overflow")
    after = context.request()
    assert after["max_tokens"] < before["max_tokens"]
    assert bare(after) == bare(before)


def test_auto_hides_at_once_if_the_window_is_far_smaller_than_believed():
    context = talking(200_000)
    turns(context, rules(12), size=900, answer=300)
    context.add(person(QUESTION))
    before = context.request()
    assert context.fail("overflow", message="The context window of this model is too small.")
    after = context.request()
    assert len(told(after)) < 0.7 * len(told(before))
    assert QUESTION in told(after)
    assert after["max_tokens"] > before["max_tokens"] // 2


def test_auto_asks_for_less_output_if_the_window_may_be_a_little_smaller_than_believed():
    context = talking(12_000)
    turns(context, rules(12), size=900, answer=300)
    context.add(person(QUESTION))
    before = context.request()
    assert context.fail("overflow", message="The context window of this model is too small.")
    after = context.request()
    assert after["max_tokens"] < before["max_tokens"]
    assert bare(after) == bare(before)


@pytest.mark.parametrize("policy", sorted(POLICY_NAMES))
def test_refusals_without_numbers_leave_the_newest_message_whole_and_come_to_an_end(policy):
    sizes = []
    for request in refused(short_session(policy)):
        assert QUESTION in told(request)
        sizes.append((len(told(request)), request["max_tokens"]))
    assert len(sizes) >= 3
    assert len(set(sizes)) == len(sizes), "each request is another than the one that was refused"
    assert sizes[-1][0] < sizes[0][0] // 3


@pytest.mark.parametrize("policy", sorted({*POLICY_NAMES} - {"auto"}))
def test_presets_of_the_documents_hide_at_once_and_then_ask_for_less_output(policy):
    context = short_session(policy)
    before = context.request()
    assert context.fail("overflow")
    after = context.request()
    assert len(told(after)) < len(told(before))
    assert QUESTION in told(after)
    *_, last = refused(short_session(policy))
    assert last["max_tokens"] < before["max_tokens"]


def test_the_last_refusal_is_an_error_that_says_what_cannot_shrink():
    context = short_session()
    with pytest.raises(CannotFit) as raised:
        refuse_all(context)
    assert raised.value.parts


def refuse_all(context):
    for _ in range(MOST):
        context.request()
        context.fail("overflow")


def gone_after(requests, seen):
    """By name: the first of the requests that no longer shows it whole; None where each does."""
    return {
        name: next((at for at, request in enumerate(requests) if not shows(request)), None)
        for name, shows in seen.items()
    }


def test_older_things_go_in_their_order_and_the_newest_words_not_at_all():
    context, found, answer = talking(200_000), filler(300, "found"), filler(200, "answer")
    context.add({"role": "user", "content": [picture(), block("Here is the plan.")]})
    context.request()
    context.add(call("toolu_1", path="a.py"))
    context.add(result("toolu_1", found))
    context.request()
    context.add(reply(answer))
    words = [*rules(3), "Here is the plan."]
    turns(context, words[:3], size=100, answer=50)
    context.add({"role": "user", "content": [picture(546), block(QUESTION)]})
    requests = list(refused(context))
    gone = gone_after(
        requests,
        {
            "media": lambda r: pictures_in(r) == 2,
            "result": lambda r: found in told(r),
            "answer": lambda r: answer in told(r),
            "words": lambda r: all(each in outside(r) for each in words),
            "newest media": lambda r: pictures_in(r) >= 1,
            "question": lambda r: QUESTION in told(r),
        },
    )
    end = len(requests)
    order = [end if at is None else at for at in gone.values()]
    # A few words come back where the picture that had to go with them leaves room for them.
    assert order[:3] + order[4:] == sorted(order[:3] + order[4:]), gone
    assert order[:4] + order[5:] == sorted(order[:4] + order[5:]), gone
    assert gone["question"] is None
    assert gone["media"] is not None
    answered, said = order[2:4]
    assert answered < said, "assistant text goes before the user's words"


def test_a_picture_that_does_not_fit_goes_before_the_questions_text():
    context = talking(4_000, tools=[])
    question = f"{filler(2_400, 'question')} {QUESTION}"
    context.add({"role": "user", "content": [block(question), picture()]})
    request = context.request()
    assert fits(request, 4_000)
    assert pictures_in(request) == 0
    assert question in told(request)


def test_a_picture_that_was_refused_goes_before_the_questions_text():
    context = talking(200_000)
    context.add({"role": "user", "content": [picture(), block(QUESTION)]})
    requests = list(refused(context))
    assert pictures_in(requests[0]) == 1
    assert pictures_in(requests[-1]) == 0
    assert all(QUESTION in told(request) for request in requests)


def test_a_result_that_was_not_sent_yet_is_cut_before_older_words_go():
    context, said = talking(8_000, tools=[]), rules(15)
    turns(context, said, size=50, answer=30)
    context.add(person(QUESTION))
    work(context, "large", 20_000)
    request = context.request()
    assert fits(request, 8_000)
    assert [rule for rule in said if rule not in outside(request)] == []
    assert QUESTION in told(request)
    assert filler(20_000, "large")[:400] in told(request)


def test_older_words_go_before_the_newest_are_cut():
    context = talking(8_000, tools=[])
    room = context.budget().room
    turns(context, [f"{n}: {filler(150, n)}" for n in range(20)], size=50, answer=30)
    question = f"{filler(int(room * 0.8), 'question')} {QUESTION}"
    context.add(person(question))
    request = context.request()
    assert fits(request, 8_000)
    assert question in told(request)


def test_refusals_never_take_more_of_the_question_than_leaves_a_quarter_of_the_room():
    context = talking(8_000, tools=[])
    room = context.budget().room
    question = f"{filler(int(room * 0.9), 'question')} {QUESTION}"
    context.add(person(question))
    for request in refused(context):
        room = context.budget().room  # less, once a refusal has taught a limit
        text = told(request)
        assert QUESTION in text
        said = text[text.index(question[:20]) : text.index(QUESTION) + len(QUESTION)]
        kept = common(said, question) + common(said[::-1], question[::-1])
        assert kept // 4 >= room // 4 - 8


@pytest.mark.parametrize("policy", PRESETS_HIDING_ON_REFUSAL)
def test_an_outage_after_a_refusal_does_not_shorten_the_output_of_the_retry(policy):
    context = short_session(policy)
    context.request()
    assert context.fail("overflow")
    shortened = context.request()
    context.fail("rate_limit")
    assert context.request() == shortened
