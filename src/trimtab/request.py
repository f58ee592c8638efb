"""From what was said to its record, and from a recorded call to keyword arguments for an SDK, now
or long after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trimtab import validation
from trimtab.dialects import get_dialect
from trimtab.dialects.base import ModelReply
from trimtab.dialects.error_location_texts import find_texts_at_error_location
from trimtab.dialects.model_families import tag_thinking_family
from trimtab.errors import RequestChangedError
from trimtab.log.event import CallOutcome, Event, EventBody, MessageAdded, ModelCall, Settings
from trimtab.log.message import Message
from trimtab.policy.budget import Budget
from trimtab.policy.config import PolicyConfig
from trimtab.policy.overflow import decide_after_overflow
from trimtab.policy.plan import Decision, Plan, Policy
from trimtab.policy.provider_rejections import (
    decide_masks_at_next_message,
    decide_masks_before_retry,
)
from trimtab.prompt.render import (
    IncrementalRenderer,
    Prompt,
    PromptBlock,
    build_hashed_call_record,
    choose_cache_marks,
)
from trimtab.recall.tools import is_recall_answer
from trimtab.redaction import Redact
from trimtab.text.utf8 import replace_lone_surrogates
from trimtab.tokens.counter import TokenCounter, measure_message_parts
from trimtab.window.window import Window

MAX_REJECTION_CHARS = 1_000
"""Characters that are kept of what a provider said of a request that it rejected."""


def create_rendering(settings: Settings) -> IncrementalRenderer:
    """An empty rendering in the settings' dialect."""
    wire = get_dialect(settings.dialect)

    def render(messages: Sequence[Message]) -> list[PromptBlock]:
        return wire.render_blocks(messages, settings.renderer, settings.model)

    return IncrementalRenderer(
        render, system_notices=wire.allows_system_notices, join_text=wire.prepend_text
    )


def build_request(
    settings: Settings, rendering: IncrementalRenderer, call: ModelCall
) -> dict[str, Any]:
    """The request of a call whose window is rendered."""
    prompt = Prompt(
        model=settings.model,
        system=settings.system,
        tools=settings.tools,
        blocks=rendering.blocks,
        marks=call.marks,
        max_output=call.max_output,
        output_param=_name_output_param(settings),
        params=settings.params,
        stream=call.stream,
        volatile=call.volatile,
        selected_tools=settings.selected,
        renderer=settings.renderer,
        hour_cache=settings.entry.get("cache_marks") == "1h",
    )
    return get_dialect(settings.dialect).build_request_kwargs(prompt)


def build_message_event(
    window: Window, message: Message, *, key: str | None, reply: ModelReply | None
) -> MessageAdded:
    """The record of a message, said now."""
    call = window.last_call if message.role == "assistant" else None
    message = tag_thinking_family(message, window.settings.model)
    return MessageAdded(
        message=message,
        sizes=measure_message_parts(message, window.counter),
        counter=window.counter.name,
        call=call.seq if call is not None else None,
        reply_id=reply.id if reply is not None else None,
        key=key,
        recalled=is_recall_answer(window, message),
        paused=reply is not None and reply.paused,
    )


def build_message_with_rejection_edits(
    window: Window,
    get_rendering: Callable[[], IncrementalRenderer],
    message: Message,
    *,
    key: str | None,
    reply: ModelReply | None,
) -> list[EventBody]:
    """The record of a message, and with a user's what its provider has rejected before: that is
    in the way of nothing that is said after it."""
    said = build_message_event(window, message, key=key, reply=reply)
    if not window.accounting.rejection.last_sent_seq or message.role != "user" or message.results:
        return [said]
    named = find_rejected_content(
        window, get_rendering, window.accounting.rejection.provider_message
    )
    return [said, *decide_masks_at_next_message(window, blamed_texts=named).edits]


def build_error_outcome(
    window: Window,
    kind: str,
    *,
    message: str = "",
    redact: Redact | None = None,
    **token_counts: int | None,
) -> CallOutcome:
    """The record of a call that ended in an error, with the tokens that it names; with the
    provider's words where they are about what was said."""
    validation.validate_failure_report(kind, message, **token_counts)
    if (call := window.accounting.open_call_seq) is None:
        raise ValueError("no call waits for an outcome that could be an error")
    known: dict[str, Any] = {
        name: value for name, value in token_counts.items() if value is not None
    }
    if kind == "rejected" and message:
        kept = message if redact is None else redact(message)
        known["message"] = replace_lone_surrogates(kept[:MAX_REJECTION_CHARS])
    return CallOutcome(call=call, status="error", error={"kind": kind, **known})


def choose_policy_after_error(
    failure_kind: str, config: PolicyConfig, rejected_texts: frozenset[str]
) -> Policy:
    """What is hidden after a call that ended in an error of a kind, so that the next is another."""
    match failure_kind:
        case "overflow":
            return partial(decide_after_overflow, config=config)
        case "rejected":
            return partial(decide_masks_before_retry, blamed_texts=rejected_texts)
        case _:
            return lambda _window, _budget: Decision()


def find_rejected_content(
    window: Window, get_rendering: Callable[[], IncrementalRenderer], provider_message: str
) -> frozenset[str]:
    """What stands where a provider's words say that the last request is at fault; nothing where
    they do not say, or something that was sent has changed since."""
    last = window.last_call
    if (
        not provider_message
        or last is None
        or window.accounting.version_at_last_call != window.accounting.prefix_version
    ):
        return frozenset()
    return find_texts_at_error_location(
        build_request(window.settings, get_rendering(), last.body), provider_message
    )


def build_call_event(
    window: Window,
    budget: Budget,
    rendering: IncrementalRenderer,
    decision: Decision,
    *,
    stream: bool,
    volatile: str | None,
) -> ModelCall:
    """The record of the call that a rendered window makes."""
    bound = Plan(window, budget).bound()
    tail = len((volatile or "").encode("utf-8", "surrogatepass"))
    body = ModelCall(
        position=window.seq,
        max_output=min(budget.max_output, budget.limit - bound),
        tokens=budget.head.tokens + window.tokens + budget.volatile,
        media=window.conversation.visible_media_tokens(),
        bytes=budget.head.bytes + window.bytes + tail,
        bound=bound,
        blocks=len(rendering.blocks),
        marks=_choose_cache_marks(rendering, window, decision.frontier),
        stream=stream,
        volatile=volatile,
        note=decision.note,
    )
    digest = rendering.hash_request(build_hashed_call_record(window.settings.params, body))
    return replace(body, hash=digest)


def _choose_cache_marks(
    rendering: IncrementalRenderer, window: Window, frontier: int | None
) -> tuple[int, ...]:
    off = window.settings.entry.get("cache_marks") == "off"
    return () if off else choose_cache_marks(rendering, window, frontier)


def rebuild_request_from_events(
    events: Sequence[Event], call_seq: int, counters: Mapping[str, TokenCounter] | None = None
) -> dict[str, Any]:
    """The exact request of a past call, from the log alone and checked against its hash."""
    call = require_call(events[call_seq - 1] if 0 < call_seq <= len(events) else None, call_seq)
    window = Window(counters)
    window.apply(*events[: call.position])
    return rebuild_request_from_window(window, call_seq, call)


def require_call(event: Event | None, seq: int) -> ModelCall:
    """The call that an event records."""
    if event is None or not isinstance(event.body, ModelCall):
        raise LookupError(f"event {seq} is not a call")
    return event.body


def rebuild_request_from_window(window: Window, call_seq: int, call: ModelCall) -> dict[str, Any]:
    """The request of a past call, given the window of that time; checked against its hash."""
    rendering = create_rendering(window.settings)
    rendering.update(window)
    if (
        call.hash
        and rendering.hash_request(build_hashed_call_record(window.settings.params, call))
        != call.hash
    ):
        raise RequestChangedError(
            f"the request of call {call_seq} cannot be shown as it was sent: rendered from the "
            "log it "
            "has another hash (something it held was erased, or the renderer changed)"
        )
    return build_request(window.settings, rendering, call)


def _name_output_param(settings: Settings) -> str:
    match settings.dialect:
        case "openai_responses":
            return "max_output_tokens"
        case "anthropic":
            return "max_tokens"
        case _:
            return str(settings.entry.get("output_param", "max_tokens"))
