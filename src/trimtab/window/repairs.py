"""Calls that never got their results get one each, so that the history is valid again."""

from __future__ import annotations

from trimtab.log.event import ToolResultRepair
from trimtab.log.message import Message, Text, ToolResult
from trimtab.tokens.counter import measure_message_parts
from trimtab.window.window import Window

MISSING_RESULT_TEXT = "[no result: the call was interrupted]"
"""What stands for the result of a call that never got one."""


def build_repairs_for_open_calls(window: Window) -> list[ToolResultRepair]:
    """One for each call of the last round that is open."""
    made: list[ToolResultRepair] = []
    for pairing in window.conversation.open_calls():
        result = ToolResult(
            call_id=pairing.id, content=(Text(text=MISSING_RESULT_TEXT),), is_error=True
        )
        message = Message(role="tool", parts=(result,))
        sizes = measure_message_parts(message, window.counter)
        made.append(ToolResultRepair(message=message, sizes=sizes, why="no result came"))
    return made
