"""Find what an agent refers back to: identifiers, paths and quoted strings in later tool calls.

A *reference* is an identifier, path or quoted string in the arguments of a tool call that an
earlier message of the conversation contains. It is *visible* if a message, as sent in that call,
still contains it. A reference is *far* if it was last mentioned more than ten messages before. It
is *tool-only* if only tool results ever contained it.

`text/identifiers.py` defines identifiers and paths. Quoted strings have 4 to 80 characters on one
line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult
from trimtab.engine.summaries.extract import NAMES_LINE_PREFIX
from trimtab.engine.text.identifiers import count_identifiers, join_string_values

FAR_REFERENCE_MESSAGES = 10
"""A reference is far if it was last mentioned more than this many messages before."""

REFERENCE_COUNTS = (
    *("needs", "seen", "listed"),
    *("far", "far_seen", "far_listed"),
    *("tool", "tool_seen", "tool_listed"),
)
"""The names under which a replayed call counts its references."""
_QUOTED = re.compile(r"\"([^\"\n]{4,80})\"|'([^'\n]{4,80})'|`([^`\n]{4,80})`")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierReference:
    """One reference of one call."""

    text: str
    """The text that the call contains."""
    sources: tuple[int, ...]
    """Indexes of the earlier messages that contain it, oldest first."""
    far: bool
    """Whether it was last mentioned more than ten messages before."""
    tool_only: bool
    """Whether only tool results contained it."""


_LISTED_NAMES = re.compile(
    rf'words from its text: "[^"\n]*"|^{re.escape(NAMES_LINE_PREFIX)}.*$', re.MULTILINE
)
"""The lists of names that Trimtab itself writes: in placeholders, and at the end of a summary."""


def remove_listed_names(text: str) -> str:
    """Return a text as sent without the lists of names from what is hidden."""
    return _LISTED_NAMES.sub("", text)


def count_reference(
    reference: EarlierReference, *, is_seen: bool, is_shown: bool
) -> dict[str, int]:
    """Count one reference of a call.

    Args:
        reference: The reference.
        is_seen: Whether the request shows it outside lists of names.
        is_shown: Whether the request shows it anywhere.
    """
    kinds = {"": True, "far_": reference.far, "tool_": reference.tool_only}
    counts: dict[str, int] = {}
    for kind, is_counted in kinds.items():
        counts[kind.rstrip("_") or "needs"] = int(is_counted)
        counts[f"{kind}seen"] = int(is_counted and is_seen)
        counts[f"{kind}listed"] = int(is_counted and is_shown and not is_seen)
    return counts


def find_quoted_strings(text: str) -> set[str]:
    """Return the quoted strings of a text."""
    return {match[match.lastindex or 0].strip() for match in _QUOTED.finditer(text)}


def find_earlier_references(messages: tuple[Message, ...]) -> dict[int, list[EarlierReference]]:
    """Return the references of each assistant message's tool calls, by message index."""
    texts = [_message_text(message) for message in messages]
    holders: dict[str, list[int]] = {}
    references: dict[int, list[EarlierReference]] = {}
    for index, message in enumerate(messages):
        arguments = "\n".join(join_string_values(call.arguments) for call in message.calls)
        if arguments:
            quotes = [
                (w, tuple(holders[w])) for w in sorted(count_identifiers(arguments)) if w in holders
            ]
            for quote in sorted(find_quoted_strings(arguments) - {w for w, _ in quotes}):
                sources = tuple(i for i in range(index) if quote in texts[i])
                if sources:
                    quotes.append((quote, sources))
            references[index] = [
                _build_reference(text, sources, index, messages) for text, sources in quotes
            ]
        for word in count_identifiers(texts[index]):
            holders.setdefault(word, []).append(index)
    return references


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
