"""What those ask who run the server."""

from __future__ import annotations

import asyncio
from functools import lru_cache

from trimtab.gateways.http.answers import Health, dumped
from trimtab.gateways.http.asking import Asked, Reply
from trimtab.gateways.http.problems import Problem, not_now
from trimtab.observe.serving import letters_waiting, sessions_dead
from trimtab.stores.errors import StoreError

PATIENCE = 2.0
"""Seconds that the store has to answer."""
DEAD = 1_000
"""Sessions that were given up, as many as are counted."""


async def health(asked: Asked) -> Reply:
    del asked
    return Reply(value=Health(status="ok"))


async def ready(asked: Asked) -> Reply:
    if asked.offer.draining:
        raise not_now("the server is about to stop")
    try:
        async with asyncio.timeout(PATIENCE):
            await asked.service.store.sessions(limit=1)
            await asked.service.mail.depth("\x7f/")
    except (StoreError, TimeoutError):
        raise not_now("the store cannot be reached") from None
    return Reply(value=Health(status="ok"))


async def metrics(asked: Asked) -> Reply:
    if asked.offer.metrics is None:
        raise Problem("not-found", "nothing is measured here")
    letters_waiting(await asked.service.mail.depth())
    sessions_dead(len(await asked.service.mail.dead(limit=DEAD)))
    raw, media = asked.offer.metrics()
    return Reply(raw=raw, media=media)


async def describe(asked: Asked) -> Reply:
    del asked
    return Reply(raw=_document())


@lru_cache(maxsize=1)
def _document() -> bytes:
    from trimtab.gateways.http.openapi import document
    from trimtab.gateways.http.routes import OPERATIONS

    return dumped(document(OPERATIONS))
