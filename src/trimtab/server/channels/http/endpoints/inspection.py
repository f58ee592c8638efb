"""What was said, what the model sees of it, and why."""

from __future__ import annotations

from trimtab.http_api_response_types import (
    ContextUsageInfo,
    HistoryPage,
    MessageInfo,
    RecalledText,
    SearchResultsText,
)
from trimtab.log.edits import parse_handle
from trimtab.log.event import Event, MessageAdded, ToolResultRepair
from trimtab.log.events_undone_by_rewinds import is_event_in_force
from trimtab.server.channels.http.problems import HttpProblem
from trimtab.server.channels.http.projection import build_message_info
from trimtab.server.channels.http.request_context_and_operations import (
    EndpointResponse,
    RequestContext,
)

EVENTS_PER_READ = 500
"""Events that are read at a time while messages are looked for."""
PLAIN_TEXT_MEDIA_TYPE = "text/plain; charset=utf-8"


async def handle_read_history(request: RequestContext) -> EndpointResponse:
    """All that was said, hidden or not, a page at a time."""
    session = await request.require_session_id()
    after, before, limit = (request.query_params[name] for name in ("after", "before", "limit"))
    if after is not None and before is not None:
        raise HttpProblem(
            "invalid-request", "after and before exclude each other; send one of them"
        )
    async with request.service.open_session(session) as opened:
        rewinds, last = list(opened.window.base.rewinds), opened.window.seq
    if before is None:
        found = await _read_messages_after(request, session, after or 0, last, limit + 1)
        page, more = found[:limit], len(found) > limit
        next_ = page[-1].seq if more else None
    else:
        found = await _read_messages_until(request, session, min(before - 1, last), limit + 1)
        page, more = found[-limit:], len(found) > limit
        next_ = page[0].seq if more else None
    shown = [_to_message_info(event, rewinds) for event in page]
    return EndpointResponse(value=HistoryPage(messages=shown, next=next_))


async def handle_read_context_usage(request: RequestContext) -> EndpointResponse:
    """Where the tokens of the next call would go."""
    async with request.service.open_session(await request.require_session_id()) as opened:
        ledger = opened.report()
    if request.wants_plain_text:
        return EndpointResponse(raw_body=f"{ledger}\n".encode(), media_type=PLAIN_TEXT_MEDIA_TYPE)
    told = ContextUsageInfo(text=str(ledger), line=ledger.line(), ledger=ledger.to_dict())
    return EndpointResponse(value=told)


async def handle_explain_visibility(request: RequestContext) -> EndpointResponse:
    """Why the model sees something as it does."""
    session, handle = await request.require_session_id(), _require_valid_handle(request)
    async with request.service.open_session(session) as opened:
        try:
            return EndpointResponse(value=await opened.why(handle))
        except (LookupError, ValueError) as error:
            raise _not_found_problem(error) from None


async def handle_recall_text(request: RequestContext) -> EndpointResponse:
    """The text behind a handle."""
    session, handle = await request.require_session_id(), _require_valid_handle(request)
    async with request.service.open_session(session) as opened:
        try:
            text = await opened.recall(handle)
        except (LookupError, ValueError) as error:
            raise _not_found_problem(error) from None
    if request.wants_plain_text:
        return EndpointResponse(
            raw_body=text.encode("utf-8", "replace"), media_type=PLAIN_TEXT_MEDIA_TYPE
        )
    return EndpointResponse(value=RecalledText(handle=handle, text=text))


async def handle_search_messages(request: RequestContext) -> EndpointResponse:
    """Messages by their words."""
    session, query = await request.require_session_id(), request.query_params["q"]
    async with request.service.open_session(session) as opened:
        text = await opened.search(query)
    return EndpointResponse(value=SearchResultsText(query=query, text=text))


def _require_valid_handle(request: RequestContext) -> str:
    handle = request.path_params["handle"]
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
    return handle


def _not_found_problem(error: Exception) -> HttpProblem:
    return HttpProblem("not-found", str(error.args[0] if error.args else error))


async def _read_messages_after(
    request: RequestContext, session: str, after: int, last: int, limit: int
) -> list[Event]:
    found: list[Event] = []
    first = after + 1
    while first <= last and len(found) < limit:
        found += await _read_message_events(
            request, session, first, min(first + EVENTS_PER_READ - 1, last)
        )
        first += EVENTS_PER_READ
    return found[:limit]


async def _read_messages_until(
    request: RequestContext, session: str, last: int, limit: int
) -> list[Event]:
    found: list[Event] = []
    while last > 0 and len(found) < limit:
        first = max(1, last - EVENTS_PER_READ + 1)
        found[:0] = await _read_message_events(request, session, first, last)
        last = first - 1
    return found[-limit:]


async def _read_message_events(
    request: RequestContext, session: str, first: int, last: int
) -> list[Event]:
    store = request.service.store
    return [
        event
        async for event in store.events(session, [(first, last)])
        if isinstance(event.body, MessageAdded | ToolResultRepair)
    ]


def _to_message_info(event: Event, rewinds: list[tuple[int, int]]) -> MessageInfo:
    return build_message_info(event, undone=not is_event_in_force(event.seq, rewinds))
