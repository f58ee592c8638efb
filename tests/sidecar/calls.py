"""What the tests of the sidecar share: bodies and calls."""

from __future__ import annotations

import json
from typing import Any

from trimtab.sidecar.sidecar import Sidecar

SMALL = {"context_window": 8_000, "recall": "recall {handle}", "goal": "cost"}


def report(number: int) -> str:
    """A tool's result of about 900 tokens, like no other one."""
    return f"report {number}: " + " ".join(f"row_{number}_{k} = {k * number}" for k in range(90))


def chat(turns: int, **more: Any) -> dict[str, Any]:
    """The body of a conversation in which each turn reads a report."""
    messages: list[Any] = [{"role": "system", "content": "Be careful."}]
    for turn in range(turns):
        call = {"name": "read", "arguments": json.dumps({"n": turn})}
        messages += [
            {"role": "user", "content": f"Turn {turn}"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{turn}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{turn}", "content": report(turn), "x_1": 10**40},
        ]
    return {"model": "gpt-4o", "messages": messages, "max_tokens": 500, **more}


def claude(turns: int, **more: Any) -> dict[str, Any]:
    """The same for Claude."""
    messages: list[Any] = []
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"c{turn}", "name": "read", "input": {"n": turn}}
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": report(turn)}
        messages += [
            {"role": "user", "content": [{"type": "text", "text": f"Turn {turn}"}]},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    return {"model": "claude-sonnet-4-5", "messages": messages, "max_tokens": 500, **more}


def ask(sidecar: Sidecar, operation: str, **fields: Any) -> dict[str, Any]:
    """Call an operation, and return its answer with its status."""
    answer = sidecar.run(sidecar.answer(operation, json.dumps(fields)))
    return {"status": answer.status, **json.loads(answer.write())}


def fit(sidecar: Sidecar, body: Any, *, conversation: str = "a", **fields: Any) -> dict[str, Any]:
    """Fit a body in a small window."""
    fields.setdefault("options", SMALL)
    return ask(sidecar, "fit", conversation=conversation, body=body, **fields)


def fit_from_start(sidecar: Sidecar, turns: int, **fields: Any) -> dict[str, Any]:
    """Fit a body whose log began with the first question, so that its handles have no tag."""
    first = chat(1)
    first["messages"] = first["messages"][:2]
    fit(sidecar, first, **fields)
    return fit(sidecar, chat(turns), **fields)
