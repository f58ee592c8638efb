"""Rewinding, forking, other settings, policies of one's own; and what is refused."""

import os
import subprocess
import sys
from copy import deepcopy
from typing import Any, cast

import pytest

from tests.context.contexts import READ, kinds
from tests.conversations import (
    calls,
    chat,
    claude,
    contents,
    prose,
    said,
    talk,
    texts,
    user,
)
from tests.conversations import result as chat_result
from tests.recording import (
    append,
    build_call,
    checkpoint,
    decide,
    record_external_call,
    render_request,
    repair,
    request_anyway,
)
from tests.replies import (
    claude_reply,
)
from trimtab import Context, check
from trimtab.engine.log.event import CallOutcome, Edit, ModelCall, Usage
from trimtab.engine.policy.planning.plan import Decision, Plan
from trimtab.errors import CannotFit, ErasedError, HistoryNotInMemory
from trimtab.options import build_settings_event
from trimtab.types import PolicyName
from trimtab.verbs import configuring


def test_a_rewind_by_handle_goes_back_to_behind_that_message():
    context = chat()
    handle = context.add(user("one"))
    context.add(user("two"))
    context.rewind(handle)
    assert contents(context.request()) == ["one"]


@pytest.mark.parametrize("to", [-1, 99])
def test_a_rewind_beyond_the_log_is_refused(to):
    with pytest.raises(ValueError, match=f"cannot rewind to {to}; positions go up to 1"):
        chat().rewind(to)


def test_a_fork_shares_the_past_and_nothing_after():
    context = chat()
    context.add(user("one"))
    fork = context.fork(parent_name="parent")
    context.add(user("two"))
    fork.add(user("three"))
    assert contents(context.request()) == ["one", "two"]
    assert contents(fork.request()) == ["one", "three"]
    assert Context.load(fork.dump()).dump() == fork.dump()


def test_a_fork_at_a_position_leaves_the_rest_behind():
    context = chat()
    context.add(user("one"))
    position = context.window.seq
    context.add(user("two"))
    assert contents(context.fork(at=position).request()) == ["one"]


def test_a_fork_after_a_checkpoint_shares_what_is_seen():
    context = chat()
    context.add(user("one"))
    context.add(said("two"))
    checkpoint(context)
    assert contents(context.fork().request()) == ["one", "two"]
    context.add(user("three"))
    position = context.window.seq
    context.configure(policy="full")
    context.add(user("four"))
    twin = context.fork(at=position)
    assert contents(twin.request()) == ["one", "two", "three"]
    assert twin.options.policy == "layered"
    assert contents(context.request()) == ["one", "two", "three", "four"]


def test_a_fork_from_before_a_checkpoint_is_the_stores():
    context = chat()
    context.add(user("one"))
    context.add(said("two"))
    checkpoint(context)
    told = "cannot fork at 2; positions go from 3 to 3; .*: fork the session in its store"
    with pytest.raises(ValueError, match=told):
        context.fork(at=2)


def test_what_is_seen_can_be_erased_after_a_checkpoint():
    context = chat()
    handle = context.add(user("my secret"))
    context.add(said("noted"))
    checkpoint(context)
    context.erase(handle)
    context.add(user("next"))
    assert contents(context.request()) == ["[erased]", "noted", "next"]


def test_what_has_left_memory_is_not_believed_to_be_erased():
    context = chat("full", recall=True)
    first = context.add(user("my secret"))
    last = context.add(said("noted"))
    context.add(user("next"))
    append(context, Edit(op="drop", first=2, last=2, why="mine"))
    checkpoint(context)
    count = len(context.events)
    for handle in (first, f"{first}-{last}"):
        with pytest.raises(LookupError, match="nothing was erased: position 2 is no longer in mem"):
            context.erase(handle)
    assert len(context.events) == count


def test_a_change_of_model_takes_its_entry_and_dialect():
    context = chat(context_window=None)
    context.add(user("hi"))
    context.configure(model="claude-sonnet-4-5", dialect=None)
    settings = context.window.settings
    assert (settings.dialect, settings.entry["context_window"]) == ("anthropic", 200_000)
    assert context.budget().limit == 200_000
    assert check(context.request()) == []


def test_what_is_set_already_is_not_set_again():
    context = claude(system="Be brief.", tools=[READ])
    talk(context, 2)
    count, version = len(context.events), context.window.accounting.prefix_version
    context.configure(tools=[READ], system="Be brief.", model="claude-sonnet-4-5")
    assert len(context.events) == count
    assert context.window.accounting.prefix_version == version
    assert not context.window.accounting.cache_is_cold


def test_settings_are_built_once_a_day_for_options_that_stay(monkeypatch):
    """Prices change from day to day. A tool that the caller changes in place is another tool."""
    now, built = [86_400.0 * 20_000], []

    def count(*given: Any, **options: Any) -> Any:
        built.append(given)
        return build_settings_event(*given, **options)

    tool: Any = deepcopy(READ)
    context = claude(tools=[tool], clock=lambda: now[0])
    monkeypatch.setattr(configuring, "build_settings_event", count)
    for _ in range(3):
        context.configure(tools=[tool])
        context.add(user("hi"))
    assert len(built) <= 1
    before = len(built)
    now[0] += 86_400
    context.configure(tools=[tool])
    assert len(built) == before + 1
    tool["description"] = "Read another file."
    context.configure(tools=[tool])
    assert context.window.settings.tools[0]["description"] == "Read another file."


def test_what_the_caller_changes_afterwards_is_not_what_was_set():
    tool: Any = deepcopy(READ)
    params = {"metadata": {"user_id": "ada"}}
    context = claude(tools=[tool], params=params)
    context.add(user("hi"))
    context.request()
    tool["input_schema"]["required"] = ["path"]
    params["metadata"]["user_id"] = "eve"
    assert context.rebuild_request(context.window.seq)["metadata"] == {"user_id": "ada"}


@pytest.mark.parametrize("loaded", [False, True])
def test_a_system_prompt_in_blocks_goes_along_to_another_dialect(loaded):
    block = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
    context = claude(system=[block])
    context.add(user("hi"))
    context = Context.load(context.dump()) if loaded else context
    context.configure(model="gpt-4o")
    assert context.request()["messages"][0] == {"role": "system", "content": "Be kind."}
    context.configure(model="gpt-5.1", dialect="openai_responses")
    assert "cache_control" not in str(context.request())
    context.configure(model="claude-sonnet-4-5")
    assert context.request()["system"] == [block]


def test_a_developers_message_goes_along_to_claude():
    context = chat(system=[{"role": "developer", "content": "Be kind."}])
    context.add(user("hi"))
    context.configure(model="claude-sonnet-4-5")
    [block] = context.request()["system"]
    assert block["text"] == "Be kind."


def test_a_wrong_change_is_refused_and_changes_nothing():
    context = chat()
    before = context.dump()
    with pytest.raises(ValueError, match="unknown policy"):
        context.configure(policy=cast("PolicyName", "best"))
    with pytest.raises(ValueError, match="unknown; pass dialect"):
        context.configure(model="my-model")
    assert context.dump() == before


def test_revealing_pinning_and_erasing_go_by_handle():
    context = chat(limits={"max_tool_result_tokens": 50})
    context.add(user("go"))
    context.add(calls("c1"))
    handle = context.add(chat_result("c1", prose(4_000)))
    context.request()
    context.reveal(f"{handle}.0")
    assert prose(4_000) in contents(context.request())
    context.pin(handle)
    context.erase(handle)
    assert "[erased]" in contents(context.request())
    with pytest.raises(ErasedError):
        context.recall(handle)


def test_a_policy_of_ones_own_is_a_function():
    def newest(window, budget):
        first = next(iter(window.conversation.groups))
        drop = Edit(op="drop", first=first.first, last=first.last, why="mine")
        return Decision(edits=(drop,), note={"seen": len(window.conversation.groups)})

    context = chat(newest)
    context.add(user("one " * 50))
    context.add(user("two"))
    assert contents(context.request()) == [
        "[conversation truncated — 1 older messages omitted]",
        "two",
    ]
    call = context.events[-1].body
    assert isinstance(call, ModelCall)
    assert call.note == {"seen": 2}
    assert context.window.settings.policy.endswith("newest")


def test_the_settings_of_a_snapshot_come_back_with_their_own_policy():
    """Opened from a snapshot, under a function that was chosen only after it."""

    def nothing(window, budget):
        return Decision()

    context = chat("full")
    context.add(user("one"))
    events = list(context.events)
    base = checkpoint(context)
    context.configure(policy=nothing)
    twin = Context.load([*events, *context.events], snapshot=base, policy=nothing)
    assert twin.options.policy is nothing
    append(twin, events[0].body)
    assert twin.options.policy == "full"


def test_a_tokenizer_of_ones_own_counts():
    context = chat(tokenizer=lambda text: len(text.split()))
    before = context.report().used
    context.add(user("one two three"))
    assert context.report().used - before == 3 + 4


def counting(share):
    def count(text):
        return len(text) // share

    return count


NAMELESS = [lambda text: len(text), lambda text: len(text) // 4]  # noqa: PLW0108 - it has no name


@pytest.mark.parametrize("pair", [NAMELESS, [counting(1), counting(4)]])
def test_two_tokenizers_of_one_name_are_two(pair):
    one, other = pair
    context = chat("full", tokenizer=one)
    context.add(user("x" * 1_000))
    assert context.window.tokens == 1_004
    context.configure(tokenizer=other)
    context.add(user("x" * 1_000))
    assert context.window.tokens == 508
    name = context.window.settings.counter
    assert name.endswith("#2")
    again = Context.load(context.dump(), tokenizer=other)
    assert (again.window.tokens, again.options.build_counter().name) == (508, name)
    again.configure(tokenizer=counting(2) if "count" in name else lambda text: len(text) // 2)
    assert again.window.tokens == 1_008
    context.configure(tokenizer=None)
    context.configure(tokenizer=one)
    assert context.window.tokens == 2_008
    assert f"{context.window.settings.counter}#2" == name


def test_the_same_tokenizer_is_not_set_again():
    context = chat(tokenizer=counting(1))
    other = counting(4)
    context.configure(tokenizer=other)
    count = len(context.events)
    context.configure(tokenizer=other)
    context.configure(tokenizer=context.options.tokenizer)
    assert len(context.events) == count
    context.add(user("x" * 1_000))
    assert context.preview().report.used == context.report().used
    assert context.fork().window.tokens == context.window.tokens


def test_decide_and_apply_are_what_request_does():
    one, other = chat(limits={"max_history_tokens": 50}), chat(limits={"max_history_tokens": 50})
    for context in (one, other):
        for number in range(3):
            context.add(user(prose(400, f"{number}")))
    repair(one)
    count = len(one.events)
    edits = decide(one)
    assert len(one.events) == count
    append(one, *edits)
    append(one, build_call(one))
    assert render_request(one) == other.request()
    assert [event.body for event in one.events] == [event.body for event in other.events]


def test_a_step_lets_a_call_pass_that_was_made_elsewhere():
    context = chat()
    context.add(user("hi"))
    record_external_call(context)
    assert kinds(context) == ["Settings", "MessageAdded", "ModelCall"]
    assert context.window.accounting.sent_through_seq == 2


def test_nothing_can_be_rendered_before_a_call_is_recorded():
    with pytest.raises(ValueError, match="no call is recorded"):
        render_request(chat())


def test_what_cannot_fit_is_an_error_of_its_own():
    context = chat(context_window=1_000, max_output_tokens=900)
    context.add(user("hi"))
    context.configure(system=prose(10_000))
    with pytest.raises(CannotFit, match=r"is 1,000\. These parts cannot shrink"):
        context.request()


def test_a_request_before_anything_was_said_is_refused():
    with pytest.raises(ValueError, match="the conversation has no message yet"):
        chat().request()


def test_a_context_shows_itself_in_one_line():
    context = Context("gpt-4o")
    context.add({"role": "user", "content": "hello"})
    assert repr(context) == "<Context gpt-4o: 1 of 1 messages shown, 9 of 128,000 tokens>"


def test_an_outcome_names_its_call_and_why_the_model_stopped():
    context = claude()
    context.add(user("hi"))
    context.request()
    context.add(claude_reply())
    outcome = next(e.body for e in context.events if isinstance(e.body, CallOutcome))
    assert outcome == CallOutcome(
        call=3,
        usage=Usage(input=100, output=7, cache_read=50, cache_write=30),
        stop="end_turn",
    )


@pytest.mark.process
def test_importing_it_needs_no_sdk():
    script = "import sys, trimtab; trimtab.Context('gpt-4o'); print('openai' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert done.stdout == "False\n"


def test_a_fork_from_before_an_erasure_names_it_too():
    context = chat()
    handle = context.add(user("my secret"))
    context.add(said("noted"))
    before = context.window.seq
    context.erase(handle)
    twin = context.fork(at=before)
    assert "my secret" not in "".join(twin.dump())
    with pytest.raises(ErasedError, match=f"{handle} was erased"):
        twin.recall(handle)


def test_a_range_between_which_calls_were_made_is_erased_after_a_checkpoint():
    context = chat()
    context.add(user("secret"))
    context.request()
    context.add(said("kept to myself"))
    context.add(user("And?"))
    context.request()
    context.add(said("Nothing."))
    context.add(user("Really?"))
    checkpoint(context)
    context.erase("m2-m4")
    assert "secret" not in texts(context.request())


def test_a_fork_counts_as_was_counted_where_it_begins():
    one, other = counting(1), counting(2)
    context = chat("full", tokenizer=one)
    context.add(user("x" * 1_000))
    at, tokens = context.window.seq, context.window.tokens
    context.configure(tokenizer=other)
    assert context.window.tokens < tokens
    assert context.fork(at=at).window.tokens == tokens
    assert context.fork().window.tokens == context.window.tokens


@pytest.mark.parametrize("at", ["1", 1.0, True])
def test_a_fork_at_what_is_no_position_is_refused(at):
    context = chat()
    talk(context, 1)
    with pytest.raises(TypeError, match="it must be a position in the log"):
        context.fork(at=at)


def test_an_erasure_that_reaches_into_what_has_left_memory_changes_nothing():
    """A round without thinking is in the group of the one before it that has some, and an erasure
    could take that apart."""
    context = claude(recall=True)
    first = context.add(user("my secret"))
    for number in range(2):
        thought = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}] * (number == 0)
        call = {"type": "tool_use", "id": f"c{number}", "name": "recall", "input": {}}
        context.add({"role": "assistant", "content": [*thought, call]})
        found = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "my secret"}
        context.add({"role": "user", "content": [found]})
    checkpoint(context)
    before = texts(context.preview().request)
    with pytest.raises(HistoryNotInMemory):
        context.erase(first)
    assert context.events == []
    assert texts(context.request()) == before


def test_a_fork_from_before_a_tokenizer_was_set_estimates_as_then():
    context = chat("full")
    context.add(user("hi"))
    at, estimates = context.window.seq, context.window.counter.name
    context.configure(tokenizer=lambda text: len(text.split()))
    exact = context.window.counter.name
    later = context.window.seq
    context.configure(tokenizer=None)
    for position, counter in ((at, estimates), (later, exact), (None, estimates)):
        twin = context.fork(at=position)
        twin.configure(system="Be brief.")
        assert twin.window.counter.name == counter


def test_a_pin_is_taken_off_after_a_checkpoint():
    context = chat(context_window=3_000, max_output_tokens=200)
    handle = context.add(user("keep me"))
    context.pin(handle)
    talk(context, 20, size=600)
    request_anyway(context)
    checkpoint(context)
    context.pin(handle, pinned=False)
    talk(context, 5, size=600, start=20)
    assert "keep me" not in texts(request_anyway(context))


def masks_all(window, budget):
    plan = Plan(window, budget)
    for group in window.visible_groups.values():
        for entry in group.entries():
            for part in range(len(entry.message.parts)):
                plan.mask(entry, part, "mine")
    return plan.to_decision()


def test_no_policy_hides_what_was_asked_last():
    context = chat(masks_all)
    talk(context, 3, size=600)
    context.add(user(prose(600, "the newest")))
    shown = contents(context.request())
    assert shown[-1] == prose(600, "the newest")
    assert prose(600, "question 2") not in shown
