"""What a response contains in addition to its message: usage, cache diagnosis, a compaction."""

from __future__ import annotations

from typing import Any

from trimtab.dialects.base import WireObject
from trimtab.dialects.json_values import dict_or_none, dicts_in_list, int_or_zero
from trimtab.engine.log.event import Usage


def parse_responses_usage(usage: WireObject) -> Usage:
    details = dict_or_none(usage.get("input_tokens_details")) or {}
    by_lifetime = dict_or_none(details.get("cache_write_tokens_details")) or {}
    return Usage(
        input=int_or_zero(usage.get("input_tokens")),
        output=int_or_zero(usage.get("output_tokens")),
        cache_read=int_or_zero(details.get("cached_tokens")),
        cache_write=int_or_zero(details.get("cache_write_tokens")),
        cache_write_long=int_or_zero(by_lifetime.get("ttl_12h_tokens")),
    )


def read_responses_cache_diagnosis(reply_body: WireObject) -> dict[str, Any] | None:
    """Return what the comparison with an earlier response found, if the request asked for one."""
    told = dict_or_none(reply_body.get("prompt_cache_diagnostics"))
    if told is None or not isinstance(told.get("type"), str):
        return None
    missed = int_or_zero(told.get("cache_missed_tokens"))
    reason = told.get("reason") if told["type"] == "cache_miss" else told["type"]
    return {"reason": str(reason), **({"missed_tokens": missed} if missed else {})}


def read_responses_compaction(reply_body: WireObject) -> dict[str, int] | None:
    """Return a compaction that the server made in this response; None if it made none."""
    items = dicts_in_list(reply_body.get("output"))
    return {"compaction": 0} if any(i.get("type") == "compaction" for i in items) else None
