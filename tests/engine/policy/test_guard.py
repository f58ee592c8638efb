"""The final guard: after any policy the request fits by its upper bound, or it says why not."""

import json
import re
from typing import Any

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
from tests.pictures import png
from tests.pictures import text as picture_text
from tests.recording import append, apply_decided, decide
from trimtab import Context, check
from trimtab.engine.log.event import CallOutcome, Edit, Usage
from trimtab.engine.log.message import (
    Media,
    Message,
    Text,
    ToolCall,
    ToolResult,
    make_text_message,
)
from trimtab.engine.policy.planning.plan import Decision
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.engine.window.accounting import CALIBRATION_PRIOR_TOKENS
from trimtab.errors import CannotFit
from trimtab.testing.server.openai_chat_rules import validate_chat_request
from trimtab.testing.server.options import ProviderSimulatorOptions

SMALL: dict[str, Any] = {"context_window": 4_000, "max_output_tokens": 500}
SHORTENED = re.compile(r"\[shortened: ~(\d+) of ~(\d+) tokens are shown: .* · recall m4\.0\]")
"""The first line of a result that the guard has cut."""


def last(context):
    call = context.window.last_call
    assert call is not None
    return call.body


def bound(context):
    return last(context).bound + last(context).max_output


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_preset_ends_within_the_limit(policy):
    context = chat(policy, **SMALL)
    talk(context, 30, size=800)
    context.add(user("go"))
    for number in range(10):
        use(context, f"c{number}", prose(3_000))
        assert bound(context) <= 4_000


OWN_SIGN = {
    "compact": "[truncated, showing first 4000 bytes of 200000 total · recall m4.0]",
    "thresholds": "[truncated: kept first ~2000 of ~50000 tokens (head) · recall m4.0]",
}
"""By preset whose own cap of a result is enough: the line at its end that says so."""


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_one_oversized_result_is_cut_rather_than_looped_over(policy):
    context = chat(policy, recall=True, **SMALL)
    context.add(user("go"))
    [shown] = results(use(context, "c1", prose(200_000)))
    assert bound(context) <= 4_000
    first, *_, last_line = shown.splitlines()
    if policy in OWN_SIGN:
        assert last_line == OWN_SIGN[policy]
    else:
        sign = SHORTENED.fullmatch(first)
        assert sign is not None
        kept, whole = sign.groups()
        # The text was measured with the id of its call before it, so the estimate differs a little.
        assert int(whole) == pytest.approx(context.window.counter.count(prose(200_000)), rel=0.02)
        assert int(kept) >= 0.75 * context.window.counter.count(shown)
        assert shown.endswith(prose(200_000)[-20:])
    assert context.recall("m4.0") == prose(200_000)


def test_parallel_results_are_cut_to_one_level():
    context = chat("full", **SMALL)
    context.add(user("go"))
    context.add(calls("a", "b", "c", "d"))
    for each, size in (("a", 8_000), ("b", 8_000), ("c", 8_000), ("d", 200)):
        context.add(result(each, prose(size)))
    *cut, small = results(context.request())
    assert small == prose(200)
    assert max(map(len, cut)) - min(map(len, cut)) < 400
    assert min(map(len, cut)) > 1_000


def test_a_newest_user_message_larger_than_the_window_is_cut_with_a_handle():
    context = chat("full", recall=True, **SMALL)
    context.add(user(prose(100_000)))
    [shown] = contents(context.request())
    assert shown.startswith(prose(1_000))
    assert shown.endswith(prose(100_000)[-1_000:])
    assert " · recall m2.0]" in shown
    assert 3_000 < bound(context) <= 4_000
    assert context.recall("m2.0") == prose(100_000)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_newest_message_larger_than_the_window_does_not_push_out_what_was_said(policy):
    context = chat(policy, **SMALL)
    context.add(user("The number is 4711."))
    context.add(said("Noted."))
    context.add(user("x " * 100_000 + "What was the number?"))
    shown = contents(context.request())
    assert shown[:2] == ["The number is 4711.", "Noted."]
    assert shown[2].endswith("What was the number?")
    assert 3_000 < bound(context) <= 4_000


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_newest_message_larger_than_the_window_leaves_half_of_it_to_a_long_history(policy):
    context = chat(policy, **SMALL)
    talk(context, 40, size=400)
    context.add(user("x " * 100_000 + "And?"))
    shown = contents(context.request())
    assert any("question 39" in each for each in shown[:-1])
    assert 500 < context.window.counter.count(shown[-1]) < 2_500


@pytest.mark.parametrize(
    ("window", "gone", "cut", "left"),
    [(8_000, 0, [0, 1], 200), (6_000, 0, [0, 1, 2, 3], 200), (4_000, 1, [1, 2, 3], 40)],
)
def test_replies_are_cut_before_a_question_goes_the_oldest_first(window, gone, cut, left):
    context = chat("full", context_window=window, max_output_tokens=500)
    for number in range(4):
        context.add(user(prose(4_000, f"question {number}")))
        context.add(said(prose(4_000, f"answer {number}")))
    context.add(user("now"))
    request = context.request()
    validate_chat_request(request, ProviderSimulatorOptions(template="strict"))
    notice = [f"[conversation truncated — {2 * gone} older messages omitted]"] if gone else []
    *shown, newest = contents(request)
    assert (shown[: len(notice)], newest) == (notice, "now")
    questions, answers = shown[len(notice) :: 2], shown[len(notice) + 1 :: 2]
    assert questions == [prose(4_000, f"question {number}") for number in range(gone, 4)]
    for number, text in enumerate(answers, gone):
        if number in cut:
            assert context.window.counter.count(text) <= left
            assert text.startswith(f"answer {number}\n")
            assert "[truncated: kept first+last ~" in text
        else:
            assert text == prose(4_000, f"answer {number}")


def test_older_results_of_a_thinking_loop_are_masked_and_its_thinking_stays():
    context = claude("full", **SMALL)
    context.add(user("go"))
    for number in range(6):
        context.add(thought(number))
        context.add(answer(number, prose(3_000)))
        request = context.request()
        assert check(request) == []
        assert bound(context) <= 4_000
    shown = texts(context.request())
    assert shown.count("'type': 'thinking'") == 6
    assert "[result masked — ~" in shown


def thought(number):
    return {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": f"step {number}", "signature": "c2ln"},
            {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}},
        ],
    }


def answer(number, text):
    block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
    return {"role": "user", "content": [block]}


@pytest.mark.parametrize(
    ("size", "rounds", "masks"), [(6_000, 4, 1), (10_500, 4, 4), (10_800, 2, 2), (11_400, 0, 0)]
)
def test_results_of_an_older_thinking_loop_are_masked_before_its_rounds_go_oldest_first(
    size, rounds, masks
):
    context = claude("full", **SMALL)
    context.add(user("go"))
    for number in range(4):
        context.add(thought(number))
        context.add(answer(number, prose(1_500)))
    context.add(said("done"))
    context.add(user(prose(size)))
    request = context.request()
    assert check(request) == []
    shown = texts(request)
    assert [n for n in range(4) if f"'step {n}'" in shown] == [*range(4)][4 - rounds :]
    assert shown.count("'type': 'tool_use'") == shown.count("'tool_use_id'") == rounds
    assert shown.count("[result masked — ~") == masks
    assert "{'type': 'text', 'text': 'go'}" in shown
    assert prose(size) in shown


def test_a_system_prompt_larger_than_the_window_is_named():
    context = chat("full", system=prose(100_000), **SMALL)
    context.add(user("hi"))
    with pytest.raises(CannotFit, match="system prompt and tools") as raised:
        context.request()
    assert raised.value.limit == 4_000
    assert raised.value.needed > 4_000
    assert raised.value.parts["system prompt and tools"] > 15_000
    assert raised.value.parts["requested output"] == 500


def test_arguments_are_never_cut_into_invalid_json():
    context = chat("full", **SMALL)
    context.add(user("go"))
    context.add(calls("c1", arguments=json.dumps({"text": prose(40_000)})))
    context.add(result("c1", "ok"))
    with pytest.raises(CannotFit, match="assistant message m3"):
        context.request()


def test_long_arguments_of_older_calls_are_left_out_and_those_made_last_stay():
    context = claude("full", context_window=8_000, max_output_tokens=500, recall=True)
    context.add(user("go"))
    request: dict[str, Any] = {}
    for number in range(8):
        thinking = [] if number else [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]
        given = {"path": f"{number}.md", "text": prose(4_000, f"page {number}"), "lines": [1, 2]}
        call = {"type": "tool_use", "id": f"t{number}", "name": "write", "input": given}
        context.add({"role": "assistant", "content": [*thinking, call]})
        context.add(answer(number, "ok"))
        request = context.request()
        assert check(request) == []
    blocks = [block for message in request["messages"] for block in message["content"]]
    made = [block["input"] for block in blocks if block["type"] == "tool_use"]
    assert [each["path"] for each in made] == [f"{number}.md" for number in range(8)]
    assert all(each["lines"] == [1, 2] for each in made)
    assert made[-1]["text"] == prose(4_000, "page 7")
    assert made[0]["text"] == (
        "[~1061 tokens of this call are not shown; this line was never sent to the tool · recall "
        "m3.1]"
    )
    assert json.loads(context.recall("m3.1"))["text"] == prose(4_000, "page 0")


def test_a_pinned_message_is_never_cut_and_is_named():
    context = chat("full", **SMALL)
    handle = context.add(user(prose(40_000)))
    context.pin(handle)
    context.add(user("now"))
    with pytest.raises(CannotFit, match=f"pinned user message {handle}"):
        context.request()
    context.pin(handle, pinned=False)
    assert contents(context.request())[-1] == "now"


def test_what_cannot_be_sent_is_not_recorded_as_sent():
    context = chat("full", system=prose(100_000), **SMALL)
    context.add(user("hi"))
    before = context.dump()
    with pytest.raises(CannotFit):
        context.request()
    assert context.dump() == before
    context.configure(system="Be brief.")
    assert contents(context.request()) == ["Be brief.", "hi"]


def test_a_picture_goes_where_no_text_can_be_cut():
    context = chat("full", context_window=2_500, max_output_tokens=500)
    big = Media(kind="image", mime="image/png", url="https://example.org/a.png")
    parts = (Text(text="look"), big, big, big)
    context.add(Message(role="user", parts=parts))
    shown = texts(context.request())
    assert "look" in shown
    assert "[image removed]" in shown
    assert bound(context) <= 2_500


def test_a_pass_that_hides_nothing_more_adds_no_edits():
    context = chat("full", **SMALL)
    talk(context, 10, size=2_000)
    context.add(user("now"))
    context.request()
    count = sum(isinstance(event.body, Edit) for event in context.events)
    context.request(stream=True)
    assert sum(isinstance(event.body, Edit) for event in context.events) == count


def test_the_volatile_tail_is_counted():
    context = chat("full", **SMALL)
    talk(context, 3, size=1_500)
    context.add(user("now"))
    context.request(volatile=prose(8_000))
    assert bound(context) <= 4_000
    assert context.window.conversation.dropped_groups.message_count > 0


def test_usage_from_before_a_compaction_is_not_trusted_after_it():
    context = claude("full", **SMALL)
    talk(context, 3, size=1_000)
    context.add(user("now"))
    context.request()
    context.add(reply("msg_1", 1_500))
    assert (context.window.accounting.usage_anchor or ())[:1] == (1_500,)
    context.add(user(prose(9_000)))
    context.request()
    assert context.window.conversation.dropped_groups
    assert context.window.accounting.usage_anchor is None
    assert bound(context) <= 4_000


def reply(name, tokens, text="ok"):
    return {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": tokens, "output_tokens": 5},
    }


@pytest.mark.parametrize("window", range(1_200, 1_450, 50))
def test_what_fits_because_a_count_no_longer_holds_is_not_refused(window):
    """A first message of two letters saves less than the notice of it takes."""
    context = claude("full", context_window=window, max_output_tokens=100)
    context.add(user("hi"))
    context.request()
    context.add(reply("msg_1", 900, prose(400)))
    for number in range(3):
        context.add(user(f"now {number}"))
        context.request()
        assert bound(context) <= window
        context.add(reply(f"msg_{number + 2}", 1_000 + number))


def test_what_was_asked_for_by_name_goes_where_it_fits_then():
    """It saves less than its notice takes, but the count that was reported no longer holds."""
    context = chat(lambda window, budget: Decision(), context_window=2_000, system=prose(2_600))
    for message in (user("a"), said("b"), user("q")):
        context.add(message)
    append(context, Edit(op="drop", first=2, last=3, why="once"))
    context.reveal("m2-m3")
    context.request()
    context.fail("overflow", input=1_800)
    context.request()
    assert bound(context) <= 2_000


def test_a_small_request_does_not_take_back_what_a_larger_one_taught():
    context = claude("full", **SMALL)
    context.add(user("word " * 1_000))
    context.request()
    context.add(reply("msg_0", int(last(context).tokens * 1.5)))
    context.rewind(0)
    for number in range(1, 8):
        context.add(user("hi"))
        context.request()
        # What stands around the texts makes most of it, and counts for less than we thought.
        context.add(reply(f"msg_{number}", last(context).tokens // 2))
        context.rewind(0)
    assert context.budget().ratio > 1.3


@pytest.mark.parametrize("reported", [30, 60, 400])
def test_what_stands_around_a_few_words_is_not_taken_for_their_weight(reported):
    context = chat("full", model="gpt-4o", context_window=128_000)
    context.add(user("hi"))
    context.request()
    usage = {"prompt_tokens": reported, "completion_tokens": 2, "total_tokens": reported + 2}
    choice = {"index": 0, "message": said("Hello."), "finish_reason": "stop"}
    context.add({"id": "r", "object": "chat.completion", "choices": [choice], "usage": usage})
    context.add(user("word " * 41_000))
    assert contents(context.request())[-1] == "word " * 41_000


def test_what_was_reported_once_counts_for_less_with_all_that_comes_on_top():
    context = claude("full")
    context.add(user("word " * 1_000))
    context.request()
    wrong = last(context).tokens * 4  # more is not believed
    context.add(reply("msg_0", wrong))
    assert context.budget().ratio > 3
    for number in range(1, 60):
        context.add(user("word " * 100))
        context.request()
        context.add(reply(f"msg_{number}", last(context).tokens))
    assert context.budget().ratio < 1.5


def test_where_every_call_breaks_the_prefix_a_larger_one_still_corrects_what_a_tiny_one_taught():
    context = claude("full")
    context.add(user("hi"))
    context.request()
    context.add(reply("msg_0", last(context).tokens * 3))
    for number in range(1, 4):
        context.configure(system=f"It is {number} o'clock.")
        context.add(user("word " * 1_000))
        context.request()
        context.add(reply(f"msg_{number}", last(context).tokens))
    assert context.budget().ratio < 1.1


def test_how_one_model_counts_is_not_taken_over_to_another():
    context = chat("full", model="mystery-1", context_window=100_000)
    context.add(user("word " * 1_000))
    context.request()
    append(context, CallOutcome(call=context.window.seq, usage=Usage(input=3_000)))
    counter = context.window.counter.name
    context.configure(model="mystery-2", dialect="openai_chat")
    assert context.window.counter.name == counter
    assert context.window.accounting.calibration_sums == (0.0, 0.0)


def test_a_provider_that_counts_more_than_we_do_is_believed():
    context = claude("full", **SMALL)
    talk(context, 2, size=1_000)
    context.add(user("now"))
    context.request()
    estimate = last(context).tokens
    context.add(reply("msg_1", estimate * 2))
    assert context.window.accounting.last_call_ratio == pytest.approx(
        (2 * estimate + CALIBRATION_PRIOR_TOKENS) / (estimate + CALIBRATION_PRIOR_TOKENS)
    )
    context.add(user("next"))
    context.request()
    assert last(context).bound > estimate * 2


def test_a_summary_is_shortened_before_the_guard_gives_up():
    context = chat("rolling", system=prose(12_200), **SMALL)
    for number in range(20):
        context.add(user(prose(300, f"question {number}")))
        context.add(said(prose(300, f"answer {number}")))
    context.add(user("and now?"))
    assert texts(context.request()).endswith("and now?")
    assert bound(context) <= 4_000
    summary = context.window.summary
    assert summary is not None
    assert summary.text.startswith("…")


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_tail_that_rode_with_the_call_before_is_not_counted_again(policy):
    context = claude(policy, context_window=100_000)
    tail = prose(180_000)
    for number in range(5):
        context.add(user(prose(1_500, f"question {number}")))
        estimate = context.preview(volatile=tail).report.used
        context.request(volatile=tail)
        assert estimate < 50_000
        context.add(reply(f"msg_{number}", last(context).tokens))
    assert not [event for event in context.events if isinstance(event.body, Edit)]


def test_the_error_names_what_is_large_and_what_makes_it_smaller():
    context = chat("full", context_window=10_000, max_output_tokens=500)
    context.add(user("go"))
    big = json.dumps({"text": prose(200_000)})
    context.add(calls("c", arguments=big))
    context.add(result("c", "done"))
    with pytest.raises(CannotFit) as caught:
        context.request()
    told = str(caught.value)
    assert "the limit (context_window) is 10,000" in told
    assert told.endswith("Use a larger context_window, or rewind() to before m3")
    assert sum(caught.value.parts.values()) == caught.value.needed


def test_the_error_says_how_many_more_are_pinned_and_how_to_undo_that():
    context = chat("full", context_window=10_000, max_output_tokens=500)
    talk(context, 5, size=2_000)
    context.configure(context_window=3_000)
    context.pin("m2-m16")
    context.add(user("And?"))
    with pytest.raises(CannotFit) as caught:
        context.request()
    parts = caught.value.parts
    assert parts["other messages that must stay"] > 2_000
    assert sum(parts.values()) == caught.value.needed
    assert ", or pin('m" in str(caught.value)
    assert "pinned=False)" in str(caught.value)


@pytest.mark.parametrize("arguments", ["[" * 3_000, '{"x": 1e999}', '{"x": NaN}'])
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-4o", "gpt-5.1"])
def test_odd_arguments_of_a_call_keep_no_request_from_being_made(model, arguments):
    context = Context(model, goal="cost")
    context.add(user("go"))
    for number in range(12):
        call = ToolCall(id=f"c{number}", name="read", arguments=arguments)
        context.add(Message(role="assistant", parts=(call,)))
        answer = ToolResult(call_id=f"c{number}", content=(Text(text=prose(9_000)),))
        context.add(Message(role="tool", parts=(answer,)))
        assert check(context.request()) == []


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-4o", "gpt-5.1"])
def test_half_of_a_surrogate_pair_is_kept_and_sent_as_what_utf8_can_say(model):
    context = Context(model)
    context.add(user("caf\udce9 \ud83d 🙂"))
    sent = json.dumps(context.request(), ensure_ascii=False)
    assert "caf\ufffd \ufffd 🙂" in sent
    assert sent.encode()
    assert context.recall("m2.0") == "caf\udce9 \ud83d 🙂"


def summarised_around(words):
    """A context whose summary reaches over a user's words that it does not tell of."""
    context = chat("full", context_window=3_000, max_output_tokens=300)
    context.add(user(words))
    for number in range(4):
        context.add(calls(f"c{number}"))
        context.add(result(f"c{number}", "word " * 100))
    append(context, Edit(op="summarise", first=2, last=8, text="SUMMARY " * 1_500, why="asked"))
    context.add(said("ok"))
    context.add(user("next"))
    return context


def test_what_a_shortened_summary_does_not_tell_of_stays_in_its_place():
    context = summarised_around("KEEP ME")
    shown = contents(context.request())
    assert context.window.entries[2].round.group.hidden is None
    assert shown[0].endswith("\n\nKEEP ME")
    assert shown[1:] == ["ok", "next"]
    summary = context.window.summary
    assert summary is not None
    assert summary.text.startswith("…")
    assert (
        context.window.conversation.dropped_notice()
        == "[conversation truncated — 2 older messages omitted]"
    )


def test_what_a_shortened_summary_does_not_tell_of_is_in_the_notice_where_it_must_go():
    context = summarised_around("KEEP ME " * 2_000)
    context.request()
    hidden = context.window.entries[2].round.group.hidden
    assert hidden is not None
    assert hidden.op == "drop"
    assert (
        context.window.conversation.dropped_notice()
        == "[conversation truncated — 3 older messages omitted]"
    )


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_large_results_of_a_thinking_loop_are_cut_in_one_go(policy):
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
    context = claude(policy, context_window=5_000, params=thinking)
    context.add(user("go"))
    for number in range(5):
        context.request()
        ids = [f"c{number}_{index}" for index in range(3)]
        thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
        asked = [{"type": "tool_use", "id": each, "name": "read", "input": {}} for each in ids]
        context.add({"role": "assistant", "content": [thought, *asked]})
        told = [
            {"type": "tool_result", "tool_use_id": each, "content": prose(30_000)} for each in ids
        ]
        context.add({"role": "user", "content": told})
        apply_decided(context)
        assert decide(context) == []


def work(context):
    use(context, f"c{context.window.seq}", prose(1_600))


def speak(context):
    talk(context, 1, size=400, start=context.window.seq)


@pytest.mark.parametrize(("go_on", "calls_per_edit"), [(work, 10), (speak, 8)])
def test_an_edit_of_the_guard_leaves_room_for_many_calls(go_on, calls_per_edit):
    context = chat("full", context_window=20_000, max_output_tokens=1_000)
    context.add(user("go"))
    edited = [number for number in range(150) if count_edits(context, go_on)]
    assert len(edited) >= 4
    assert (edited[-1] - edited[0]) / (len(edited) - 1) >= calls_per_edit


def count_edits(context, go_on):
    before = len(context.events)
    go_on(context)
    return sum(isinstance(event.body, Edit) for event in context.events[before:])


def test_what_the_guard_hides_in_advance_is_the_older_half():
    context = chat("full", context_window=20_000, max_output_tokens=1_000)
    context.add(user("go"))
    while not count_edits(context, work):
        pass
    shown = results(context.request())
    masked = [text.startswith("[result masked") for text in shown]
    assert 1 < sum(masked) <= len(masked) / 2
    assert masked == sorted(masked, reverse=True)


def test_a_request_without_an_earlier_call_hides_only_what_it_must():
    context = chat("full", context_window=20_000, max_output_tokens=1_000)
    context.add(user("go"))
    for number in range(50):
        context.add(calls(f"c{number}"))
        context.add(result(f"c{number}", prose(1_600)))
    context.request()
    assert 19_000 < bound(context) <= 20_000


def test_the_sign_of_a_cut_says_if_every_line_is_shown_only_in_part():
    context = chat("full", recall=True, **SMALL)
    context.add(user("go"))
    [shown] = results(use(context, "c1", f"{'ab cd ' * 4_000}\n{'ef gh ' * 4_000}"))
    [sign, *_] = shown.splitlines()
    assert sign.endswith("tokens are shown: 2 of 2 lines, long ones only in part · recall m4.0]")


def test_the_guard_frees_a_step_also_of_pictures_that_users_sent():
    context = chat("full", context_window=16_000, max_output_tokens=4_000)
    data = picture_text(png(600, 600))
    breaks = 0
    for number in range(40):
        picture = Media(kind="image", mime="image/png", data=data)
        context.add(Message(role="user", parts=(Text(text=f"look {number}"), picture)))
        before = context.window.accounting.version_at_last_call
        context.request()
        breaks += 0 <= before != context.window.accounting.version_at_last_call
        context.add(make_text_message("assistant", "ok"), usage=Usage(input=last(context).tokens))
    assert 1 <= breaks <= 8
