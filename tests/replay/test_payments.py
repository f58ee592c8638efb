from dataclasses import replace

import pytest

from tests.replay.conversations import conversation
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult, make_text_message
from trimtab.replay.cache_breaks import find_cache_breaks
from trimtab.replay.payments import Payments
from trimtab.replay.selection import RecordedCall, RecordedConversation

MODEL = "claude-sonnet-4-5"
"""Three dollars for a million fresh tokens, fifteen for a million of output."""


def session(*usage: Usage, times=None, **more) -> RecordedConversation:
    """A session with one reply for each usage, every other message a user's."""
    messages = [make_text_message(role, "x") for _ in usage for role in ("user", "assistant")]
    calls = {2 * i + 1: RecordedCall(usage=one, model=MODEL) for i, one in enumerate(usage)}
    return RecordedConversation(
        id="one",
        source="x",
        messages=tuple(messages),
        times=times,
        recorded=more.pop("recorded", calls),
        model=MODEL,
        **more,
    )


def test_each_part_of_a_call_is_paid_at_its_list_price():
    usage = Usage(
        input=1_111_000,
        output=1_000,
        cache_read=1_000_000,
        cache_write=110_000,
        cache_write_long=100_000,
    )
    payments = Payments()
    payments.add(session(usage))
    dollars = payments.to_json()["paid"]["dollars"]
    assert dollars == pytest.approx(
        {
            "fresh": 0.003,
            "cache_read": 0.3,
            "cache_write": 0.0375,
            "cache_write_long": 0.6,
            "output": 0.015,
            "total": 0.9555,
            "reread": 0.3,
            "lost": 0.0,
        }
    )


def test_a_resumed_session_is_paid_once():
    recorded = {1: RecordedCall(usage=Usage(input=1_000), model=MODEL, reply_id="msg_1")}
    one = session(Usage(input=0), recorded=recorded)
    payments = Payments()
    payments.add(one)
    payments.add(replace(one, id="resumed"))
    assert payments.total.calls == 1
    assert payments.total.usage.input == 1_000


def test_kinds_are_told_apart_and_added():
    payments = Payments()
    for kind in ("Claude Code", "Codex", "Codex"):
        payments.add(replace(session(Usage(input=1_000)), kind=kind, id=kind))
    assert {kind: paid.calls for kind, paid in payments.by_kind.items()} == {
        "Claude Code": 1,
        "Codex": 2,
    }
    assert payments.total.total == pytest.approx(3 * 0.003)


def test_an_output_that_was_counted_too_early_is_replaced_by_the_size_of_the_reply():
    reply = make_text_message("assistant", "word " * 800)
    one = replace(
        session(Usage(input=10, output=1)), messages=(make_text_message("user", "x"), reply)
    )
    payments = Payments()
    payments.add(one)
    assert payments.total.usage.output == 1_000


def test_calls_without_usage_or_price_are_counted_apart():
    payments = Payments()
    payments.add(conversation("bare", 2))
    unknown = {1: RecordedCall(usage=Usage(input=5_000), model="somebody/unheard-of")}
    payments.add(session(Usage(input=0), recorded=unknown))
    total = payments.total
    assert (total.calls, total.calls_without_usage, total.calls_without_price) == (1, 3, 1)
    assert total.total == 0


WARM = Usage(input=50_000, cache_read=0, cache_write=50_000)


@pytest.mark.parametrize(
    ("usage", "pause", "edited", "cause"),
    [
        (Usage(input=51_000, cache_read=50_000, cache_write=1_000), 10, False, None),
        (Usage(input=51_000, cache_read=0, cache_write=51_000), 301, False, "pause"),
        (Usage(input=51_000, cache_read=0, cache_write=51_000), 10, False, "head"),
        (Usage(input=51_000, cache_read=20_000, cache_write=31_000), 10, True, "edit"),
        (Usage(input=30_000, cache_read=20_000, cache_write=10_000), 10, False, "edit"),
        (Usage(input=51_000, cache_read=0, cache_write=51_000), None, False, "unknown"),
    ],
)
def test_a_break_has_the_cause_that_the_log_shows(usage, pause, edited, cause):
    times = None if pause is None else (0.0, 0.0, float(pause), float(pause))
    one = session(WARM, usage, times=times)
    one = replace(one, recorded={**one.recorded, 3: replace(one.recorded[3], edited=edited)})
    breaks = find_cache_breaks(one)
    assert [found.cause for found in breaks.values()] == ([cause] if cause else [])


def test_another_model_has_another_cache():
    one = session(WARM, Usage(input=51_000, cache_write=51_000), times=(0.0, 0.0, 9.0, 9.0))
    other = replace(one.recorded[3], model="claude-opus-4-5")
    assert find_cache_breaks(replace(one, recorded={**one.recorded, 3: other}))[3].cause == "model"


def test_a_cache_for_an_hour_outlives_a_pause_of_six_minutes():
    hour = replace(WARM, cache_write_long=50_000)
    again = Usage(input=51_000, cache_read=30_000, cache_write=21_000)
    short, long = (
        find_cache_breaks(session(first, again, times=(0.0, 0.0, 360.0, 360.0)))[3].cause
        for first in (WARM, hour)
    )
    assert (short, long) == ("pause", "head")


def test_a_compaction_is_a_break_at_the_start_of_the_next_part():
    one = session(Usage(input=40_000, cache_read=15_000, cache_write=25_000), part=2)
    (found,) = find_cache_breaks(one).values()
    assert (found.cause, found.tokens) == ("compaction", 25_000)


def test_a_break_costs_the_difference_between_writing_and_reading():
    payments = Payments()
    lost = Usage(input=51_000, cache_write=51_000)
    payments.add(session(WARM, lost, times=(0.0, 0.0, 999.0, 999.0)))
    extra = 50_000 * (1.25 - 0.1) * 3 / 1_000_000
    assert payments.lost == {"pause": pytest.approx(extra)}
    assert payments.total.reread == pytest.approx(extra)  # nothing was read from the cache


def results_session(*calls: ToolCall, chars: int) -> RecordedConversation:
    """A session in which each call returns so many characters, with two replies after them."""
    messages = [make_text_message("user", "x")]
    for call in calls:
        result = ToolResult(call_id=call.id, content=(Text(text="x" * chars),))
        messages += [
            Message(role="assistant", parts=(call,)),
            Message(role="tool", parts=(result,)),
        ]
    messages += [make_text_message("assistant", "x") for _ in range(2)]
    recorded = {
        index: RecordedCall(usage=Usage(input=9_000), model=MODEL)
        for index, message in enumerate(messages)
        if message.role == "assistant"
    }
    return replace(session(WARM), messages=tuple(messages), recorded=recorded)


def test_a_large_result_costs_a_write_and_then_a_read_in_each_later_call():
    payments = Payments()
    payments.add(results_session(ToolCall(id="c", name="Bash", arguments="{}"), chars=40_000))
    (filling,) = payments.fillings
    assert (filling.tool, filling.results, filling.tokens, filling.calls) == ("Bash", 1, 10_000, 2)
    assert filling.dollars == pytest.approx(10_000 * (1.25 + 0.1) * 3 / 1e6)


def test_results_of_one_file_that_is_read_again_and_again_are_added_up():
    reads = [
        ToolCall(id=f"c{number}", name="Read", arguments='{"file_path": "a.py"}')
        for number in range(3)
    ]
    payments = Payments()
    payments.add(results_session(*reads, chars=400))
    (filling,) = payments.fillings
    assert (filling.file, filling.results, filling.tokens) == ("a.py", 3, 300)


def test_a_tool_that_any_part_of_a_session_called_is_no_tool_to_remove():
    tools = tuple({"name": name, "description": "d" * 400} for name in ("read", "a", "b"))
    first = replace(conversation("c", 4), tools=tools)
    second = replace(first, id="c 2", part=2, messages=first.messages[:1])
    payments = Payments()
    payments.add(first)
    payments.add(second)
    unused = dict(payments.tools.list_never_called())
    assert sorted(unused) == ["a", "b"]
    assert unused["a"].sessions == {first.session}
    assert 100 < unused["a"].size < 200
    assert unused["a"].tokens == unused["a"].size * payments.tools.model_calls
