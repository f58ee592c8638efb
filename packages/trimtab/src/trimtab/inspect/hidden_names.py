"""Find what a call of a tool names although the model did not see it: the cost of hiding it.

A name is an identifier, a path or a quoted string, as in `trimtab replay`. The model may have it
from the summary, the list of the user's words or the system prompt. Then it did see it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.erase import RECALL_TOOL_NAMES
from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult
from trimtab.engine.prompt.render import render_entry_message
from trimtab.engine.text.identifiers import count_identifiers, join_string_values
from trimtab.engine.window.window import Window

_DEVICES = {"dev/null", "dev/stdin", "dev/stdout", "dev/stderr", "dev/tty"}
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
        self, reply: Message, shows: Callable[[int, str], bool], request_texts: Iterable[str]
    ) -> list[tuple[str, int]]:
        """Return the names in a reply's calls that the request did not show, each with the newest
        message that contains it.

        Args:
            reply: The model's reply.
            shows: Whether the model sees a name in the message at a position.
            request_texts: What the request contains. It is read only if a name is in no message
                that the model sees: it may still be a part of a longer name.
        """
        arguments = "\n".join(join_string_values(call.arguments) for call in _own_calls(reply))
        seqs_by_name = self._seqs_by_name
        names = [
            name
            for name in (sorted(count_identifiers(arguments)) if arguments else ())
            if name in seqs_by_name
            and name not in _DEVICES
            and f"-{name}" not in arguments  # an option of a command
            and not any(shows(seq, name) for seq in reversed(seqs_by_name[name]))
        ]
        hidden_parts = {part for name in names for part in _split_name(name)}
        for text in request_texts:
            if not hidden_parts:
                break
            hidden_parts = {part for part in hidden_parts if part not in text}
        return [
            (_find_spelling(name, arguments), seqs_by_name[name][-1])
            for name in names
            if not hidden_parts.isdisjoint(_split_name(name))
        ]


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


def _split_name(name: str) -> Iterator[str]:
    """Yield what a request must show of a name: both ends of a range (`a..b`), and of a path the
    file in its folder, because the model knows where it works."""
    for piece in re.split(r"\.\.|:", name):
        yield "/".join(piece.split("/")[-2:])


def _find_spelling(name: str, text: str) -> str:
    """Return a name as a text has it: a path with its beginning."""
    spelling = re.search(rf"(?<![\w$-])(?:\.{{0,2}}/)?{re.escape(name)}", text)
    return spelling[0] if spelling else name


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
