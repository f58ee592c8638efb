"""A summary opened by one level, in memory."""

import json

from tests.conversations import chat, prose, talk
from tests.recording import request_anyway
from trimtab.engine.log.edits import HandleTarget
from trimtab.engine.log.event import DEFAULT_RECALL_HINT as HINT
from trimtab.engine.log.event import Edit
from trimtab.engine.log.message import ToolCall, make_text_message
from trimtab.engine.recall.expansion import expand_summary
from trimtab.engine.recall.lines import MAX_ANSWER_CHARS
from trimtab.engine.recall.tools import answer_recall_call


def asks(context, handle, **how):
    call = ToolCall(id="c", name="recall", arguments=json.dumps({"handle": handle, **how}))
    return answer_recall_call(context.window, call)


def test_a_summary_of_a_summary_names_what_it_covers():
    context = chat("rolling", recall=True)
    talk(context, 8, size=200)
    request_anyway(context)
    first = context.window.summary
    talk(context, 8, size=200, start=8)
    request_anyway(context)
    last = context.window.summary
    assert first is not None
    assert last is not None
    assert last.prior > 0
    told = asks(context, last.handle)
    assert told.splitlines()[0] == f"[a summary of {last.handle}; it was made from:]"
    assert "[the summary before it · recall m" in told
    assert "user: question" in told
    assert len(told) <= MAX_ANSWER_CHARS
    deepest = asks(context, first.handle)
    assert "the summary before it" not in deepest
    assert "m2 user: question 0" in deepest


def test_lines_of_a_summary_s_span_are_those_of_its_messages():
    context = chat("rolling", recall=True)
    talk(context, 8, size=200)
    request_anyway(context)
    assert context.window.summary is not None
    assert asks(context, context.window.summary.handle, lines="1-2") == "[m2 user]\n question 0"


def test_a_shortened_summary_opens_as_it_was_first_made():
    first = Edit(op="summarise", first=2, last=9, text="all of it")
    short = Edit(op="summarise", first=2, last=9, text="…it", prior=12)
    said = {2: make_text_message("user", "Hello.")}
    told = expand_summary(
        HandleTarget(first_seq=2, last_seq=9),
        [short, first],
        said,
        max_chars=1_000,
        recall_hint=HINT,
    )
    assert told is not None
    assert told.splitlines() == [
        "[the summary as it was first made]",
        " all of it",
        "[a summary of m2-m9; it was made from:]",
        "m2 user: Hello.",
    ]


def test_of_very_many_messages_the_middle_is_named():
    summary = Edit(op="summarise", first=1, last=2_000, text="all")
    said = {seq: make_text_message("user", prose(200, f"line {seq}")) for seq in range(1, 2_001)}
    told = expand_summary(
        HandleTarget(first_seq=1, last_seq=2_000),
        [summary],
        said,
        max_chars=MAX_ANSWER_CHARS,
        recall_hint=HINT,
    )
    assert told is not None
    assert len(told) <= MAX_ANSWER_CHARS
    assert "m1 user: line 1" in told
    assert "m2000 user: line 2000" in told
    assert "[… recall m" in told
