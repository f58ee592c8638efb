"""What an agent goes back to: identifiers, paths and quoted strings of its later tool calls.

A *reference* is an identifier, path or quoted string in the arguments of a tool call that some
earlier message of the conversation holds. It is *visible* where a message as sent in that call
still holds it. A reference is *far* where it was last mentioned more than ten messages before, and
*tool-only* where only tool results ever held it.

Identifiers and paths are those of `core/words.py`. Quoted strings have 4 to 80 characters on one
line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trimtab.core.message import Message, Text, ToolCall, ToolResult
from trimtab.core.words import strings, words

FAR = 10
"""Messages."""

_QUOTED = re.compile(r"\"([^\"\n]{4,80})\"|'([^'\n]{4,80})'|`([^`\n]{4,80})`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One reference of one call."""

    text: str
    """What the call names."""
    sources: tuple[int, ...]
    """Indexes of the earlier messages that hold it, oldest first."""
    far: bool
    """Last mentioned more than ten messages before."""
    tool_only: bool
    """Held by tool results alone."""


def quoted(text: str) -> set[str]:
    """Quoted strings of a text."""
    return {match[match.lastindex or 0].strip() for match in _QUOTED.finditer(text)}


def needs(messages: tuple[Message, ...]) -> dict[int, list[Need]]:
    """By index of an assistant message: what its tool calls refer to."""
    texts = [_text(message) for message in messages]
    holders: dict[str, list[int]] = {}
    found: dict[int, list[Need]] = {}
    for index, message in enumerate(messages):
        asked = "\n".join(strings(call.arguments) for call in message.calls)
        if asked:
            named = [(w, tuple(holders[w])) for w in sorted(words(asked)) if w in holders]
            for quote in sorted(quoted(asked) - {w for w, _ in named}):
                sources = tuple(i for i in range(index) if quote in texts[i])
                if sources:
                    named.append((quote, sources))
            found[index] = [_need(text, sources, index, messages) for text, sources in named]
        for word in words(texts[index]):
            holders.setdefault(word, []).append(index)
    return found


def _need(text: str, sources: tuple[int, ...], index: int, messages: tuple[Message, ...]) -> Need:
    tool_only = all(messages[source].results for source in sources)
    return Need(text=text, sources=sources, far=index - sources[-1] > FAR, tool_only=tool_only)


def _text(message: Message) -> str:
    pieces: list[str] = []
    for part in message.parts:
        match part:
            case Text() | ToolResult():
                pieces.append(part.text)
            case ToolCall():
                pieces.append(f"{part.name} {strings(part.arguments)}")
            case _:
                pass
    return "\n".join(pieces)
