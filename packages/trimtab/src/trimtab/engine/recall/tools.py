"""Hidden content is not lost: look it up by handle or by search."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from trimtab.engine.log.edits import HandleTarget, parse_handle
from trimtab.engine.log.erase import RECALL_TOOL, RECALL_TOOL_NAMES, SEARCH_TOOL
from trimtab.engine.log.event import DEFAULT_RECALL_HINT, Edit, dump_canonical_json
from trimtab.engine.log.message import (
    Message,
    OpaqueBlock,
    Part,
    ToolCall,
    extract_text_or_arguments,
)
from trimtab.engine.log.text_cuts import format_recall_hint
from trimtab.engine.recall.expansion import expand_summary
from trimtab.engine.recall.lines import MAX_ANSWER_CHARS, extract_lines
from trimtab.engine.recall.search import (
    Query,
    get_message_search_text,
    rank_scored_positions,
    score_text,
)
from trimtab.engine.recall.snippets import format_best_snippets as passages
from trimtab.engine.recall.snippets import select_positions
from trimtab.engine.text.quoting import indent_lines
from trimtab.engine.tokens.counter import list_media
from trimtab.engine.tokens.media import describe_media
from trimtab.engine.window.window import Window
from trimtab.errors import ErasedError

NOTHING_FOUND_TEXT = "(nothing found)"
MAX_NEAREST_HANDLES = 3
"""How many messages an error names if a handle does not exist."""

RECALL_TOOLS: tuple[Mapping[str, Any], ...] = (
    {
        "name": RECALL_TOOL,
        "description": (
            "Show text that was hidden to save room. Placeholders name its handle, such as "
            "m12.0, m12 or m3-m50. Ask for lines or for a pattern when only a part is needed."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "The handle from the placeholder."},
                "lines": {"type": "string", "description": "Line numbers, such as 10-40."},
                "grep": {"type": "string", "description": "Only lines that match this pattern."},
            },
            "required": ["handle"],
        },
    },
    {
        "name": SEARCH_TOOL,
        "description": "Find earlier messages of this conversation, hidden ones included.",
        "input_schema": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "Words to look for."}},
            "required": ["query"],
        },
    },
)
"""Definitions of the recall tools in Anthropic's form. `Context(tools=…)` takes them in every
dialect."""


def recall_text(window: Window, handle: str, *, for_model: bool = False) -> str:
    """Return the text that a handle names, exactly as it was added.

    A part is returned as its bare text. Each whole message has a line before it with its handle. A
    picture or a file is described, with how to get it: a model recalls it, a program calls
    `recall_part`. For a model whole messages are indented, so that none can contain another.
    """
    messages = _messages_in_range(window, parse_handle(handle))
    return recall_text_from_messages(window, handle, messages, for_model=for_model)


def recall_text_from_messages(
    window: Window, handle: str, messages: Mapping[int, Message], *, for_model: bool = False
) -> str:
    """Return the same from messages by position, which may no longer be in memory."""
    target = parse_handle(handle)
    if target.part_index is not None:
        part = recall_part_from_messages(window, handle, messages)
        return part_to_text(part, "" if for_model else format_part_hint(handle))
    in_range = {
        seq: message
        for seq, message in messages.items()
        if target.first_seq <= seq <= target.last_seq
    }
    if not in_range:
        raise build_unknown_handle_error(handle, window.seq, window.entries)
    if len(in_range) == 1:
        [(seq, message)] = in_range.items()
        _require_not_erased(window, seq, range(len(message.parts)))
    hint = _make_model_hint(window) if for_model else format_part_hint
    texts: list[str] = []
    for seq, message in in_range.items():
        text = _format_whole_message(window, seq, message, hint)
        texts.append(f"[m{seq} {message.speaker}]\n{indent_lines(text) if for_model else text}")
    return "\n".join(texts)


def recall_part(window: Window, handle: str) -> Part:
    """Return the part that a handle names in full, for example a picture with all of its bytes."""
    return recall_part_from_messages(
        window, handle, _messages_in_range(window, parse_handle(handle))
    )


def recall_part_from_messages(window: Window, handle: str, messages: Mapping[int, Message]) -> Part:
    """Return the same from messages by position, which may no longer be in memory."""
    target = parse_handle(handle)
    if target.part_index is None:
        raise ValueError(f"{handle} names whole messages; name one part, such as {handle}.0")
    message = messages.get(target.first_seq)
    if message is None or target.part_index >= len(message.parts):
        raise build_unknown_handle_error(handle, window.seq, window.entries, message)
    _require_not_erased(window, target.first_seq, [target.part_index])
    return message.parts[target.part_index]


def find_recalled_parts(
    call: ToolCall, messages: Mapping[int, Message]
) -> tuple[Message, tuple[Part, ...]] | None:
    """Return a message and its parts that a call of the recall tool asks to see in full.

    None for a range, a search, some lines, or if it does not exist.
    """
    try:
        arguments = parse_recall_arguments(call)
        target = parse_handle(arguments["handle"])
    except ValueError:
        return None
    message = messages.get(target.first_seq)
    some = call.name != RECALL_TOOL or arguments["lines"] or arguments["grep"]
    if some or message is None or target.first_seq != target.last_seq:
        return None
    if target.part_index is None:
        return message, message.parts
    return message, message.parts[target.part_index : target.part_index + 1]


def find_recalled_parts_in_window(
    window: Window, call: ToolCall
) -> tuple[Message, tuple[Part, ...]] | None:
    """Return the same from the window's memory."""
    try:
        target = parse_handle(parse_recall_arguments(call)["handle"])
    except ValueError:
        return None
    first = HandleTarget(first_seq=target.first_seq, last_seq=target.first_seq)
    return find_recalled_parts(call, _messages_in_range(window, first))


def require_known_handle(window: Window, handle: str) -> HandleTarget:
    """Parse a handle, and raise if nothing has it. A handle that has left memory is not checked."""
    target = parse_handle(handle)
    messages = _messages_in_range(window, target)
    message = messages.get(target.first_seq) if target.part_index is not None else None
    has_part = message is None or (target.part_index or 0) < len(message.parts)
    here = target.first_seq <= window.base.last_evicted_seq or (messages and has_part)
    if not (here and 1 <= target.first_seq <= target.last_seq):
        raise build_unknown_handle_error(handle, window.seq, window.entries, message)
    return target


def build_unknown_handle_error(
    handle: str, last_seq: int, message_seqs: Iterable[int] = (), message: Message | None = None
) -> LookupError:
    """Explain what is wrong with a handle: its part, its position, or its range.

    `last_seq` is the newest position, `message_seqs` are the positions of messages.
    """
    target = parse_handle(handle)
    if target.last_seq < target.first_seq:
        right = f"m{target.last_seq}-m{target.first_seq}"
        return LookupError(
            f"there is no {handle}: a range goes from the lower to the higher, {right}"
        )
    if message is not None:
        last_part = len(message.parts) - 1
        return LookupError(
            f"there is no {handle}; the last part is m{target.first_seq}.{last_part}"
        )
    if not 0 < target.first_seq <= last_seq:
        return LookupError(f"there is no {handle}; positions go up to m{last_seq}")
    # Settings, calls and edits take positions, too, and what was undone is in no window.
    near = sorted(
        sorted(message_seqs, key=lambda seq: abs(seq - target.first_seq))[:MAX_NEAREST_HANDLES]
    )
    verb = "is" if len(near) == 1 else "are"
    nearest = f"; the nearest {verb} {', '.join(f'm{seq}' for seq in near)}" if near else ""
    return LookupError(
        f"there is no {handle}: position {target.first_seq} is not a message "
        f"(it is settings, a call or an edit) or was undone{nearest}"
    )


def answer_recall_call(window: Window, call: ToolCall) -> str:
    """Answer a call of a recall tool. The answer also says if something was not found."""
    require_recall_call(call)
    try:
        arguments = parse_recall_arguments(call)
        if call.name == SEARCH_TOOL:
            return search_window(window, arguments["query"])
        if not arguments["lines"] and not arguments["grep"]:
            target = parse_handle(arguments["handle"])
            if level := expand_summary(
                target,
                _summary_chain(window),
                _messages_in_range(window, target),
                max_chars=MAX_ANSWER_CHARS,
                recall_hint=get_answer_hint(window),
            ):
                return level
        text = recall_text(window, arguments["handle"], for_model=True)
        return extract_lines(text, arguments["lines"], arguments["grep"])
    except (LookupError, ValueError) as error:
        return f"[{error}]"


def _messages_in_range(window: Window, handle: HandleTarget) -> dict[int, Message]:
    entries = window.entries
    span = range(handle.first_seq, min(handle.last_seq, window.seq) + 1)
    return {seq: entries[seq].message for seq in span if seq in entries}


def _summary_chain(window: Window) -> Iterator[Edit]:
    """Yield the current summary, the one it continues, and so on, as far as they are in memory."""
    edits = {
        event.seq: event.body
        for event in window.base.events_since_snapshot
        if isinstance(event.body, Edit)
    }
    edit = window.summary
    while edit is not None:
        yield edit
        edit = edits.get(edit.prior)


def require_recall_call(call: ToolCall) -> None:
    """Raise `ValueError` if the call is not one of a recall tool."""
    if call.name not in RECALL_TOOL_NAMES:
        raise ValueError(
            f"{call.name} is not a recall tool; those are {RECALL_TOOL} and {SEARCH_TOOL}"
        )


def parse_recall_arguments(call: ToolCall) -> dict[str, str]:
    """Parse the arguments of a recall tool. A missing or null argument becomes empty."""
    try:
        json_arguments: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        json_arguments = None
    if not isinstance(json_arguments, dict):
        raise ValueError('a recall tool takes an object of JSON, such as {"handle": "m12.0"}')  # noqa: TRY004 - of JSON
    arguments = cast("dict[str, Any]", json_arguments)
    keys = ("query", "handle", "lines", "grep")
    return {key: "" if (value := arguments.get(key)) is None else str(value) for key in keys}


def search_window(window: Window, query_text: str) -> str:
    """Return the passages that contain a text, or most of its words."""
    query = Query.parse(query_text)
    hits = [(score_text(query, text), seq) for seq, text in _searchable_texts(window)]
    visible = find_fully_visible_messages(window)
    seqs = select_positions(rank_scored_positions(hits, len(hits)), visible)
    messages = {seq: window.entries[seq].message for seq in seqs}
    return passages(messages, query, window.counter, visible) or NOTHING_FOUND_TEXT


def find_fully_visible_messages(window: Window) -> frozenset[int]:
    """Return the positions of the messages that the model sees in full."""
    return frozenset(
        entry.seq
        for group in window.conversation.groups
        if group.hidden is None
        for entry in group.entries()
        if not entry.edits
    )


def part_to_text(part: Part, media_hint: str = "") -> str:
    """Return the text of a part.

    A picture or a file is described with the hint, without its bytes.
    """
    if isinstance(part, OpaqueBlock):
        return dump_canonical_json(part.data)
    text = extract_text_or_arguments(part) or ""
    media_labels = [f"[{describe_media(media)}{media_hint}]" for media in list_media(part)]
    return "\n".join([*([text] if text else []), *media_labels])


def format_part_hint(handle: str) -> str:
    """Return how a program gets a picture or a file."""
    return f"; recall_part({handle!r}) returns it"


def get_answer_hint(window: Window) -> str:
    """Return the words by which an answer of a recall tool names a handle."""
    return window.settings.recall_hint or DEFAULT_RECALL_HINT


def _make_model_hint(window: Window) -> Callable[[str], str]:
    """Return a function that tells how a model gets a picture or a file."""
    return lambda handle: f" · {format_recall_hint(handle, get_answer_hint(window))}"


def _format_whole_message(
    window: Window, seq: int, message: Message, hint: Callable[[str], str]
) -> str:
    lines: list[str] = []
    for index, part in enumerate(message.parts):
        event = window.base.find_erasing_event(seq, index)
        erasure_note = f"[erased by event {event}]"
        text = part_to_text(part, hint(f"m{seq}.{index}")) if event is None else erasure_note
        lines.append(f"{part.name} {text}" if isinstance(part, ToolCall) else text)
    return "\n".join(lines)


def _searchable_texts(window: Window) -> Iterator[tuple[int, str]]:
    """Yield all texts except earlier searches, which would find themselves first."""
    for seq, entry in window.entries.items():
        recall_calls = [call for call in entry.round.calls if call.name in RECALL_TOOL_NAMES]
        answers = {call.result.seq for call in recall_calls if call.result is not None}
        if seq not in answers:
            yield seq, get_message_search_text(entry.message)


def _require_not_erased(window: Window, seq: int, parts: Iterable[int]) -> None:
    events = [window.base.find_erasing_event(seq, part) for part in parts]
    if events and None not in events:
        raise ErasedError(f"m{seq} was erased by event {events[0]} and cannot be recalled")
