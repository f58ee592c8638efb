"""Finding hidden content in the store, by handle and by search."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.erase import SEARCH_TOOL
from trimtab.engine.log.event import Edit, MessageAdded, ToolResultRepair
from trimtab.engine.log.message import Message, Part, ToolCall
from trimtab.engine.log.rewind import is_event_in_force
from trimtab.engine.recall.expansion import MAX_SUMMARY_DEPTH, expand_summary, is_summary_handle
from trimtab.engine.recall.lines import MAX_ANSWER_CHARS, extract_lines
from trimtab.engine.recall.search import Query
from trimtab.engine.recall.snippets import MAX_SEARCHED_MESSAGES, select_positions
from trimtab.engine.recall.snippets import format_best_snippets as passages
from trimtab.engine.recall.tools import (
    NOTHING_FOUND_TEXT,
    find_fully_visible_messages,
    find_recalled_parts,
    find_recalled_parts_in_window,
    get_answer_hint,
    parse_recall_arguments,
    recall_part,
    recall_part_from_messages,
    recall_text_from_messages,
    require_recall_call,
)
from trimtab.engine.recall.tools import recall_text as recall_in
from trimtab.engine.window.window import Window
from trimtab.session.threads import estimate_item_bytes, run_in_thread_if_long
from trimtab.stores.base import PositionSpan, Store

MAX_RECALL_POSITIONS = 2_000
"""Maximum number of positions that one recall reads."""


async def recall_from_store(
    store: Store, session_id: str, window: Window, handle: str, *, for_model: bool = False
) -> str:
    """Return the text that a handle names, exactly as it was added, however long ago."""
    target = parse_handle(handle)
    if target.first_seq > window.base.last_evicted_seq:
        return recall_in(window, handle, for_model=for_model)
    last = min(target.last_seq, target.first_seq + MAX_RECALL_POSITIONS - 1)
    messages = await _read_messages(store, session_id, window, [(target.first_seq, last)])
    text = recall_text_from_messages(window, handle, messages, for_model=for_model)
    if last < target.last_seq:
        rest = target.last_seq - last
        end = target.last_seq
        return f"{text}\n[{rest} more positions; ask for m{last + 1}-m{end}]"
    return text


async def recall_part_from_store(
    store: Store, session_id: str, window: Window, handle: str
) -> Part:
    """Return one part, however long ago, for example a picture with all of its bytes."""
    at = parse_handle(handle).first_seq
    if at > window.base.last_evicted_seq:
        return recall_part(window, handle)
    messages = await _read_messages(store, session_id, window, [(at, at)])
    return recall_part_from_messages(window, handle, messages)


async def find_recalled_parts_in_store(
    store: Store, session_id: str, window: Window, call: ToolCall
) -> tuple[Message, tuple[Part, ...]] | None:
    """Return the message and its parts that a call of the recall tool asks to see in full."""
    try:
        at = parse_handle(parse_recall_arguments(call)["handle"]).first_seq
    except ValueError:
        return None
    if at > window.base.last_evicted_seq:
        return find_recalled_parts_in_window(window, call)
    return find_recalled_parts(call, await _read_messages(store, session_id, window, [(at, at)]))


async def search_session(store: Store, session_id: str, window: Window, query: str) -> str:
    """Return the passages that contain the query as it is written, or most of its words."""
    visible = find_fully_visible_messages(window)
    limit = len(visible) + 4 * MAX_SEARCHED_MESSAGES
    while True:
        hits = await store.search(session_id, query, limit=limit)
        # Some may have been undone: they are passed over.
        hits_in_force = [seq for seq in hits if is_event_in_force(seq, window.base.rewinds)]
        if len(set(hits_in_force) - visible) >= MAX_SEARCHED_MESSAGES or len(hits) < limit:
            break
        limit *= 4
    spans = [(seq, seq) for seq in select_positions(hits_in_force, visible)]
    messages = await _read_messages(store, session_id, window, spans)
    find = partial(passages, messages, Query.parse(query), window.counter, visible)
    size = sum(map(estimate_item_bytes, messages.values()))
    return await run_in_thread_if_long(find, size) or NOTHING_FOUND_TEXT


async def answer_recall_from_store(
    store: Store, session_id: str, window: Window, call: ToolCall
) -> str:
    """Answer a call of a recall tool. The answer also says if something was not found."""
    require_recall_call(call)
    try:
        arguments = parse_recall_arguments(call)
        if call.name == SEARCH_TOOL:
            return await search_session(store, session_id, window, arguments["query"])
        whole = not arguments["lines"] and not arguments["grep"]
        if whole and (
            level := await _expand_summary_level(store, session_id, window, arguments["handle"])
        ):
            return level
        text = await recall_from_store(
            store, session_id, window, arguments["handle"], for_model=True
        )
        extract = partial(extract_lines, text, arguments["lines"], arguments["grep"])
        return await run_in_thread_if_long(extract, len(text))
    except (LookupError, ValueError) as error:
        return f"[{error}]"


async def _expand_summary_level(
    store: Store, session_id: str, window: Window, handle: str
) -> str | None:
    """Open a summary by one level; return None if the handle does not name a summary."""
    target = parse_handle(handle)
    chain: list[Edit] = []
    edit = window.summary if target.first_seq < target.last_seq else None
    # One further than it is named by: the summary inside it is shown with it.
    while edit is not None and len(chain) < MAX_SUMMARY_DEPTH:
        chain.append(edit)
        span = (edit.prior, edit.prior)
        bodies = [e.body async for e in store.events(session_id, [span])] if edit.prior else []
        inside = edit.last < target.last_seq
        edit = next((body for body in bodies if isinstance(body, Edit) and not inside), None)
    if not any(is_summary_handle(target, edit) for edit in chain):
        return None
    last = min(target.last_seq, target.first_seq + MAX_RECALL_POSITIONS - 1)
    messages = await _read_messages(store, session_id, window, [(target.first_seq, last)])
    hint = get_answer_hint(window)
    return expand_summary(target, chain, messages, max_chars=MAX_ANSWER_CHARS, recall_hint=hint)


async def _read_messages(
    store: Store, session_id: str, window: Window, spans: Sequence[PositionSpan]
) -> dict[int, Message]:
    return {
        event.seq: event.body.message
        async for event in store.events(session_id, spans)
        if isinstance(event.body, MessageAdded | ToolResultRepair)
        and is_event_in_force(event.seq, window.base.rewinds)
    }
