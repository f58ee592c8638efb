"""Read messages, what the model sees of them, and why."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import PlainTextResponse, Response

from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.event import Event, MessageAdded, ToolResultRepair
from trimtab.engine.log.rewind import is_event_in_force
from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.session.session import Session
from trimtab.session.store_recall import MAX_RECALL_POSITIONS
from trimtab.stores.base import Store
from trimtab_serve.channels.http.api_route import ApiRequest, create_api_router, requires
from trimtab_serve.channels.http.endpoints.sessions import build_session_path
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
from trimtab_serve.channels.http.projection import MAX_PAGE_CHARS, build_message_info
from trimtab_serve.client.types import (
    ContextUsageInfo,
    HistoryPage,
    MessageInfo,
    RecalledText,
    SearchResultsText,
)
from trimtab_serve.service.message_size import count_message_chars

ALSO_PLAIN_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
FIRST_EVENTS_PER_READ = 16
MAX_EVENTS_PER_READ = 500
"""Number of events that are read at a time when reading backwards: first, and maximum."""
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
    """Read all messages, including those hidden from the model. A page ends before `limit` if its
    messages have more than two million characters."""
    session_id = await request.require_session_id(agent, session)
    if after is not None and before is not None:
        raise HttpProblem("invalid-request", "after and before exclude each other; send only one")
    async with request.service.open_session(session_id) as open_session:
        rewinds = list(open_session.window.base.rewinds)
        last = open_session.window.seq
    store = request.service.store
    if before is None:
        page, more = await _read_page_after(store, session_id, (after or 0, last), limit)
        next_ = page[-1].seq if more else None
    else:
        page, more = await _read_page_until(store, session_id, min(before - 1, last), limit)
        next_ = page[0].seq if more else None
    messages = [_to_message_info(event, rewinds) for event in page]
    return HistoryPage(messages=messages, next=next_)


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
    async with request.service.open_session(session_id) as open_session:
        ledger = open_session.report()
    if request.wants_plain_text:
        return PlainTextResponse(f"{ledger}\n")
    return ContextUsageInfo(text=str(ledger), line=ledger.line(), ledger=ledger.to_dict())


@router.get(f"{SESSION_PATH}/why/{{handle}}", openapi_extra=requires("read"))
async def explain_visibility(
    request: ApiRequest, agent: AgentName, session: SessionName, handle: MessageHandle
) -> VisibilityReason:
    """Explain why the model sees a message, or a part of it, as it does."""
    session_id = await request.require_session_id(agent, session)
    _check_handle(handle)
    async with request.service.open_session(session_id) as open_session:
        try:
            return await open_session.why(handle)
        except (LookupError, ValueError) as error:
            raise _not_found_problem(error) from None


@router.get(
    f"{SESSION_PATH}/recall/{{handle}}",
    response_model=RecalledText,
    openapi_extra=requires("read"),
    responses=ALSO_PLAIN_TEXT,
)
async def recall(
    request: ApiRequest,
    agent: AgentName,
    session: SessionName,
    handle: MessageHandle,
    after: Annotated[
        int,
        Query(description="Characters to skip, from `next`.", ge=0, le=MAX_POSITION),
        ONLY_DIGITS,
    ] = 0,
) -> RecalledText | Response:
    """Read a text exactly as it was written, hidden or not. A response has at most two million
    characters; `next` continues it, or the header `Link` with `Accept: text/plain`."""
    session_id = await request.require_session_id(agent, session)
    _check_handle(handle)
    async with request.service.open_session(session_id) as open_session:
        try:
            recall_page = await _recall_page(open_session, handle, after)
        except (LookupError, ValueError) as error:
            raise _not_found_problem(error) from None
    if request.wants_plain_text:
        path = f"{build_session_path(request.session_address(agent, session))}/recall"
        link = (
            {} if recall_page.next is None else {"Link": f'<{path}/{recall_page.next}>; rel="next"'}
        )
        return PlainTextResponse(recall_page.text.encode("utf-8", "replace"), headers=link)
    return recall_page


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
    async with request.service.open_session(session_id) as open_session:
        text = await open_session.search(q)
    return SearchResultsText(query=q, text=text)


def _check_handle(handle: str) -> None:
    try:
        target = parse_handle(handle)
    except ValueError as error:
        raise HttpProblem("invalid-request", str(error)) from None
    if (
        max(target.first_seq, target.last_seq, target.part_index or 0) > 2**62
        or target.last_seq < target.first_seq
    ):
        raise HttpProblem(
            "invalid-request", f"{handle!r} is not a valid handle; try m12, m12.0 or m3-m50"
        )


def _not_found_problem(error: Exception) -> HttpProblem:
    return HttpProblem("not-found", str(error.args[0] if error.args else error))


async def _read_page_after(
    store: Store, session_id: str, after_and_last: tuple[int, int], limit: int
) -> tuple[list[Event], bool]:
    """Return the first messages of a range, and whether there are more."""
    after, last = after_and_last
    page: list[Event] = []
    chars = 0
    if after < last:
        async for event, size in _iterate_messages(store, session_id, after + 1, last):
            chars += size
            if len(page) == limit or (page and chars > MAX_PAGE_CHARS):
                return page, True
            page.append(event)
    return page, False


async def _read_page_until(
    store: Store, session_id: str, last: int, limit: int
) -> tuple[list[Event], bool]:
    """Return the last messages up to a position, and whether there are more before them."""
    page: deque[tuple[Event, int]] = deque()
    chars = 0
    is_cut = False
    events = FIRST_EVENTS_PER_READ
    while last > 0 and not is_cut:
        first = max(1, last - events + 1)
        # They come in ascending order, so those before them are only known to fit in the end.
        earlier: deque[tuple[Event, int]] = deque()
        async for event, size in _iterate_messages(store, session_id, first, last):
            earlier.append((event, size))
            chars += size
            while earlier and (
                len(earlier) + len(page) > limit
                or (chars > MAX_PAGE_CHARS and len(earlier) + len(page) > 1)
            ):
                chars -= earlier.popleft()[1]
                is_cut = True
        page.extendleft(reversed(earlier))
        last = first - 1
        events = min(2 * events, MAX_EVENTS_PER_READ)
    return [event for event, _ in page], is_cut


async def _iterate_messages(
    store: Store, session_id: str, first: int, last: int
) -> AsyncIterator[tuple[Event, int]]:
    """Yield the messages of a range, each with its number of characters."""
    async for event in store.events(session_id, [(first, last)]):
        if isinstance(event.body, MessageAdded | ToolResultRepair):
            yield event, count_message_chars(event.body.message)


async def _recall_page(session: Session, handle: str, after: int) -> RecalledText:
    """Return a text after this number of characters, as far as it fits, and what continues it."""
    target = parse_handle(handle)
    rest = None
    last = min(target.last_seq, session.window.seq)
    span = None
    if target.first_seq < last:
        span = await _find_recalled_range(session, target.first_seq, last)
    if span is not None:
        rest = f"m{span[1] + 1}-m{last}" if span[1] < last else None
    text = await session.recall(handle if span is None else f"m{span[0]}-m{span[1]}")
    page_text = text[after : after + MAX_PAGE_CHARS]
    if after + len(page_text) < len(text):
        next_ = f"{handle}?after={after + len(page_text)}"
    else:
        next_ = rest
        page_text = page_text if rest is None else f"{page_text}\n"
    return RecalledText(handle=handle, text=page_text, next=next_)


async def _find_recalled_range(session: Session, first: int, last: int) -> tuple[int, int] | None:
    """Return the first part of a range that fits into one response, beginning with a message.

    Return None if the range has no message.
    """
    begin = 0
    chars = 0
    async for event, size in _iterate_messages(session.store, session.id, first, last):
        if not is_event_in_force(event.seq, session.window.base.rewinds):
            continue
        begin = begin or event.seq
        chars = chars + size
        too_far = event.seq - begin >= MAX_RECALL_POSITIONS
        if event.seq > begin and (chars > MAX_PAGE_CHARS or too_far):
            return begin, event.seq - 1
    return (begin, last) if begin else None


def _to_message_info(event: Event, rewinds: list[tuple[int, int]]) -> MessageInfo:
    return build_message_info(event, undone=not is_event_in_force(event.seq, rewinds))
