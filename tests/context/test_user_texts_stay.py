"""What the user said stays in the request: word for word within the allowance, and never gone
without a sign above it."""

import random
import re
import time
from functools import cache
from itertools import accumulate, pairwise

import pytest

from tests.context.user_texts import (
    SUMMARY,
    allowance,
    common,
    filler,
    fits,
    listed,
    numbers,
    outside,
    person,
    reply,
    rules,
    size_of,
    talking,
    tokens,
    told,
    turn,
    turns,
    work,
)
from tests.recording import request_anyway

pytestmark = pytest.mark.slow

NAMES = ("Ada", "Ben", "Cleo", "Dan")
EVENING = 1_772_042_400.0
"""Seconds: six in the evening of 25 February 2026, UTC."""
_HANDLE = re.compile(r"\bm\d+(?:-m?\d+)?")


def chat_lines(count):
    """Each of 23 to 34 tokens, on one line, and like no other."""
    pick = random.Random(7)  # noqa: S311 - not for secrets
    texts = (" ".join(filler(40, n).split()[1:]) for n in range(count))
    return [
        f"{pick.choice(NAMES)}: {n:05} {text[: 78 + pick.randrange(40)]}"
        for n, text in enumerate(texts)
    ]


def shown_of(lines, text):
    """The numbers of the lines that a text holds word for word."""
    found = ((int(m[1]), m.start()) for m in re.finditer(r"\b[A-Z][a-z]+: (\d{5}) ", text))
    return {n for n, at in found if n < len(lines) and text.startswith(lines[n], at)}


def signs_of(missing, text):
    """The lines of a text that say how many are missing."""
    return [line for line in text.splitlines() if missing in numbers(line)]


def by_the_minute():
    """A clock that moves a minute each time it is looked at."""
    now = iter(range(10**9))
    return lambda: EVENING + 60.0 * next(now)


@cache
def chatted(count, window, recall):
    """A group talks, and now and then somebody answers; each request fits."""
    context = talking(window, tools=[], recall=recall, clock=by_the_minute())
    lines = chat_lines(count)
    for n, line in enumerate(lines):
        context.add(person(line))
        if n % (window // 600) == 0:
            assert fits(context.request(), window)
            context.add(reply("Noted, all of it."))
    context.add(person("Eve: and what did we decide?"))
    return context, lines, context.request()


def test_a_sign_is_a_line_that_counts_and_no_line_that_was_said():
    text = "Ada: 01234 we wait\n1,234 older messages\nitem_1234 and 12345\nkept 1234 of them"
    assert signs_of(1_234, text) == ["1,234 older messages", "kept 1234 of them"]


CHATS = [
    pytest.param(1_500, 32_000, True, id="32k"),
    pytest.param(7_000, 200_000, True, marks=pytest.mark.soak, id="200k"),
    pytest.param(1_500, 32_000, False, id="32k, no recall"),
    pytest.param(10_000, 32_000, True, marks=pytest.mark.soak, id="32k, long"),
    pytest.param(10_000, 200_000, True, marks=pytest.mark.soak, id="200k, long"),
    pytest.param(10_000, 200_000, False, marks=pytest.mark.soak, id="200k, long, no recall"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("count", "window", "recall"), CHATS)
def test_of_a_long_group_chat_nothing_goes_without_a_sign(count, window, recall):
    context, lines, request = chatted(count, window, recall)
    assert fits(request, window)
    assert "Eve: and what did we decide?" in told(request)
    shown = shown_of(lines, outside(request))
    assert shown >= set(range(count - 50, count))
    missing = count - len(shown)
    assert missing > 0, "the chat is too short to say anything"
    signs = signs_of(missing, outside(request))
    assert signs, f"{missing} of {count} lines are gone, and no line of the request says so"
    handles = [handle for line in signs for handle in _HANDLE.findall(line)]
    assert bool(handles) == recall
    if recall:
        behind = "\n".join(map(context.recall, handles))
        assert shown_of(lines, behind) >= set(range(count)) - shown


@pytest.mark.slow
@pytest.mark.parametrize(("count", "window", "recall"), CHATS[:2])
def test_what_went_first_in_a_group_chat_is_the_oldest_and_the_sign_says_from_when_to_when(
    count, window, recall
):
    _, lines, request = chatted(count, window, recall)
    shown = shown_of(lines, outside(request))
    missing = count - len(shown)
    assert shown == set(range(missing, count))
    (sign,) = signs_of(missing, outside(request))
    assert len(set(re.findall(r"2026-\d\d-\d\d", sign))) == 2


@pytest.mark.parametrize(("count", "window", "recall"), CHATS[:2])
def test_of_a_group_chat_the_words_stay_as_far_as_the_allowance_goes(count, window, recall):
    context, lines, request = chatted(count, window, recall)
    size, kept = (
        sum(tokens(lines[n]) for n in shown_of(lines, text))
        for text in (outside(request), listed(request))
    )
    assert size >= 0.7 * allowance(context)
    assert kept <= allowance(context)


@pytest.mark.soak
def test_ten_thousand_lines_of_a_chat_cost_no_more_at_the_end_than_before():
    context, spent = talking(32_000, tools=[]), []
    for n, line in enumerate(chat_lines(10_000)):
        if n % 2_500 == 0:
            spent.append(time.process_time())
        context.add(person(line))
        if n % 100 == 99:
            context.request()
            context.add(reply("Noted."))
    spent.append(time.process_time())
    quarters = [after - before for before, after in pairwise(spent)]
    assert quarters[-1] < 3 * quarters[1]
    assert sum(quarters) < 60


PASTE = 100_000
"""Tokens of a log that somebody pastes."""
FIRST = "Read this log, but never touch billing/at_the_start.sql unasked."
LAST = "That was it; billing/at_the_end.sql must never be touched unasked."


@pytest.fixture(scope="module", params=["balanced", "cost"])
def pasted(request):
    """Ten rules, a log of 100,000 tokens, ten more rules, hundreds of rounds, a question."""
    goal, planted = request.param, rules(20)
    context = talking(200_000, goal=goal, recall=True)
    turns(context, planted[:10], "before", size=100)
    paste = f"{FIRST}\n{filler(PASTE, 'paste')}\n{LAST}"
    handle = turn(context, paste, "paste", size=100)
    turns(context, planted[10:], "after", size=100)
    for n in range(20):
        context.add(person(f"Now part {n}, please."))
        for m in range(10):
            work(context, f"long{n}-{m}", 1_000, thought=400)
        context.add(reply(f"Part {n} is done."))
    context.add(person("Which of the replicas lags, and since when?"))
    return context, goal, planted, paste, handle, context.request()


@pytest.mark.slow
def test_a_pasted_log_does_not_take_the_rules_around_it_along(pasted):
    _, _, planted, _, _, request = pasted
    text = outside(request)
    assert SUMMARY in told(request)
    assert fits(request, 200_000)
    assert [rule for rule in planted if rule not in text] == []
    assert "Which of the replicas lags, and since when?" in text


@pytest.mark.slow
def test_a_pasted_log_keeps_both_its_ends_and_says_how_much_of_it_is_left(pasted):
    context, goal, _, paste, handle, request = pasted
    text = outside(request)
    assert FIRST in text
    assert LAST in text
    start, end = text.index(FIRST), text.index(LAST) + len(LAST)
    said = text[start:end]
    head = common(said, paste)
    tail = common(said[::-1], paste[::-1])
    assert 400 - 40 <= (head + tail) // 4 <= allowance(context, goal)
    sign = said[head : len(said) - tail]
    assert len(sign) < 200, "what stands between the ends is the sign alone"
    (kept,) = (n for n in numbers(sign) if 0.9 <= n / (head + tail) <= 1.1)
    (total,) = (n for n in numbers(sign) if n == len(paste))
    assert kept < total
    assert handle in sign
    assert paste in context.recall(handle)


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["cost", "balanced", "quality"])
def test_words_within_the_allowance_are_all_there_after_many_summaries(goal):
    context = talking(32_000, goal=goal)
    said = [f"{rule} And then look at part {n}." for n, rule in enumerate(rules(120))]
    assert sum(tokens(text) + 4 for text in said) < allowance(context, goal)
    turns(context, said, size=500)
    context.add(person("What did I forbid?"))
    request = context.request()
    assert SUMMARY in told(request)
    words = outside(request)
    assert [text for text in said if words.count(text) != 1] == []


@pytest.mark.parametrize("recall", [True, False])
def test_above_the_allowance_the_rules_of_the_newest_messages_are_there_and_none_is_cut(recall):
    context, planted = talking(16_000, tools=[], recall=recall), rules(80)
    said = [f"Part {n}: {filler(40, n)} {rule} {filler(40, -n)}" for n, rule in enumerate(planted)]
    for text in said:
        context.add(person(text))
        context.request()
        context.add(reply(filler(100, text)))
    context.add(person("What did I forbid?"))
    text = outside(context.request())
    # The list is cut to four fifths of its allowance, so that it can grow again.
    sizes = accumulate(tokens(message) + 10 for message in reversed(said))
    newest = sum(size <= 0.8 * allowance(context) for size in sizes)
    assert 10 < newest < len(said)
    assert sum(message in text for message in said) >= newest
    assert "cut:" not in text


def test_the_words_stand_in_the_order_in_which_they_were_said():
    context, said = talking(16_000), rules(60)
    turns(context, said, size=300)
    context.add(person("What did I forbid?"))
    request = context.request()
    assert SUMMARY in told(request)
    text = outside(request)
    places = [text.find(each) for each in said]
    assert min(places) >= 0
    assert places == sorted(places)


@pytest.mark.slow
def test_what_is_listed_grows_at_its_end_from_one_summary_to_the_next():
    context, before, grown = talking(16_000), "", 0
    for n, rule in enumerate(rules(100)):
        turn(context, rule, f"t{n}", size=300)
        now = listed(request_anyway(context))
        assert now.startswith(before)
        grown += now != before
        before = now
    assert grown >= 3


@pytest.mark.slow
@pytest.mark.parametrize("window", [4_000, 8_000])
def test_in_a_tiny_window_the_newest_question_is_whole_in_every_request(window):
    context = talking(window, tools=[])
    size = context.budget().room // 3
    for n in range(60):
        question = f"Question {n}: {filler(size, n)} Is that right?"
        context.add(person(question))
        request = context.request()
        assert fits(request, window)
        assert question in told(request)
        context.add(reply(filler(size // 2, f"answer {n}")))


@pytest.mark.parametrize("window", [4_000, 8_000])
@pytest.mark.parametrize("share", [1.5, 20])
def test_a_question_that_does_not_fit_keeps_a_quarter_of_the_room_at_least(window, share):
    context = talking(window)
    room = context.budget().room
    turns(context, [f"Look at part {n}." for n in range(20)], size=200)
    question = f"Here it begins. {filler(int(room * share), 'q')} What is wrong with it?"
    context.add(person(question))
    request = context.request()
    assert fits(request, window)
    text = told(request)
    start = text.index("Here it begins.")
    said = text[start : text.index("What is wrong with it?") + len("What is wrong with it?")]
    kept = common(said, question) + common(said[::-1], question[::-1])
    assert kept // 4 >= room // 4


@pytest.mark.parametrize("window", [4_000, 8_000])
def test_in_a_tiny_window_words_within_a_quarter_of_the_room_are_all_there(window):
    context = talking(window, tools=[])
    room = context.budget().room
    said = rules(int(0.7 * room / 4 / (tokens(rules(1)[0]) + 4)))
    assert len(said) > 15
    turns(context, said, size=room // 6)
    context.add(person("What did I forbid?"))
    request = context.request()
    assert fits(request, window)
    assert SUMMARY in told(request)
    assert [rule for rule in said if rule not in outside(request)] == []


@pytest.mark.slow
@pytest.mark.parametrize("window", [4_000, 8_000])
def test_in_a_tiny_window_the_oldest_words_go_above_the_allowance_and_a_sign_stands_for_them(
    window,
):
    context, said = talking(window, tools=[]), rules(200)
    turns(context, said, size=100)
    context.add(person("What did I forbid?"))
    request = context.request()
    assert fits(request, window)
    text = outside(request)
    shown = [rule for rule in said if rule in text]
    assert shown == said[len(said) - len(shown) :]
    assert sum(map(tokens, shown)) >= 0.5 * allowance(context)
    assert signs_of(len(said) - len(shown), text)
    assert size_of({"messages": [{"content": listed(request)}]}) <= context.budget().room // 2
