"""Telegram calls: one route, and a secret that says that it is Telegram."""

from __future__ import annotations

import hmac
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from telegram import Update

from trimtab.gateways.telegram.client import readable, update_from
from trimtab.gateways.telegram.polling import TRIES, passes

HEADER = "X-Telegram-Bot-Api-Secret-Token"
KNOWN = 1_024
"""Updates that could not be kept whose attempts are counted."""
MOST = 1_048_576
"""Bytes of one update."""

log = logging.getLogger("trimtab.telegram")


def webhook(path: str, secret: str, take: Callable[[Update], Awaitable[None]]) -> Route:
    """The route that Telegram posts updates to."""
    failures: OrderedDict[int, int] = OrderedDict()

    async def endpoint(request: Request) -> Response:
        given = request.headers.get(HEADER, "")
        # Compared to the end, so that how long it takes tells nothing.
        if not hmac.compare_digest(given.encode(), secret.encode()):
            return Response(status_code=403)
        raw = await _body(request)
        if raw is None:
            return Response(status_code=413)
        update = _update(raw)
        if update is None:
            return Response(status_code=400)
        try:
            await take(update)
        except Exception as error:
            failed = failures[update.update_id] = failures.pop(update.update_id, 0) + 1
            while len(failures) > KNOWN:
                failures.popitem(last=False)
            if failed >= TRIES and not passes(error):
                log.exception("update %d is given up", update.update_id)
                return Response(status_code=200)
            told = type(error).__name__
            log.warning("update %d could not be kept: %s", update.update_id, told)
            return Response(status_code=503, headers={"Retry-After": "5"})
        return Response(status_code=200)

    return Route(path, endpoint, methods=["POST"])


async def _body(request: Request) -> bytes | None:
    """All of it; None where that is too much."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > MOST:
            return None
    return bytes(found)


def _update(raw: bytes) -> Update | None:
    try:
        data: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    found = readable(data)
    return None if found is None else update_from(found)
