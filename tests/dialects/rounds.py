"""Messages in rounds, as the window hands them to a dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.dialects.base import Dialect
from trimtab.engine.log.message import Message
from trimtab.engine.prompt.render import Prompt, PromptBlock


def rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """An assistant with calls is joined by their results, in call order, and by what follows."""
    out: list[list[Message]] = []
    waiting: dict[str, int] = {}
    for message in messages:
        open_round = bool(waiting) and message.role != "assistant"
        if open_round:
            out[-1].append(message)
        else:
            out.append([message])
            waiting = {}
        for number, call in enumerate(message.calls):
            waiting[call.id] = number
        for result in message.results:
            waiting.pop(result.call_id, None)
    return [_in_call_order(each) for each in out]


def _in_call_order(messages: list[Message]) -> list[Message]:
    order = {call.id: number for number, call in enumerate(messages[0].calls)}
    last = len(order)

    def place(message: Message) -> int:
        if message.role == "assistant":
            return -1
        return min((order.get(r.call_id, last) for r in message.results), default=last)

    return sorted(messages, key=place)


def rendered(dialect: Dialect, messages: Sequence[Message], model: str = "") -> list[PromptBlock]:
    rounds_of_blocks = (dialect.render_round_blocks(each, model) for each in rounds(messages))
    return [block for blocks in rounds_of_blocks for block in blocks]


OUTPUT_PARAMS = {
    "anthropic": "max_tokens",
    "openai_chat": "max_completion_tokens",
    "openai_responses": "max_output_tokens",
}


def prompt(dialect: Dialect, blocks: Sequence[PromptBlock], **changes: Any) -> Prompt:
    fields: dict[str, Any] = {
        "model": "some-model",
        "rules_model": changes.get("model", "some-model"),
        "system": (),
        "tools": (),
        "blocks": blocks,
        "marks": (),
        "max_output": 100,
        "output_param": OUTPUT_PARAMS[dialect.name],
        "params": {},
    }
    return Prompt(**(fields | changes))
