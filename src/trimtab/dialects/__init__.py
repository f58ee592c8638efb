"""Wire formats: messages and prompts to and from what one provider's API speaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from trimtab.dialects.base import Dialect
from trimtab.dialects.detection import guess_dialects
from trimtab.dialects.langchain import is_langchain_message
from trimtab.dialects.sdk_objects import to_plain_dict as to_plain_dict
from trimtab.log.message import Message, ToolCall

DialectName = Literal["anthropic", "openai_chat", "openai_responses"]
DIALECT_NAMES: tuple[DialectName, ...] = ("anthropic", "openai_chat", "openai_responses")
"""The names that settings and messages know a dialect by."""

__all__ = [
    "DIALECT_NAMES",
    "DialectName",
    "detect_dialect",
    "get_dialect",
    "parse_any_history",
    "parse_any_tool_call",
    "to_plain_dict",
]


def get_dialect(name: str) -> Dialect:
    """The dialect of that name; only the one asked for is imported."""
    if name == "anthropic":
        from trimtab.dialects.anthropic import codec as anthropic

        return anthropic
    if name == "openai_chat":
        from trimtab.dialects.openai_chat import codec as openai_chat

        return openai_chat
    if name == "openai_responses":
        from trimtab.dialects.openai_responses import codec as openai_responses

        return openai_responses
    raise ValueError(f"no dialect is called {name!r}; choose one of {', '.join(DIALECT_NAMES)}")


def detect_dialect(wire: Mapping[str, Any], default_dialect: Dialect) -> Dialect:
    """The dialect that a message, an item or a reply is written in.

    `default` is the answer where the shape fits it, or tells nothing.
    """
    fitting = guess_dialects(wire)
    return (
        default_dialect
        if not fitting or default_dialect.name in fitting
        else get_dialect(fitting[0])
    )


def parse_any_history(
    wire_messages: Sequence[Any], default_dialect_name: str
) -> tuple[tuple[Message, ...], list[Message]]:
    """A list of wire messages of any dialect: the system prompt at its start, and the rest."""
    own = get_dialect(default_dialect_name)
    wires = [to_plain_dict(message) for message in wire_messages]
    if any(map(is_langchain_message, wire_messages)):
        # What one of them holds decides which dialect can say it.
        read = [said for wire in wires for said in detect_dialect(wire, own).parse_history([wire])]
    else:
        found = (detect_dialect(wire, own) for wire in wires)
        read = next((each for each in found if each is not own), own).parse_history(wires)
    start = next((i for i, m in enumerate(read) if m.role != "system"), len(read))
    return tuple(read[:start]), read[start:]


def parse_any_tool_call(wire_call: Any) -> ToolCall:
    """A tool call as a model made it, in any dialect: a block, an entry of a list, an item."""
    call = to_plain_dict(wire_call)
    if call.get("type") == "tool_use":
        message = get_dialect("anthropic").parse_message({"role": "assistant", "content": [call]})
    elif "function" in call or "custom" in call:
        message = get_dialect("openai_chat").parse_message(
            {"role": "assistant", "tool_calls": [call]}
        )
    elif str(call.get("type")).endswith("_call"):
        message = get_dialect("openai_responses").parse_message(call)
    else:
        message = None
    if message is None or not message.calls:
        raise ValueError("expected a tool call as the model made it")
    return message.calls[0]
