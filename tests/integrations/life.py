"""A life of an agent that reads long reports, and what a strict provider saw of it.

What a request looks like is judged here by rules of this file, not by those of Trimtab.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from trimtab.testing import RecordedRequest, ServedSimulator

TOOL = "read_report"


def write_report(number: int, lines: int = 120) -> str:
    """A result of about 1,200 tokens."""
    rows = (f"line_{number}_{row} value={row * number % 977}" for row in range(lines))
    return f"report {number}: " + " ".join(rows)


def call_for(number: int) -> dict[str, Any]:
    return {"name": TOOL, "arguments": {"number": number}}


def script_turn(turn: int) -> list[Any]:
    """Two parallel calls, one more call, an answer."""
    calls = [call_for(3 * turn + number) for number in range(3)]
    return [{"calls": calls[:2]}, {"calls": calls[2:]}, {"text": 30}]


def list_records(served: ServedSimulator) -> list[RecordedRequest]:
    return list(served.simulator.records.requests)


def list_answered(served: ServedSimulator) -> list[RecordedRequest]:
    return [record for record in list_records(served) if record.fate == "answered"]


def list_refusals(served: ServedSimulator) -> list[str]:
    """Why requests were not answered."""
    return [record.message for record in list_records(served) if record.fate != "answered"]


def count_cut(served: ServedSimulator) -> int:
    """How many replies of Claude ended because the window was full."""
    stops = [(record.reply or {}).get("stop_reason") for record in list_records(served)]
    return stops.count("model_context_window_exceeded")


def list_messages(body: Any) -> list[dict[str, Any]]:
    return body["input"] if "input" in body else body["messages"]


def is_paired(body: Any) -> bool:
    """Whether every call has one result after it, and every result a call before it."""
    open_calls: set[str] = set()
    for message in list_messages(body):
        calls, results = _list_call_ids(message)
        if not open_calls.issuperset(results):
            return False
        open_calls.difference_update(results)
        open_calls.update(calls)
    return not open_calls


def _list_call_ids(message: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The ids of the calls and of the results in a message or an item."""
    calls = [call["id"] for call in message.get("tool_calls") or ()]
    results = [message["tool_call_id"]] if message.get("role") == "tool" else []
    content = message.get("content")
    for block in (message, *(content if isinstance(content, list) else ())):
        match block.get("type"):
            case "function_call":
                calls.append(block["call_id"])
            case "function_call_output":
                results.append(block["call_id"])
            case "tool_use":
                calls.append(block["id"])
            case "tool_result":
                results.append(block["tool_use_id"])
            case _:
                pass
    return calls, results


def count_prefix_breaks(served: ServedSimulator, is_counted: Callable[[Any], bool] = bool) -> int:
    """How many answered requests do not begin with the messages of the one before; those that are
    not counted are left out."""
    bodies = [record.body for record in list_answered(served) if is_counted(record.body)]
    return sum(not extends(before, after) for before, after in pairwise(bodies))


def extends(before: Any, after: Any) -> bool:
    """Whether a body begins with all messages of another one, cache marks aside."""
    one, other = (
        [json.dumps(_without_marks(message), sort_keys=True) for message in list_messages(body)]
        for body in (before, after)
    )
    return other[: len(one)] == one


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_marks(v) for k, v in value.items() if k != "cache_control"}
    return [_without_marks(each) for each in value] if isinstance(value, list) else value


def read_cache_ratio(served: ServedSimulator) -> float:
    """The share of all input tokens that were read from the provider's cache."""
    sizes = [
        _read_input((record.reply or {}).get("usage") or {}) for record in list_records(served)
    ]
    return sum(read for _, read in sizes) / sum(total for total, _ in sizes)


def _read_input(usage: Any) -> tuple[int, int]:
    if "cache_read_input_tokens" in usage:  # Claude's
        read = usage["cache_read_input_tokens"] or 0
        written = usage.get("cache_creation_input_tokens") or 0
        return usage["input_tokens"] + read + written, read
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    total = usage.get("prompt_tokens") or usage.get("input_tokens") or 0
    return total, details.get("cached_tokens") or 0
