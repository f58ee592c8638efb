"""What an agent goes back to: identifiers, paths and quoted strings of its later tool calls.

A *reference* is an identifier, path or quoted string in the arguments of a tool call that some
earlier message of the conversation holds. It is *visible* where a message as sent in that call
still holds it. A reference is *far* where it was last mentioned more than ten messages before, and
*tool-only* where only tool results ever held it.

Identifiers and paths are those of `text/identifiers.py`. Quoted strings have 4 to 80 characters on
one line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trimtab.log.message import Message, Text, ToolCall, ToolResult
from trimtab.text.identifiers import count_identifiers, join_string_values

FAR_REFERENCE_MESSAGES = 10
"""Messages."""

_QUOTED = re.compile(r"\"([^\"\n]{4,80})\"|'([^'\n]{4,80})'|`([^`\n]{4,80})`")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierReference:
    """One reference of one call."""

    text: str
    """What the call names."""
    sources: tuple[int, ...]
    """Indexes of the earlier messages that hold it, oldest first."""
    far: bool
    """Last mentioned more than ten messages before."""
    tool_only: bool
    """Held by tool results alone."""


def find_quoted_strings(text: str) -> set[str]:
    """Quoted strings of a text."""
    return {match[match.lastindex or 0].strip() for match in _QUOTED.finditer(text)}


def find_earlier_references(messages: tuple[Message, ...]) -> dict[int, list[EarlierReference]]:
    """By index of an assistant message: what its tool calls refer to."""
    texts = [_message_text(message) for message in messages]
    holders: dict[str, list[int]] = {}
    found: dict[int, list[EarlierReference]] = {}
    for index, message in enumerate(messages):
        asked = "\n".join(join_string_values(call.arguments) for call in message.calls)
        if asked:
            named = [
                (w, tuple(holders[w])) for w in sorted(count_identifiers(asked)) if w in holders
            ]
            for quote in sorted(find_quoted_strings(asked) - {w for w, _ in named}):
                sources = tuple(i for i in range(index) if quote in texts[i])
                if sources:
                    named.append((quote, sources))
            found[index] = [
                _build_reference(text, sources, index, messages) for text, sources in named
            ]
        for word in count_identifiers(texts[index]):
            holders.setdefault(word, []).append(index)
    return found


def _build_reference(
    text: str, sources: tuple[int, ...], index: int, messages: tuple[Message, ...]
) -> EarlierReference:
    tool_only = all(messages[source].results for source in sources)
    return EarlierReference(
        text=text,
        sources=sources,
        far=index - sources[-1] > FAR_REFERENCE_MESSAGES,
        tool_only=tool_only,
    )


def _message_text(message: Message) -> str:
    pieces: list[str] = []
    for part in message.parts:
        match part:
            case Text() | ToolResult():
                pieces.append(part.text)
            case ToolCall():
                pieces.append(f"{part.name} {join_string_values(part.arguments)}")
            case _:
                pass
    return "\n".join(pieces)
