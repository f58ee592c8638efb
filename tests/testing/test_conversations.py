"""Long conversations of a Context, over a socket, that no provider finds fault with."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.replies import result
from tests.testing.requests import CLAUDE, GPT, MARKED, PROSE, REASONER, TOOLS
from trimtab import Context
from trimtab.dialects import get_dialect
from trimtab.engine.log.event import Edit
from trimtab.types import DialectName

TURNS = 10
ADAPTIVE = {"thinking": {"type": "adaptive"}}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "anthropic": ("anthropic", CLAUDE, {}),
    "anthropic thinking": ("anthropic", CLAUDE, ADAPTIVE),
    "chat": ("openai_chat", GPT, {}),
    "chat with breakpoints": ("openai_chat", MARKED, {}),
    "responses": ("openai_responses", GPT, {}),
    "responses reasoning": ("openai_responses", REASONER, {}),
    "responses with breakpoints": ("openai_responses", MARKED, {}),
}


def send(name, claude, gpt, request):
    match name:
        case "anthropic":
            return claude.messages.create(**request)
        case "openai_chat":
            return gpt.chat.completions.create(**request)
        case _:
            # In the body as it is: the SDK takes a third of a second to look through typed items.
            given = {key: request[key] for key in ("model", "stream") if key in request}
            return gpt.responses.create(**given, extra_body=request)


def answered(context, name, claude, gpt, *, stream):
    """One call, its reply added; the calls that the reply makes."""
    made = send(name, claude, gpt, context.request(stream=stream))
    if stream:
        for _ in context.watch(made):
            pass
    else:
        context.add(made)
    last = max(context.window.entries)
    return context.window.entries[last].message.calls


@pytest.mark.slow
@pytest.mark.soak_on("layered")
@pytest.mark.parametrize("policy", ["auto", "layered"])
@pytest.mark.parametrize("case", CASES)
def test_a_conversation_of_many_turns_is_never_refused(claude, gpt, simulator, policy, case):
    name, model, params = CASES[case]
    simulator.configure(window=12_000)
    plan = {"tool_calls": 2, "parallel": 2, "then": {"text": 60}}
    simulator.script.set_replies([plan], repeat=True)
    context = Context(
        model,
        dialect=cast("DialectName", name),
        policy=policy,
        system="You are a careful reader.",
        tools=TOOLS[name],
        params=params,
        context_window=12_000,
        max_output_tokens=2_000,
    )
    for turn in range(TURNS):
        context.add({"role": "user", "content": f"question {turn}: {PROSE * 3}"})
        while calls := answered(context, name, claude, gpt, stream=turn % 2 == 1):
            for call in calls:
                context.add(result(name, call.id, f"{call.id} {PROSE * 20}"))
    assert any(isinstance(event.body, Edit) for event in context.events)
    stats = simulator.stats()
    assert (stats["requests"], stats["refused"], stats["violations"]) == (3 * TURNS, 0, 0)
    for record in simulator.records.requests:
        assert get_dialect(name).find_request_errors(record.body) == []
    read = [_cached(name, record.reply) for record in simulator.records.requests]
    # Where the window is full, `layered` changes the front at most calls.
    assert sum(count > 0 for count in read) > TURNS // 2


def _cached(name, reply):
    usage = get_dialect(name).parse_reply(reply).usage
    assert usage is not None
    return usage.cache_read
