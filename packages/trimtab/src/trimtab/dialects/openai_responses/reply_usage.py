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
    diagnostics = dict_or_none(reply_body.get("prompt_cache_diagnostics"))
    if diagnostics is None or not isinstance(diagnostics.get("type"), str):
        return None
    missed_tokens = int_or_zero(diagnostics.get("cache_missed_tokens"))
    reason = (
        diagnostics.get("reason") if diagnostics["type"] == "cache_miss" else diagnostics["type"]
    )
    return {"reason": str(reason), **({"missed_tokens": missed_tokens} if missed_tokens else {})}


def read_responses_compaction(reply_body: WireObject) -> dict[str, int] | None:
    """Return a compaction that the server made in this response; None if it made none."""
    items = dicts_in_list(reply_body.get("output"))
    return {"compaction": 0} if any(i.get("type") == "compaction" for i in items) else None
