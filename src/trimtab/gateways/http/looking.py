"""What was said, what the model sees of it, and why."""

from __future__ import annotations

from trimtab.core.edits import parse_handle
from trimtab.core.event import Event, Repair, Said
from trimtab.core.rewinding import holds
from trimtab.gateways.http.answers import ContextInfo, Found, History, MessageInfo, Recalled
from trimtab.gateways.http.asking import Asked, Reply
from trimtab.gateways.http.problems import Problem
from trimtab.gateways.http.projecting import message_info

CHUNK = 500
"""Events that are read at a time while messages are looked for."""
TEXT = "text/plain; charset=utf-8"


async def history(asked: Asked) -> Reply:
    """All that was said, hidden or not, a page at a time."""
    session = await asked.known()
    after, before, limit = (asked.query[name] for name in ("after", "before", "limit"))
    if after is not None and before is not None:
        raise Problem("invalid", "after and before exclude each other; give one of them")
    async with asked.service.using(session) as opened:
        rewinds, last = list(opened.window.rewinds), opened.window.seq
    if before is None:
        found = await _from(asked, session, after or 0, last, limit + 1)
        page, more = found[:limit], len(found) > limit
        next_ = page[-1].seq if more else None
    else:
        found = await _upto(asked, session, min(before - 1, last), limit + 1)
        page, more = found[-limit:], len(found) > limit
        next_ = page[0].seq if more else None
    shown = [_shown(event, rewinds) for event in page]
    return Reply(value=History(messages=shown, next=next_))


async def context(asked: Asked) -> Reply:
    """Where the tokens of the next call would go."""
    async with asked.service.using(await asked.known()) as opened:
        ledger = opened.report()
    if asked.plain:
        return Reply(raw=f"{ledger}\n".encode(), media=TEXT)
    told = ContextInfo(text=str(ledger), line=ledger.line(), ledger=ledger.to_dict())
    return Reply(value=told)


async def why(asked: Asked) -> Reply:
    """Why the model sees something as it does."""
    session, handle = await asked.known(), _handle(asked)
    async with asked.service.using(session) as opened:
        try:
            return Reply(value=await opened.why(handle))
        except (LookupError, ValueError) as error:
            raise _nothing(error) from None


async def recall(asked: Asked) -> Reply:
    """The text behind a handle."""
    session, handle = await asked.known(), _handle(asked)
    async with asked.service.using(session) as opened:
        try:
            text = await opened.recall(handle)
        except (LookupError, ValueError) as error:
            raise _nothing(error) from None
    if asked.plain:
        return Reply(raw=text.encode("utf-8", "replace"), media=TEXT)
    return Reply(value=Recalled(handle=handle, text=text))


async def search(asked: Asked) -> Reply:
    """Messages by their words."""
    session, query = await asked.known(), asked.query["q"]
    async with asked.service.using(session) as opened:
        text = await opened.search(query)
    return Reply(value=Found(query=query, text=text))


def _handle(asked: Asked) -> str:
    handle = asked.path["handle"]
    try:
        named = parse_handle(handle)
    except ValueError as error:
        raise Problem("invalid", str(error)) from None
    if max(named.first, named.last, named.part or 0) > 2**62 or named.last < named.first:
        raise Problem("invalid", f"{handle!r} names nothing that can be; try m12, m12.0 or m3-m50")
    return handle


def _nothing(error: Exception) -> Problem:
    return Problem("not-found", str(error.args[0] if error.args else error))


async def _from(asked: Asked, session: str, after: int, last: int, limit: int) -> list[Event]:
    found: list[Event] = []
    first = after + 1
    while first <= last and len(found) < limit:
        found += await _said(asked, session, first, min(first + CHUNK - 1, last))
        first += CHUNK
    return found[:limit]


async def _upto(asked: Asked, session: str, last: int, limit: int) -> list[Event]:
    found: list[Event] = []
    while last > 0 and len(found) < limit:
        first = max(1, last - CHUNK + 1)
        found[:0] = await _said(asked, session, first, last)
        last = first - 1
    return found[-limit:]


async def _said(asked: Asked, session: str, first: int, last: int) -> list[Event]:
    store = asked.service.store
    return [
        event
        async for event in store.events(session, [(first, last)])
        if isinstance(event.body, Said | Repair)
    ]


def _shown(event: Event, rewinds: list[tuple[int, int]]) -> MessageInfo:
    return message_info(event, undone=not holds(event.seq, rewinds))
