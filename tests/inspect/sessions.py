"""Small sessions of every kind, for the tests of a page."""

from __future__ import annotations

from itertools import count

from trimtab import Context
from trimtab.engine.log.event import Event, Usage
from trimtab.types import PolicyName

TOOLS = [{"name": "read", "input_schema": {"type": "object", "properties": {}}}]


def reading_agent(turns: int = 12, *, policy: PolicyName = "auto", words: str = "") -> Context:
    """An agent that reads files until its window is full, and then asks for the first again."""
    ticks = count(1_700_000_000, 5)
    context = Context(
        model="claude-sonnet-4-5",
        system=f"You look after a code base. {words}",
        tools=TOOLS,
        policy=policy,
        context_window=16_000,
        clock=lambda: float(next(ticks)),
    )
    before = 0
    version = -1
    for turn in range(turns):
        context.add({"role": "user", "content": f"Look at file {turn}, please. {words}"})
        context.request()
        call = context.window.last_call
        assert call is not None
        tokens = call.body.tokens
        is_same = context.window.accounting.prefix_version == version
        version = context.window.accounting.prefix_version
        usage = Usage(
            input=tokens,
            output=20,
            cache_read=before if is_same else 0,
            cache_write=tokens - before if is_same else tokens,
        )
        before = tokens
        use = {"type": "tool_use", "id": f"toolu_{turn}", "name": "read"}
        path = f"src/part_{turn}.py" if turn < turns - 1 else "lib/only_in_file_0.py"
        content = [{"type": "text", "text": "I read it."}, {**use, "input": {"path": path}}]
        context.add({"role": "assistant", "content": content}, usage=usage)
        lines = [f"line {number} of file {turn}\n" for number in range(500)]
        if turn == 0:
            lines[9] = "see lib/only_in_file_0.py\n"
        text = words + "".join(lines)
        result = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": text}
        context.add({"role": "user", "content": [result]})
        context.request()
        context.add({"role": "assistant", "content": f"File {turn} is fine."})
    return context


def list_events(context: Context) -> list[Event]:
    return list(context.events)
