"""Find what a call of a tool names although the model did not see it: the cost of hiding it.

A name is an identifier, a path or a quoted string, as in `trimtab replay`. The model may have it
from the summary, the list of the user's words or the system prompt. Then it did see it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.erase import RECALL_TOOL_NAMES
from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult
from trimtab.engine.prompt.render import render_entry_message
from trimtab.engine.text.identifiers import count_identifiers, join_string_values
from trimtab.engine.window.window import Window

_HANDLE = re.compile(r"\bm\d+(?:\.\d+|-m?\d+)?\b")


class NameIndex:
    """The messages that contain each name."""

    def __init__(self) -> None:
        self._seqs_by_name: dict[str, list[int]] = {}

    def add_message(self, seq: int, message: Message) -> None:
        """Index the names of a message."""
        for name in count_identifiers(join_message_texts(message)):
            self._seqs_by_name.setdefault(name, []).append(seq)

    def find_hidden(
        self, reply: Message, shows: Callable[[int, str], bool], other_texts: Iterable[str]
    ) -> list[tuple[str, int]]:
        """Return the names in a reply's calls that only hidden messages contain, each with the
        newest of these messages.

        Args:
            reply: The model's reply.
            shows: Whether the model sees a name in the message at a position.
            other_texts: What the model sees besides messages.
        """
        arguments = "\n".join(join_string_values(call.arguments) for call in _own_calls(reply))
        pairs: list[tuple[str, int]] = []
        for name in sorted(count_identifiers(arguments)) if arguments else ():
            seqs = self._seqs_by_name.get(name, ())
            if (
                seqs
                and not any(shows(seq, name) for seq in reversed(seqs))
                and not any(name in text for text in other_texts)
            ):
                pairs.append((name, seqs[-1]))
        return pairs


def find_recalled_handles(reply: Message) -> list[tuple[str, int]]:
    """Return the handles that a reply asks for with the recall tools, each with its first
    message."""
    handles = [
        handle
        for call in reply.calls
        if call.name in RECALL_TOOL_NAMES
        for handle in _HANDLE.findall(call.arguments)
    ]
    return [(handle, parse_handle(handle).first_seq) for handle in handles]


def _own_calls(reply: Message) -> list[ToolCall]:
    return [call for call in reply.calls if call.name not in RECALL_TOOL_NAMES]


def shows_name(window: Window, seq: int, name: str) -> bool:
    """Whether the model sees a name in a message."""
    entry = window.entries.get(seq)
    if entry is None or entry.round.group.hidden is not None:
        return False
    return not entry.edits or name in join_message_texts(render_entry_message(entry))


def join_message_texts(message: Message) -> str:
    """Return the texts, results and arguments of a message."""
    texts: list[str] = []
    for part in message.parts:
        match part:
            case Text() | ToolResult():
                texts.append(part.text)
            case ToolCall():
                texts.append(join_string_values(part.arguments))
            case _:
                pass
    return "\n".join(texts)
