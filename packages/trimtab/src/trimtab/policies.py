"""For a policy of your own: what it reads, and what it returns."""

from __future__ import annotations

from trimtab.engine.log.text_cuts import CapUnit, TextCap, TruncateStrategy
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.planning.plan import Decision, MessageSpan, Plan, Policy
from trimtab.engine.policy.request_limits import RequestLimits
from trimtab.engine.policy.view import WindowView
from trimtab.engine.tokens.counter import MediaSize, TokenCounter
from trimtab.engine.window.structure import (
    CallResultPair,
    Entry,
    Group,
    ResultKey,
    Round,
    ToolResultView,
    TurnResultKeys,
)
from trimtab.engine.window.window import Window

__all__ = [
    "Budget",
    "CallResultPair",
    "CapUnit",
    "Decision",
    "Entry",
    "Group",
    "MediaSize",
    "MessageSpan",
    "Plan",
    "Policy",
    "RequestLimits",
    "ResultKey",
    "Round",
    "TextCap",
    "TokenCounter",
    "ToolResultView",
    "TruncateStrategy",
    "TurnResultKeys",
    "Window",
    "WindowView",
]
