"""What a turn leaves open when a person stops it is closed, so that nothing of it runs later."""

from __future__ import annotations

from trimtab.core.message import Message, Text, ToolResult
from trimtab.session.session import Session

NOT_RUN = "[not run: the user stopped the turn]"
"""What stands for the result of a call that had not begun."""
STOPPED = "[stopped by the user while it ran; what it has done until then is unknown]"
"""What stands for the result of a tool that was running."""


async def close_calls(session: Session) -> int:
    """Give every call without a result one that says why there is none; returns how many.

    Else the next message would first have them run: a crash must not lose them, but a person who
    stops a turn wants just that.
    """
    closed = 0
    while waiting := session.window.open_calls():
        call = waiting[0]
        # Keys end with the call's own id; the two texts differ for the model's sake alone.
        began = any(key.endswith(f"/{call.id}") for key in session.window.started)
        text = Text(text=STOPPED if began else NOT_RUN)
        result = ToolResult(call_id=call.id, content=(text,), is_error=True)
        await session.add(Message(role="tool", parts=(result,)))
        closed += 1
    return closed
