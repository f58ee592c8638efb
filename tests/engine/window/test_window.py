"""The log folded: pairs, groups, totals, and going back."""

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
    talk,
    texts,
    use,
    user,
)
from tests.recording import append, request_anyway
from trimtab import Context, check
from trimtab.engine.log.event import (
    Edit,
    Event,
    MessageAdded,
    RetentionErasure,
    Size,
    ToolResultRepair,
    TurnProgressRecord,
)
from trimtab.engine.log.message import make_text_message
from trimtab.engine.tokens.counter import add_sizes, measure_text_message
from trimtab.engine.window.window import Window
from trimtab.errors import ErasedError


def message(seq, text="hi"):
    sizes = (Size(bytes=len(text), tokens=len(text)),)
    return Event(
        seq=seq, at=0.0, body=MessageAdded(message=make_text_message("user", text), sizes=sizes)
    )


def folded(context):
    """The same window, folded again from its log."""
    window = Window(context.window.counters_by_name)
    for event in context.events:
        window.apply(event)
    return window


def totals(window):
    return (
        window.bytes,
        window.tokens,
        window.visible_messages,
        window.conversation.turn_bytes,
        window.conversation.turn_tokens,
    )


def busy():
    context = chat("rolling", recall=True)
    talk(context, 9, size=200)
    context.add(user("go"))
    for number in range(4):
        use(context, f"c{number}", prose(40_000))
    return context


def test_a_gap_in_the_log_is_refused():
    window = Window()
    window.apply(message(1))
    with pytest.raises(ValueError, match="event 3 cannot follow position 1"):
        window.apply(message(3))


def test_the_totals_are_those_of_a_fold_from_the_start():
    context = busy()
    assert totals(folded(context)) == totals(context.window)


def test_the_totals_are_the_sums_of_what_is_seen():
    context = busy()
    window = context.window
    entries = [e for group in window.visible_groups.values() for e in group.entries()]
    front = add_sizes(
        measure_text_message(window.conversation.framed_summary(window.summary), window.counter),
        measure_text_message(window.conversation.dropped_notice(), window.counter),
    )
    assert window.bytes == sum(e.bytes for e in entries) + front.bytes
    assert window.tokens == sum(e.tokens for e in entries) + front.tokens
    assert window.visible_messages == len(entries)


def test_nothing_is_hidden_from_a_human_who_reads_the_log():
    context = busy()
    spoken = [entry.message.text for entry in context.window.entries.values()]
    assert spoken[:2] == [prose(200, "question 0"), prose(200, "answer 0")]
    assert len(spoken) == 27
    assert prose(200, "question 0") not in texts(context.request())


def test_ids_used_again_in_a_later_turn_answer_their_own_calls():
    context = chat()
    for number in range(3):
        context.add(user(f"turn {number}"))
        use(context, "call_0", f"result {number}")
        context.add(said("ok"))
    request = request_anyway(context)
    assert check(request) == []
    assert [
        (m["tool_call_id"], m["content"]) for m in request["messages"] if "tool_call_id" in m
    ] == [
        ("call_0", "result 0"),
        ("call_0_2", "result 1"),
        ("call_0_3", "result 2"),
    ]


def test_results_are_sent_in_the_order_of_their_calls():
    context = chat()
    context.add(user("go"))
    context.add(calls("a", "b"))
    context.add(result("b", "second"))
    context.add(result("a", "first"))
    assert results(context.request()) == ["first", "second"]


def test_what_is_said_while_calls_are_open_is_sent_behind_their_results():
    context = chat()
    context.add(user("go"))
    context.add(calls("a", "b"))
    context.add(result("a", "first"))
    context.add(user("and hurry"))
    context.add(result("b", "second"))
    request = context.request()
    assert check(request) == []
    assert contents(request)[2:] == ["first", "second", "and hurry"]


def test_a_call_without_a_result_is_repaired_the_same_way_every_time():
    def interrupted():
        context = chat()
        context.add(user("go"))
        context.add(calls("a", "b"))
        context.add(result("a", "first"))
        return context.request(), context

    (one, context), (other, _) = interrupted(), interrupted()
    assert one == other
    assert check(one) == []
    assert results(one) == ["first", "[no result: the call was interrupted]"]
    assert sum(isinstance(event.body, ToolResultRepair) for event in context.events) == 1


def test_a_result_that_comes_too_late_becomes_a_note():
    context = chat()
    context.add(user("go"))
    context.add(calls("a"))
    context.request()
    context.add(result("a", "at last"))
    request = context.request()
    assert check(request) == []
    assert request["messages"][-1] == {
        "role": "user",
        "content": [{"type": "text", "text": "[late result of call a]\n at last"}],
    }


def test_an_orphan_result_is_never_sent_as_one():
    context = chat()
    context.add(result("nobody", "asked"))
    context.add(user("hi"))
    request = context.request()
    assert check(request) == []
    assert request["messages"][0] == {
        "role": "user",
        "content": [{"type": "text", "text": "[late result of call nobody]\n asked"}],
    }


@pytest.mark.parametrize("cap", range(50, 1_500, 150))
def test_no_cut_of_the_history_parts_a_call_from_its_results(cap):
    context = chat(limits={"max_history_tokens": cap})
    for turn in range(5):
        context.add(user(prose(100, f"turn {turn}")))
        context.add(calls(f"a{turn}", f"b{turn}"))
        context.add(result(f"a{turn}", prose(300)))
        context.add(result(f"b{turn}", prose(300)))
        context.add(said("ok"))
    context.add(user("now"))
    assert check(context.request()) == []


def test_a_rewind_brings_back_what_was_seen_then():
    context = chat("rolling")
    talk(context, 7, size=200)
    position, before = context.window.seq, totals(context.window)
    talk(context, 5, size=200, start=7)
    request_anyway(context)
    assert context.window.summary is not None
    context.rewind(position)
    assert context.window.summary is None
    assert totals(context.window) == before
    assert totals(folded(context)) == before


def test_a_rewind_of_a_rewind_goes_further_back():
    context = chat()
    first = context.add(user("one"))
    second = context.add(user("two"))
    context.add(user("three"))
    context.rewind(second)
    context.rewind(first)
    assert contents(context.request()) == ["one"]


def test_a_rewind_to_behind_a_rewind_undoes_it():
    context = chat()
    first = context.add(user("one"))
    context.add(user("two"))
    position = context.window.seq
    context.rewind(first)
    context.rewind(position)
    assert contents(context.request()) == ["one", "two"]


def test_what_the_provider_taught_outlives_a_rewind():
    context = chat()
    context.add(user(prose(200_000)))
    context.request()
    context.fail("overflow", limit=32_768)
    context.rewind(1)
    assert context.budget().limit == 32_768


def test_a_pin_keeps_its_message_whatever_the_policy_wants():
    context = chat(limits={"max_history_tokens": 100})
    handle = context.add(user("Open approvals: deploy to production. To do: write tests."))
    context.pin(handle)
    talk(context, 10, size=400)
    context.add(user("now"))
    shown = contents(context.request())
    assert shown[1] == "Open approvals: deploy to production. To do: write tests."
    context.pin(handle, pinned=False)
    talk(context, 2, size=400)
    assert "To do" not in texts(request_anyway(context))


def test_a_pinned_result_is_not_masked():
    context = chat(limits={"tool_result_keep_first": 0, "tool_result_keep_last": 1})
    context.add(user("go"))
    context.add(calls("c1"))
    context.pin(context.add(result("c1", prose(400))))
    context.request()
    assert results(use(context, "c2", "ok")) == [prose(400), "ok"]


def test_a_revealed_result_is_seen_again():
    context = chat(limits={"max_tool_result_tokens": 50})
    context.add(user("go"))
    use(context, "c1", prose(4_000))
    context.reveal("m4.0")
    assert results(context.request()) == [prose(4_000)]
    assert totals(folded(context)) == totals(context.window)


def test_what_is_pinned_and_revealed_stays_visible_under_a_policy_that_masks():
    context = chat(limits={"tool_result_keep_first": 0, "tool_result_keep_last": 1})
    context.add(user("go"))
    use(context, "c1", prose(400))
    use(context, "c2", "ok")
    context.pin("m4")
    context.reveal("m4.0")
    assert results(use(context, "c3", "ok"))[0] == prose(400)


def test_a_revealed_range_is_seen_again_and_its_notice_goes():
    context = chat(limits={"max_history_tokens": 50})
    talk(context, 2, size=400)
    context.add(user("now"))
    assert "omitted" in texts(context.request())
    context.configure(limits={"max_history_tokens": 0})
    context.reveal("m1-m99")
    request = context.request()
    assert "omitted" not in texts(request)
    assert len(request["messages"]) == 5
    assert totals(folded(context)) == totals(context.window)


def test_revealing_what_was_summarised_removes_the_summary():
    context = chat("rolling")
    talk(context, 10, size=200)
    request_anyway(context)
    context.configure(policy="full")
    context.reveal("m1-m999")
    request = context.request()
    assert context.window.summary is None
    assert len(request["messages"]) == 20


def test_erasing_destroys_the_payload_and_what_was_made_from_it():
    context = chat("rolling", recall=True)
    context.add(user("my secret is 12345"))
    talk(context, 9, size=200)
    request_anyway(context)
    assert "12345" in texts(context.request())
    context.erase("m2", reason="asked")
    assert "12345" not in "\n".join(context.dump())
    assert "12345" not in texts(context.request())
    with pytest.raises(ErasedError, match="m2 was erased by event"):
        context.recall("m2")


def test_erasing_one_part_leaves_the_rest_recallable():
    context = claude()
    context.add({"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]})
    context.erase("m2.0")
    assert context.recall("m2.1") == "b"
    with pytest.raises(ErasedError):
        context.recall("m2.0")


def test_erased_results_stay_paired():
    context = chat()
    context.add(user("go"))
    use(context, "c1", "secret")
    context.erase("m4")
    request = context.request()
    assert check(request) == []
    assert results(request) == ["[erased]"]


@pytest.mark.parametrize("strategy", ["head", "tail", "both"])
def test_of_an_erased_result_that_was_cut_one_word_is_left(strategy):
    caps = {"max_tool_result_tokens": 50, "tool_result_truncation": strategy}
    context = chat("full", limits=caps)
    context.add(user("go"))
    use(context, "c1", prose(600))
    assert "truncated" in results(context.request())[0]
    context.erase("m4")
    assert results(context.request()) == ["[erased]"]
    assert results(Context.load(context.dump()).request()) == ["[erased]"]


def test_retention_destroys_all_before_a_position():
    context = chat()
    talk(context, 2)
    body = RetentionErasure(before=context.window.seq, why="30 days")
    append(context, body)
    assert contents(request_anyway(context))[:3] == ["[erased]"] * 3
    with pytest.raises(ErasedError):
        context.recall("m2")


def test_an_older_epoch_never_comes_back():
    window = Window()
    for seq, epoch in enumerate((1, 3, 2), 1):
        window.apply(Event(seq=seq, at=0.0, body=TurnProgressRecord(state="claimed", epoch=epoch)))
    assert window.accounting.epoch == 3


def test_an_edit_of_what_is_not_there_changes_nothing():
    context = chat()
    context.add(user("hi"))
    before = totals(context.window)
    gone = Edit(op="mask", first=99, last=99, part=0, text="x")
    append(context, gone)
    assert totals(context.window) == before


def test_a_change_of_counter_counts_everything_anew():
    context = chat(model="gpt-4o")
    talk(context, 3, size=400)
    before = context.window.tokens
    context.configure(tokenizer=len)
    assert context.window.tokens > before * 3
    context.add(user("hi"))
    assert totals(folded(context)) == totals(context.window)


def test_hidden_text_is_recalled_byte_for_byte():
    context = chat("compact", recall=True)
    text = "File: ü\r\n\t" + prose(9_000) + "\x00\n🙂  "
    context.add(user("go"))
    use(context, "c1", text)
    assert context.recall("m4.0") == text
    assert Context.load(context.dump()).recall("m4.0") == text


def test_recall_of_a_range_names_each_message():
    context = chat()
    context.add(user("hello"))
    context.add(calls("c1", arguments='{"a":1}'))
    context.add(result("c1", "done"))
    assert context.recall("m2-m4") == (
        '[m2 user]\nhello\n[m3 assistant]\nread {"a":1}\n[m4 tool]\ndone'
    )


def test_recall_of_nothing_says_how_far_positions_go():
    context = chat()
    context.add(user("hello"))
    with pytest.raises(LookupError, match="there is no m9; positions go up to m2"):
        context.recall("m9")


def test_recall_of_what_is_no_message_names_the_nearest_that_are():
    context = chat()
    for word in ("one", "two", "three", "four"):
        context.add(user(word))
    with pytest.raises(
        LookupError, match=r"position 1 is not a message .* nearest are m2, m3, m4$"
    ):
        context.recall("m1")
    with pytest.raises(LookupError, match=r"there is no m3\.4; the last part is m3\.0$"):
        context.recall("m3.4")
