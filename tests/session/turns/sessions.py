"""What turns are tested with: sessions, tools that count, and what was told of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.agents import Clock
from tests.conversations import prose, user
from trimtab import check
from trimtab.engine.log.event import (
    CallOutcome,
    Edit,
    EventBody,
    MessageAdded,
    ModelCall,
    Settings,
    TurnProgressRecord,
    dump_event_line,
)
from trimtab.session import Session
from trimtab.session.events import TurnEvent, UserNotice
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.session.turn import run_turn
from trimtab.stores.base import Store
from trimtab.testing import ScriptedProvider

T = TypeVar("T")

MODELS = {"anthropic": "claude-sonnet-4-5", "openai_chat": "gpt-4o", "openai_responses": "gpt-5.1"}
WAIT = 10.0
"""Seconds after which something that should have happened did not."""
BELIEVED: dict[str, Any] = {"context_window": 100_000, "policy": "full"}
"""What a session takes its model's window for, wrongly; and no policy that would help."""


def definition(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"Does {name}.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }


async def create(store: Store, dialect: str = "anthropic", **own: Any) -> Session:
    options: dict[str, Any] = {
        "model": MODELS[dialect],
        "dialect": dialect,
        "system": "You are careful.",
        "clock": Clock(),
        "recall": False,  # test_recall_tools.py has what a turn adds if nobody has decided
        **own,
    }
    return await Session.create(store, "s", **options)


async def chat(session: Session, messages: int, size: int) -> None:
    """Questions and answers of so many bytes each."""
    for number in range(messages):
        role = "assistant" if number % 2 else "user"
        await session.add({"role": role, "content": prose(size, f"message {number}")})


async def reopened(store: Store) -> Session:
    return await Session.open(store, "s", clock=Clock())


def claude(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider("anthropic", replies)


@dataclass
class Hand:
    """A tool that remembers who called it."""

    name: str = "read"
    gives: Callable[[ToolInvocation], Awaitable[Any]] | str = "done"
    own: dict[str, Any] = field(default_factory=dict[str, Any])
    """Other fields of the tool."""
    asked: list[ToolInvocation] = field(default_factory=list[ToolInvocation])

    async def run(self, invocation: ToolInvocation) -> Any:
        self.asked.append(invocation)
        return self.gives if isinstance(self.gives, str) else await self.gives(invocation)

    @property
    def tool(self) -> Tool:
        return Tool(definition=definition(self.name), run=self.run, **self.own)

    @property
    def keys(self) -> list[str]:
        return [each.key for each in self.asked]


class Cut(Exception):
    """The process ends here, as far as a test can say."""


class Ending(BaseException):
    """What no tool's result can be made of: it goes through everything, as a crash does."""


def say(words: str = "Go.") -> dict[str, Any]:
    return user(words)


async def act(
    session: Session,
    provider: Any,
    tools: Iterable[Hand] = (),
    says: str | None = "Go.",
    **how: Any,
) -> list[TurnEvent]:
    """A whole turn, with what was told of it."""
    events: list[TurnEvent] = []
    message = None if says is None else say(says)
    hand_tools = [hand.tool for hand in tools]
    await run_turn(session, provider, hand_tools, message=message, on_event=events.append, **how)
    return events


def of(kind: type[T], told: Iterable[Any]) -> list[T]:
    return [each for each in told if isinstance(each, kind)]


def notices(told: Iterable[TurnEvent]) -> list[str]:
    return [each.text for each in of(UserNotice, told)]


async def log(store: Store) -> list[EventBody]:
    return [event.body async for event in store.events("s")]


async def lines(store: Store) -> list[str]:
    return [dump_event_line(event) async for event in store.events("s")]


async def found(store: Store, kind: type[T]) -> list[T]:
    return of(kind, await log(store))


async def texts(store: Store, role: str) -> list[str]:
    """What was said in a role, in order; of a tool, its results."""
    messages = [
        body.message for body in await found(store, MessageAdded) if body.message.role == role
    ]
    if role == "tool":
        return [result.text for message in messages for result in message.results]
    return [message.text for message in messages]


async def started(store: Store) -> list[str]:
    turns = await found(store, TurnProgressRecord)
    return [str(turn.key) for turn in turns if turn.state == "tool_started"]


def results_in(request: Mapping[str, Any]) -> list[str]:
    """Results of an Anthropic request, in the order they are sent."""
    return [
        part["content"] if isinstance(part["content"], str) else part["content"][0]["text"]
        for message in request["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "tool_result"
    ]


def words_in(request: Mapping[str, Any]) -> str:
    return str(request.get("messages", request.get("input")))


def valid(provider: ScriptedProvider) -> bool:
    name = provider.dialect
    return not [wrong for each in provider.requests for wrong in check(each, dialect_name=name)]


def settings_in(bodies: Iterable[EventBody]) -> list[Settings]:
    return of(Settings, bodies)


def history(bodies: Iterable[EventBody]) -> list[EventBody]:
    """All that shapes what a model sees: neither calls, nor outcomes, nor who owns the turn."""
    return [
        each
        for each in bodies
        if not isinstance(each, ModelCall | CallOutcome | TurnProgressRecord)
    ]


def edits_in(bodies: Iterable[EventBody]) -> list[Edit]:
    return of(Edit, bodies)
