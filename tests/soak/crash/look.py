"""What a fresh process finds in a store after a crash, and whether the session goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.soak.crash.ledger import Ledger, Ledgers
from tests.soak.crash.writer import Process, Tell, create, told
from trimtab.context import Context
from trimtab.engine.log.event import MessageAdded, dump_event_line
from trimtab.errors import LogDamaged, SessionNotFound
from trimtab.session import Session
from trimtab.stores.base import Store

NOW = 2_000_000_000.0
"""Seconds since the epoch, for both folds."""

Open = Callable[[], Awaitable[Store]]


async def whole(store: Store, name: str) -> list[str]:
    """The log as lines; empty where there is no session."""
    try:
        return [dump_event_line(event) async for event in store.events(name)]
    except SessionNotFound:
        return []


async def next_requests(store: Store, name: str) -> tuple[str, str]:
    """What the session would send next, and what a fold of the whole log would."""
    session = await Session.open(store, name, clock=lambda: NOW)
    log = [event async for event in store.events(name)]
    folded = Context.load(log, clock=lambda: NOW)
    if not folded.window.visible_groups:
        return "", ""
    preview = await session.preview()
    return json.dumps(preview.request), json.dumps(folded.preview().request)


async def lost_keys(store: Store, name: str) -> int:
    """Messages whose idempotency key the store no longer knows: they would be taken twice."""
    keyed = {
        event.body.key: event.seq
        async for event in store.events(name)
        if isinstance(event.body, MessageAdded) and event.body.key is not None
    }
    return sum([await store.find_key(name, key) != seq for key, seq in keyed.items()])


async def look(store: Store, name: str, number: int, tell: Tell) -> None:
    """Tell the log, the requests, and the log once more with a message behind it."""
    before = await whole(store, name)
    out: dict[str, Any] = {"session": name, "before": before, "keys": 0, "same": True}
    if before:
        one, other = await next_requests(store, name)
        out["same"], out["keys"] = one == other, await lost_keys(store, name)
        session = await Session.open(store, name)
    else:
        session = await create(store, name)
    await session.add({"role": "user", "content": f"After crash {number}"}, key=f"crash-{number}")
    out["after"] = await whole(store, name)
    await session.close()
    tell(out)


def looked(open_store: Open, ledgers: Ledgers, number: int) -> Counter[str]:
    """Judge all sessions from a fresh process, and take what was found for what there is."""
    names = list(ledgers.sessions)
    out = Counter[str]()
    for found in _found(open_store, names, number):
        ledger = ledgers.sessions[found["session"]]
        out += ledger.judge(found["before"])
        out["wrong_requests"] += not found["same"]
        out["duplicated"] += found["keys"]
        out["stuck"] += not _went_on(found["before"], found["after"])
        ledger.settle(found["after"])
    return +out


def _went_on(before: list[str], after: list[str]) -> bool:
    """A new session has its settings first."""
    return after[: len(before)] == before and len(after) == len(before) + (1 if before else 2)


def _found(open_store: Open, names: Sequence[str], number: int) -> list[dict[str, Any]]:
    async def run(tell: Tell) -> None:
        store = await open_store()
        for name in names:
            await look(store, name, number, tell)
        await store.close()

    process = Process(run)
    found = list(process.hear())
    process.end()
    return found


def read_or_refused(open_store: Open, name: str) -> tuple[list[str], str]:
    """The log as a fresh process reads it, and the error that ended that."""

    async def run(tell: Tell) -> None:
        store = await open_store()
        try:
            tell({"lines": await whole(store, name), "error": ""})
        except LogDamaged as error:
            tell({"lines": [], "error": str(error)})
        await store.close()

    process = Process(run)
    (found,) = process.hear()
    process.end()
    return found["lines"], found["error"]


def prepared(open_store: Open, act: Callable[[Store], Awaitable[None]]) -> Ledgers:
    """Have a process write, to its end, and hear what was acknowledged."""
    ledgers = Ledgers()

    async def run(tell: Tell) -> None:
        store = await open_store()
        await act(told(store, tell))
        await store.close()

    process = Process(run)
    for said in process.hear():
        ledgers.hear(said)
    process.end()
    return ledgers


def copy_of(ledgers: Ledgers) -> Ledgers:
    return Ledgers(
        {name: Ledger(list(each.acknowledged)) for name, each in ledgers.sessions.items()}
    )
