"""Messages that are edited keep what the edit does not touch."""

from __future__ import annotations

import gc
import json
from typing import Any
from weakref import ref

import pytest

pytest.importorskip("langchain", reason="LangChain is not installed here")

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from tests.pictures import png, text
from trimtab import Context
from trimtab.integrations.langchain import build_messages

PICTURE = {"type": "image", "base64": text(png(64, 64)), "mime_type": "image/png"}
LONG = "word " * 9_000


def show(messages: list[BaseMessage], **options: Any) -> list[BaseMessage]:
    """The messages that a small window leaves."""
    context = Context("gpt-4o", context_window=6_000, max_output_tokens=500, **options)
    context.sync(messages)
    context.request()
    return build_messages(context.view(), messages)


def test_what_fits_is_sent_as_the_caller_s_own_objects():
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    said = [
        SystemMessage("Be careful."),
        HumanMessage("Hello"),
        AIMessage([thinking, {"type": "text", "text": "Hi."}]),
        HumanMessage([{"type": "text", "text": "Look."}, PICTURE]),
    ]
    shown = show(said)
    assert len(shown) == len(said)
    assert all(one is other for one, other in zip(shown, said, strict=True))


def test_a_picture_stays_beside_a_text_that_was_cut():
    said = [HumanMessage([{"type": "text", "text": LONG}, PICTURE], id="h1", name="ada")]
    [shown] = show(said)
    assert shown is not said[0]
    assert (shown.id, shown.name) == ("h1", "ada")
    cut, picture = shown.content
    assert len(cut["text"]) < len(LONG) / 2
    assert picture is said[0].content[1]
    assert said[0].content[0]["text"] == LONG


def test_a_result_that_was_cut_keeps_artifact_name_and_status():
    artifact = object()
    call = {"name": "read", "args": {}, "id": "c1"}
    result = ToolMessage(
        LONG, tool_call_id="c1", name="read", artifact=artifact, status="error", id="t1"
    )
    said = [HumanMessage("Read."), AIMessage("", tool_calls=[call]), result]
    *rest, shown = show(said)
    assert rest[0] is said[0]
    assert rest[1] is said[1]
    assert isinstance(shown, ToolMessage)
    assert len(shown.text) < len(LONG) / 2
    assert shown.artifact is artifact
    assert (shown.name, shown.status, shown.id) == ("read", "error", "t1")


def test_a_result_keeps_its_picture_beside_a_text_that_was_cut():
    call = {"name": "read", "args": {}, "id": "c1"}
    result = ToolMessage([{"type": "text", "text": LONG}, PICTURE], tool_call_id="c1")
    shown = show([HumanMessage("Read."), AIMessage("", tool_calls=[call]), result])[-1]
    assert shown is not result
    assert PICTURE in shown.content
    assert len(json.dumps(shown.content)) < len(LONG) / 2


def test_an_edited_copy_is_kept_as_long_as_the_caller_s_message():
    said = [HumanMessage(LONG)]
    context = Context("gpt-4o", context_window=6_000, max_output_tokens=500)
    context.sync(said)
    context.request()
    view = context.view()
    [shown] = build_messages(view, said)
    [again] = build_messages(view, said)
    assert again is shown is not said[0]
    [other] = build_messages(view, [HumanMessage(LONG, name="ada")])
    assert other.name == "ada"
    kept = ref(shown)
    del shown, again, said, context
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("block", [True, False])
def test_arguments_that_were_cut_are_cut_in_calls_and_blocks(block):
    arguments = {"path": "a.py", "content": LONG}
    call = {"name": "write", "args": arguments, "id": "c1", "type": "tool_call"}
    use = {"type": "tool_use", "id": "c1", "name": "write", "input": arguments}
    said: list[BaseMessage] = [
        HumanMessage("Write."),
        AIMessage([use] if block else "", tool_calls=[call]),
        ToolMessage("written", tool_call_id="c1"),
        AIMessage("Done."),
        HumanMessage("Thanks. " * 40),
    ]
    shown = show(said)
    replies = [each for each in shown if isinstance(each, AIMessage) and each.tool_calls]
    for reply in replies:
        assert len(json.dumps([reply.content, reply.tool_calls])) < len(LONG) / 2
    assert len(json.dumps([each.content for each in shown])) < len(LONG) / 2


def test_a_missing_result_is_made_good():
    call = {"name": "read", "args": {}, "id": "c1"}
    said = [HumanMessage("Read."), AIMessage("", tool_calls=[call]), HumanMessage("Hello?")]
    shown = show(said)
    repaired = [each for each in shown if isinstance(each, ToolMessage)]
    assert [each.tool_call_id for each in repaired] == ["c1"]
    assert shown.index(repaired[0]) == 2
    assert shown[0] is said[0]
    assert shown[-1] is said[-1]
