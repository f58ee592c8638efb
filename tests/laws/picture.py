"""All that a window knows, as plain values that can be compared; and its totals, counted anew."""

from __future__ import annotations

from typing import Any

from tests.laws.oracle import without_margin_brackets
from trimtab.engine.log.edits import apply_edit_to_part
from trimtab.engine.log.message import make_text_message
from trimtab.engine.tokens.counter import measure_message_parts, measure_part
from trimtab.engine.window.structure import CallResultPair, Entry, Group
from trimtab.engine.window.window import Window
from trimtab.verbs.reporting import build_report
from trimtab.verbs.state import State


def _plain(window: Window) -> dict[str, Any]:
    """What is a plain value already."""
    accounting, conversation = window.accounting, window.conversation
    return {
        "seq": window.seq,
        "settings": window.settings,
        "settings_seq": window.settings_seq,
        "erased_ranges": window.base.erased_ranges,
        "prefix_version": accounting.prefix_version,
        "epoch": accounting.epoch,
        "sent_through_seq": accounting.sent_through_seq,
        "call_count": accounting.call_count,
        "last_call": accounting.last_call,
        "policy_note": accounting.policy_note,
        "version_at_last_call": accounting.version_at_last_call,
        "open_call_seq": accounting.open_call_seq,
        "last_usage": accounting.last_usage,
        "total_usage": accounting.total_usage,
        "total_cost_usd": accounting.total_cost_usd,
        "costed_calls": accounting.costed_calls,
        "last_call_ratio": accounting.last_call_ratio,
        "calibration_sums": accounting.calibration_sums,
        "usage_anchor": accounting.usage_anchor,
        "carried_usage": accounting.carried_usage,
        "learned_limit": accounting.learned_limit,
        "cache_is_cold": accounting.cache_is_cold,
        "overflow_without_numbers": accounting.overflow_without_numbers,
        "last_reply_id": conversation.last_reply_id,
        "last_assistant_seq": conversation.last_assistant_seq,
        "bytes": conversation.bytes,
        "tokens": conversation.tokens,
        "visible_messages": conversation.visible_messages,
        "turn_start_group": conversation.turn_start_group,
        "turn_bytes": conversation.turn_bytes,
        "turn_tokens": conversation.turn_tokens,
        "summary": conversation.summary,
        "summary_seq": conversation.summary_seq,
    }


def picture(window: Window) -> dict[str, Any]:
    newest = window.newest_user_entry
    return _plain(window) | {
        "counter": window.counter.name,
        "entries": [_entry(entry) for entry in window.entries.values()],
        "groups": [_group(group) for group in window.conversation.groups],
        "visible": list(window.visible_groups),
        "results": list(window.results),
        "turn_results": (window.turn_results.first, [*window.turn_results.last]),
        "turn_count": window.turn_results.count,
        "dropped": window.conversation.dropped_groups.message_count,
        "cache": window.accounting.cache_misses,
        "wire_ids": window.conversation.visible_wire_ids,
        "newest_user": newest.seq if newest else None,
        "notice": window.conversation.dropped_notice(),
        "words": [
            (block.listed_parts, block.left_out) for block in window.conversation.user_words.blocks
        ],
    }


def outlook(state: State) -> dict[str, Any]:
    """All that a context does with what it knows: the same, whatever has left its memory."""
    window = state.window
    newest = window.newest_user_entry
    visible = window.visible_groups.values()
    plain = _plain(window)
    del plain["turn_start_group"]
    return plain | {
        "entries": [_entry(entry) for group in visible for entry in group.entries()],
        "calls": [_pair(call) for group in visible for call in group.calls()],
        "groups": [[(e.seq) for e in group.entries()] for group in visible],
        "results": list(window.results),
        "turn_results": (window.turn_results.first, [*window.turn_results.last]),
        "turn_count": window.turn_results.count,
        "newest_user": newest.seq if newest else None,
        "notice": window.conversation.dropped_notice(),
        "words": [
            (block.listed_parts, block.left_out) for block in window.conversation.user_words.blocks
        ],
        "said": window.conversation.total_messages,
        "cache": window.accounting.cache_misses,
        "wire_ids": window.conversation.visible_wire_ids,
        "blocks": state.rendering.blocks,
        "digest": state.rendering.hash_request({}),
        "report": _report(state),
    }


def _report(state: State) -> dict[str, Any]:
    report = build_report(state).to_dict()
    # What left memory was counted by the counter of that time.
    report["hidden"] = {kind: count for kind, (count, _) in report["hidden"].items()}
    return report


def _entry(entry: Entry) -> tuple[Any, ...]:
    place = (entry.seq, entry.unpaired_results, entry.pinned, entry.is_repair)
    return (*place, entry.message, entry.sizes, entry.edits)


def _group(group: Group) -> tuple[Any, ...]:
    rounds = [
        (
            [entry.seq for entry in part.entries],
            part.unanswered_calls,
            [_pair(each) for each in part.calls],
        )
        for part in group.rounds
    ]
    sizes = (group.bytes, group.tokens, group.message_count)
    return (group.index, *sizes, group.has_thinking, group.pinned, group.hidden, rounds)


def _pair(pairing: CallResultPair) -> tuple[Any, ...]:
    result = pairing.result
    return (pairing.id, pairing.wire_id, pairing.name, result.key if result else None)


def recount(window: Window) -> dict[str, int]:
    """The totals from the entries alone, each of them sized again."""
    bytes_, tokens, messages, turn_bytes, turn_tokens = 0, 0, 0, 0, 0
    texts = [
        window.conversation.dropped_notice(),
        *window.conversation.user_words.render_blocks(recall_hint=window.settings.recall_hint),
    ]
    if window.summary is not None and window.summary.text:
        handle = f" · recall {window.summary.handle}" if window.settings.recall else ""
        texts.append(
            "[Summary of the earlier conversation, for reference: the newest user message wins"
            f"{handle}]\n{without_margin_brackets(window.summary.text)}"
        )
    for text in filter(None, texts):
        size = measure_message_parts(make_text_message("user", text), window.counter)[0]
        bytes_, tokens = bytes_ + size.bytes, tokens + size.tokens
    for group in window.conversation.groups:
        if group.hidden is not None:
            continue
        for entry in group.entries():
            size, count = sized(window, entry)
            bytes_, tokens, messages = bytes_ + size, tokens + count, messages + 1
            if group.index >= window.turn_start_group:
                turn_bytes, turn_tokens = turn_bytes + size, turn_tokens + count
    groups = [
        g for g in window.conversation.groups if g.hidden is not None and g.hidden.op == "drop"
    ]
    return {
        "bytes": bytes_,
        "tokens": tokens,
        "messages": messages,
        "turn_bytes": turn_bytes,
        "turn_tokens": turn_tokens,
        "dropped": sum(1 for group in groups for _ in group.entries()),
    }


def sized(window: Window, entry: Entry) -> tuple[int, int]:
    """Bytes and tokens of a message as the model sees it."""
    bytes_ = tokens = 0
    for part, whole in enumerate(measure_message_parts(entry.message, window.counter)):
        edit = entry.edits.get(part)
        if edit is None:
            size = whole
        else:
            size = measure_part(apply_edit_to_part(entry.message.parts[part], edit), window.counter)
        bytes_, tokens = bytes_ + size.bytes, tokens + size.tokens
    return bytes_, tokens
