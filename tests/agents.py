"""An agent at work: a tool loop with a clock that is set and usage that is reported."""

from __future__ import annotations

from typing import Any

from tests.conversations import PROSE, user
from tests.recording import render_request
from trimtab import Context
from trimtab.engine.log.event import Edit, ModelCall


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Agent:
    """Each round is a reply that calls a tool, its result, and the request that sends it."""

    def __init__(self, *, policy: Any = "auto", goal: Any = "cost", **options: Any) -> None:
        self.clock = Clock()
        self.count = 0
        model = options.pop("model", "claude-sonnet-4-5")
        self.context = Context(model, policy=policy, goal=goal, clock=self.clock, **options)
        self.context.add(user("go"))
        self.context.request()

    @property
    def window(self):
        return self.context.window

    @property
    def call(self) -> ModelCall:
        assert self.window.last_call is not None
        return self.window.last_call.body

    @property
    def meter(self) -> float:
        return (self.call.note or {}).get("meter", 0.0)

    @property
    def edits(self) -> list[Edit]:
        return [event.body for event in self.context.events if isinstance(event.body, Edit)]

    @property
    def shown(self) -> list[str]:
        """The results as the model sees them."""
        return [
            block["content"] if isinstance(block["content"], str) else block["content"][0]["text"]
            for message in render_request(self.context)["messages"]
            if message["role"] == "user" and isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]

    def ask(self, tool: str = "read", *, usage: dict[str, int] | None = None, **asked: Any) -> str:
        """The reply to the last call; the handle of the call's result to be."""
        self.count += 1
        self.clock.now += 1
        block = {"type": "tool_use", "id": f"c{self.count}", "name": tool, "input": asked}
        self.context.add(
            {
                "id": f"msg_{self.count}",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-4-5",
                "content": [block],
                "stop_reason": "tool_use",
                **({} if usage is None else {"usage": {"output_tokens": 1, **usage}}),
            }
        )
        return f"m{self.window.seq + 1}.0"

    def answer(self, text: str) -> None:
        block = {"type": "tool_result", "tool_use_id": f"c{self.count}", "content": text}
        self.context.add({"role": "user", "content": [block]})

    def use(self, text: str, tool: str = "read", **asked: Any) -> str:
        """One round, sent; the handle of its result."""
        handle = self.ask(tool, **asked)
        self.answer(text)
        self.context.request()
        return handle

    def work(self, rounds: int, size: int = 8_000) -> None:
        """So many rounds, each with a result of so many bytes that names what no other does."""
        for _ in range(rounds):
            self.use(source(self.count, size), path=f"src/part_{self.count}.py")

    def masked(self) -> list[str]:
        return [f"m{edit.first}.{edit.part}" for edit in self.edits if edit.op == "mask"]


def source(number: int, size: int) -> str:
    """Text of so many bytes with eight names of its own."""
    names = " ".join(f"value_{number}_{index}" for index in range(8))
    return f"{names}\n{PROSE * (size // len(PROSE) + 1)}"[:size]
