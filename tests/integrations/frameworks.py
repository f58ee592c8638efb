"""What a framework passes to the shared part, as recorded from its calls."""

from __future__ import annotations

from typing import Any

from tests.conversations import prose
from trimtab import View
from trimtab.engine.log.message import Message
from trimtab.integrations.conversations import Conversations

TOOLS = [{"name": "recall", "description": "Look it up.", "input_schema": {"type": "object"}}]
MODEL: dict[str, Any] = {"model": "gpt-4o", "system": "You are careful.", "tools": TOOLS}
SMALL: dict[str, Any] = {"context_window": 4_000, "max_output_tokens": 500}


def ask(number: int) -> dict[str, Any]:
    return {"role": "user", "content": prose(800, f"question {number}")}


def reply(number: int) -> dict[str, Any]:
    return {"role": "assistant", "content": prose(1_600, f"answer {number}")}


def history(turns: int) -> list[dict[str, Any]]:
    """Whole turns, and a question."""
    said = [each for number in range(turns) for each in (ask(number), reply(number))]
    return [*said, ask(turns)]


def shown(view: View) -> list[Message]:
    return [each.message for each in view]


async def chat(conversations: Conversations, conversation_id: str, turns: int) -> View:
    """Some turns, as a framework makes them; what the last call showed."""
    views: list[View] = []
    for number in range(turns):
        views.append(await conversations.fit(conversation_id, history(number), **MODEL))
        await conversations.add_reply(conversation_id, reply(number))
    return views[-1]
