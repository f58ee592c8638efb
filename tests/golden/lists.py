"""Lists of messages with the edits that a policy makes of them and the request that is sent.

Tokens are counted as a port can count them: a token for four bytes of UTF-8, rounded up. So nothing
is estimated, and a vector says nothing of a tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tests.conversations import ticking
from trimtab import Context
from trimtab.engine.log.event import Edit, MessageAdded, ToolResultRepair, dump_event_line
from trimtab.errors import CannotFit

LISTS_FILE = Path(__file__).parent / "lists.json"
Wire = dict[str, Any]
FILE = "A line of a file that is read.\n" * 10
READ = {
    "name": "read",
    "description": "Read a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}


def count_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


def _round(number: int, result: str = FILE, *, answered: bool = True) -> list[Wire]:
    """A call and its result in the form of Chat Completions, which each dialect reads."""
    function = {"name": "read", "arguments": json.dumps({"path": f"{number}.py"})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    asked: Wire = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [asked, {"role": "tool", "tool_call_id": call["id"], "content": result}][: 1 + answered]


def _user(text: str) -> Wire:
    return {"role": "user", "content": text}


def _turns(count: int) -> list[Wire]:
    turns = [
        [_user(f"Question {number}."), {"role": "assistant", "content": f"Answer {number}. {FILE}"}]
        for number in range(count)
    ]
    return [message for turn in turns for message in turn]


LOOP = [
    _user("Read some files."),
    *(message for number in range(7) for message in _round(number)),
]
CASES: dict[str, tuple[Mapping[str, Any], list[Wire]]] = {
    "what fits is sent as it is": ({}, [_user("Grüße! 🙂"), *_round(1, "a = 1")]),
    "a missing result is repaired": ({}, [*_round(1, answered=False), _user("Go on.")]),
    "a result that answers nothing is a note": (
        {},
        [_user("Hello."), *_round(1, "a = 1")[1:], _user("Go on.")],
    ),
    "layered truncates a result over its cap": (
        {"policy": "layered", "limits": {"max_tool_result_tokens": 40}},
        [_user("Read."), *_round(1)],
    ),
    "layered truncates to both ends": (
        {
            "policy": "layered",
            "limits": {"max_tool_result_tokens": 40, "tool_result_truncation": "both"},
        },
        [_user("Read."), *_round(1)],
    ),
    "layered masks the middle of the results": (
        {
            "policy": "layered",
            "context_window": 1_400,
            "limits": {"tool_result_keep_first": 1, "tool_result_keep_last": 2},
        },
        LOOP,
    ),
    "layered drops turns over the history's cap": (
        {"policy": "layered", "limits": {"max_history_tokens": 200}},
        [*_turns(6), _user("And now?")],
    ),
    "compact previews old results": (
        {"policy": "compact", "limits": {"max_context_bytes": 1_500}},
        LOOP,
    ),
    "thresholds summarises by excerpts above 70 %": (
        {"policy": "thresholds", "context_window": 1_400},
        [*_turns(9), _user("And now?")],
    ),
    "the guard makes a request of a policy fit that keeps everything": (
        {"policy": "full", "context_window": 1_200},
        LOOP,
    ),
    "the newest user message is truncated last": (
        {"policy": "full", "context_window": 1_200},
        [*_turns(2), _user(FILE * 12)],
    ),
    "what cannot fit is an error": (
        {"policy": "full", "context_window": 1_000, "system": FILE * 12},
        [_user("Hello.")],
    ),
}
"""By name: the options of `Context` that differ from `OPTIONS`, and the messages."""
OPTIONS: Mapping[str, Any] = {
    "policy": "full",
    "max_output_tokens": 256,
    "system": "You are careful.",
    "tools": [READ],
    "recall": True,
}
MODELS = {
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
}
IN_EACH_DIALECT = ("what fits is sent as it is", "a missing result is repaired")


def render_vectors() -> list[str]:
    """Return the lines of the file: the common options, then each case with what comes of it, in
    each dialect where that says more."""
    vectors = [
        json.dumps(_build_vector(name, dialect), sort_keys=True)
        for name in CASES
        for dialect in (MODELS if name in IN_EACH_DIALECT else ["openai_chat"])
    ]
    head = f'{{"options": {json.dumps(OPTIONS, sort_keys=True)}, "vectors": ['
    return [head, *(f"{vector}," for vector in vectors[:-1]), vectors[-1], "]}"]


def _build_vector(name: str, dialect: str) -> dict[str, Any]:
    given, messages = CASES[name]
    options = {**given, "model": MODELS[dialect], "dialect": dialect}
    context = Context(
        **cast("Any", {**OPTIONS, **options}),
        tokenizer=count_tokens,
        clock=ticking(1_700_000_000.0),
    )
    context.sync(messages)
    positions = [event.seq for event in context.events if isinstance(event.body, MessageAdded)]
    vector = {"name": name, "options": options, "messages": messages, "positions": positions}
    try:
        request = context.request()
    except CannotFit as error:
        return {**vector, "error": {"limit": error.limit, "needed": error.needed}}
    kinds = (Edit, ToolResultRepair)
    lines = [dump_event_line(event) for event in context.events if isinstance(event.body, kinds)]
    return {**vector, "edits": [json.loads(line) for line in lines], "request": request}
