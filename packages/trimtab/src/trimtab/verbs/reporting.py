"""What the next call would send and cost. Nothing is recorded."""

from __future__ import annotations

from dataclasses import replace

from trimtab.dialects.outgoing import create_view, render_blocks_as_sent
from trimtab.engine.log.event import Edit, Event
from trimtab.engine.log.message import ToolCall
from trimtab.engine.policy.planning.plan import Plan
from trimtab.engine.prompt.report import (
    ContextReport,
    RequestPreview,
    build_context_report,
    build_request_preview,
)
from trimtab.engine.prompt.shown_messages import View
from trimtab.engine.window.window import Window
from trimtab.verbs.requesting import request_whatever_is_due
from trimtab.verbs.state import State, apply_at_once
from trimtab.verbs.warnings import describe_model_doubt


def describe_state(state: State) -> str:
    """Describe in a line how much is shown to which model."""
    window = state.window
    limit = state.budget().limit
    tokens = window.settings.head.tokens + window.tokens
    messages = f"{window.visible_messages} of {window.conversation.total_messages} messages shown"
    return f"{window.settings.model}: {messages}, {tokens:,} of {limit:,} tokens"


def build_open_calls(window: Window) -> list[ToolCall]:
    """List the calls of the newest reply that have no result yet."""
    pairs = window.conversation.open_calls()
    return [ToolCall(id=pair.id, name=pair.name, arguments=pair.arguments) for pair in pairs]


def build_report(state: State, volatile: str | None = None) -> ContextReport:
    """Build the report of how the next call would use its tokens."""
    budget = state.budget(volatile)
    report = build_context_report(state.window, budget, Plan(state.window, budget).bound())
    return replace(report, model_doubt=describe_model_doubt(state.options))


def build_preview(state: State, *, stream: bool, volatile: str | None) -> RequestPreview:
    """Make the next request of a copy, and build its preview."""
    twin = state.with_own_memory()
    twin.use_copied_window()
    log: list[Event] = []
    verb = request_whatever_is_due(twin, stream=stream, volatile=volatile)
    request = apply_at_once(twin, verb, log)
    edits = tuple(event.body for event in log if isinstance(event.body, Edit))
    return build_request_preview(
        twin.window, request, build_report(twin, volatile), edits, at=state.clock()
    )


def build_view(state: State) -> View:
    """Build what the last request shows, message by message."""
    window = state.window
    rendering = state.rendering
    history = state.memory.known_history
    if state.shown is None:
        state.shown = create_view(window.settings)
    state.shown.update(window, rendering, history)
    last = window.last_call
    max_output_tokens = state.budget().max_output if last is None else last.body.max_output
    blocks = render_blocks_as_sent(window, rendering)
    return state.shown.build_view(
        history,
        blocks,
        frontier_seq=state.memory.decision.frontier,
        max_output_tokens=max_output_tokens,
    )
