"""All that a window knows, as plain values that can be compared; and its totals, counted anew."""

from __future__ import annotations

from typing import Any

from trimtab.context import Context
from trimtab.core.edits import shown
from trimtab.core.message import text_message
from trimtab.core.rounds import Entry, Group, Pairing
from trimtab.core.tokens import size_of, sizes_of
from trimtab.core.window import Window

_PLAIN = (
    *("seq", "version", "sent", "calls", "last_call", "call_version", "awaiting", "last_reply"),
    *("last_usage", "used", "paid", "ratio", "weighed", "anchor", "learned_limit", "settings"),
    *("erased", "note", "replied"),
    *("bytes", "tokens", "messages", "turn_start", "turn_bytes", "turn_tokens"),
    *("summary", "summary_by", "cold", "epoch", "settings_by", "refused", "carried"),
)


def picture(window: Window) -> dict[str, Any]:
    newest = window.newest_user
    return {name: getattr(window, name) for name in _PLAIN} | {
        "counter": window.counter.name,
        "entries": [_entry(entry) for entry in window.entries.values()],
        "groups": [_group(group) for group in window.groups],
        "visible": list(window.visible),
        "results": list(window.results),
        "turn_results": (window.turn_results.first, [*window.turn_results.last]),
        "turn_count": window.turn_results.count,
        "dropped": window.dropped.messages,
        "cache": window.cache,
        "wire_ids": window.wire_ids,
        "newest_user": newest.seq if newest else None,
        "notice": window.notice(),
        "words": [(block.places, block.left_out) for block in window.words.blocks],
    }


def outlook(context: Context) -> dict[str, Any]:
    """All that a context does with what it knows: the same, whatever has left its memory."""
    window = context.window
    newest = window.newest_user
    visible = window.visible.values()
    return {name: getattr(window, name) for name in _PLAIN if name != "turn_start"} | {
        "entries": [_entry(entry) for group in visible for entry in group.entries()],
        "calls": [_pair(call) for group in visible for call in group.calls()],
        "groups": [[(e.seq) for e in group.entries()] for group in visible],
        "results": list(window.results),
        "turn_results": (window.turn_results.first, [*window.turn_results.last]),
        "turn_count": window.turn_results.count,
        "newest_user": newest.seq if newest else None,
        "notice": window.notice(),
        "words": [(block.places, block.left_out) for block in window.words.blocks],
        "said": window.said,
        "cache": window.cache,
        "wire_ids": window.wire_ids,
        "blocks": context.rendering.blocks,
        "digest": context.rendering.digest({}),
        "report": _report(context),
    }


def _report(context: Context) -> dict[str, Any]:
    told = context.report().to_dict()
    # What left memory was counted by the counter of that time.
    told["hidden"] = {kind: count for kind, (count, _) in told["hidden"].items()}
    return told


def _entry(entry: Entry) -> tuple[Any, ...]:
    place = (entry.seq, entry.notes, entry.pinned, entry.repair)
    return (*place, entry.message, entry.sizes, entry.edits)


def _group(group: Group) -> tuple[Any, ...]:
    rounds = [
        ([entry.seq for entry in part.entries], part.waiting, [_pair(each) for each in part.calls])
        for part in group.rounds
    ]
    sizes = (group.bytes, group.tokens, group.messages)
    return (group.index, *sizes, group.thinking, group.pinned, group.hidden, rounds)


def _pair(pairing: Pairing) -> tuple[Any, ...]:
    result = pairing.result
    return (pairing.id, pairing.wire_id, pairing.name, result.key if result else None)


def recount(window: Window) -> dict[str, int]:
    """The totals from the entries alone, each of them sized again."""
    bytes_, tokens, messages, turn_bytes, turn_tokens = 0, 0, 0, 0, 0
    texts = [window.notice(), *window.words.texts(recall=window.settings.recall)]
    if window.summary is not None and window.summary.text:
        handle = f" · recall {window.summary.handle}" if window.settings.recall else ""
        texts.append(
            "[Summary of the earlier conversation, for reference: the newest user message wins"
            f"{handle}]\n{window.summary.text}"
        )
    for text in filter(None, texts):
        size = sizes_of(text_message("user", text), window.counter)[0]
        bytes_, tokens = bytes_ + size.bytes, tokens + size.tokens
    for group in window.groups:
        if group.hidden is not None:
            continue
        for entry in group.entries():
            size, count = sized(window, entry)
            bytes_, tokens, messages = bytes_ + size, tokens + count, messages + 1
            if group.index >= window.turn_start:
                turn_bytes, turn_tokens = turn_bytes + size, turn_tokens + count
    dropped = [g for g in window.groups if g.hidden is not None and g.hidden.op == "drop"]
    return {
        "bytes": bytes_,
        "tokens": tokens,
        "messages": messages,
        "turn_bytes": turn_bytes,
        "turn_tokens": turn_tokens,
        "dropped": sum(1 for group in dropped for _ in group.entries()),
    }


def sized(window: Window, entry: Entry) -> tuple[int, int]:
    """Bytes and tokens of a message as the model sees it."""
    bytes_ = tokens = 0
    for part, whole in enumerate(sizes_of(entry.message, window.counter)):
        edit = entry.edits.get(part)
        if edit is None:
            size = whole
        else:
            size = size_of(shown(entry.message.parts[part], edit), window.counter)
        bytes_, tokens = bytes_ + size.bytes, tokens + size.tokens
    return bytes_, tokens
