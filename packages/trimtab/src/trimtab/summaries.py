"""Summaries that a model writes."""

from __future__ import annotations

from trimtab.engine.policy.summary_requests import ResultSummaryRequest, SummaryRequest
from trimtab.engine.window.summary_attempts import SummaryAttemptStats
from trimtab.session.summariser import Summariser, SummaryResult, make_summary

__all__ = [
    "ResultSummaryRequest",
    "Summariser",
    "SummaryAttemptStats",
    "SummaryRequest",
    "SummaryResult",
    "make_summary",
]
