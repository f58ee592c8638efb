"""A caller changes message 40 of 400 in its own list and gives the list to `sync` again: what the
log and the next request then say, in each dialect."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from trimtab import Context
from trimtab.engine.log.event import Edit, Rewind
from trimtab.types import DialectName

pytestmark = pytest.mark.slow

Wire = dict[str, Any]
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
}
PLACE = 39
"""Where the fortieth message stands; in each dialect that is a question of the user's."""


def question(dialect: str, number: int) -> Wire:
    kind = "input_text" if dialect == "openai_responses" else "text"
    return {"role": "user", "content": [{"type": kind, "text": f"Question {number}?"}]}


def tool_round(dialect: str, number: int) -> list[Wire]:
    """A call and its result, which has a name of its own."""
    call_id, found = f"call_{number}", f"<file {number}> " + "some words of it " * 60
    match dialect:
        case "anthropic":
            use = {"type": "tool_use", "id": call_id, "name": "read", "input": {}}
            answer = {"type": "tool_result", "tool_use_id": call_id, "content": found}
            return [
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [answer]},
            ]
        case "openai_chat":
            function = {"name": "read", "arguments": "{}"}
            call = {"id": call_id, "type": "function", "function": function}
            return [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call_id, "content": found},
            ]
        case _:
            return [
                {"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": call_id, "output": found},
            ]


def long_list(dialect: str) -> list[Wire]:
    messages: list[Wire] = []
    for number in range(100):
        messages.append(question(dialect, number))
        messages += tool_round(dialect, number)
        messages.append({"role": "assistant", "content": f"Answer {number}."})
    # The fortieth is the question of round 13 with one item before it.
    messages[36:36] = [question(dialect, 1000), {"role": "assistant", "content": "Answer 1000."}]
    messages.insert(38, question(dialect, 1001))
    assert len(messages) > 400
    return messages


def edit(messages: list[Wire], dialect: str) -> None:
    messages[PLACE] = question(dialect, 2000)


def insert(messages: list[Wire], dialect: str) -> None:
    messages.insert(PLACE, question(dialect, 2000))


def delete(messages: list[Wire], dialect: str) -> None:
    del dialect, messages[PLACE]


def reorder(messages: list[Wire], dialect: str) -> None:
    """The question after that of the next round."""
    del dialect
    messages[PLACE], messages[PLACE + 4] = messages[PLACE + 4], messages[PLACE]


CHANGES = (edit, insert, delete, reorder)


@pytest.fixture(params=MODELS)
def dialect(request) -> DialectName:
    return request.param


def synced(dialect: DialectName, messages: list[Wire]) -> Context:
    context = Context(
        MODELS[dialect], dialect=dialect, context_window=20_000, max_output_tokens=1_000
    )
    context.sync(messages)
    context.request()
    return context


def files_shown(request: Wire) -> set[str]:
    return set(re.findall(r"<file \d+>", json.dumps(request)))


def rewinds(context: Context) -> int:
    return sum(isinstance(event.body, Rewind) for event in context.events)


def numbers_in(value: Any) -> list[str]:
    return re.findall(r"(?:Question|Answer|<file) \d+", json.dumps(value))


def said(context: Context) -> list[str]:
    """What the conversation says now, hidden or not, in its order."""
    return [
        number
        for entry in context.window.entries.values()
        for part in entry.message.parts
        for number in numbers_in(getattr(part, "text", ""))
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_the_list_is_followed_and_what_was_hidden_stays_hidden(dialect, change):
    messages = long_list(dialect)
    context = synced(dialect, messages)
    before = files_shown(context.request())
    assert 0 < len(before) < 30
    edits = sum(isinstance(event.body, Edit) for event in context.events)
    change(messages, dialect)
    context.sync(messages)
    assert rewinds(context) == 1
    # What is hidden is still there, in the caller's order: nothing is lost, and nothing is twice.
    assert said(context) == numbers_in(messages)
    assert sum(isinstance(event.body, Edit) for event in context.events) > edits
    shown = files_shown(context.request())
    assert {"<file 98>", "<file 99>"} <= shown <= before


def test_a_cache_mark_that_moved_changes_nothing_and_stays_where_it_was_first_seen(dialect):
    key, mark = (
        ("prompt_cache_breakpoint", {"mode": "explicit"})
        if dialect != "anthropic"
        else ("cache_control", {"type": "ephemeral"})
    )
    messages = long_list(dialect)
    messages[PLACE]["content"][0][key] = mark
    context = synced(dialect, messages)
    before, position = context.request(), context.events[-1].seq
    moved = copy.deepcopy(messages)
    del moved[PLACE]["content"][0][key]
    moved[PLACE + 4]["content"][0][key] = mark
    for check in ("newest", "all"):
        context.sync(moved, check=check)
        assert context.request() == before
    assert context.events[-1].seq == position


def test_an_object_changed_in_place_far_back_is_noticed_where_all_are_checked(dialect):
    """Comparing 400 messages each time would cost what `sync` is to save."""
    messages = long_list(dialect)
    context = synced(dialect, messages)
    messages[PLACE]["content"][0]["text"] = "Question 2000?"
    context.sync(messages)
    assert (rewinds(context), "Question 2000" in said(context)) == (0, False)
    context.sync(messages, check="all")
    assert (rewinds(context), "Question 2000" in said(context)) == (1, True)


@pytest.mark.slow
def test_an_object_changed_in_place_is_noticed_at_once_as_a_new_object(dialect):
    """A caller who puts a changed copy into the list needs no check."""
    messages = long_list(dialect)
    context = synced(dialect, messages)
    messages[PLACE] = copy.deepcopy(messages[PLACE])
    context.sync(messages)
    assert rewinds(context) == 0
    messages[PLACE] = {**messages[PLACE], "content": "Question 2000?"}
    context.sync(messages)
    assert "Question 2000" in said(context)


def test_a_new_id_says_that_a_message_was_changed():
    messages = long_list("openai_chat")
    ids = [f"id {number}" for number in range(len(messages))]
    context = Context("gpt-4o", context_window=20_000, max_output_tokens=1_000)
    context.sync(messages, ids=ids)
    messages[PLACE]["content"][0]["text"] = "Question 2000?"
    context.sync(messages, ids=ids)
    assert "Question 2000" not in said(context)
    ids[PLACE] = "another id"
    context.sync(messages, ids=ids)
    assert "Question 2000" in said(context)
