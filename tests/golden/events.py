"""One event of every kind, every field set to something that is not its default."""

from __future__ import annotations

from trimtab.core.event import (
    Body,
    Call,
    Edit,
    Erase,
    Event,
    Fork,
    Outcome,
    Pin,
    Repair,
    Retention,
    Rewind,
    Said,
    Settings,
    Size,
    Turn,
    Usage,
)
from trimtab.core.message import Media, Message, Opaque, Text, ToolCall, ToolResult

SIZE = Size(bytes=12, tokens=3)
EXTRA = {"cache_control": {"type": "ephemeral"}}

MESSAGE = Message(
    role="assistant",
    parts=(
        Text(text="Grüße 🙂\u0000\n", extra=EXTRA),
        Media(
            kind="image", mime="image/png", data="aGk=", url="https://example.org/a", extra=EXTRA
        ),
        Opaque(data={"type": "thinking", "signature": "c2ln"}, thinking=True),
        ToolCall(id="call_1", name="read", arguments='{"path": "ü"}', extra=EXTRA),
        ToolResult(
            call_id="call_0",
            content=(Text(text="no"), Media(kind="file"), Opaque(data={"type": "x"})),
            is_error=True,
            plain=False,
            extra=EXTRA,
        ),
    ),
    plain=False,
    origin="anthropic",
    extra={"name": "ann"},
)

BODIES: tuple[Body, ...] = (
    Settings(
        model="claude-sonnet-4-5",
        dialect="anthropic",
        system=(Message(role="system", parts=(Text(text="Be brief."),)),),
        tools=({"name": "read", "input_schema": {"type": "object"}},),
        params={"temperature": 0.5, "stop": ["END"]},
        policy="compact",
        policy_params={"goal": "cost", "context": {"tools": {"read": {"exempt": True}}}},
        limits={"max_input_tokens": 150_000},
        entry={"name": "claude-sonnet-4-5", "context_window": 200_000},
        counter="piecewise/claude_v3/1",
        recall=True,
        renderer=2,
        head=SIZE,
    ),
    Said(
        message=MESSAGE,
        sizes=(SIZE, SIZE, SIZE, SIZE, SIZE),
        counter="bytes/4",
        call=1,
        reply_id="msg_1",
        key="inbound-1",
        recalled=True,
    ),
    Edit(
        op="truncate",
        first=2,
        last=3,
        part=4,
        text="[cut]",
        head=5,
        tail=6,
        size=SIZE,
        why="read: over 8000 tokens",
    ),
    Repair(
        message=Message(role="tool", parts=(ToolResult(call_id="call_1", content=()),)),
        sizes=(SIZE,),
        why="no result came",
    ),
    Call(
        position=4,
        max_output=8_192,
        hash="ab" * 32,
        tokens=100,
        bytes=400,
        bound=115,
        blocks=7,
        marks=(-1, 3, 6),
        stream=True,
        volatile="It is noon.",
        note={"meter": 12.5},
    ),
    Outcome(
        call=5,
        status="error",
        usage=Usage(input=100, output=20, cache_read=70, cache_write=10),
        stop="max_tokens",
        error={"kind": "overflow", "limit": 200_000, "input": 213_462, "requested": 8_192},
    ),
    Turn(state="tool_started", epoch=3, key="call_1"),
    Pin(first=2, last=4, pinned=False),
    Rewind(to=3),
    Fork(parent="session-1", position=9),
    Erase(message=2, part=1, why="asked"),
    Retention(before=2, why="30 days"),
)

EVENTS = tuple(
    Event(seq=seq, at=1_700_000_000.25 + seq, body=body) for seq, body in enumerate(BODIES, 1)
)
