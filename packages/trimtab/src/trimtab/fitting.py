"""`fit`: for programs that keep their own list of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from trimtab.context import Context
from trimtab.engine.prompt.report import ContextReport
from trimtab.options import ContextOptions
from trimtab.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """A list of messages that fits into a model's window."""

    messages: list[dict[str, Any]]
    """The messages to send, in the model's dialect."""
    request: Request
    """The whole request as keyword arguments, including the system prompt and the tools."""
    report: ContextReport
    """How the tokens are used, and what is hidden."""
    context: Context
    """The context that made it. You can continue with it."""


def fit(
    messages: Sequence[object],
    *,
    model: str,
    **options: Unpack[ContextOptions],
) -> FitResult:
    """Fit a list of messages into a model's window.

    Each call replays the whole list as if it had arrived call by call. So a longer list gives a
    request that begins like the one before, until more has to be hidden. For a long list, keep a
    `Context` and call `sync(messages)`.

    Args:
        messages: The whole history: dicts in the form of any supported dialect, messages of an SDK
            or of LangChain, or `Message`s. System messages at its start are added after `system`,
            unless they begin with it.
        model: The model's name as the provider knows it.
        **options: The other options of `Context`. `max_input_tokens` limits input plus requested
            output, so add `max_output_tokens` to what you want to send at most.

    Returns:
        The messages to send, the whole request, a report, and the context.

    Raises:
        CannotFit: If the messages would not fit, whatever is hidden.
        TypeError: If an option or a message has a wrong type.
        ValueError: If an option or a message is invalid, or the list is empty.

    Example:
        Send what fits::

            fitted = fit(messages, model="claude-sonnet-5-5", system="Be brief.")
            reply = client.messages.create(**fitted.request)
    """
    if isinstance(messages, Sequence) and not messages:  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        raise ValueError("messages is empty; pass the whole history, at least one message")
    context = Context(model, **options)
    context.sync(messages)
    request = context.request()
    messages_or_items: list[dict[str, Any]] = request.get("messages", request.get("input", []))
    return FitResult(
        messages=messages_or_items, request=request, report=context.report(), context=context
    )
