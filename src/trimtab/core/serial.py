"""Messages as one text to be read about, not as a chat that a model could go on with.

Each message stands under a line that says whose it is, its own lines one space to the right: no
text can pass for such a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.core.edits import cut_text
from trimtab.core.event import Edit
from trimtab.core.message import Media, Message, Part, Text, ToolCall, ToolResult
from trimtab.core.summary_text import most
from trimtab.core.tokens import Counter

MESSAGE_CHARS = 1_000
"""Of one message that are shown, head and tail."""
LEAST_CHARS = 80
"""Of one part of a message that has very many."""


def serialised(messages: Sequence[Message], *, limit: int = MESSAGE_CHARS) -> list[str]:
    """One text for each message that says something: calls with arguments, results labelled."""
    named = {call.id: call.name for message in messages for call in message.calls}
    told: list[str] = []
    for message in messages:
        parts = [
            part for part in message.parts if isinstance(part, Text | Media | ToolCall | ToolResult)
        ]
        share = max(LEAST_CHARS, limit // max(1, len(parts)))
        lines = [_labelled(message, part, named, share) for part in parts]
        if text := "\n".join(line for line in lines if line):
            told.append(text)
    return told


def middle_out(text: str, limit: int) -> str:
    """Head and tail of a text within so many characters, and how much is missing between them."""
    if len(text) <= limit:
        return text
    words = f" […{len(text)} characters…] "
    kept = max(0, limit - len(words))
    head = kept - kept // 3
    return cut_text(
        text, Edit(op="truncate", first=0, last=0, text=words, head=head, tail=kept // 3)
    )


def chunked(texts: Iterable[str], counter: Counter, max_tokens: int) -> list[str]:
    """The texts in order, joined to as few pieces as hold no more tokens than that each.

    One that is too long for itself loses its middle.
    """
    if max_tokens <= 0:
        raise ValueError(f"a piece of {max_tokens} tokens holds nothing; it must be more than 0")
    pieces: list[list[str]] = []
    used = 0
    for text in texts:
        fitting = _fitting(text, counter, max_tokens)
        size = counter.count(f"{fitting}\n")
        if (
            pieces
            and used + size <= max_tokens
            and _fits([*pieces[-1], fitting], counter, max_tokens)
        ):
            pieces[-1].append(fitting)
            used += size
        else:
            pieces.append([fitting])
            used = size
    return ["\n".join(piece) for piece in pieces]


def _fits(piece: Sequence[str], counter: Counter, max_tokens: int) -> bool:
    # The sum of its parts says it, but for what a tokenizer of the user's own makes of the joints.
    return len(piece) < 2 or counter.count("\n".join(piece)) <= max_tokens


def _fitting(text: str, counter: Counter, max_tokens: int) -> str:
    if counter.count(text) <= max_tokens:
        return text
    kept = most(len(text), lambda chars: counter.count(middle_out(text, chars)) <= max_tokens)
    return middle_out(text, kept) if kept else ""


def _labelled(message: Message, part: Part, named: dict[str, str], limit: int) -> str:
    match part:
        case Text():
            label, text = f"{message.role}:", part.text.strip()
        case ToolCall():
            label, text = f"{message.role} called {part.name}:", part.arguments
        case ToolResult():
            failed = " (failed)" if part.is_error else ""
            label, text = (
                f"result of {named.get(part.call_id, 'a tool')}{failed}:",
                part.text.strip(),
            )
        case Media():
            label, text = f"{message.role}:", f"({part.kind} {part.mime or ''})".replace(" )", ")")
        case _:
            return ""
    if not text:
        return ""
    shown = middle_out(text, limit)
    return "\n".join([label, *(f" {line}" for line in shown.splitlines())])
