"""Trimtab decides, before every model call of a long-lived agent, what the model sees.

The names listed here are public: what a program types that uses the library. So are the names that
these packages list; everything else may change in any release.

- `trimtab.errors`: the exceptions
- `trimtab.events`: what happens in a turn
- `trimtab.types`: types for annotations
- `trimtab.models`: what is known about models
- `trimtab.summaries`: summaries that a model writes
- `trimtab.policies`: for a policy of your own
- `trimtab.log`: the events of a log
- `trimtab.stores`: files and databases for logs
- `trimtab.providers`: models through their SDKs
- `trimtab.observe`: traces and log lines
- `trimtab.replay`: what recorded conversations cost, and would have cost
- `trimtab.testing`: stand-ins for your own tests
- `trimtab.integrations`: modules for frameworks
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab.checking import check as check
    from trimtab.context import Context as Context
    from trimtab.engine.log.event import Usage as Usage
    from trimtab.engine.log.message import Media as Media
    from trimtab.engine.log.message import Message as Message
    from trimtab.engine.log.message import Text as Text
    from trimtab.engine.log.message import ToolCall as ToolCall
    from trimtab.engine.log.message import ToolResult as ToolResult
    from trimtab.engine.log.message import make_text_message as make_text_message
    from trimtab.engine.log.redaction import redactor as redactor
    from trimtab.engine.prompt.report import ContextReport as ContextReport
    from trimtab.engine.prompt.report import RequestPreview as RequestPreview
    from trimtab.engine.prompt.shown_messages import ShownMessage as ShownMessage
    from trimtab.engine.prompt.shown_messages import View as View
    from trimtab.engine.recall.tools import RECALL_TOOLS as RECALL_TOOLS
    from trimtab.engine.recall.transcript import LoggedMessage as LoggedMessage
    from trimtab.fitting import FitResult as FitResult
    from trimtab.fitting import fit as fit
    from trimtab.session.function_tool import tool as tool
    from trimtab.session.session import Session as Session
    from trimtab.session.tools import Tool as Tool
    from trimtab.session.tools import ToolError as ToolError
    from trimtab.session.tools import ToolInvocation as ToolInvocation
    from trimtab.session.turn import run_turn as run_turn
    from trimtab.shortening import ShortenedText as ShortenedText
    from trimtab.shortening import shorten as shorten
    from trimtab.verbs.compacting import Compaction as Compaction
    from trimtab.verbs.notices import EditNotice as EditNotice
    from trimtab.verbs.rewinding import UndoOutcome as UndoOutcome

__version__ = "0.1.0"
"""The version of this release."""

_HOMES = {
    "Context": "context",
    "ContextReport": "engine.prompt.report",
    "RequestPreview": "engine.prompt.report",
    "View": "engine.prompt.shown_messages",
    "ShownMessage": "engine.prompt.shown_messages",
    "EditNotice": "verbs.notices",
    "UndoOutcome": "verbs.rewinding",
    "fit": "fitting",
    "FitResult": "fitting",
    "LoggedMessage": "engine.recall.transcript",
    "check": "checking",
    "shorten": "shortening",
    "ShortenedText": "shortening",
    "RECALL_TOOLS": "engine.recall.tools",
    "redactor": "engine.log.redaction",
    "Message": "engine.log.message",
    "Text": "engine.log.message",
    "Media": "engine.log.message",
    "ToolCall": "engine.log.message",
    "ToolResult": "engine.log.message",
    "make_text_message": "engine.log.message",
    "Usage": "engine.log.event",
    "Session": "session.session",
    "Compaction": "verbs.compacting",
    "run_turn": "session.turn",
    "tool": "session.function_tool",
    "Tool": "session.tools",
    "ToolError": "session.tools",
    "ToolInvocation": "session.tools",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
