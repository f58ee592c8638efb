"""Write the golden files again: `python -m tests.golden.record`.

They hold events of every kind, a log of each dialect and of each cloud with the requests of these
logs, and lists of messages with their edits and requests: see docs/vectors.md. Until 0.1.0 is
tagged, a change of the format or of the rendering writes them again in its own commit, whose
message names each difference. A difference that nobody wanted is a mistake in the change, not in
the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from tests.conversations import ticking
from tests.golden import bedrock
from tests.golden.events import EVENTS
from tests.golden.lists import LISTS_FILE, render_vectors
from tests.recording import append
from trimtab import Context
from trimtab.engine.log.event import (
    Edit,
    EditKind,
    ModelCall,
    OmittedUserMessages,
    Size,
    UserPartReference,
    dump_canonical_json,
    dump_event_line,
)
from trimtab.engine.log.message import ToolCall
from trimtab.engine.policy.planning.plan import MessageSpan
from trimtab.types import DialectName

HERE = Path(__file__).parent
DIALECTS = ("anthropic", "openai_chat", "openai_responses")
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
}
LONG = "A line of a file that is read.\n" * 60


def events_file() -> Path:
    return HERE / "events.jsonl"


def log_file(dialect: str) -> Path:
    return HERE / f"log_{dialect}.jsonl"


def requests_file(dialect: str) -> Path:
    return HERE / f"requests_{dialect}.json"


def conversation(dialect: str) -> Context:
    """A small one of everything a renderer meets."""
    context = Context(
        MODELS[dialect],
        dialect=cast("DialectName", dialect),
        policy="layered",
        system="You are a careful assistant.",
        tools=[
            {
                "name": "read",
                "description": "Read a file.",
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
            }
        ],
        limits={
            "max_history_tokens": 300,
            "max_tool_result_tokens": 100,
            "tool_result_keep_first": 0,
            "tool_result_keep_last": 1,
        },
        recall=True,
        clock=ticking(1_700_000_000.0),
    )
    context.add({"role": "user", "content": "Grüße! What is in a.py?"})
    context.request()
    for number in range(3):
        context.add(_calls(f"call_{number}", f"other_{number}"))
        context.add(_result(f"other_{number}", f"small {number}"))
        if number == 0:
            context.add({"role": "user", "content": "Only the first lines, please."})
        context.add(_result(f"call_{number}", LONG))
        context.request(stream=number == 2)
    context.add({"role": "assistant", "content": "It has sixty lines."})
    context.add({"role": "user", "content": LONG[:900]})
    context.add(_calls("call_0", "never"))
    context.add(_result("call_0", "an id used again"))
    context.add({"role": "user", "content": "Stop."})
    context.request(volatile="It is noon.")
    context.add(_result("never", "came late"))
    context.add({"role": "user", "content": "Go on."})
    context.request()
    context.add_summary(
        "They read a.py, which has sixty lines.", span=MessageSpan(first=1, last=36)
    )
    context.request()
    _words_stay(context)
    return context


def _words_stay(context: Context) -> None:
    """The user's words in a list, calls and results cut otherwise."""
    context.add(_calls("call_7"))
    context.add(_result("call_7", LONG))
    context.add({"role": "user", "content": [{"type": "text", "text": "<system-reminder>x"}]})
    context.add({"role": "user", "content": f"Read {LONG}"})
    context.request()
    window = context.window
    call_seq, result_seq = (
        max(entry.seq for entry in window.entries.values() if entry.message.role == role)
        for role in ("assistant", "tool")
    )
    users = [entry.seq for entry in window.entries.values() if entry.message.role == "user"]
    parts = window.entries[call_seq].message.parts
    call = next(index for index, part in enumerate(parts) if isinstance(part, ToolCall))
    append(context, _edit("truncate", call_seq, call_seq, part=call, text="[cut]", head=3))
    append(
        context,
        _edit(
            "truncate",
            result_seq,
            result_seq,
            part=0,
            text="[shortened]",
            pieces=((0, 62), (93, 124)),
        ),
    )
    references = (
        UserPartReference(users[0], 0),
        UserPartReference(users[1], 0, 5, 6),
        UserPartReference(users[2], 0, 0, 0, users[0]),
    )
    append(context, _edit("drop", users[0], users[0], listed=references[:1]))
    append(context, _edit("drop", users[1], users[2], listed=references[1:]))
    context.request()
    left_out = OmittedUserMessages(2, users[0], users[1], 1_700_000_000.0, 1_700_000_060.0)
    append(context, _edit("drop", 0, 0, listed=references[2:], relists=True, left_out=left_out))
    context.request()


def _edit(op: EditKind, first: int, last: int, **more: Any) -> Edit:
    return Edit(op=op, first=first, last=last, size=Size(bytes=40, tokens=10), **more)


def _calls(*ids: str) -> dict[str, Any]:
    tool_calls = [
        {
            "id": each,
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"{each}.py"})},
        }
        for each in ids
    ]
    return {"role": "assistant", "content": "Let me look.", "tool_calls": tool_calls}


def _result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def requests(log: list[str]) -> list[str]:
    """The canonical request of every call in a log, rendered now."""
    context = Context.load(log)
    positions = [event.seq for event in context.events if isinstance(event.body, ModelCall)]
    return [dump_canonical_json(context.rebuild_request(seq)) for seq in positions]


def write() -> None:
    _write_lines(events_file(), [dump_event_line(event) for event in EVENTS])
    _write_lines(LISTS_FILE, render_vectors())
    for dialect in DIALECTS:
        log = conversation(dialect).dump()
        _write_lines(log_file(dialect), log)
        _write_lines(requests_file(dialect), _list_lines(requests(log)))
    for name in bedrock.MODELS:
        log = bedrock.conversation(name).dump()
        _write_lines(bedrock.log_file(name), log)
        bodies = bedrock.sent(name, [json.loads(request) for request in requests(log)])
        _write_lines(bedrock.sent_file(name), _list_lines([dump_canonical_json(b) for b in bodies]))


def _list_lines(rendered: list[str]) -> list[str]:
    return ["[", *(f"{each}," for each in rendered[:-1]), rendered[-1], "]"]


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    write()
