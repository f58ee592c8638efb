"""With `budget_note` the model reads how full its window is, and what was hidden last."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conversations import prose, ticking
from trimtab import Context, Session
from trimtab.testing import MemoryStore

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
}
NOTE = re.compile(r"\[context window: (\d+)% of ([\d,]+) tokens used( · last hidden: [^\]]*)?\]")


def make_context(dialect: Any = "anthropic", **options: Any) -> Context:
    model = MODELS[dialect]
    options = {"budget_note": True, "recall": True, "policy": "layered", **options}
    return Context(model, dialect=dialect, clock=ticking(), **options)


def add_round(context: Context, number: int, size: int = 2_000) -> None:
    call = {"id": f"c{number}", "type": "function"}
    function = {"name": "read", "arguments": "{}"}
    context.add({"role": "assistant", "tool_calls": [{**call, "function": function}]})
    content = prose(size, f"result {number}")
    context.add({"role": "tool", "tool_call_id": f"c{number}", "content": content})


def messages_of(request: dict[str, Any]) -> list[Any]:
    return request["messages"] if "messages" in request else request["input"]


def blocks_without_tail(request: dict[str, Any]) -> list[str]:
    """Every block of every message in order, without cache marks and without the note."""
    texts: list[str] = []
    for message in messages_of(request):
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{**message, "content": content}]
        texts += [str({**block, "cache_control": None}) for block in blocks]
    assert NOTE.search(texts[-1])
    return texts[:-1]


@pytest.mark.parametrize("dialect", MODELS)
def test_the_note_ends_each_request_and_never_breaks_the_prefix(dialect):
    context = make_context(dialect)
    context.add({"role": "user", "content": "Read."})
    before: list[str] = []
    for number in range(4):
        request = context.request()
        blocks = blocks_without_tail(request)
        assert blocks[: len(before)] == before
        assert len(NOTE.findall(str(request))) == 1
        before = blocks
        add_round(context, number)


def test_the_note_comes_after_the_last_cache_mark_and_after_the_callers_own_tail():
    context = make_context()
    context.add({"role": "user", "content": "Read."})
    *_, last = context.request(volatile="It is noon.")["messages"]
    *marked, tail = last["content"]
    assert "cache_control" in marked[-1]
    assert "cache_control" not in tail
    assert tail["text"].startswith("It is noon.\n\n[context window: 0% of 200,000 tokens used")


def test_the_note_says_the_share_of_the_window_and_the_handle_of_what_was_hidden_last():
    limits = {"tool_result_keep_first": 0, "tool_result_keep_last": 1}
    context = make_context(limits=limits, max_input_tokens=20_000, max_output_tokens=1_000)
    context.add({"role": "user", "content": "Read."})
    for number in range(3):
        add_round(context, number, size=20_000)
        context.request()
    request = context.request()
    note = NOTE.search(str(request["messages"][-1]["content"][-1]))
    assert note is not None
    used = context.report().used
    assert int(note[1]) == pytest.approx(100 * used / 20_000, abs=2)
    handle = re.search(r"last hidden: a tool result · recall (m\d+\.\d+)\]", note[0])
    assert handle is not None
    assert f"· recall {handle[1]}]" in str(request["messages"][:-1]), "its placeholder"
    assert context.recall(handle[1]).startswith("result 1")


def test_without_recall_tools_the_note_names_no_handle():
    context = make_context(max_input_tokens=20_000, recall=False)
    context.add({"role": "user", "content": "Read."})
    for number in range(3):
        add_round(context, number, size=20_000)
    assert "used · last hidden: 2 messages]" in str(context.request())


def test_what_was_revealed_or_undone_is_no_longer_named():
    context = make_context(policy="full")
    context.add({"role": "user", "content": "Read."})
    for number in range(12):
        add_round(context, number, size=9_000)
    context.add({"role": "user", "content": "Go on."})
    position = context.window.seq
    (*_, edit) = context.compact().edits
    assert f"recall {edit.handle}]" in str(context.request()["messages"][-1])
    context.rewind(position)
    assert "last hidden" not in str(context.request())
    for edit in context.compact().edits:
        context.reveal(edit.handle)
    assert "last hidden" not in str(context.request())


@pytest.mark.parametrize("dialect", MODELS)
def test_a_second_request_is_the_same_and_a_past_one_is_rebuilt_with_its_note(dialect):
    context = make_context(dialect)
    context.add({"role": "user", "content": "Read."})
    request = context.request()
    events = len(context.events)
    assert context.request() == request
    assert len(context.events) == events
    call = context.window.last_call
    add_round(context, 1)
    assert context.request() != request
    assert call is not None
    assert context.rebuild_request(call.seq) == request
    loaded = Context.load(context.events)
    assert NOTE.search(str(loaded.request()))


def test_the_note_hides_nothing_and_is_left_out_of_a_request_that_has_no_room_for_it():
    has_note = set[bool]()
    for size in range(7_300, 7_520, 10):
        texts: list[str] = []
        for budget_note in (False, True):
            options = {"max_input_tokens": 2_500, "max_output_tokens": 256, "recall": False}
            context = make_context(**options, budget_note=budget_note)
            context.add({"role": "user", "content": prose(size)})
            request = context.request()
            texts.append(request["messages"][0]["content"][0]["text"])
            assert request["max_tokens"] == 256
        assert texts[0] == texts[1]
        has_note.add(NOTE.search(str(request)) is not None)
    assert has_note == {True, False}


def test_a_reply_that_the_model_continues_stays_the_last_message():
    context = make_context()
    context.sync([
        {"role": "user", "content": "Write a poem."},
        {"role": "assistant", "content": "The sea"},
    ])  # fmt: skip
    assert context.request()["messages"][-1]["role"] == "assistant"


@pytest.mark.anyio
async def test_a_session_keeps_the_option_when_it_is_opened_again():
    store = MemoryStore()
    session = await Session.create(store, "s", model="claude-sonnet-4-5", budget_note=True)
    await session.add({"role": "user", "content": "Hello."})
    request = await session.request()
    assert NOTE.search(str(request))
    again = await Session.open(store, "s")
    assert NOTE.search(str(await again.request()))
    await again.configure(budget_note=False)
    assert NOTE.search(str(await again.request())) is None


def test_a_budget_note_that_is_no_flag_is_refused():
    with pytest.raises(TypeError, match="budget_note is 'yes'; it must be True or False"):
        Context("gpt-4o", budget_note="yes")  # pyright: ignore[reportArgumentType]
