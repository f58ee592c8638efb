"""The record of a call: what it sends, how large it is, and which prefixes the provider should
cache."""

from __future__ import annotations

from dataclasses import replace

from trimtab.engine.log.event import CallerMark, ModelCall
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.planning.plan import Decision, Plan
from trimtab.engine.prompt.render import (
    IncrementalRenderer,
    build_call_fields_to_hash,
    choose_cache_marks,
)
from trimtab.engine.window.window import Window


def build_call_event(
    window: Window,
    budget: Budget,
    rendering: IncrementalRenderer,
    decision: Decision,
    *,
    stream: bool,
    volatile: str | None,
    caller_marks: tuple[CallerMark, ...] = (),
) -> ModelCall:
    """Build the record of the call that a rendered window makes."""
    input_bound = Plan(window, budget).bound()
    tail = len((volatile or "").encode("utf-8", "surrogatepass"))
    body = ModelCall(
        position=window.seq,
        max_output=min(budget.max_output, budget.limit - input_bound),
        tokens=budget.head.tokens + window.tokens + budget.volatile,
        media=window.conversation.visible_media_tokens(),
        bytes=budget.head.bytes + window.bytes + tail,
        bound=input_bound,
        blocks=len(rendering.blocks),
        marks=_choose_cache_marks(rendering, window, decision.frontier),
        caller_marks=caller_marks,
        stream=stream,
        volatile=volatile,
        note=decision.note,
    )
    digest = rendering.hash_request(build_call_fields_to_hash(window.settings.params, body))
    return replace(body, hash=digest)


def _choose_cache_marks(
    rendering: IncrementalRenderer, window: Window, frontier: int | None
) -> tuple[int, ...]:
    none_of_ours = window.settings.entry.get("cache_marks") in ("off", "caller")
    return () if none_of_ours else choose_cache_marks(rendering, window, frontier)
