"""Trimtab decides, before every model call of a long-lived agent, what the model sees.

The names listed here are public, and so are the names that `trimtab.stores`, `trimtab.providers`,
`trimtab.testing`, `trimtab.observe` and `trimtab.replay` list. Everything else may change in any
release.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.check import check as check
    from trimtab.context import Context as Context
    from trimtab.context import EditNotice as EditNotice
    from trimtab.context import UndoOutcome as UndoOutcome
    from trimtab.dialects import DialectName as DialectName
    from trimtab.dialects.media import UnsupportedMedia as UnsupportedMedia
    from trimtab.engine.log.event import Edit as Edit
    from trimtab.engine.log.event import Event as Event
    from trimtab.engine.log.event import SummaryAttempt as SummaryAttempt
    from trimtab.engine.log.event import Usage as Usage
    from trimtab.engine.log.message import Media as Media
    from trimtab.engine.log.message import Message as Message
    from trimtab.engine.log.message import Text as Text
    from trimtab.engine.log.message import ToolCall as ToolCall
    from trimtab.engine.log.message import ToolResult as ToolResult
    from trimtab.engine.log.message import make_text_message as make_text_message
    from trimtab.engine.log.redaction import redactor as redactor
    from trimtab.engine.policy.budget import Budget as Budget
    from trimtab.engine.policy.config import PolicyLimits as PolicyLimits
    from trimtab.engine.policy.guard import CannotFit as CannotFit
    from trimtab.engine.policy.planning.plan import Decision as Decision
    from trimtab.engine.policy.planning.plan import Plan as Plan
    from trimtab.engine.policy.planning.plan import Policy as Policy
    from trimtab.engine.policy.planning.plan import TextCap as TextCap
    from trimtab.engine.policy.presets import PolicyName as PolicyName
    from trimtab.engine.policy.summary_requests import SummaryRequest as SummaryRequest
    from trimtab.engine.policy.view import WindowView as WindowView
    from trimtab.engine.prompt.report import ContextReport as ContextReport
    from trimtab.engine.prompt.report import RequestPreview as RequestPreview
    from trimtab.engine.prompt.shown_messages import ShownMessage as ShownMessage
    from trimtab.engine.prompt.shown_messages import View as View
    from trimtab.engine.recall.tools import RECALL_TOOLS as RECALL_TOOLS
    from trimtab.engine.window.window import Window as Window
    from trimtab.errors import ErasedError as ErasedError
    from trimtab.errors import HistoryNotInMemory as HistoryNotInMemory
    from trimtab.errors import RequestChangedError as RequestChangedError
    from trimtab.errors import SessionExists as SessionExists
    from trimtab.errors import SessionNotFound as SessionNotFound
    from trimtab.errors import StaleOwner as StaleOwner
    from trimtab.errors import StoreError as StoreError
    from trimtab.errors import TrimtabError as TrimtabError
    from trimtab.errors import UnusableSummary as UnusableSummary
    from trimtab.fit import FitResult as FitResult
    from trimtab.fit import fit as fit
    from trimtab.models.catalog import ModelInfo as ModelInfo
    from trimtab.models.catalog import ModelInfoValues as ModelInfoValues
    from trimtab.models.catalog import find_makers_cheap_model as find_makers_cheap_model
    from trimtab.models.catalog import resolve_model_info as resolve_model_info
    from trimtab.options import ContextOptions as ContextOptions
    from trimtab.providers.base import ProviderError as ProviderError
    from trimtab.session.events import AssistantReplied as AssistantReplied
    from trimtab.session.events import ContextEdited as ContextEdited
    from trimtab.session.events import ModelCallFinished as ModelCallFinished
    from trimtab.session.events import ModelCallRetried as ModelCallRetried
    from trimtab.session.events import ModelCallStarted as ModelCallStarted
    from trimtab.session.events import SummaryFinished as SummaryFinished
    from trimtab.session.events import TextDelta as TextDelta
    from trimtab.session.events import ToolFinished as ToolFinished
    from trimtab.session.events import ToolStarted as ToolStarted
    from trimtab.session.events import TurnEvent as TurnEvent
    from trimtab.session.events import TurnFailed as TurnFailed
    from trimtab.session.events import TurnFinished as TurnFinished
    from trimtab.session.events import TurnStarted as TurnStarted
    from trimtab.session.events import UserNotice as UserNotice
    from trimtab.session.function_tool import tool as tool
    from trimtab.session.session import Compaction as Compaction
    from trimtab.session.session import Session as Session
    from trimtab.session.summariser import Summariser as Summariser
    from trimtab.session.summariser import SummaryResult as SummaryResult
    from trimtab.session.summariser import make_summary as make_summary
    from trimtab.session.tools import Tool as Tool
    from trimtab.session.tools import ToolError as ToolError
    from trimtab.session.tools import ToolInvocation as ToolInvocation
    from trimtab.session.turn import run_turn as run_turn
    from trimtab.types import Request as Request

__version__ = "0.1.0"

__all__ = [
    "RECALL_TOOLS",
    "AssistantReplied",
    "Budget",
    "CannotFit",
    "Compaction",
    "Context",
    "ContextEdited",
    "ContextOptions",
    "ContextReport",
    "Decision",
    "DialectName",
    "Edit",
    "EditNotice",
    "ErasedError",
    "Event",
    "FitResult",
    "HistoryNotInMemory",
    "Media",
    "Message",
    "ModelCallFinished",
    "ModelCallRetried",
    "ModelCallStarted",
    "ModelInfo",
    "ModelInfoValues",
    "Plan",
    "Policy",
    "PolicyLimits",
    "PolicyName",
    "ProviderError",
    "Request",
    "RequestChangedError",
    "RequestPreview",
    "Session",
    "SessionExists",
    "SessionNotFound",
    "ShownMessage",
    "StaleOwner",
    "StoreError",
    "Summariser",
    "SummaryAttempt",
    "SummaryFinished",
    "SummaryRequest",
    "SummaryResult",
    "Text",
    "TextCap",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolFinished",
    "ToolInvocation",
    "ToolResult",
    "ToolStarted",
    "TrimtabError",
    "TurnEvent",
    "TurnFailed",
    "TurnFinished",
    "TurnStarted",
    "UndoOutcome",
    "UnsupportedMedia",
    "UnusableSummary",
    "Usage",
    "UserNotice",
    "View",
    "Window",
    "WindowView",
    "__version__",
    "check",
    "find_makers_cheap_model",
    "fit",
    "make_summary",
    "make_text_message",
    "redactor",
    "resolve_model_info",
    "run_turn",
    "tool",
]

_HOMES = {
    "RECALL_TOOLS": "engine.recall.tools",
    "AssistantReplied": "session.events",
    "Budget": "engine.policy.budget",
    "CannotFit": "engine.policy.guard",
    "Compaction": "session.session",
    "Context": "context",
    "ContextEdited": "session.events",
    "ContextOptions": "options",
    "ContextReport": "engine.prompt.report",
    "Decision": "engine.policy.planning.plan",
    "DialectName": "dialects",
    "Edit": "engine.log.event",
    "EditNotice": "context",
    "ErasedError": "errors",
    "Event": "engine.log.event",
    "FitResult": "fit",
    "HistoryNotInMemory": "errors",
    "Media": "engine.log.message",
    "Message": "engine.log.message",
    "ModelCallFinished": "session.events",
    "ModelCallRetried": "session.events",
    "ModelCallStarted": "session.events",
    "ModelInfo": "models.catalog",
    "ModelInfoValues": "models.catalog",
    "Plan": "engine.policy.planning.plan",
    "Policy": "engine.policy.planning.plan",
    "PolicyLimits": "engine.policy.config",
    "PolicyName": "engine.policy.presets",
    "ProviderError": "providers.base",
    "Request": "types",
    "RequestChangedError": "errors",
    "RequestPreview": "engine.prompt.report",
    "Session": "session.session",
    "SessionExists": "errors",
    "SessionNotFound": "errors",
    "ShownMessage": "engine.prompt.shown_messages",
    "StaleOwner": "errors",
    "StoreError": "errors",
    "Summariser": "session.summariser",
    "SummaryAttempt": "engine.log.event",
    "SummaryFinished": "session.events",
    "SummaryRequest": "engine.policy.summary_requests",
    "SummaryResult": "session.summariser",
    "Text": "engine.log.message",
    "TextCap": "engine.policy.planning.plan",
    "TextDelta": "session.events",
    "Tool": "session.tools",
    "ToolCall": "engine.log.message",
    "ToolError": "session.tools",
    "ToolFinished": "session.events",
    "ToolInvocation": "session.tools",
    "ToolResult": "engine.log.message",
    "ToolStarted": "session.events",
    "TrimtabError": "errors",
    "TurnEvent": "session.events",
    "TurnFailed": "session.events",
    "TurnFinished": "session.events",
    "TurnStarted": "session.events",
    "UndoOutcome": "context",
    "UnsupportedMedia": "dialects.media",
    "UnusableSummary": "errors",
    "Usage": "engine.log.event",
    "View": "engine.prompt.shown_messages",
    "UserNotice": "session.events",
    "Window": "engine.window.window",
    "WindowView": "engine.policy.view",
    "check": "check",
    "find_makers_cheap_model": "models.catalog",
    "fit": "fit",
    "make_summary": "session.summariser",
    "make_text_message": "engine.log.message",
    "redactor": "engine.log.redaction",
    "resolve_model_info": "models.catalog",
    "run_turn": "session.turn",
    "tool": "session.function_tool",
}


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # Python binds an imported module to its package, but `fit` and `check` are functions here.
        is_function = isinstance(value, ModuleType) and name in _HOMES
        super().__setattr__(name, getattr(value, name) if is_function else value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that `import trimtab` is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab' has no attribute {name!r}")
    found = getattr(import_module(f"trimtab.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
