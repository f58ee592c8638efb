"""The measure: the same life through a plain `Context` and a provider's wire format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from benchmarks.doors.life import list_messages, read_usage
from trimtab import Context
from trimtab.testing.server import ProviderSimulator, ProviderSimulatorOptions
from trimtab.testing.server.request_log import RecordedRequest

HEADERS = {"x-api-key": "k", "authorization": "Bearer k", "anthropic-version": "2023-06-01"}


def read_cache_share(requests: Sequence[RecordedRequest], *, dialect: Any, window: int) -> float:
    """The share of input that is read from the cache, if a `Context` sends this life.

    `requests` are those of a life in a window without end: each has the whole history.
    """
    first = requests[0].body
    output = first.get("max_tokens") or first.get("max_completion_tokens") or 2_000
    context: Any = Context(
        first["model"],
        dialect=dialect,
        system=first.get("system") or "",
        tools=[_without_mark(tool) for tool in first["tools"]],
        recall="recall {handle}",
        context_window=window,
        max_output_tokens=output,
    )
    simulator = ProviderSimulator(ProviderSimulatorOptions(window=window))
    total = read = 0
    for request in requests:
        context.sync([_without_mark(message) for message in list_messages(request.body)])
        body = context.request()
        simulator.script.add_replies([{"text": 5}])
        answered = simulator.handle_request(dialect, HEADERS, json.dumps(body).encode())
        if answered.status != 200:
            raise AssertionError(f"a plain Context was refused: {answered.body}")
        tokens, cached = read_usage(simulator.records.requests[-1])
        total, read = total + tokens, read + cached
    return round(read / total, 4)


def _without_mark(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_mark(each) for key, each in value.items() if key != "cache_control"}
    return [_without_mark(each) for each in value] if isinstance(value, list) else value
