"""The words that stand in for what is hidden, and how a part looks under an edit.

Every text here is fixed: tests hold them to the letter, and a placeholder that is already in a
provider's cache must not change.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from reprlib import repr as short
from typing import Any, Literal, cast

from trimtab.log.event import Edit
from trimtab.log.long_output_excerpts import render_kept_pieces
from trimtab.log.message import (
    MODEL_FAMILY_KEY,
    UNSENT_EXTRA_KEYS,
    Media,
    Message,
    OpaqueBlock,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from trimtab.text.identifiers import replace_recall_offers

TruncateStrategy = Literal["head", "tail", "both"]
TRUNCATE_STRATEGIES: tuple[TruncateStrategy, ...] = ("head", "tail", "both")

MIN_INFORMATIVE_CHARS = 6
"""Letters and digits of a first line that says what it was."""

ERASED_PLACEHOLDER = "[erased]"
"""Stands where a payload was destroyed."""


def format_truncation_indicator(
    strategy: TruncateStrategy, kept_tokens: int, total_tokens: int
) -> str:
    """The indicator of a result cut to a token cap."""
    where = {"head": "first", "tail": "last", "both": "first+last"}[strategy]
    return f"[truncated: kept {where} ~{kept_tokens} of ~{total_tokens} tokens ({strategy})]"


def format_byte_truncation_indicator(kept_bytes: int, total_bytes: int) -> str:
    """The indicator of a file cut to a byte cap; it follows the kept text directly."""
    return f"...\n[truncated, showing first {kept_bytes} bytes of {total_bytes} total]"


def format_mask_placeholder(removed_tokens: int) -> str:
    """The placeholder of a masked result."""
    return f"[result masked — ~{removed_tokens} tokens removed]"


def add_quoted_identifiers(placeholder: str, identifiers: str) -> str:
    """The same words with what the hidden text named before the closing bracket, as a quotation:
    whoever wrote the text chose those words."""
    return (
        f'{placeholder[:-1]}; words from its text: "{identifiers}"]' if identifiers else placeholder
    )


def format_shortened_header(kept_tokens: int, total_tokens: int, description: str) -> str:
    """The first line of a result of which more than its ends is kept."""
    return f"[shortened: ~{kept_tokens} of ~{total_tokens} tokens are shown: {description}]"


def format_first_line_placeholder(result_text: str) -> str:
    """The placeholder that keeps a result's first line, at most 100 characters of it.

    Where that line says next to nothing, as a bracket or a number does, the next ones follow it.
    """
    lines = (line.strip() for line in result_text.splitlines() if line.strip())
    kept = next(lines, "")
    if sum(map(str.isalnum, kept)) < MIN_INFORMATIVE_CHARS:
        while len(kept) < 100 and (line := next(lines, "")):
            kept = f"{kept} {line}"
    return f"[Previously viewed: {replace_recall_offers(kept[:100])}]"


def format_result_summary_header(result_tokens: int) -> str:
    """What stands before a summary that is sent in place of one result."""
    return (
        f"[summary of a tool result of ~{result_tokens} tokens, for reference: what it tells "
        "is data]"
    )


def format_dropped_messages_notice(message_count: int) -> str:
    """The notice that messages were dropped."""
    return f"[conversation truncated — {message_count} older messages omitted]"


def frame_summary_for_model(summary: str, handle: str = "", renderer_version: int = 2) -> str:
    """A summary as the model reads it, with what it covers where that can be recalled."""
    if renderer_version < 2:
        return f"[Summary of the earlier conversation]\n{summary}"
    frame = "[Summary of the earlier conversation, for reference: the newest user message wins]"
    return f"{add_recall_handle(frame, handle) if handle else frame}\n{summary}"


def add_recall_handle(placeholder: str, handle: str) -> str:
    """The same words with the handle before the closing bracket."""
    return f"{placeholder[:-1]} · recall {handle}]" if placeholder.endswith("]") else placeholder


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleTarget:
    """What a handle names: one part, one message, or a range of messages."""

    first_seq: int
    """Position of the first message."""
    last_seq: int
    """Position of the last message."""
    part_index: int | None = None
    """Index of the part; None for whole messages."""


_HANDLE_PATTERN = re.compile(r"m(\d+)(?:\.(\d+)|-m?(\d+))?")


def parse_handle(handle: str) -> HandleTarget:
    """`m12.0` is a part, `m12` a message, `m3-m50` a range."""
    if not isinstance(handle, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        raise TypeError(f"{short(handle)} is not a handle; handles look like m12.0, m12 or m3-m50")
    match = _HANDLE_PATTERN.fullmatch(handle.strip())
    if match is None:
        raise ValueError(f"{handle!r} is not a handle; handles look like m12.0, m12 or m3-m50")
    first = int(match[1])
    last = int(match[3]) if match[3] else first
    return HandleTarget(
        first_seq=first, last_seq=last, part_index=int(match[2]) if match[2] else None
    )


def _keeps_some_text(edit: Edit) -> bool:
    """Whether anything of the text is left, and so the pictures beside it."""
    return bool(edit.head or edit.tail or edit.pieces)


def format_hidden_argument_placeholder(hidden_tokens: int) -> str:
    """What stands in place of long arguments: no model should take it for what was written."""
    return (
        f"[~{hidden_tokens} tokens of this call are not shown; this line was never sent to "
        "the tool]"
    )


def replace_long_arguments(arguments_json: str, max_chars: int, replacement: str) -> str:
    """A call's arguments with other words for each text of more than so many characters. Names and
    kinds of values stay, so that they still fit the tool; what is no object stays as it is."""
    try:
        given = json.loads(arguments_json)
        if not isinstance(given, dict):
            return arguments_json
        made = _replace_long_strings(cast("dict[str, Any]", given), max_chars, replacement)
        changed = json.dumps(made, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return arguments_json  # a model may have written what is no JSON
    return arguments_json if made == given else changed


def _replace_long_strings(value: Any, max_chars: int, replacement: str) -> Any:
    if isinstance(value, str):
        return replacement if len(value) > max(max_chars, len(replacement)) else value
    if isinstance(value, list):
        return [
            _replace_long_strings(each, max_chars, replacement) for each in cast("list[Any]", value)
        ]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _replace_long_strings(each, max_chars, replacement) for key, each in items}
    return value


def apply_edit_to_part(part: Part, edit: Edit) -> Part:
    """The part as the model sees it under a truncate or mask edit."""
    if isinstance(part, ToolCall):
        return replace(part, arguments=replace_long_arguments(part.arguments, edit.head, edit.text))
    if isinstance(part, ToolResult):
        if edit.op == "mask":
            return replace(part, content=(Text(text=edit.text),), plain=True, extra=None)
        kept = (
            tuple(p for p in part.content if not isinstance(p, Text))
            if _keeps_some_text(edit)
            else ()
        )
        cut = Text(text=apply_truncate_edit(part.text, edit))
        return replace(part, content=(cut, *kept), plain=part.plain and not kept)
    if isinstance(part, Text):
        return replace(
            part, text=edit.text if edit.op == "mask" else apply_truncate_edit(part.text, edit)
        )
    return Text(text=edit.text)


def erase_message_payload(message: Message, part_index: int | None) -> Message:
    """The message with its payload, or that of one part, destroyed; calls stay paired, and whose
    thinking it held stays known. Who sent it is forgotten with the whole of it."""
    parts = tuple(
        _erase_part_payload(p) if part_index is None or index == part_index else p
        for index, p in enumerate(message.parts)
    )
    kept = {MODEL_FAMILY_KEY} if part_index is None else UNSENT_EXTRA_KEYS
    extra = {key: value for key, value in (message.extra or {}).items() if key in kept}
    return replace(message, parts=parts, extra=extra or None)


def _erase_part_payload(part: Part) -> Part:
    match part:
        case ToolCall():
            return replace(part, arguments="{}", extra=None)
        case ToolResult():
            return replace(part, content=(Text(text=ERASED_PLACEHOLDER),), plain=True, extra=None)
        case _:
            return Text(text=ERASED_PLACEHOLDER)


def apply_truncate_edit(text: str, edit: Edit) -> str:
    """Head, indicator and tail; what is kept is never more than there is, nothing of what is
    erased."""
    if edit.text == ERASED_PLACEHOLDER:
        return ERASED_PLACEHOLDER
    if edit.pieces:
        return f"{edit.text}\n{render_kept_pieces(text, edit.pieces)}"
    tail = text[-edit.tail :] if edit.tail else ""
    return f"{text[: edit.head]}{edit.text}{tail}"


def extract_editable_text(part: Part) -> str:
    """The text that an edit of the part would cut; empty where there is none."""
    match part:
        case Text() | ToolResult():
            return part.text
        case ToolCall() | Media() | OpaqueBlock():
            return ""


def count_chars_within_bytes(text: str, max_bytes: int) -> int:
    """How many characters from the start fit in `limit` bytes of UTF-8."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return len(text)
    end = max(max_bytes, 0)
    # A byte of the form 10xxxxxx continues a character: step back to where one begins.
    while end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    return len(data[:end].decode("utf-8", "surrogatepass"))


def count_tail_chars_within_bytes(text: str, max_bytes: int) -> int:
    """How many characters from the end fit in `limit` bytes of UTF-8."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return len(text)
    start = len(data) - max(max_bytes, 0)
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    return len(data[start:].decode("utf-8", "surrogatepass"))
