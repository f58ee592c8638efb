"""A conversation of any length through `Session`, as an agent leads it.

A turn is a user's text, one to three tool calls with results of 200 to 4,000 characters, and an
answer; before each reply a request is made, and each reply reports its usage. What is said follows
from the turn's number alone, so that a session can be led on at any time.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from trimtab.session import Session
from trimtab.stores.base import Store
from trimtab.types import PolicyName

MODEL = "gpt-4o"
SYSTEM = "You look after a code base. Read before you change, and say what you have found."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file of the code base.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
]
LIMIT = 64_000
"""Tokens; so that a thousand messages are well beyond it, as a million are."""
WORDS = 8_000
"""Different words, beside the numbered ones of each turn."""


def _prose() -> str:
    pick = random.Random(4)  # noqa: S311 - not for secrets
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(pick.choices(letters, k=pick.randint(2, 9))) for _ in range(WORDS)]
    return " ".join(pick.choices(words, k=60_000))


PROSE = _prose()


async def create(store: Store, session: str, policy: str) -> Session:
    return await Session.create(
        store,
        session,
        model=MODEL,
        system=SYSTEM,
        tools=TOOLS,
        policy=cast("PolicyName", policy),
        max_input_tokens=LIMIT,
    )


Step = tuple[str, Callable[[], Any]]


async def turn(session: Session, number: int) -> AsyncIterator[Step]:
    """The steps of a turn, each with its name; whoever walks through them awaits each."""
    pick = random.Random(number)  # noqa: S311 - not for secrets
    user = {"role": "user", "content": f"Ticket {number}: {_text(pick, 40, 400)}"}
    yield "append", lambda: session.add(user, key=f"in-{number}")
    calls = pick.randint(1, 3)
    for call in range(calls):
        yield "request", session.request
        path = f"src/module_{pick.randrange(500)}/part_{number}_{call}.py"
        made = {
            "id": f"call_{number}_{call}",
            "type": "function",
            "function": {"name": "read_file", "arguments": f'{{"path": "{path}"}}'},
        }
        said = {"role": "assistant", "content": _text(pick, 20, 200), "tool_calls": [made]}
        yield "append", _added(session, _reply(session, f"r{number}.{call}", said))
        result = {"role": "tool", "tool_call_id": made["id"], "content": _text(pick, 200, 4_000)}
        yield "append", _added(session, result)
    yield "request", session.request
    answer = {"role": "assistant", "content": _text(pick, 100, 1_200)}
    yield "append", _added(session, _reply(session, f"r{number}", answer))


async def lead(session: Session, number: int, messages: int) -> tuple[int, int]:
    """Turns from a number on until so many messages are said; the next turn, messages said."""
    said = 0
    while said < messages:
        async for name, step in turn(session, number):
            await step()
            said += name == "append"
        number += 1
    return number, said


def _added(session: Session, item: dict[str, Any]) -> Callable[[], Any]:
    return lambda: session.add(item)


def _reply(session: Session, name: str, said: dict[str, Any]) -> dict[str, Any]:
    """A provider's answer, which reports what we estimated: the estimate is not in question."""
    call = session.window.last_call
    prompt = call.body.tokens if call is not None else 0
    return {
        "id": name,
        "object": "chat.completion",
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "stop", "message": said}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": len(said["content"]) // 4},
    }


def _text(pick: random.Random, least: int, most: int) -> str:
    length = pick.randint(least, most)
    start = pick.randrange(len(PROSE) - most)
    return PROSE[start : start + length]
