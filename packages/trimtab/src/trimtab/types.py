"""The types that you only annotate with: options, callbacks, and what is inside other values."""

from __future__ import annotations

from trimtab.dialects import DialectName
from trimtab.dialects.base import WireObject
from trimtab.dialects.known_history import HistoryCheck
from trimtab.dialects.media import AcceptedMedia
from trimtab.dialects.reply_recording import ReplyRecordingStream
from trimtab.engine.log.message import Extra, MediaKind, OpaqueBlock, Part, Role
from trimtab.engine.log.redaction import Redact
from trimtab.engine.policy.config import (
    Goal,
    GoalName,
    PerToolLimits,
    PolicyLimits,
    ResultTruncation,
    SummaryLimits,
    SummaryMode,
    ThresholdsPresetLimits,
)
from trimtab.engine.policy.presets import PolicyName
from trimtab.engine.prompt.report import ReportSection
from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.options import (
    ContextOptions,
    OptionChanges,
    Options,
    SessionOptions,
    Tokenizer,
)
from trimtab.request import (
    MessagesStreamRequest,
    Request,
    RequestValue,
    ResponsesStreamRequest,
)
from trimtab.session.history import HiddenTotals
from trimtab.session.tools import (
    CheckPermission,
    ConfirmRerun,
    OnInterrupt,
    ToolContent,
    ToolFunction,
)
from trimtab.session.turn import BeforeRequest, OnRejection, ScheduleSummary, TurnHooks
from trimtab.shortening import KeptEnd
from trimtab.verbs.notices import OnEdit

__all__ = [
    "AcceptedMedia",
    "BeforeRequest",
    "CheckPermission",
    "ConfirmRerun",
    "ContextOptions",
    "DialectName",
    "Extra",
    "Goal",
    "GoalName",
    "HiddenTotals",
    "HistoryCheck",
    "KeptEnd",
    "MediaKind",
    "MessagesStreamRequest",
    "OnEdit",
    "OnInterrupt",
    "OnRejection",
    "OpaqueBlock",
    "OptionChanges",
    "Options",
    "Part",
    "PerToolLimits",
    "PolicyLimits",
    "PolicyName",
    "Redact",
    "ReplyRecordingStream",
    "ReportSection",
    "Request",
    "RequestValue",
    "ResponsesStreamRequest",
    "ResultTruncation",
    "Role",
    "ScheduleSummary",
    "SessionOptions",
    "SummaryLimits",
    "SummaryMode",
    "ThresholdsPresetLimits",
    "Tokenizer",
    "ToolContent",
    "ToolFunction",
    "TurnHooks",
    "VisibilityReason",
    "WireObject",
]
