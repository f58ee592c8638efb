"""What an Anthropic reply tells beside its message: usage, a diagnosis of the cache, edits."""

from __future__ import annotations

from functools import reduce
from typing import Any

from trimtab.dialects.base import WireObject
from trimtab.dialects.json_values import dict_or_none, dicts_in_list, int_or_zero
from trimtab.log.event import Usage, add_usage

COMPACTION_EDIT = "compaction"


def parse_anthropic_usage(usage: WireObject) -> Usage:
    """All that is billed. The top-level figures leave a compaction by the server out; ours have it
    in, as they have cache reads and writes."""
    compactions = (
        _parse_figures(each)
        for each in dicts_in_list(usage.get("iterations"))
        if each.get("type") == COMPACTION_EDIT
    )
    return reduce(add_usage, compactions, _parse_figures(usage))


def _parse_figures(figures: WireObject) -> Usage:
    """Anthropic's `input_tokens` leaves cache reads and writes out; ours has them in."""
    cache_read = int_or_zero(figures.get("cache_read_input_tokens"))
    cache_write = int_or_zero(figures.get("cache_creation_input_tokens"))
    by_lifetime = dict_or_none(figures.get("cache_creation")) or {}
    return Usage(
        input=int_or_zero(figures.get("input_tokens")) + cache_read + cache_write,
        output=int_or_zero(figures.get("output_tokens")),
        cache_read=cache_read,
        cache_write=cache_write,
        cache_write_long=int_or_zero(by_lifetime.get("ephemeral_1h_input_tokens")),
    )


def count_request_as_sent(reply_body: WireObject, usage: WireObject) -> int | None:
    """Tokens of the request as we sent it; None where the usage says just that.

    With tools that the provider runs itself the model is run several times, and the usage is the
    sum: the first run has read the request. What the server has cleared is added again. After a
    compaction nobody tells what the request was: 0.
    """
    edits = read_anthropic_edits(reply_body) or {}
    if COMPACTION_EDIT in edits:
        return 0
    runs = [
        _parse_figures(each).input
        for each in dicts_in_list(usage.get("iterations"))
        if each.get("type") == "message"
    ]
    total = _parse_figures(usage).input
    counted = (runs[0] if runs else total) + sum(edits.values())
    return None if counted == total else counted


def read_anthropic_cache_diagnosis(reply_body: WireObject) -> dict[str, Any] | None:
    """Why the prompt cache could not be read, if the request asked and the answer was ready."""
    told = dict_or_none(reply_body.get("diagnostics")) or {}
    reason = dict_or_none(told.get("cache_miss_reason"))
    if reason is None or not isinstance(reason.get("type"), str):
        return None
    missed = int_or_zero(reason.get("cache_missed_input_tokens"))
    return {"reason": reason["type"], **({"missed_tokens": missed} if missed else {})}


def read_anthropic_edits(reply_body: WireObject) -> dict[str, int] | None:
    """What the server took out of the request, by kind of edit; None where it does not tell."""
    managed = dict_or_none(reply_body.get("context_management"))
    blocks = dicts_in_list(reply_body.get("content"))
    compacted = any(block.get("type") == COMPACTION_EDIT for block in blocks)
    if managed is None and not compacted:
        return None
    edits: dict[str, int] = {COMPACTION_EDIT: 0} if compacted else {}
    for edit in dicts_in_list((managed or {}).get("applied_edits")):
        kind = str(edit.get("type"))
        edits[kind] = edits.get(kind, 0) + int_or_zero(edit.get("cleared_input_tokens"))
    return edits
