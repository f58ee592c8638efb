"""A caller's own list: known messages are matched, and new ones are replayed call by call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from trimtab.dialects.base import ModelReply
from trimtab.dialects.caller_marks import has_marks
from trimtab.dialects.known_history import HistoryCheck, KnownHistory
from trimtab.dialects.reading import (
    convert_media_or_refuse,
    parse_any_system_and_history,
    read_history,
    read_whole_reply,
    require_message_list,
)
from trimtab.engine.log.event import Rewind
from trimtab.engine.log.message import Message
from trimtab.engine.log.redaction import redacted_message
from trimtab.engine.policy.restored_edits import EditsInForce
from trimtab.engine.text.arguments import describe_wrong_value
from trimtab.engine.tokens.counter import estimate_message_tokens
from trimtab.engine.window.matching import (
    is_same_message,
    list_entries_after,
    match_prefix_and_rewind_point,
)
from trimtab.errors import HistoryNotInMemory
from trimtab.options import split_system_prompt
from trimtab.verbs.adding import add_message
from trimtab.verbs.configuring import record_options
from trimtab.verbs.requesting import record_external_call
from trimtab.verbs.state import State, Verb

MAX_UNBATCHED_WINDOWS = 4
"""If a replayed history would fill more windows, the policy does not run before each call."""
MAX_UNBATCHED_MESSAGES = 1_000
"""If a replayed history has more messages, the policy does not run before each call."""
DECISIONS_PER_WINDOW = 64
"""Near the end of such a history, how often the policy runs while one window is filled."""


def sync(
    state: State, messages: Sequence[Any], *, ids: Sequence[str] | None, check: HistoryCheck
) -> Verb[None]:
    """Update the context from a list that holds the whole history."""
    messages = require_message_list(messages)
    if check not in get_args(HistoryCheck):
        raise ValueError(describe_wrong_value("check", check, '"newest" or "all"'))
    if ids is not None and (isinstance(ids, str) or len(ids) != len(messages)):
        raise ValueError(
            f"got {len(ids)} ids for {len(messages)} messages; pass a list with one id each"
        )
    window = state.window
    memory = state.memory
    redact = state.options.redact
    history = memory.known_history if check == "newest" else KnownHistory()
    if redact is not None and history.redact is not redact:
        history = KnownHistory()  # what it knows was not redacted, or otherwise
    messages_before, first_item, after_seq = history.find_restart(messages, ids, window.entries)
    if after_seq < window.base.last_evicted_seq:
        raise HistoryNotInMemory(after_seq)
    settings = window.settings
    dialect = settings.dialect
    model = settings.rules_model
    read = read_history(messages, dialect=dialect, model=model, first_item=first_item)
    clean_messages = [redacted_message(message, redact) for message in read.messages]
    system = read.system if not first_item else memory.listed_system
    yield from _use_listed_system(state, system)

    def may_keep(index: int, logged: Message) -> bool:
        is_clean = history.redact is redact or clean_messages[index] is read.messages[index]
        return is_clean or redacted_message(logged, redact) is logged

    prefix_length, rewind_to = match_prefix_and_rewind_point(
        window, clean_messages, after_seq=after_seq, may_keep=may_keep
    )
    new_messages = read.messages[prefix_length:]
    for message in new_messages:
        convert_media_or_refuse(message, dialect=dialect, model=model)
    if rewind_to is not None:
        yield from _rewind_and_replay(state, rewind_to, new_messages)
    else:
        reply = None
        if new_messages and window.accounting.open_call_seq is not None:
            first_new = read.starts[prefix_length]
            content = read.contents[first_new - first_item]
            reply = read_whole_reply(messages[first_new], content, dialect=dialect)
        yield from _replay(state, new_messages, reply=reply)
    entries = [entry for entry in list_entries_after(window, after_seq) if not entry.is_repair]
    history.redact = redact
    memory.known_history = history
    memory.listed_system = system
    changed_seqs = {
        entry.seq
        for entry, original, clean in zip(entries, read.messages, clean_messages, strict=False)
        if original is not clean or not is_same_message(entry.message, clean)
    }
    history.remember(
        messages,
        ids,
        messages_before,
        read.starts,
        [entry.seq for entry in entries],
        contents=read.contents,
        changed_seqs=changed_seqs,
    )
    if window.settings.entry.get("cache_marks") == "caller":
        memory.marked_messages = _read_marked_messages(history, messages, window.settings.dialect)


def _read_marked_messages(
    history: KnownHistory, items: Sequence[Any], dialect: str
) -> dict[int, Message]:
    """Read the messages with cache marks from the list that was passed last."""
    messages: dict[int, Message] = {}
    for index, item in enumerate(items):
        seq = history.find_position(index) if has_marks(item) else None
        if seq is not None:
            span = history.find_positions(seq)
            system, conversation = parse_any_system_and_history(
                items[span.start : span.stop], dialect
            )
            messages[seq] = [*system, *conversation][0]
    return messages


def _use_listed_system(state: State, listed: tuple[Message, ...]) -> Verb[None]:
    """Use the system messages of a caller's list after the prompt that was set."""
    prompt, _ = split_system_prompt(state.window.settings)
    # A list that was fitted before begins with the prompt, which must not be sent twice.
    begins_with_prompt = len(listed) >= len(prompt) and all(map(is_same_message, listed, prompt))
    listed = listed[len(prompt) :] if begins_with_prompt else listed
    if listed != state.options.listed_system:
        yield from record_options(state, replace(state.options, listed_system=listed))


def _rewind_and_replay(state: State, position: int, messages: Sequence[Message]) -> Verb[None]:
    """Rewind to a position and add other messages; hide unchanged ones as they were hidden
    before."""
    edits = EditsInForce(state.window, position)
    yield [Rewind(to=position)]
    yield from _replay(state, messages, decides=False)
    for body in edits.restore(state.window, state.budget()):
        yield [body]


def _replay(
    state: State,
    messages: Sequence[Message],
    *,
    decides: bool = True,
    reply: ModelReply | None = None,
) -> Verb[None]:
    """Add messages from elsewhere, and before each reply the imported call that it answers.

    `reply` is the first message as a whole reply, if it answers the last request. The policy
    runs before each call. In a history that would fill the window many times it runs less
    often: once for every two windows of tokens, and more often near the end. So the time grows
    only with the length of the history.
    """
    window = state.window
    budget = state.budget()
    limit = budget.limit
    sizes = [estimate_message_tokens(message) for message in messages]
    total = sum(sizes)
    fills_many_windows = total > MAX_UNBATCHED_WINDOWS * limit
    # The end begins at a multiple of a quarter of the window. If one message more moved it, the
    # decisions before it would change too.
    quarter = max(1, limit // 4)
    end_begins_at = (total // quarter - 1) * quarter if fills_many_windows else 0
    is_long = fills_many_windows or len(messages) > MAX_UNBATCHED_MESSAGES
    tokens_between_at_end = limit // DECISIONS_PER_WINDOW if is_long else 0
    tokens = tokens_at_decision = 0
    user_indexes = [index for index, message in enumerate(messages) if message.role == "user"]
    older_user_indexes = set(user_indexes[:-1])
    for index, (message, size) in enumerate(zip(messages, sizes, strict=True)):
        rounds = window.conversation.rounds
        last_seq = rounds[-1].entries[-1].seq if rounds else 0
        if message.role == "assistant" and last_seq > window.accounting.sent_through_seq:
            tokens_between = 2 * limit if tokens < end_begins_at else tokens_between_at_end
            is_due = decides and tokens - tokens_at_decision >= tokens_between
            yield from record_external_call(state, budget, decides=is_due, imported=True)
            if is_due:
                tokens_at_decision = tokens
            reply = None  # it answers another request
        # Of several user messages in one list, only the newest was written just now.
        yield from add_message(
            state,
            redacted_message(message, state.options.redact),
            reply=reply,
            is_undated=index in older_user_indexes,
        )
        tokens += size
        reply = None
