"""Why something is not in the context: `why` of a context, from what it has in memory."""

import pytest

from tests.conversations import calls, chat, prose, said, talk, user
from tests.conversations import result as chat_result
from tests.recording import checkpoint
from trimtab import Context
from trimtab.engine.log.event import Edit
from trimtab.errors import HistoryNotInMemory
from trimtab.policies import Budget, Decision, Plan, TextCap, Window


def deciding(context: Context, op: str) -> tuple[int, float, Edit]:
    """The first edit of a kind: its position, its time, itself."""
    return next(
        (event.seq, event.at, event.body)
        for event in context.events
        if isinstance(event.body, Edit) and event.body.op == op
    )


def test_what_is_seen_is_shown():
    context = chat()
    handle = context.add(user("Hello."))
    found = context.why(f"{handle}.0")
    assert (found.state, found.event, found.since, found.text) == ("shown", None, None, "Hello.")


def test_what_was_cut_names_the_edit_its_rule_and_what_stands_there():
    context = chat(policy="layered", limits={"max_tool_result_tokens": 50})
    context.add(user("Read it."))
    context.add(calls("c"))
    handle = context.add(chat_result("c", prose(3_000, "a file")))
    context.request()
    seq, at, edit = deciding(context, "truncate")
    found = context.why(handle)
    assert (found.state, found.event, found.since) == ("truncated", seq, at)
    assert (found.reason, found.replacement) == (edit.why, edit.text)


def test_what_was_dropped_undone_or_erased_is_told_apart():
    context = chat(policy="layered", limits={"max_history_tokens": 50})
    first = context.add(user(prose(400, "first")))
    talk(context, 3, size=400)
    second = context.add(user("second"))
    context.request()
    assert context.why(first).state == "dropped"
    context.add(said("ok"))
    context.rewind(int(second[1:]) - 1)
    assert context.why(second).state == "undone"
    assert context.why(second).reason == f"rewound to {int(second[1:]) - 1}"
    third = context.add(user("third"))
    context.erase(third, reason="asked to")
    found = context.why(third)
    assert (found.state, found.reason, found.text) == ("erased", "asked to", "")


def test_a_range_is_explained_by_what_hides_most_of_it_and_says_what_differs():
    context = chat(policy="auto", context_window=8_000)
    for number in range(30):
        context.add(user(f"Question {number}?"))
        context.request()
        context.add(said(prose(1_500, f"answer {number}")))
    summary = context.window.summary
    assert summary is not None
    reason = context.why(summary.handle)
    hid_most = next(event.body for event in context.events if isinstance(event.body, Edit))
    assert (reason.state, reason.reason) == ("partial", hid_most.why)
    assert reason.parts["m2"] == "listed"
    assert set(reason.parts.values()) == {"listed", "summarised"}
    assert reason.text == context.recall(summary.handle)
    assert f"({len(reason.parts) // 2} listed, " in str(reason)
    answers = [handle for handle, state in reason.parts.items() if state == "summarised"]
    shown = context.why(f"m{context.window.seq - 1}-m{context.window.seq}")
    assert (shown.state, shown.event, shown.parts) == ("shown", None, {})
    assert context.why(answers[0]).state == "summarised"


def test_what_is_no_message_is_not_found():
    context = chat()
    context.add(user("Hello."))
    for handle in ("m0", "m1", "m2.1", "m99"):
        with pytest.raises(LookupError, match=f"^there is no {handle}"):
            context.why(handle)
    with pytest.raises(ValueError, match="is not a handle"):
        context.why("the first one")


def test_what_left_memory_is_asked_of_the_store():
    context = chat(policy="layered", limits={"max_history_tokens": 50})
    first = context.add(user(prose(400, "first")))
    talk(context, 3, size=400)
    context.add(user("now"))
    context.request()
    checkpoint(context)
    with pytest.raises(HistoryNotInMemory):
        context.why(first)


def test_a_message_of_which_only_some_parts_are_seen_says_which():
    context = Context("claude-sonnet-4-5", policy="layered", limits={"max_tool_result_tokens": 50})
    context.add(user("Read both."))
    uses = [{"type": "tool_use", "id": one, "name": "read", "input": {}} for one in "ab"]
    context.add({"role": "assistant", "content": uses})
    texts = {"a": "short", "b": prose(3_000, "a file")}
    answers = [{"type": "tool_result", "tool_use_id": one, "content": texts[one]} for one in texts]
    handle = context.add({"role": "user", "content": answers})
    context.request()
    found = context.why(handle)
    assert (found.state, found.parts) == (
        "partial",
        {f"{handle}.0": "shown", f"{handle}.1": "truncated"},
    )
    assert context.why(f"{handle}.1").state == "truncated"
    context.reveal(f"{handle}.1")
    assert (context.why(handle).state, context.why(handle).parts) == ("shown", {})


def test_the_report_lists_truncated_parts_in_their_order_whichever_was_cut_first():
    def cut_last_part_first(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        for entry in window.entries.values():
            for part in reversed(range(len(entry.message.results))):
                plan.truncate(entry, part, TextCap(amount=50), "large")
        return plan.to_decision()

    context = Context("claude-sonnet-4-5", policy=cut_last_part_first)
    context.add(user("Read both."))
    uses = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in "ab"]
    context.add({"role": "assistant", "content": uses})
    results = [
        {"type": "tool_result", "tool_use_id": name, "content": prose(3_000, name)} for name in "ab"
    ]
    handle = context.add({"role": "user", "content": results})
    context.request()
    assert context.report().hidden_handles["truncate"] == (f"{handle}.0", f"{handle}.1")
