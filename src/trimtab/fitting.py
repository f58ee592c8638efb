"""`fit`: for people who keep their own list of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from trimtab.context import Context
from trimtab.dialects.base import WireObject
from trimtab.options import ContextOptions
from trimtab.prompt.context_report import ContextReport
from trimtab.request_types import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """A list of messages, made to fit."""

    messages: list[dict[str, Any]]
    """What to send, in the model's dialect."""
    request: Request
    """The whole request as keyword arguments, with system prompt and tools."""
    report: ContextReport
    """Where the tokens went, and what is hidden."""
    context: Context
    """The context behind it, for those who want to go on from here."""


def fit(
    messages: Sequence[WireObject],
    *,
    model: str,
    **options: Unpack[ContextOptions],
) -> FitResult:
    """Fit a list of messages into a model's window.

    The list is folded anew each time, as if it had arrived call by call: what is sent extends what
    was sent before until more has to be hidden. For a long list keep a `Context` and call
    `sync(messages)`. System messages at its start come after `system`, unless they begin with it.
    `options` are those of `Context`.
    """
    context = Context(model, **options)
    context.sync(messages)
    request = context.request()
    sent: list[dict[str, Any]] = request.get("messages", request.get("input", []))
    return FitResult(messages=sent, request=request, report=context.report(), context=context)
