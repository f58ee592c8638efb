"""What happens in a turn: the values that `on_event` hears."""

from __future__ import annotations

from trimtab.session.events import (
    AssistantReplied,
    ContextEdited,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    SummaryFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    UserNotice,
)
from trimtab.session.tools import OnEvent

__all__ = [
    "AssistantReplied",
    "ContextEdited",
    "ModelCallFinished",
    "ModelCallRetried",
    "ModelCallStarted",
    "OnEvent",
    "SummaryFinished",
    "TextDelta",
    "ToolFinished",
    "ToolStarted",
    "TurnEvent",
    "TurnFailed",
    "TurnFinished",
    "TurnStarted",
    "UserNotice",
]
