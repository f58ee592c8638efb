"""An existing history that `sync` takes over: Trimtab made none of its calls."""

import pytest

from tests.conversations import calls, result, said, ticking, user
from trimtab import Context, Usage
from trimtab.cli.session.view_data import build_session_view, find_call_by_reference
from trimtab.inspect.session_timeline import read_session_timeline
from trimtab.log import ModelCall
from trimtab.session import Session
from trimtab.testing import MemoryStore

USAGE = Usage(input=60_000, output=10)


def old_history(rounds: int = 30):
    messages = [user("Read all of it.")]
    for number in range(rounds):
        messages += [calls(f"c{number}"), result(f"c{number}", f"file {number} " * 400)]
    return [*messages, said("Done."), user("And now?")]


def sent_calls(context):
    return [e for e in context.events if isinstance(e.body, ModelCall) and not e.body.imported]


def test_calls_of_an_imported_history_are_not_counted_and_need_no_cost():
    context = Context("gpt-5.2", context_window=32_000, clock=ticking())
    context.sync(old_history())
    report = context.report()
    assert (report.calls, report.calls_without_cost, report.cost) == (0, 0, 0)
    assert any(isinstance(event.body, ModelCall) for event in context.events)  # all marked
    context.request()
    context.add(said("ok"), usage=USAGE)
    report = context.report()
    assert (report.calls, report.calls_without_cost) == (1, 0)
    assert "at least" not in report.breakdown()
    assert len(sent_calls(context)) == 1


def test_what_was_read_through_in_an_imported_history_may_be_masked():
    context = Context("gpt-5.2", context_window=32_000, policy="compact", clock=ticking())
    context.sync(old_history())
    context.request()
    results = [logged for logged in context.messages() if logged.message.results]
    assert [logged.state for logged in results[:20]] == ["masked"] * 20


def test_an_imported_call_has_no_request_to_rebuild():
    context = Context("gpt-5.2", clock=ticking())
    context.sync(old_history(2))
    imported = next(event for event in context.events if isinstance(event.body, ModelCall))
    with pytest.raises(LookupError, match="imported history"):
        context.rebuild_request(imported.seq)


def test_a_reply_to_the_last_request_in_a_list_is_no_import():
    context = Context("gpt-5.2", clock=ticking())
    history = [user("Hello")]
    context.sync(history)
    context.request()
    context.sync([*history, said("Hi."), user("Bye")])
    assert not any(getattr(event.body, "imported", False) for event in context.events)
    assert context.report().calls == 1


def test_an_import_ends_what_a_refused_call_taught_for_the_next_request_only():
    context = Context("gpt-5.2", clock=ticking())
    history = [user("Hello")]
    context.sync(history)
    context.request()
    context.fail("rejected", message="no")
    context.sync([*history, said("Hi."), user("Bye"), said("Bye."), user("Still there?")])
    assert not context.window.accounting.rejection.last_sent_seq


@pytest.mark.anyio
async def test_screens_of_a_session_show_only_the_calls_that_were_sent():
    store = MemoryStore()
    session = await Session.create(store, "s", model="gpt-5.2", context_window=32_000)
    await session.sync(old_history())
    view = await build_session_view(store, "s", 5)
    assert (view.calls, view.last_calls) == (0, ())
    await session.request()
    await session.add(said("ok"), usage=USAGE)
    view = await build_session_view(store, "s", 5)
    assert [call.outcome is not None for call in view.last_calls] == [True]
    events = [event async for event in store.events("s")]
    timeline = read_session_timeline("s", events)
    assert [call.seq for call in timeline.calls] == [call.seq for call in view.last_calls]
    imported = next(event.seq for event in events if isinstance(event.body, ModelCall))
    with pytest.raises(LookupError, match="is not a call"):
        await find_call_by_reference(store, "s", view.position, str(imported))
