"""Read messages, what the model sees of them, and why."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import PlainTextResponse, Response

from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.event import Event, MessageAdded, ToolResultRepair
from trimtab.engine.log.rewind import is_event_in_force
from trimtab.stores.base import Store
from trimtab_serve.channels.http.api_route import ApiRequest, create_api_router, requires
from trimtab_serve.channels.http.parameters import (
    MAX_POSITION,
    ONLY_DIGITS,
    SESSION_PATH,
    AgentName,
    MessageHandle,
    PageSize,
    QueryText,
    SessionName,
)
from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.channels.http.projection import build_message_info
from trimtab_serve.client.types import (
    ContextUsageInfo,
    HistoryPage,
    MessageInfo,
    RecalledText,
    SearchResultsText,
    VisibilityInfo,
)

ALSO_PLAIN_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
EVENTS_PER_READ = 500
"""Number of events that are read at a time when searching for messages."""
router = create_api_router("sessions")


@router.get(f"{SESSION_PATH}/history", openapi_extra=requires("read"))
async def read_history(
    request: ApiRequest,
    *,
    agent: AgentName,
    session: SessionName,
    after: Annotated[
        int | None,
        Query(description="Only messages after this position.", ge=0, le=MAX_POSITION),
        ONLY_DIGITS,
    ] = None,
    before: Annotated[
        int | None,
        Query(description="Only the last messages before this position.", ge=1, le=MAX_POSITION),
        ONLY_DIGITS,
    ] = None,
    limit: PageSize = 100,
) -> HistoryPage:
    """Read all messages, including those hidden from the model."""
    session_id = await request.require_session_id(agent, session)
    if after is not None and before is not None:
        raise HttpProblem("invalid-request", "after and before exclude each other; send only one")
    async with request.service.open_session(session_id) as opened:
        rewinds, last = list(opened.window.base.rewinds), opened.window.seq
    if before is None:
        found = await _read_messages_after(
            request.service.store, session_id, after or 0, last, limit + 1
        )
        page, more = found[:limit], len(found) > limit
        next_ = page[-1].seq if more else None
    else:
        found = await _read_messages_until(
            request.service.store, session_id, min(before - 1, last), limit + 1
        )
        page, more = found[-limit:], len(found) > limit
        next_ = page[0].seq if more else None
    shown = [_to_message_info(event, rewinds) for event in page]
    return HistoryPage(messages=shown, next=next_)


@router.get(
    f"{SESSION_PATH}/context",
    response_model=ContextUsageInfo,
    openapi_extra=requires("read"),
    responses=ALSO_PLAIN_TEXT,
)
async def read_context(
    request: ApiRequest, agent: AgentName, session: SessionName
) -> ContextUsageInfo | Response:
    """Read how the tokens of the next call are used. With `Accept: text/plain`, the response is
    text."""
    session_id = await request.require_session_id(agent, session)
    async with request.service.open_session(session_id) as opened:
        ledger = opened.report()
    if request.wants_plain_text:
        return PlainTextResponse(f"{ledger}\n")
    return ContextUsageInfo(text=str(ledger), line=ledger.line(), ledger=ledger.to_dict())


@router.get(f"{SESSION_PATH}/why/{{handle}}", openapi_extra=requires("read"))
async def explain_visibility(
    request: ApiRequest, agent: AgentName, session: SessionName, handle: MessageHandle
) -> VisibilityInfo:
    """Explain why the model sees a message, or a part of it, as it does."""
    session_id = await request.require_session_id(agent, session)
    _check_handle(handle)
    async with request.service.open_session(session_id) as opened:
        try:
            return await opened.why(handle)
        except (LookupError, ValueError) as error:
            raise _not_found_problem(error) from None


@router.get(
    f"{SESSION_PATH}/recall/{{handle}}",
    response_model=RecalledText,
    openapi_extra=requires("read"),
    responses=ALSO_PLAIN_TEXT,
)
async def recall(
    request: ApiRequest, agent: AgentName, session: SessionName, handle: MessageHandle
) -> RecalledText | Response:
    """Read a text exactly as it was written, hidden or not."""
    session_id = await request.require_session_id(agent, session)
    _check_handle(handle)
    async with request.service.open_session(session_id) as opened:
        try:
            text = await opened.recall(handle)
        except (LookupError, ValueError) as error:
            raise _not_found_problem(error) from None
    if request.wants_plain_text:
        return PlainTextResponse(text.encode("utf-8", "replace"))
    return RecalledText(handle=handle, text=text)


@router.get(f"{SESSION_PATH}/search", openapi_extra=requires("read"))
async def search(
    request: ApiRequest,
    agent: AgentName,
    session: SessionName,
    q: Annotated[
        QueryText, Query(description="The words to search for.", min_length=1, max_length=1_000)
    ],
) -> SearchResultsText:
    """Search messages by words, those hidden from the model first."""
    session_id = await request.require_session_id(agent, session)
    async with request.service.open_session(session_id) as opened:
        text = await opened.search(q)
    return SearchResultsText(query=q, text=text)


def _check_handle(handle: str) -> None:
    try:
        named = parse_handle(handle)
    except ValueError as error:
        raise HttpProblem("invalid-request", str(error)) from None
    if (
        max(named.first_seq, named.last_seq, named.part_index or 0) > 2**62
        or named.last_seq < named.first_seq
    ):
        raise HttpProblem(
            "invalid-request", f"{handle!r} is not a valid handle; try m12, m12.0 or m3-m50"
        )


def _not_found_problem(error: Exception) -> HttpProblem:
    return HttpProblem("not-found", str(error.args[0] if error.args else error))


async def _read_messages_after(
    store: Store, session_id: str, after: int, last: int, limit: int
) -> list[Event]:
    found: list[Event] = []
    first = after + 1
    while first <= last and len(found) < limit:
        found += await _read_message_events(
            store, session_id, first, min(first + EVENTS_PER_READ - 1, last)
        )
        first += EVENTS_PER_READ
    return found[:limit]


async def _read_messages_until(store: Store, session_id: str, last: int, limit: int) -> list[Event]:
    found: list[Event] = []
    while last > 0 and len(found) < limit:
        first = max(1, last - EVENTS_PER_READ + 1)
        found[:0] = await _read_message_events(store, session_id, first, last)
        last = first - 1
    return found[-limit:]


async def _read_message_events(store: Store, session_id: str, first: int, last: int) -> list[Event]:
    return [
        event
        async for event in store.events(session_id, [(first, last)])
        if isinstance(event.body, MessageAdded | ToolResultRepair)
    ]


def _to_message_info(event: Event, rewinds: list[tuple[int, int]]) -> MessageInfo:
    return build_message_info(event, undone=not is_event_in_force(event.seq, rewinds))
