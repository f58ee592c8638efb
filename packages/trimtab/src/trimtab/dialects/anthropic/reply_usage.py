"""What an Anthropic reply contains in addition to its message: usage, cache diagnosis, edits."""

from __future__ import annotations

from functools import reduce
from typing import Any

from trimtab.dialects.base import WireObject
from trimtab.dialects.json_values import dict_or_none, dicts_in_list, int_or_zero
from trimtab.engine.log.event import Usage, add_usage

COMPACTION_EDIT = "compaction"


def parse_anthropic_usage(usage: WireObject) -> Usage:
    """Return everything that is billed.

    The top-level figures exclude a compaction by the server. Ours include it, and also cache reads
    and writes.
    """
    compactions = (
        _parse_figures(iteration)
        for iteration in dicts_in_list(usage.get("iterations"))
        if iteration.get("type") == COMPACTION_EDIT
    )
    return reduce(add_usage, compactions, _parse_figures(usage))


def _parse_figures(figures: WireObject) -> Usage:
    """Anthropic's `input_tokens` excludes cache reads and writes; ours includes them."""
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
    """Return the tokens of the request as we sent it; None if the usage says exactly that.

    With tools that the provider runs itself, the model runs several times and the usage is the sum.
    The first run has read the request. Tokens that the server has cleared are added again. After a
    compaction the size of the request is unknown: 0.
    """
    edits = read_anthropic_edits(reply_body) or {}
    if COMPACTION_EDIT in edits:
        return 0
    runs = [
        _parse_figures(iteration).input
        for iteration in dicts_in_list(usage.get("iterations"))
        if iteration.get("type") == "message"
    ]
    total = _parse_figures(usage).input
    input_tokens = (runs[0] if runs else total) + sum(edits.values())
    return None if input_tokens == total else input_tokens


def read_anthropic_cache_diagnosis(reply_body: WireObject) -> dict[str, Any] | None:
    """Return why the prompt cache was not read, if the request asked and the answer was ready."""
    diagnostics = dict_or_none(reply_body.get("diagnostics")) or {}
    reason = dict_or_none(diagnostics.get("cache_miss_reason"))
    if reason is None or not isinstance(reason.get("type"), str):
        return None
    missed_tokens = int_or_zero(reason.get("cache_missed_input_tokens"))
    return {"reason": reason["type"], **({"missed_tokens": missed_tokens} if missed_tokens else {})}


def read_anthropic_edits(reply_body: WireObject) -> dict[str, int] | None:
    """Return the tokens that the server removed from the request, by kind of edit; None if it does
    not say."""
    management = dict_or_none(reply_body.get("context_management"))
    blocks = dicts_in_list(reply_body.get("content"))
    was_compacted = any(block.get("type") == COMPACTION_EDIT for block in blocks)
    if management is None and not was_compacted:
        return None
    edits: dict[str, int] = {COMPACTION_EDIT: 0} if was_compacted else {}
    for edit in dicts_in_list((management or {}).get("applied_edits")):
        kind = str(edit.get("type"))
        edits[kind] = edits.get(kind, 0) + int_or_zero(edit.get("cleared_input_tokens"))
    return edits
