"""Calls that never got their results get one each, so that the history is valid again."""

from __future__ import annotations

from trimtab.core.event import Repair
from trimtab.core.message import Message, Text, ToolResult
from trimtab.core.tokens import sizes_of
from trimtab.core.window import Window

NO_RESULT = "[no result: the call was interrupted]"
"""What stands for the result of a call that never got one."""


def repairs_of(window: Window) -> list[Repair]:
    """One for each call of the last round that is open."""
    made: list[Repair] = []
    for pairing in window.open_calls():
        result = ToolResult(call_id=pairing.id, content=(Text(text=NO_RESULT),), is_error=True)
        message = Message(role="tool", parts=(result,))
        sizes = sizes_of(message, window.counter)
        made.append(Repair(message=message, sizes=sizes, why="no result came"))
    return made
