"""Calls and results of the Responses API are of many kinds, and those of a pair agree."""

import pytest

from trimtab import Context
from trimtab.dialects import get_dialect
from trimtab.engine.log.edits import erase_message_payload
from trimtab.engine.log.event import ModelCall
from trimtab.engine.log.message import Message, Text, ToolResult

responses = get_dialect("openai_responses")
CUSTOM = {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select 1"}
PRESSED = {"type": "computer_call", "call_id": "c1", "action": {"type": "wait"}, "status": "done"}


def answered(kind, output):
    return {"type": f"{kind}_output", "call_id": "c1", "output": output}


@pytest.mark.parametrize(
    ("call", "told", "sent"),
    [
        (CUSTOM, "rows", [CUSTOM, answered("custom_tool_call", "rows")]),
        (
            PRESSED,
            "[no result]",
            [
                {
                    "type": "function_call",
                    "call_id": "c1",
                    "name": "computer",
                    "arguments": '{"action":{"type":"wait"}}',
                },
                answered("function_call", "[no result]"),
            ],
        ),
    ],
)
def test_a_result_is_of_the_kind_that_its_call_is(call, told, sent):
    """A mask, or a repair of what was interrupted, does not say of which kind it is."""
    result = Message(role="tool", parts=(ToolResult(call_id="c1", content=(Text(text=told),)),))
    items = [
        block.body
        for block in responses.render_round_blocks([responses.parse_message(call), result])
    ]
    assert items == sent
    assert responses.find_request_errors({"model": "gpt-5", "input": items}) == []


def test_the_result_of_an_erased_call_is_of_the_kind_that_is_left():
    call = erase_message_payload(responses.parse_message(PRESSED), None)
    screen = {"type": "computer_screenshot", "image_url": "https://example.com/x.png"}
    result = responses.parse_message(answered("computer_call", screen))
    items = [block.body for block in responses.render_round_blocks([call, result])]
    assert [item["type"] for item in items] == ["function_call", "function_call_output"]
    assert "computer_screenshot" in items[1]["output"]
    assert responses.find_request_errors({"model": "gpt-5", "input": items}) == []


@pytest.mark.parametrize(
    "strange",
    [
        {"type": "of_tomorrow", "call_id": ["c1"]},
        {"type": "of_tomorrow", "call_id": "c1"},
        {"id": "i1", "call_id": "c1"},
    ],
)
def test_what_is_neither_call_nor_result_goes_on_as_it_came(strange):
    items = [CUSTOM, strange]
    result = Message(role="tool", parts=(ToolResult(call_id="c1", content=(Text(text="rows"),)),))
    [message] = responses.parse_history(items)
    sent = [block.body for block in responses.render_round_blocks([message, result])]
    assert sent == [*items, answered("custom_tool_call", "rows")]


def test_a_result_that_was_made_up_is_rebuilt_in_the_kind_of_its_call():
    context = Context("gpt-5", dialect="openai_responses")
    context.add({"role": "user", "content": "How many rows?"})
    context.add(CUSTOM)
    context.add({"role": "user", "content": "Stop."})
    sent = context.request()
    kinds = [item.get("type") for item in sent["input"]]
    assert kinds == [None, "custom_tool_call", "custom_tool_call_output", None]
    [call] = [event.seq for event in context.events if isinstance(event.body, ModelCall)]
    assert Context.load(context.dump()).rebuild_request(call) == sent
