"""Messages as one text to read about, not as a chat that a model could continue.

Each message follows a line that names its author. Its own lines are indented by one space, so that
no text can imitate such a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.engine.log.edits import apply_truncate_edit
from trimtab.engine.log.event import Edit
from trimtab.engine.log.message import Media, Message, Part, Text, ToolCall, ToolResult
from trimtab.engine.summaries.format import find_largest_fitting
from trimtab.engine.text.quoting import collapse_whitespace, indent_lines
from trimtab.engine.tokens.counter import TokenCounter

MAX_MESSAGE_CHARS = 1_000
"""Maximum characters of one message, head and tail together."""
MIN_PART_CHARS = 80
"""Minimum characters of one part of a message with very many parts."""


def transcribe_messages(
    messages: Sequence[Message], *, max_message_chars: int = MAX_MESSAGE_CHARS
) -> list[str]:
    """Return a text for each non-empty message: calls with arguments, results with a label."""
    tool_names = {call.id: call.name for message in messages for call in message.calls}
    transcripts: list[str] = []
    for message in messages:
        parts = [
            part for part in message.parts if isinstance(part, Text | Media | ToolCall | ToolResult)
        ]
        share = max(MIN_PART_CHARS, max_message_chars // max(1, len(parts)))
        lines = [_transcribe_part(message, part, tool_names, share) for part in parts]
        if text := "\n".join(line for line in lines if line):
            transcripts.append(text)
    return transcripts


def cut_middle(text: str, max_chars: int) -> str:
    """Return head and tail of a text in at most `max_chars` characters, with a note of its length
    between them."""
    if len(text) <= max_chars:
        return text
    words = f" […{len(text)} characters…] "
    room = max(0, max_chars - len(words))
    head = room - room // 3
    return apply_truncate_edit(
        text, Edit(op="truncate", first=0, last=0, text=words, head=head, tail=room // 3)
    )


def join_into_chunks(texts: Iterable[str], counter: TokenCounter, max_tokens: int) -> list[str]:
    """Join texts in order into as few chunks of at most `max_tokens` as possible.

    A text that is too long by itself loses its middle.
    """
    if max_tokens <= 0:
        raise ValueError(f"invalid max_tokens {max_tokens}: a chunk must have more than 0 tokens")
    pieces: list[list[str]] = []
    tokens = 0
    for text in texts:
        fitting = _cut_to_fit(text, counter, max_tokens)
        size = counter.count(f"{fitting}\n")
        if (
            pieces
            and tokens + size <= max_tokens
            and _chunk_fits([*pieces[-1], fitting], counter, max_tokens)
        ):
            pieces[-1].append(fitting)
            tokens += size
        else:
            pieces.append([fitting])
            tokens = size
    return ["\n".join(piece) for piece in pieces]


def _chunk_fits(piece: Sequence[str], counter: TokenCounter, max_tokens: int) -> bool:
    # The sum of its parts says it, but for what a tokenizer of the user's own makes of the joints.
    return len(piece) < 2 or counter.count("\n".join(piece)) <= max_tokens


def _cut_to_fit(text: str, counter: TokenCounter, max_tokens: int) -> str:
    if counter.count(text) <= max_tokens:
        return text
    chars_that_fit = find_largest_fitting(
        len(text), lambda chars: counter.count(cut_middle(text, chars)) <= max_tokens
    )
    return cut_middle(text, chars_that_fit) if chars_that_fit else ""


def _transcribe_part(
    message: Message, part: Part, tool_names: dict[str, str], max_chars: int
) -> str:
    match part:
        case Text():
            label = f"{'document of ' if part.is_document else ''}{message.speaker}:"
            text = part.text.strip()
        case ToolCall():
            label = f"{message.role} called {collapse_whitespace(part.name)}:"
            text = part.arguments
        case ToolResult():
            failure_note = " (failed)" if part.is_error else ""
            name = collapse_whitespace(tool_names.get(part.call_id, "a tool"))
            label = f"result of {name}{failure_note}:"
            text = part.text.strip()
        case Media():
            label = f"{message.role}:"
            text = f"({part.kind} {part.mime or ''})".replace(" )", ")")
        case _:
            return ""
    if not text:
        return ""
    excerpt = cut_middle(text, max_chars)
    return f"{label}\n{indent_lines(excerpt)}"
