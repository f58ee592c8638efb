"""Wire formats: messages and prompts to and from what one provider's API speaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.core.message import Message, ToolCall
from trimtab.dialects.dialect import Dialect
from trimtab.dialects.guess import guess
from trimtab.dialects.langchain import is_langchain
from trimtab.dialects.plain import to_wire as to_wire

DIALECTS = ("anthropic", "openai_chat", "openai_responses")
"""The names that settings and messages know a dialect by."""

__all__ = ["DIALECTS", "detect", "dialect", "read_call", "read_history", "to_wire"]


def dialect(name: str) -> Dialect:
    """The dialect of that name; only the one asked for is imported."""
    if name == "anthropic":
        from trimtab.dialects import anthropic

        return anthropic
    if name == "openai_chat":
        from trimtab.dialects import openai_chat

        return openai_chat
    if name == "openai_responses":
        from trimtab.dialects import openai_responses

        return openai_responses
    raise ValueError(f"no dialect is called {name!r}; choose one of {', '.join(DIALECTS)}")


def detect(wire: Mapping[str, Any], default: Dialect) -> Dialect:
    """The dialect that a message, an item or a reply is written in.

    `default` is the answer where the shape fits it, or tells nothing.
    """
    fitting = guess(wire)
    return default if not fitting or default.name in fitting else dialect(fitting[0])


def read_history(
    messages: Sequence[Any], default: str
) -> tuple[tuple[Message, ...], list[Message]]:
    """A list of wire messages of any dialect: the system prompt at its start, and the rest."""
    own = dialect(default)
    wires = [to_wire(message) for message in messages]
    if any(map(is_langchain, messages)):
        # What one of them holds decides which dialect can say it.
        read = [said for wire in wires for said in detect(wire, own).read_history([wire])]
    else:
        found = (detect(wire, own) for wire in wires)
        read = next((each for each in found if each is not own), own).read_history(wires)
    start = next((i for i, m in enumerate(read) if m.role != "system"), len(read))
    return tuple(read[:start]), read[start:]


def read_call(wire: Any) -> ToolCall:
    """A tool call as a model made it, in any dialect: a block, an entry of a list, an item."""
    call = to_wire(wire)
    if call.get("type") == "tool_use":
        message = dialect("anthropic").read({"role": "assistant", "content": [call]})
    elif "function" in call or "custom" in call:
        message = dialect("openai_chat").read({"role": "assistant", "tool_calls": [call]})
    elif str(call.get("type")).endswith("_call"):
        message = dialect("openai_responses").read(call)
    else:
        message = None
    if message is None or not message.calls:
        raise ValueError("expected a tool call as the model made it")
    return message.calls[0]
