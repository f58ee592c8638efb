"""An agent's conversation with the simulated provider, over the official SDKs and a socket.

What is said follows from numbers alone: a turn's user text and its tool calls from the turn's
number, a result from the call's arguments. So a run is the same whenever it is made.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from benchmarks.sample_texts import GENERATED, INSTALLED
from trimtab.engine.log.event import Event, ModelCall
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.providers.base import Provider
from trimtab.providers.openai import OpenAIChatProvider, OpenAIResponsesProvider
from trimtab.session import Session
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.stores.base import Store
from trimtab.testing.server import ServedSimulator
from trimtab.types import DialectName, PolicyLimits, PolicyName

WINDOW = 16_384
"""Tokens of input and output together, as the provider enforces it and the session knows it."""
DIALECTS = ("anthropic", "openai_chat", "openai_responses")
CALLS_A_TURN = 5
SYSTEM = "You look after a code base. Read before you change, and say what you have found."
ROUNDS = ((1, 1, 1, 2), (2, 3), (1, 2, 2), (5,), (1, 1, 3), (2, 2, 1), (1, 1, 1, 1, 1))
"""How the calls of a turn are spread over replies: one after the other and in parallel."""
_KINDS = (
    *("python", "prose and text", "json files", "readmes"),
    *("log", "identifiers", "tool calls", "listing", "tables", "sql", "yaml", "git log", "html"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str
    """As the provider knows it."""
    params: Mapping[str, Any]
    """Further request parameters."""


_PLAIN = {
    "anthropic": Model(name="claude-sonnet-4-6", params={}),
    "openai_chat": Model(name="gpt-4o", params={}),
    "openai_responses": Model(name="gpt-4o", params={}),
}
_SPECIAL = {
    "anthropic": Model(name="claude-sonnet-4-6", params={"thinking": {"type": "adaptive"}}),
    "openai_chat": Model(name="gpt-5.6", params={}),
    "openai_responses": Model(name="gpt-5.1", params={}),
}


def model_of(dialect: str, *, special: bool) -> Model:
    """A plain model, or one with rules of its own: signed thinking, encrypted reasoning, cache
    breakpoints."""
    return (_SPECIAL if special else _PLAIN)[dialect]


def provider_of(dialect: str, served: ServedSimulator) -> Provider:
    """The provider that ships, with the official SDK, at the simulator's port."""
    match dialect:
        case "anthropic":
            return AnthropicProvider(api_key="benchmark", base_url=served.url)
        case "openai_chat":
            return OpenAIChatProvider(api_key="benchmark", base_url=served.openai_url)
        case _:
            return OpenAIResponsesProvider(api_key="benchmark", base_url=served.openai_url)


async def create(
    store: Store,
    session: str,
    dialect: str,
    *,
    policy: str,
    special: bool,
    recall: bool,
    limits: PolicyLimits | None = None,
) -> Session:
    model = model_of(dialect, special=special)
    return await Session.create(
        store,
        session,
        model=model.name,
        dialect=cast("DialectName", dialect),
        params=model.params,
        system=SYSTEM,
        policy=cast("PolicyName", policy),
        context_window=WINDOW,
        recall=recall,
        limits=limits or {},
    )


def user_text(number: int) -> str:
    """What the user says in a turn; it begins with what no other message begins with."""
    pick = random.Random(f"user {number}")  # noqa: S311 - not for secrets
    return f"{ticket(number)} {_text(pick, 40, 3_000 if number % 10 == 9 else 400)}"


def ticket(number: int) -> str:
    """What a turn's message begins with."""
    return f"Ticket-{number:05}:"


def rounds_of(number: int, *, recall: bool = False) -> list[list[dict[str, Any]]]:
    """The tool calls of a turn, those of one reply together."""
    calls = [_call(number, index) for index in range(CALLS_A_TURN)]
    if recall and number % 4 == 3:
        # One looks up what may be hidden by then.
        calls[2] = {"name": "search_history", "arguments": {"query": ticket(number // 2)}}
    left = iter(calls)
    return [[next(left) for _ in range(size)] for size in ROUNDS[number % len(ROUNDS)]]


def steps_of(number: int, *, recall: bool = False) -> list[dict[str, Any]]:
    """The same as a script of the simulator, with the words of the last reply."""
    calls = [{"calls": calls} for calls in rounds_of(number, recall=recall)]
    return [*calls, {"text": 20 + number * 37 % 180}]


def _call(number: int, index: int) -> dict[str, Any]:
    name = ("read_file", "run_command")[(number + index) % 2]
    return {"name": name, "arguments": {"path": f"src/part_{number}_{index}.py"}}


async def _run(asked: ToolInvocation) -> str:
    return result_text(str(asked.arguments["path"]))


def result_text(path: str) -> str:
    """What a tool gives for a path: mostly a page or less, now and then a long file."""
    pick = random.Random(path)  # noqa: S311 - not for secrets
    return f"{path}\n{_text(pick, 200, 24_000 if pick.random() < 0.05 else 4_000)}"


def tool(name: str) -> Tool:
    properties = {"path": {"type": "string", "description": "Where, from the root of the code."}}
    schema = {"type": "object", "properties": properties, "required": ["path"]}
    words = f"{name.replace('_', ' ').capitalize()} and see what it says."
    return Tool(definition={"name": name, "description": words, "input_schema": schema}, run=_run)


TOOLS = (tool("read_file"), tool("run_command"))


def calls_in(events: list[Event]) -> Iterator[int]:
    """Positions of the calls."""
    return (event.seq for event in events if isinstance(event.body, ModelCall))


async def largest_text(session: Session) -> str:
    """A text that a new session can just send whole, by the bound it has before any usage."""
    await session.configure(tools=[each.definition for each in TOOLS])
    budget, text = session.budget(), texts()["python"]
    # A little is left for the words before it.
    room = budget.room - 200
    return text[
        : bisect(range(len(text)), room, key=lambda n: session.window.counter.count(text[:n]))
    ]


def _text(pick: random.Random, least: int, most: int) -> str:
    """Lines of one kind of text, cut to a length."""
    kind = pick.choice(sorted(texts()))
    text = texts()[kind]
    length = pick.randint(least, most)
    start = pick.randrange(max(1, len(text) - length))
    return text[start : start + length]


@cache
def texts() -> dict[str, str]:
    """Text of many kinds, 60,000 characters each, as tools return it."""
    found: dict[str, str] = {}
    for kind in _KINDS:
        text = ""
        for _, more in (INSTALLED | GENERATED)[kind]():
            text += more[:12_000] + "\n"
            if len(text) >= 60_000:
                break
        if text:
            found[kind] = text[:60_000]
    return found
