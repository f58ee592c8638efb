"""Messages in the words of each dialect: what users say, what models answer, what tools return."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.adversary.dice import Dice
from tests.adversary.texts import picture, text

Wire = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A model wants a tool to run."""

    id: str
    """Its id, which need not be unique."""
    tool: str
    """The tool's name."""
    argument: str
    """What the tool is given."""

    @property
    def input(self) -> Wire:
        return {"argument": self.argument}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model answers."""

    id: str
    """Of the whole reply."""
    model: str
    """Who says it."""
    text: str = ""
    """What it says; empty for nothing."""
    calls: Sequence[Call] = ()
    """What it asks for."""
    thinks: bool = False
    """Whether it brings thinking or reasoning along."""
    refuses: bool = False
    """Whether the text is a refusal."""
    usage: int | None = None
    """Tokens of input that the provider counts; None if it does not say."""


def user(dialect: str, said: str, image: str | None = None) -> Wire:
    """A user's message; `image` is a picture as base64."""
    if image is None:
        return {"role": "user", "content": said}
    return {"role": "user", "content": _with_picture(dialect, said, image)}


def _with_picture(dialect: str, said: str, image: str) -> list[Wire]:
    url = f"data:image/png;base64,{image}"
    if dialect == "anthropic":
        return [{"type": "text", "text": said}, anthropic_picture(image)]
    if dialect == "openai_chat":
        return [{"type": "text", "text": said}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"type": "input_text", "text": said}, {"type": "input_image", "image_url": url}]


def anthropic_picture(image: str) -> Wire:
    source = {"type": "base64", "media_type": "image/png", "data": image}
    return {"type": "image", "source": source}


def result(
    dialect: str, call: str, said: str, *, image: str | None = None, error: bool = False
) -> Wire:
    """What a tool returns; of a picture, if the dialect takes one there."""
    if dialect == "openai_chat":
        return {"role": "tool", "tool_call_id": call, "content": said}
    content = said if image is None else _with_picture(dialect, said, image)
    if dialect == "openai_responses":
        return {"type": "function_call_output", "call_id": call, "output": content}
    block = {"type": "tool_result", "tool_use_id": call, "content": content}
    return {"role": "user", "content": [block | ({"is_error": True} if error else {})]}


def reply(dialect: str, said: Reply, dice: Dice) -> tuple[Wire, dict[int, str]]:
    """The whole reply, and its texts by the part of the message that they are."""
    if dialect == "anthropic":
        return _anthropic(said, dice)
    if dialect == "openai_chat":
        return _chat(said)
    return _responses(said, dice), {}


def _anthropic(said: Reply, dice: Dice) -> tuple[Wire, dict[int, str]]:
    content: list[Wire] = []
    if said.thinks and dice.chance(0.9):
        thinking = text(dice, 100, "english")
        signature = {"thinking": thinking, "signature": dice.base64(60)}
        content.append({"type": "thinking", **signature})
    elif said.thinks:
        content.append({"type": "redacted_thinking", "data": dice.base64(40)})
    if said.text or not (said.calls or content):
        content.append({"type": "text", "text": said.text or "Done."})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.tool, "input": call.input}
        for call in said.calls
    ]
    wire: Wire = {
        "id": f"msg_{said.id}",
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": content,
        "stop_reason": "tool_use" if said.calls else "end_turn",
    }
    if said.usage is not None:
        wire["usage"] = {"input_tokens": said.usage, "output_tokens": 50}
    texts = {at: block["text"] for at, block in enumerate(content) if block["type"] == "text"}
    return wire, texts


def _chat(said: Reply) -> tuple[Wire, dict[int, str]]:
    message: Wire = {"role": "assistant", "content": said.text or None}
    if said.refuses:
        message |= {"content": None, "refusal": said.text or "No."}
    elif said.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(call.input)},
            }
            for call in said.calls
        ]
    elif not said.text:
        message["content"] = "Done."
    reason = "tool_calls" if said.calls else "stop"
    wire: Wire = {
        "id": f"chatcmpl-{said.id}",
        "object": "chat.completion",
        "model": said.model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    }
    if said.usage is not None:
        wire["usage"] = {"prompt_tokens": said.usage, "completion_tokens": 50}
    return wire, {0: said.text} if said.text and not said.refuses else {}


def _responses(said: Reply, dice: Dice) -> Wire:
    output: list[Wire] = []
    if said.thinks:
        reasoning = {"summary": [], "encrypted_content": dice.base64(90)}
        output.append({"type": "reasoning", "id": f"rs_{said.id}", **reasoning})
    if said.text or not said.calls:
        part = {"type": "output_text", "text": said.text or "Done.", "annotations": []}
        message = {"type": "message", "id": f"msg_{said.id}", "role": "assistant"}
        output.append({**message, "status": "completed", "content": [part]})
    for number, call in enumerate(said.calls):
        call_head = {"type": "function_call", "id": f"fc_{said.id}_{number}", "call_id": call.id}
        call_body = {"name": call.tool, "arguments": json.dumps(call.input), "status": "completed"}
        output.append({**call_head, **call_body})
    wire: Wire = {"id": f"resp_{said.id}", "object": "response", "model": said.model}
    wire |= {"status": "completed", "output": output}
    if said.usage is not None:
        wire["usage"] = {"input_tokens": said.usage, "output_tokens": 50}
    return wire


def made_with(wire: Wire) -> dict[str, str]:
    """By the id of an item of a Responses reply: the reasoning item that it was made with."""
    items: list[Wire] = wire.get("output") or []
    reasoning = [str(item["id"]) for item in items if item["type"] == "reasoning"]
    others = [str(item["id"]) for item in items if item["type"] != "reasoning"]
    return {other: reasoning[0] for other in others if reasoning}


def maybe_picture(dice: Dice, share: float) -> str | None:
    return picture(dice) if dice.chance(share) else None
