"""Adding a message: it is read, recognised if it repeats another, redacted, measured and
recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from trimtab.dialects.base import ModelReply
from trimtab.dialects.caller_marks import has_marks
from trimtab.dialects.outgoing import find_rejected_texts
from trimtab.dialects.reading import read_message
from trimtab.dialects.reply_recording import build_reply_outcome
from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.event import Edit, EventBody, MessageAdded, ModelCall, Usage
from trimtab.engine.log.message import Message
from trimtab.engine.log.redaction import redacted_message
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.rejections import decide_masks_at_next_message
from trimtab.engine.text.arguments import check_idempotency_key, describe_wrong_value
from trimtab.engine.tokens.counter import measure_message_parts
from trimtab.engine.window.matching import find_repeated_message
from trimtab.engine.window.open_calls import (
    build_repairs_for_open_calls,
    continues_open_assistant_reply,
    is_recall_answer,
)
from trimtab.engine.window.window import Window
from trimtab.models.families import tag_thinking_family
from trimtab.verbs.state import State, Verb
from trimtab.verbs.warnings import VerbWarning, describe_result_of_unknown_call

FollowMessage = Callable[[MessageAdded], Sequence[EventBody]]
"""Returns what is recorded in the same batch after a new message."""


def add(
    state: State,
    item: Any,
    *,
    key: str | None = None,
    usage: Usage | None = None,
    call: int | None = None,
    needs_own_call: bool = False,
    follow: FollowMessage | None = None,
) -> Verb[str]:
    """Add a message in any form, unless the log has it. Return its handle.

    Args:
        state: The state.
        item: The message, or a whole reply.
        key: Its idempotency key.
        usage: What the last request used, if the item is the reply to it.
        call: The call that a reply answers. None for the last one.
        needs_own_call: Whether a reply with usage answers a request that was handed out twice, and
            gets a call of its own.
        follow: Returns what is recorded in the same batch after the message, if it is new.
    """
    check_idempotency_key(key)
    window = state.window
    streamed = state.memory.streamed_reply
    if streamed is not None and item is streamed[0]:
        handle = streamed[1]
        if parse_handle(handle).first_seq in window.entries:  # and was not undone since
            return handle
    if key is not None and key in window.base.seq_by_idempotency_key:
        return f"m{window.base.seq_by_idempotency_key[key]}"
    message, reply = read_item(window, item, usage)
    answered = call or window.accounting.open_call_seq
    is_known = reply is not None and is_known_reply(window, reply, answered)
    earlier: list[EventBody] = []
    if needs_own_call and reply is not None and reply.usage is not None and not is_known:
        repairs = build_repairs_for_open_calls(window)
        earlier = [*repairs, build_external_call(state, state.budget())]
        call = answered = window.seq + len(earlier)
    elif is_known:
        return f"m{window.conversation.last_reply_seq}"
    message = redacted_message(message, state.options.redact)
    if key is None:
        seq = find_repeated_message(window, message, call_seq=answered or 0)
        if seq is not None:
            if reply is not None and answered is not None:
                # Perhaps only this copy of the reply brings the usage.
                yield [*earlier, build_reply_outcome(answered, reply)]
            return f"m{seq}"
    if doubt := describe_result_of_unknown_call(window, message):
        state.warnings.append(VerbWarning(doubt))
    return (
        yield from add_message(
            state, message, key=key, reply=reply, call=call, earlier=earlier, follow=follow
        )
    )


def read_item(window: Window, item: Any, usage: Usage | None) -> tuple[Message, ModelReply | None]:
    """Read what a caller adds, and the reply that it is, with the usage that its caller names."""
    settings = window.settings
    message, reply = read_message(item, dialect=settings.dialect, model=settings.rules_model)
    if usage is None:
        return message, reply
    if not isinstance(usage, Usage):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        raise TypeError(describe_wrong_value("usage", usage, "a Usage, such as Usage(input=9)"))
    if message.role != "assistant":
        raise ValueError(
            f"usage belongs to a model's reply, and this message has the role {message.role!r}"
        )
    require_usage_with_cached_tokens(usage)
    if reply is None:
        return message, ModelReply(message=message, usage=usage)
    return message, reply if reply.usage is not None else replace(reply, usage=usage)


def require_usage_with_cached_tokens(usage: Usage) -> None:
    """Refuse a caller's usage whose input leaves out cached tokens, as Anthropic's does."""
    cached_tokens = usage.cache_read + usage.cache_write
    if usage.input < cached_tokens:
        raise ValueError(
            f"usage.input is {usage.input:,}, but it includes cache_read and cache_write, which "
            f"have {cached_tokens:,} together; of Anthropic's numbers pass "
            f"input={usage.input + cached_tokens}, or add the whole reply"
        )


def is_known_reply(window: Window, reply: ModelReply, answered_call: int | None) -> bool:
    """Whether this is the last reply once more."""
    conversation = window.conversation
    # Some servers give every reply the same id, so a reply to a later call is a new one.
    return (
        reply.id is not None
        and reply.id == conversation.last_reply_id
        and (answered_call or 0) <= conversation.last_reply_seq
    )


def build_external_call(state: State, budget: Budget, *, imported: bool = False) -> ModelCall:
    """Build the record of a call that was made elsewhere, without rendering it."""
    window = state.window
    return ModelCall(
        position=window.seq,
        imported=imported,
        max_output=budget.max_output,
        tokens=budget.head.tokens + window.tokens,
        media=window.conversation.visible_media_tokens(),
        note=state.memory.decision.note,
    )


def add_message(
    state: State,
    message: Message,
    *,
    key: str | None = None,
    reply: ModelReply | None = None,
    call: int | None = None,
    is_undated: bool = False,
    earlier: Sequence[EventBody] = (),
    follow: FollowMessage | None = None,
) -> Verb[str]:
    """Record a redacted message, and in the same batch what belongs to it. Return its handle.

    `earlier` is recorded before it. It has the repairs of open calls, if it has anything.
    """
    window = state.window
    bodies = [*earlier]
    if state.options.redact is not None and not window.settings.redacts:
        # Nobody may continue the log without the redaction.
        settings = replace(window.settings, redacts=True)
        state.memory.recorded_options = (settings, state.memory.options)
        bodies.append(settings)
    if reply is not None and (answered := call or window.accounting.open_call_seq) is not None:
        bodies.append(build_reply_outcome(answered, reply))
    if (
        message.role == "assistant"
        and not earlier
        and not continues_open_assistant_reply(window, message)
    ):
        bodies += build_repairs_for_open_calls(window)
    is_recalled = message.role != "assistant" and is_recall_answer(window, message)
    has_users_words = message.role == "user" and not message.results
    masks = _build_masks_of_rejected_content(state) if has_users_words else ()
    message = tag_thinking_family(message, window.settings.rules_model)
    sizes = measure_message_parts(message, window.counter)
    last_call = window.last_call.seq if window.last_call is not None else None
    addition = MessageAdded(
        message=message,
        sizes=sizes,
        counter=window.counter.name,
        call=call or last_call if message.role == "assistant" else None,
        reply_id=reply.id if reply is not None else None,
        key=key,
        recalled=is_recalled,
        paused=reply is not None and reply.paused,
        undated=is_undated,
    )
    seq = window.seq + len(bodies) + 1
    followers = () if follow is None else follow(addition)
    yield [*bodies, addition, *masks, *followers]
    marked = state.memory.marked_messages
    if marked is not None and has_marks(message):
        state.memory.marked_messages = {**marked, seq: message}
    return f"m{seq}"


def _build_masks_of_rejected_content(state: State) -> tuple[Edit, ...]:
    """Build the edits that hide what the provider has rejected, so that it does not block the
    next message."""
    rejection = state.window.accounting.rejection
    if not rejection.last_sent_seq:
        return ()
    texts = find_texts_of_last_request(state, rejection.provider_message)
    return decide_masks_at_next_message(state.window, blamed_texts=texts).edits


def find_texts_of_last_request(state: State, provider_message: str) -> frozenset[str]:
    """Find the texts of the last request that a provider's error message points to."""
    return find_rejected_texts(state.window, lambda: state.rendering, provider_message)
