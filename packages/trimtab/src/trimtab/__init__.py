"""Trimtab decides, before every model call of a long-lived agent, what the model sees.

The names listed here are public, and so are the names that `trimtab.stores`, `trimtab.providers`,
`trimtab.testing`, `trimtab.observe` and `trimtab.replay` list. Everything else may change in any
release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.catalog import ModelInfo as ModelInfo
    from trimtab.catalog import ModelInfoValues as ModelInfoValues
    from trimtab.catalog import find_makers_cheap_model as find_makers_cheap_model
    from trimtab.catalog import resolve_model_info as resolve_model_info
    from trimtab.context import Context as Context
    from trimtab.context import UndoOutcome as UndoOutcome
    from trimtab.dialects import DialectName as DialectName
    from trimtab.dialects.media_validation import UnsupportedMedia as UnsupportedMedia
    from trimtab.edit_notices import EditNotice as EditNotice
    from trimtab.errors import ContextInUse as ContextInUse
    from trimtab.errors import ErasedError as ErasedError
    from trimtab.errors import HistoryNotInMemory as HistoryNotInMemory
    from trimtab.errors import RequestChangedError as RequestChangedError
    from trimtab.errors import SessionExists as SessionExists
    from trimtab.errors import SessionNotFound as SessionNotFound
    from trimtab.errors import StaleOwner as StaleOwner
    from trimtab.errors import StoreError as StoreError
    from trimtab.errors import TrimtabError as TrimtabError
    from trimtab.errors import UnusableSummary as UnusableSummary
    from trimtab.fitting import FitResult as FitResult
    from trimtab.fitting import fit as fit
    from trimtab.log.event import Edit as Edit
    from trimtab.log.event import Event as Event
    from trimtab.log.event import SummaryAttempt as SummaryAttempt
    from trimtab.log.event import Usage as Usage
    from trimtab.log.message import Media as Media
    from trimtab.log.message import Message as Message
    from trimtab.log.message import Text as Text
    from trimtab.log.message import ToolCall as ToolCall
    from trimtab.log.message import ToolResult as ToolResult
    from trimtab.log.message import make_text_message as make_text_message
    from trimtab.options import ContextOptions as ContextOptions
    from trimtab.policy.budget import Budget as Budget
    from trimtab.policy.config import PolicyLimits as PolicyLimits
    from trimtab.policy.guard import CannotFit as CannotFit
    from trimtab.policy.planning.plan import Decision as Decision
    from trimtab.policy.planning.plan import Plan as Plan
    from trimtab.policy.planning.plan import Policy as Policy
    from trimtab.policy.planning.plan import TextCap as TextCap
    from trimtab.policy.presets import PolicyName as PolicyName
    from trimtab.policy.summary_requests import SummaryRequest as SummaryRequest
    from trimtab.policy.view import WindowView as WindowView
    from trimtab.prompt.context_report import ContextReport as ContextReport
    from trimtab.prompt.context_report import RequestPreview as RequestPreview
    from trimtab.prompt.shown_messages import ShownMessage as ShownMessage
    from trimtab.providers.protocol_and_failures import ProviderError as ProviderError
    from trimtab.redaction import redactor as redactor
    from trimtab.request_check import check as check
    from trimtab.request_types import Request as Request
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
    from trimtab.window.window import Window as Window

__version__ = "0.1.0"

__all__ = [
    "AssistantReplied",
    "Budget",
    "CannotFit",
    "Compaction",
    "Context",
    "ContextEdited",
    "ContextInUse",
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
    "AssistantReplied": "session.events",
    "Budget": "policy.budget",
    "CannotFit": "policy.guard",
    "Compaction": "session.session",
    "Context": "context",
    "ContextEdited": "session.events",
    "ContextInUse": "errors",
    "ContextOptions": "options",
    "ContextReport": "prompt.context_report",
    "Decision": "policy.planning.plan",
    "DialectName": "dialects",
    "Edit": "log.event",
    "EditNotice": "edit_notices",
    "ErasedError": "errors",
    "Event": "log.event",
    "FitResult": "fitting",
    "HistoryNotInMemory": "errors",
    "Media": "log.message",
    "Message": "log.message",
    "ModelCallFinished": "session.events",
    "ModelCallRetried": "session.events",
    "ModelCallStarted": "session.events",
    "ModelInfo": "catalog",
    "ModelInfoValues": "catalog",
    "Plan": "policy.planning.plan",
    "Policy": "policy.planning.plan",
    "PolicyLimits": "policy.config",
    "PolicyName": "policy.presets",
    "ProviderError": "providers.protocol_and_failures",
    "Request": "request_types",
    "RequestChangedError": "errors",
    "RequestPreview": "prompt.context_report",
    "Session": "session.session",
    "SessionExists": "errors",
    "SessionNotFound": "errors",
    "ShownMessage": "prompt.shown_messages",
    "StaleOwner": "errors",
    "StoreError": "errors",
    "Summariser": "session.summariser",
    "SummaryAttempt": "log.event",
    "SummaryFinished": "session.events",
    "SummaryRequest": "policy.summary_requests",
    "SummaryResult": "session.summariser",
    "Text": "log.message",
    "TextCap": "policy.planning.plan",
    "TextDelta": "session.events",
    "Tool": "session.tools",
    "ToolCall": "log.message",
    "ToolError": "session.tools",
    "ToolFinished": "session.events",
    "ToolInvocation": "session.tools",
    "ToolResult": "log.message",
    "ToolStarted": "session.events",
    "TrimtabError": "errors",
    "TurnEvent": "session.events",
    "TurnFailed": "session.events",
    "TurnFinished": "session.events",
    "TurnStarted": "session.events",
    "UndoOutcome": "context",
    "UnsupportedMedia": "dialects.media_validation",
    "UnusableSummary": "errors",
    "Usage": "log.event",
    "UserNotice": "session.events",
    "Window": "window.window",
    "WindowView": "policy.view",
    "check": "request_check",
    "find_makers_cheap_model": "catalog",
    "fit": "fitting",
    "make_summary": "session.summariser",
    "make_text_message": "log.message",
    "redactor": "redaction",
    "resolve_model_info": "catalog",
    "run_turn": "session.turn",
    "tool": "session.function_tool",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that `import trimtab` is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab' has no attribute {name!r}")
    found = getattr(import_module(f"trimtab.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
