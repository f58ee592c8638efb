"""The next request: what is missing is repaired, the policy decides, the guard makes it fit, and
the call is recorded."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from trimtab.dialects.caller_marks import has_marks, locate_marks
from trimtab.dialects.outgoing import build_request, continues_replies
from trimtab.engine.log.event import CallerMark, EventBody, ModelCall
from trimtab.engine.log.redaction import redacted_text
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.guard import add_edits_to_fit
from trimtab.engine.policy.larger_window import decide_restored_user_words
from trimtab.engine.prompt.budget_note import add_budget_note
from trimtab.engine.prompt.call import build_call_event
from trimtab.engine.prompt.report import describe_usage_doubt
from trimtab.engine.text.arguments import describe_wrong_value
from trimtab.engine.text.utf8 import replace_lone_surrogates
from trimtab.engine.window.open_calls import build_repairs_for_open_calls
from trimtab.errors import CannotFit, NoReplyDue
from trimtab.verbs.adding import build_external_call
from trimtab.verbs.state import State, Verb
from trimtab.verbs.warnings import MISSING_REPLY, VerbWarning, is_reply_missing


def request(
    state: State,
    *,
    stream: bool = False,
    volatile: str | None = None,
    own_calls: Container[int] | None = None,
    warns: bool = False,
) -> Verb[dict[str, Any]]:
    """Build the next request and record its call, unless the last call has the same request.

    `own_calls` are the calls whose requests the caller itself was given; None for all. If somebody
    else was given the request of the last call, both will send one and be billed, so this one is
    recorded as well. `warns` is whether to warn of a reply that nobody added.
    """
    _require_due_reply(state)
    if warns:
        if is_reply_missing(state.window):
            state.warnings.append(VerbWarning(MISSING_REPLY))
        _warn_of_doubted_usage(state)
    return (
        yield from request_whatever_is_due(
            state, stream=stream, volatile=volatile, own_calls=own_calls
        )
    )


def _require_due_reply(state: State) -> None:
    """Raise `NoReplyDue` if the newest message is a reply that the model must not get again.

    A list that was passed to `sync` may end with a reply: its caller wants it continued.
    """
    window = state.window
    if window.is_reply_due or not window.visible_groups:
        return
    newest = window.conversation.rounds[-1].entries[-1]
    if state.memory.known_history.find_positions(newest.seq):
        return
    if window.was_answered:
        raise NoReplyDue(
            f"no message waits for the model: m{newest.seq} is its reply to the last one. If a "
            "message came twice, it is answered, and there is nothing to do "
            "(window.is_reply_due says so); otherwise add a message, or rewind() to before the "
            "reply to get another one"
        )
    if not continues_replies(window.settings):
        raise NoReplyDue(
            f"the conversation ends with a reply, m{newest.seq}, and {window.settings.model} "
            "does not continue one; add a user message before request()"
        )


def _warn_of_doubted_usage(state: State) -> None:
    """Warn once if the provider's usage is not believed, again after it was believed, and whenever
    it teaches a limit."""
    doubt = describe_usage_doubt(state.window)
    is_new = not state.memory.usage_is_doubted or state.window.accounting.was_truncated
    if doubt and is_new:
        state.warnings.append(VerbWarning(doubt))
    state.memory.usage_is_doubted = bool(doubt)


def request_whatever_is_due(
    state: State,
    *,
    stream: bool = False,
    volatile: str | None = None,
    own_calls: Container[int] | None = None,
) -> Verb[dict[str, Any]]:
    """Build the request of the window as it is, also if nobody waits for a reply."""
    window = state.window
    if not window.visible_groups:
        raise NoReplyDue("the conversation has no message yet; add one before request()")
    volatile = _read_volatile(state, volatile)
    if not _is_requested_again(state, stream=stream, volatile=volatile, own_calls=own_calls):
        yield build_repairs_for_open_calls(window)
        yield _decide_restored_words(state, volatile=volatile)
        yield from decide(state, volatile=volatile)
        volatile = add_budget_note(window, volatile, state.budget)
        yield [build_call(state, stream=stream, volatile=volatile)]
    return render_request(state)


def _read_volatile(state: State, volatile: Any) -> str | None:
    """Check the volatile text of a call, make it valid UTF-8 and redact it, because the call is
    stored with it."""
    if volatile is None:
        return None
    if not isinstance(volatile, str):
        raise TypeError(describe_wrong_value("volatile", volatile, "a text, or None"))
    return replace_lone_surrogates(redacted_text(volatile, state.options.redact))


def _is_requested_again(
    state: State, *, stream: bool, volatile: str | None, own_calls: Container[int] | None
) -> bool:
    """Whether the last call has the request that is asked for now."""
    last = state.window.last_call
    return (
        last is not None
        and last.seq == state.window.seq
        and bool(last.body.hash)  # a call that was made elsewhere has none
        and (own_calls is None or last.seq in own_calls)
        and last.body.stream == stream
        and last.body.volatile == add_budget_note(state.window, volatile, state.budget)
        and (
            state.memory.marked_messages is None  # a loaded log whose caller passed nothing yet
            or last.body.caller_marks == _locate_caller_marks(state)
        )
    )


def _decide_restored_words(state: State, *, volatile: str | None = None) -> Sequence[EventBody]:
    """Build the edits that show the user's words again that a smaller window had no room for.

    There are none while the provider's cache may hold the last request.
    """
    window = state.window
    if window.last_call is None or not window.accounting.cache_is_cold:
        return ()
    return decide_restored_user_words(window, state.budget(volatile))


def decide(state: State, *, volatile: str | None = None) -> Verb[None]:
    """Record the edits that the policy and the guard want before the next call.

    Raise `CannotFit` if no edit would make the request fit.
    """
    window = state.window
    memory = state.memory
    budget = state.budget(volatile)
    memory.decision = state.run_policy(budget)
    memory.decided_budget = (window.seq, volatile, budget)
    edits = add_edits_to_fit(window, budget, memory.decision.edits)
    is_unchanged = edits == memory.decision.edits
    memory.seq_after_decision = window.seq + len(edits) if is_unchanged else -1
    yield edits


def build_call(state: State, *, stream: bool = False, volatile: str | None = None) -> ModelCall:
    """Build the record of the call that the window would make now."""
    window = state.window
    memory = state.memory
    match memory.decided_budget:
        case (seq, text, budget) if (seq, text) == (window.seq, volatile):
            pass
        case _:
            budget = state.budget(volatile)
    if window.seq != memory.seq_after_decision:
        # The guard has hidden more than the policy wanted, or somebody else has written
        # meanwhile. Either may have moved the frontier, so the policy is asked for it again.
        memory.decision = replace(memory.decision, frontier=state.run_policy(budget).frontier)
    return build_call_event(
        window,
        budget,
        state.rendering,
        memory.decision,
        stream=stream,
        volatile=volatile,
        caller_marks=_locate_caller_marks(state),
    )


def _locate_caller_marks(state: State) -> tuple[CallerMark, ...]:
    """Find where the next request has cache marks of the caller, if only those are sent."""
    window = state.window
    if window.settings.entry.get("cache_marks") != "caller":
        return ()
    if state.memory.marked_messages is None:
        state.memory.marked_messages = {
            seq: entry.message for seq, entry in window.entries.items() if has_marks(entry.message)
        }
    return locate_marks(state.rendering, window, state.memory.marked_messages)


def render_request(state: State) -> dict[str, Any]:
    """Render the request of the call that was recorded last."""
    window = state.window
    if window.last_call is None:
        raise ValueError("no call is recorded yet; call request() first")
    return build_request(
        window.settings,
        state.rendering,
        window.last_call.body,
        last_reply_id=window.conversation.last_reply_id,
    )


def record_external_call(
    state: State, budget: Budget, *, decides: bool = True, imported: bool = False
) -> Verb[None]:
    """Record a call that was made elsewhere, without rendering it."""
    yield build_repairs_for_open_calls(state.window)
    if decides:
        # The call was made, so a request that does not fit is no error.
        with suppress(CannotFit):
            yield _decide_restored_words(state)
            yield from decide(state)
    yield [build_external_call(state, budget, imported=imported)]
