"""The user's words are listed by reference: what the log does to a message holds for the list."""

import json
from typing import Any

import pytest

from tests.context.user_texts import (
    SUMMARY,
    call,
    filler,
    listed,
    outside,
    person,
    reply,
    result,
    rules,
    talking,
    tokens,
    told,
    turn,
    turns,
)
from tests.pictures import png, text
from tests.recording import checkpoint
from trimtab import Context

pytestmark = pytest.mark.slow

SAID = rules(50)
WINDOW = 16_000
LOST = 7
"""A rule that tests take away; it is listed long before the end."""


def noon():
    """A clock that stands still: what is loaded again decides at the same time."""
    return 43_200.0


def loaded(context):
    return Context.load(context.dump(), tokenizer=tokens, clock=noon)


@pytest.fixture
def life():
    """A conversation with several summaries, and the handles of what was said in it."""
    context = talking(WINDOW, recall=True, clock=noon)
    handles = turns(context, SAID, size=300)
    context.add(person("What did I forbid?"))
    request = context.request()
    assert SUMMARY in told(request)
    return context, handles


def counts(request, said=SAID):
    words = outside(request)
    return [words.count(each) for each in said]


def once_but(*gone, of=SAID):
    return [0 if number in gone else 1 for number in range(len(of))]


def test_each_of_the_words_stands_once_in_the_request(life):
    context, _ = life
    assert counts(context.request()) == once_but()


def test_no_text_of_the_list_is_stored_twice(life):
    context, _ = life
    lines = context.dump()
    assert [sum(rule in line for line in lines) for rule in SAID] == once_but()


def test_the_log_does_not_grow_by_the_list(life):
    context, _ = life
    said = [line for line in context.dump() if json.loads(line)["kind"] == "edit"]
    most = max(map(len, said))
    turns(context, rules(50, "more"), "more", size=300)
    later = [line for line in context.dump() if json.loads(line)["kind"] == "edit"]
    assert max(map(len, later)) < 2 * most + 2_000


def test_erasing_a_listed_message_takes_it_and_leaves_the_others(life):
    context, handles = life
    assert SAID[LOST] in listed(context.request())
    context.erase(handles[LOST])
    assert counts(context.request()) == once_but(LOST)
    assert SAID[LOST] not in told(context.request())
    assert not any(SAID[LOST] in line for line in context.dump())


def test_what_was_erased_does_not_come_back_with_later_summaries(life):
    context, handles = life
    context.erase(handles[LOST])
    more = rules(50, "more")
    turns(context, more, "more", size=300)
    context.add(person("And now?"))
    request = context.request()
    assert SUMMARY in told(request)
    assert SAID[LOST] not in told(request)
    assert counts(request, [*SAID, *more]) == once_but(LOST, of=[*SAID, *more])


def test_a_rewind_takes_out_what_was_said_after_it_and_nothing_else(life):
    context, handles = life
    context.rewind(handles[40])
    assert counts(context.request()) == once_but(*range(41, 50))


def test_after_a_rewind_the_list_goes_on_with_what_is_said_then(life):
    context, handles = life
    context.rewind(handles[20])
    context.request()
    more = rules(40, "more")
    turns(context, more, "more", size=300)
    context.add(person("And now?"))
    request = context.request()
    assert SUMMARY in told(request)
    assert counts(request) == once_but(*range(21, 50))
    assert counts(request, more) == once_but(of=more)


@pytest.mark.slow
def test_what_is_revealed_stands_in_its_place_and_not_in_the_list_as_well(life):
    context, handles = life
    context.reveal(handles[LOST])
    request = context.request()
    assert counts(request) == once_but()
    assert SAID[LOST] not in listed(request)


def test_what_was_revealed_is_listed_again_when_it_is_hidden_again(life):
    context, handles = life
    context.reveal(handles[LOST])
    turns(context, rules(20, "more"), "more", size=300)
    context.add(person("And now?"))
    request = context.request()
    assert counts(request) == once_but()
    assert SAID[LOST] in listed(request)


@pytest.mark.slow
def test_a_fork_lists_the_same_and_then_its_own(life):
    context, _ = life
    twin = context.fork(parent_name="life")
    assert counts(twin.request()) == once_but()
    ours, theirs = rules(30, "ours"), rules(30, "theirs")
    turns(context, ours, "ours", size=300)
    turns(twin, theirs, "theirs", size=300)
    for one, own, other in ((context, ours, theirs), (twin, theirs, ours)):
        one.add(person("And now?"))
        request = one.request()
        assert counts(request) == once_but()
        assert counts(request, own) == once_but(of=own)
        assert not any(counts(request, other))


def test_a_fork_of_the_past_lists_what_was_said_up_to_there(life):
    context, handles = life
    twin = context.fork(parent_name="life", at=int(handles[45][1:]))
    assert counts(twin.request()) == once_but(*range(46, 50))


@pytest.mark.slow
def test_a_log_that_is_loaded_lists_the_same_and_goes_on_the_same(life):
    context, _ = life
    again = loaded(context)
    assert again.request() == context.request()
    for each in (context, again):
        each.add({"role": "assistant", "content": "All of these."})
        turns(each, rules(30, "more"), "more", size=300)
        each.add(person("And now?"))
    assert outside(again.request()) == outside(context.request())
    assert counts(again.request()) == once_but()


def test_a_past_request_with_a_list_is_rebuilt_as_it_was_sent(life):
    context, _ = life
    sent, position = context.request(), context.window.last_call.seq
    turns(context, rules(30, "more"), "more", size=300)
    assert context.rebuild_request(position) == sent


def test_a_checkpoint_leaves_the_list_as_it_was(life):
    context, handles = life
    twin = loaded(context)
    checkpoint(context)
    for each in (context, twin):
        turn(each, "Go on.", "go", size=300)
        each.add(person("And now?"))
    assert outside(context.request()) == outside(twin.request())
    assert counts(context.request()) == once_but()
    assert len(handles) == len(SAID)


def test_a_history_that_is_sent_again_as_a_whole_lists_the_same():
    context, history = talking(WINDOW), list[dict[str, Any]]()
    for number, rule in enumerate(SAID):
        history.append(person(rule))
        context.sync(history)
        context.request()
        history.append(call(f"t{number}", path="a.py"))
        history.append(result(f"t{number}", filler(300, number)))
        context.sync(history)
        context.request()
        history.append(reply(filler(150, f"answer {number}")))
    context.sync([*history, person("What did I forbid?")])
    request = context.request()
    assert SUMMARY in told(request)
    assert counts(request) == once_but()


def test_a_picture_stands_in_the_list_by_its_handle():
    context = talking(WINDOW, recall=True)
    source = {"type": "base64", "media_type": "image/png", "data": text(png(300, 300))}
    said = [{"type": "image", "source": source}, {"type": "text", "text": "Keep to this plan."}]
    handle = context.add({"role": "user", "content": said})
    context.request()
    context.add({"role": "assistant", "content": "I will."})
    turns(context, SAID, size=300)
    context.add(person("What does the plan show?"))
    words = listed(context.request())
    assert "Keep to this plan." in words
    assert f"{handle}.0" in words
