"""Calls and results of the Responses API are of many kinds, and those of a pair agree."""

import pytest

from trimtab.core.edits import erased_message
from trimtab.core.message import Message, Text, ToolResult
from trimtab.dialects import dialect

responses = dialect("openai_responses")
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
    items = [block.body for block in responses.blocks([responses.read(call), result])]
    assert items == sent
    assert responses.check({"model": "gpt-5", "input": items}) == []


def test_the_result_of_an_erased_call_is_of_the_kind_that_is_left():
    call = erased_message(responses.read(PRESSED), None)
    screen = {"type": "computer_screenshot", "image_url": "https://example.com/x.png"}
    result = responses.read(answered("computer_call", screen))
    items = [block.body for block in responses.blocks([call, result])]
    assert [item["type"] for item in items] == ["function_call", "function_call_output"]
    assert "computer_screenshot" in items[1]["output"]
    assert responses.check({"model": "gpt-5", "input": items}) == []
