"""`preview` and `rebuild`: calls that are not made yet, and those that were."""

import json

import pytest

from tests.context.contexts import READ
from tests.conversations import (
    calls,
    chat,
    prose,
    said,
    talk,
    user,
)
from tests.conversations import result as chat_result
from tests.laws.picture import picture
from trimtab import Context
from trimtab.engine.log.event import Event
from trimtab.engine.policy.planning.plan import Decision
from trimtab.engine.window.window import Window
from trimtab.errors import RequestChangedError


def test_a_preview_changes_nothing_and_tells_what_would_be_hidden():
    context = chat(limits={"max_history_tokens": 50})
    talk(context, 3, size=400)
    context.add(user("now"))
    before = context.dump()
    preview = context.preview(stream=True)
    assert context.dump() == before
    assert [edit.op for edit in preview.edits] == ["drop"]
    assert preview.report.hidden["drop"][0] > 0
    assert context.request(stream=True) == preview.request


def test_a_preview_uses_the_callers_own_policy_and_tokenizer():
    asked: list[int] = []

    def policy(window, budget):
        asked.append(window.seq)
        return Decision()

    context = chat(policy, tokenizer=len)
    context.add(user("hi"))
    assert context.preview().report.used > 0
    assert asked == [2]


@pytest.mark.parametrize("hides", [False, True])
def test_a_preview_folds_nothing_but_what_the_next_request_would_add(monkeypatch, hides):
    context = chat(limits={"max_history_tokens": 50 if hides else 50_000})
    talk(context, 30, size=40)
    context.add(user("now"))
    folded: list[Event] = []
    fold = Window.apply

    def apply(window: Window, *events: Event) -> None:
        folded.extend(events)
        fold(window, *events)

    monkeypatch.setattr(Window, "apply", apply)
    monkeypatch.setattr(Context, "load", None)
    preview = context.preview()
    last = context.window.seq
    assert bool(preview.edits) is hides
    assert [event.body for event in folded[:-1]] == [*preview.edits]
    assert [event.seq for event in folded] == [*range(last + 1, last + 2 + len(preview.edits))]
    assert context.request() == preview.request
    assert context.report() == preview.report


@pytest.mark.parametrize("policy", ["layered", "compact", "rolling", "thresholds", "auto"])
def test_a_preview_leaves_the_window_as_it_is_whatever_would_be_hidden(policy):
    ops: set[str] = set()
    context = chat(policy, context_window=6_000, max_output_tokens=500, tools=[READ])
    for number in range(12):
        context.add(user(prose(150, f"q{number}")))
        context.add(calls(f"c{number}"))
        context.add(chat_result(f"c{number}", prose(9_000, f"r{number}")))
        before = picture(context.window)
        preview = context.preview()
        assert picture(context.window) == before
        assert context.request() == preview.request
        assert context.report() == preview.report
        ops |= {edit.op for edit in preview.edits}
        context.add(said("ok"))
    assert ops


def test_a_past_request_is_rebuilt_exactly():
    context = chat(limits={"max_history_tokens": 100})
    sent = {}
    for number in range(6):
        context.add(user(prose(200, f"{number}")))
        request = context.request(volatile=f"tick {number}")
        sent[context.window.seq] = request
        context.add(said("ok"))
    again = Context.load(context.dump())
    assert {seq: again.rebuild_request(seq) for seq in sent} == sent
    assert len({json.dumps(request) for request in sent.values()}) == 6


def test_a_past_request_with_an_erased_part_is_not_shown():
    context = chat()
    context.add(user("secret"))
    context.request()
    context.erase("m2")
    with pytest.raises(RequestChangedError, match="cannot be shown as it was sent"):
        context.rebuild_request(3)


def test_what_is_no_call_cannot_be_rebuilt():
    context = chat()
    with pytest.raises(LookupError, match="event 1 is not a call"):
        context.rebuild_request(1)


def test_a_log_is_loaded_as_it_was_left():
    context = chat("compact", recall=True, goal="cost", tools=[READ], system="Be brief.")
    talk(context, 2)
    context.add(user("go"))
    for number in range(12):
        context.add(calls(f"c{number}"))
        context.add(chat_result(f"c{number}", prose(3_900)))
        context.request()
    again = Context.load(context.dump())
    assert again.dump() == context.dump()
    assert again.request() == context.request()
    assert again.report() == context.report()
    again.add(said("done"))
    context.add(said("done"))
    again.add(user("more"))
    context.add(user("more"))
    assert again.request() == context.request()


def test_a_log_without_settings_is_refused():
    with pytest.raises(ValueError, match="the log has no settings event"):
        Context.load([])


def test_a_preview_counts_the_tail_that_rides_with_the_call():
    context = chat()
    context.add(user("hi"))
    used = context.preview().report.used
    seen = context.preview(volatile="word " * 100).report
    assert seen.used > used + 90
    assert seen.sections[-1].name == "volatile tail"
