"""Tool calls that wait for their results.

This module finds what belongs to them and what answers them. It also makes substitutes for results
that never came, so that the history is valid again.
"""

from __future__ import annotations

from trimtab.engine.log.erase import RECALL_TOOL_NAMES
from trimtab.engine.log.event import ToolResultRepair
from trimtab.engine.log.message import Message, Text, ToolResult
from trimtab.engine.tokens.counter import measure_message_parts
from trimtab.engine.window.window import Window

MISSING_RESULT_TEXT = "[no result: the call was interrupted]"
"""The substitute for the result of a call that never got one."""


def continues_open_assistant_reply(window: Window, assistant_item: Message) -> bool:
    """Whether an assistant's item belongs to the open calls, because items arrive one by one."""
    last = window.conversation.rounds[-1].entries[-1] if window.conversation.rounds else None
    return (
        last is not None
        and assistant_item.origin == "openai_responses"
        and last.message.role == "assistant"
        and last.message.origin == assistant_item.origin
    )


def is_recall_answer(window: Window, message: Message) -> bool:
    """Whether a message only answers calls of the recall tools."""
    if not window.settings.recall or not message.results:
        return False
    recall_ids = {
        call.id for call in window.conversation.open_calls() if call.name in RECALL_TOOL_NAMES
    }
    return all(isinstance(p, ToolResult) and p.call_id in recall_ids for p in message.parts)


def build_repairs_for_open_calls(window: Window) -> list[ToolResultRepair]:
    """Return a substitute result for each open call of the last round."""
    repairs: list[ToolResultRepair] = []
    for pairing in window.conversation.open_calls():
        result = ToolResult(
            call_id=pairing.id, content=(Text(text=MISSING_RESULT_TEXT),), is_error=True
        )
        message = Message(role="tool", parts=(result,))
        sizes = measure_message_parts(message, window.counter)
        repairs.append(ToolResultRepair(message=message, sizes=sizes, why="no result came"))
    return repairs
