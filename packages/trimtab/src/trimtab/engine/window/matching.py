"""Compare messages by content, ignoring differences of their wire formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

from trimtab.engine.log.edits import ERASED_PLACEHOLDER, erase_message_payload
from trimtab.engine.log.erase import RECALL_TOOL_NAMES
from trimtab.engine.log.message import (
    Extra,
    Media,
    Message,
    OpaqueBlock,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.window import Window

_DIALECTS_WITHOUT_ERROR_FLAG = frozenset({"openai_chat", "openai_responses"})
"""Dialects in which a result cannot say that its tool failed."""
_DIALECTS_WITHOUT_RESULT_MEDIA = frozenset({"openai_chat"})
"""Dialects whose results contain only text."""


def match_prefix_and_rewind_point(
    window: Window,
    messages: Sequence[Message],
    *,
    after_seq: int = 0,
    may_keep: Callable[[int, Message], bool] | None = None,
) -> tuple[int, int | None]:
    """Compare a caller's messages with the window's messages after a position.

    If the last message is completely erased in the window, it matches any message. If the window
    has more messages after it, it therefore counts as new. `may_keep` says whether a message with
    an index is known by its equal one in the window, whose extras may differ.

    Returns:
        How many of the messages are already known; and the position to rewind to if the window has
        other messages after them, or None. The rewind includes a repair right before those
        messages.
    """
    count = 0
    repair = None
    unsure = None
    for entry in list_entries_after(window, after_seq):
        start = (repair or entry.seq) - 1
        if entry.is_repair:
            repair = repair or entry.seq
        elif (
            count < len(messages)
            and _is_known_message(window, entry, messages[count])
            and (may_keep is None or may_keep(count, entry.message))
        ):
            unsure = start if _matches_by_erasure_alone(entry.message, messages[count]) else None
            count = count + 1
            repair = None
        elif count == len(messages) and unsure is not None:
            return count - 1, unsure
        else:
            return count, start
    return count, None


def find_repeated_message(window: Window, message: Message, *, call_seq: int) -> int | None:
    """Return the position of the message that this one repeats in any form; None if it is new.

    Programs that follow an SDK's tutorial add a reply, and then its text or its calls once more as
    a dict. A user may say the same twice. `call_seq` is the position of the call that waits for its
    reply, or 0: a reply to it is new.
    """
    if message.role == "assistant":
        newest_reply = window.entries.get(window.conversation.last_assistant_seq)
        if newest_reply is not None and newest_reply.seq > call_seq:
            return _find_repeated_reply(newest_reply, window, message)
    elif message.results and len(message.results) == len(message.parts):
        seqs = [_find_repeated_result(window, result, message) for result in message.results]
        return seqs[0] if all(seqs) else None
    return None


def _find_repeated_reply(newest_reply: Entry, window: Window, message: Message) -> int | None:
    newest_round = window.conversation.rounds[-1]
    if newest_reply.round is not newest_round:
        return None
    if message.calls:
        ids = {call.id for call in message.calls}
        known_ids = {call.id for call in newest_round.calls}
        is_open = any(newest_round.find_unanswered_call(call_id) for call_id in ids)
        # Some servers number the calls of each reply anew. If requests are made here, a new reply
        # has a call that waits for it.
        is_answered = window.accounting.call_count and is_same_message(
            newest_reply.message, message
        )
        return newest_reply.seq if ids <= known_ids and (is_open or is_answered) else None
    if newest_round.entries[-1] is not newest_reply:
        return None
    origins = {newest_reply.message.origin, message.origin}
    known_parts = _comparable_parts(newest_reply.message)
    is_part_of_it = all(
        any(_is_same_part(known, part, origins) for known in known_parts)
        for part in _comparable_parts(message)
    )
    return newest_reply.seq if is_part_of_it else None


def _find_repeated_result(window: Window, result: ToolResult, message: Message) -> int | None:
    """Return the position of an equal result that the newest call with this id already has."""
    for round in reversed(window.conversation.rounds):
        for pair in reversed(round.calls):
            if pair.id != result.call_id:
                continue
            if pair.result is None:
                return None
            recorded = pair.result.entry.message
            part = recorded.parts[pair.result.part]
            is_same = _is_same_part(part, result, {recorded.origin, message.origin})
            return pair.result.seq if is_same else None
    return None


def list_entries_after(window: Window, seq: int) -> list[Entry]:
    """Return the messages after a position, oldest first, without reading older ones."""
    newer = takewhile(lambda entry: entry.seq > seq, reversed(window.entries.values()))
    return [*newer][::-1]


def _is_known_message(window: Window, entry: Entry, message: Message) -> bool:
    """Whether a message is known. Content that was erased here may still be in the sender's
    copy."""
    if is_same_message(entry.message, message):
        return True
    if _answers_recall(entry) and is_same_message(_without_result_media(entry.message), message):
        return True  # the picture that came back with it is in the log alone
    parts = entry.message.parts
    erased_parts = [
        i for i in range(len(parts)) if window.base.find_erasing_event(entry.seq, i) is not None
    ]
    if not erased_parts:
        return False
    if len(erased_parts) == len(parts):
        return is_same_message(entry.message, erase_message_payload(message, None))
    if _is_same_after_erasing(erased_parts, entry.message, message):
        return True
    # An assistant's opaque blocks may be missing there, and the others then stand further ahead.
    own_parts = [index for index, part in enumerate(parts) if not isinstance(part, OpaqueBlock)]
    ahead = [place for place, index in enumerate(own_parts) if index in erased_parts]
    return entry.message.role == "assistant" and _is_same_after_erasing(
        ahead, _without_opaque(entry.message), _without_opaque(message)
    )


def _answers_recall(entry: Entry) -> bool:
    """Whether all results in a message come from the recall tools."""
    calls = [call for call in entry.round.calls if call.result and call.result.entry is entry]
    return bool(calls) and all(call.name in RECALL_TOOL_NAMES for call in calls)


def _without_result_media(message: Message) -> Message:
    def text_alone(part: Part) -> Part:
        if not isinstance(part, ToolResult):
            return part
        texts = tuple(inner for inner in part.content if isinstance(inner, Text))
        return replace(part, content=texts)

    return replace(message, parts=tuple(map(text_alone, message.parts)))


def _is_same_after_erasing(erased_parts: Sequence[int], mine: Message, theirs: Message) -> bool:
    for part in erased_parts:
        theirs = erase_message_payload(theirs, part)
    return is_same_message(mine, theirs)


def _without_opaque(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, OpaqueBlock))
    return replace(message, parts=parts)


def _matches_by_erasure_alone(mine: Message, theirs: Message) -> bool:
    """Whether only erased content matched. Calls and results are still known by their ids."""
    opaque = mine.role != "assistant"
    return not _comparable_parts(mine, include_opaque=opaque) and bool(
        _comparable_parts(theirs, include_opaque=opaque)
    )


def is_same_message(one: Message, other: Message) -> bool:
    """Whether role, texts, calls, results and media are equal.

    Opaque blocks must also be equal unless the assistant wrote them. Extras may differ, and so may
    details that one of the dialects cannot express.
    """
    opaque = one.origin == other.origin and one.role != "assistant"
    mine = _comparable_parts(one, include_opaque=opaque)
    theirs = _comparable_parts(other, include_opaque=opaque)
    if one.role != other.role and not (_only_results(mine) and _only_results(theirs)):
        return False
    origins = {one.origin, other.origin}
    return len(mine) == len(theirs) and all(
        _is_same_part(each, its, origins) for each, its in zip(mine, theirs, strict=True)
    )


def _only_results(parts: list[Part]) -> bool:
    """Whether all parts are results. They have their own role in one dialect and the user's in
    another."""
    return bool(parts) and all(isinstance(part, ToolResult) for part in parts)


def _is_same_json(one: str, other: str) -> bool:
    """Whether two texts are the same JSON, ignoring spaces."""
    if one == other:
        return True
    with suppress(ValueError, RecursionError):
        return json.loads(one) == json.loads(other)
    return False


def _comparable_parts(message: Message, *, include_opaque: bool = False) -> list[Part]:
    unsaid = (Text(text=""), Text(text=ERASED_PLACEHOLDER))
    return [
        part
        for part in message.parts
        if (include_opaque or not isinstance(part, OpaqueBlock)) and part not in unsaid
    ]


def _is_same_part(one: Part, other: Part, origins: Set[str]) -> bool:
    match one, other:
        case Text(), Text():
            return one.text == other.text
        case ToolCall(), ToolCall():
            same_call = one.id == other.id and one.name == other.name
            return same_call and _is_same_json(one.arguments, other.arguments)
        case ToolResult(), ToolResult():
            return one.call_id == other.call_id and _is_same_result(one, other, origins)
        case Media(), Media():
            return _is_same_media(one, other, origins)
        case OpaqueBlock(), OpaqueBlock():
            return _without_cache_mark(one.data) == _without_cache_mark(other.data)
        case _:
            return False


def _is_same_result(one: ToolResult, other: ToolResult, origins: Set[str]) -> bool:
    if one.text != other.text or (
        one.is_error != other.is_error and not origins & _DIALECTS_WITHOUT_ERROR_FLAG
    ):
        return False
    if len(origins) > 1 and origins & _DIALECTS_WITHOUT_RESULT_MEDIA:
        return True
    kinds = (Media, OpaqueBlock) if len(origins) == 1 else Media
    mine, theirs = ([p for p in each.content if isinstance(p, kinds)] for each in (one, other))
    return len(mine) == len(theirs) and all(
        _is_same_part(each, its, origins) for each, its in zip(mine, theirs, strict=True)
    )


def _is_same_media(one: Media, other: Media, origins: Set[str]) -> bool:
    if (one.kind, one.data, one.url) != (other.kind, other.data, other.url):
        return False
    # A file that lies with its provider is named by an extra alone.
    has_source = one.data is not None or one.url is not None or len(origins) > 1
    return has_source or _without_cache_mark(one.extra) == _without_cache_mark(other.extra)


def _without_cache_mark(block: Extra) -> dict[str, Any]:
    """Return a block without its cache mark, which moves from call to call."""
    return {key: value for key, value in (block or {}).items() if key != "cache_control"}
