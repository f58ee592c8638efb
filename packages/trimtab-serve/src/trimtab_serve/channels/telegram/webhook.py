"""The webhook: one route, and a secret that proves that Telegram sends the request."""

from __future__ import annotations

import hmac
import json
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from telegram import Update

from trimtab_serve.channels.http.authentication import WRONG_KEYS_PER_MINUTE, group_client_address
from trimtab_serve.channels.http.middleware import get_client_host
from trimtab_serve.channels.telegram.polling import MAX_UPDATE_ATTEMPTS, is_transient_intake_error
from trimtab_serve.channels.telegram.update_validation import (
    parse_telegram_update,
    reduce_unreadable_update_to_id,
)
from trimtab_serve.queue.bounded_dict import BoundedDict
from trimtab_serve.queue.rate_limit import CallerRateLimiter

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - the name of a header
MAX_TRACKED_UPDATES = 1_024
"""Number of failed updates whose attempts are counted."""
MAX_UPDATE_BYTES = 1_048_576
"""Maximum size of one update in bytes."""

log = logging.getLogger("trimtab.telegram")


def create_webhook_route(
    path: str, secret_token: str, handle_update: Callable[[Update], Awaitable[None]]
) -> Route:
    """Create the route to which Telegram posts updates."""
    failures = BoundedDict[int, int](MAX_TRACKED_UPDATES)
    wrong_secrets = CallerRateLimiter(WRONG_KEYS_PER_MINUTE, burst=WRONG_KEYS_PER_MINUTE)

    async def endpoint(request: Request) -> Response:
        secret = request.headers.get(SECRET_HEADER, "")
        # In constant time, so that the duration reveals nothing.
        if not hmac.compare_digest(secret.encode(), secret_token.encode()):
            # Wrong secrets never slow down Telegram, which may share an address with others here.
            address = group_client_address(get_client_host(request.scope))
            if wait := wrong_secrets.take_or_retry_after_s(address):
                log.warning(
                    "more than %d requests a minute without the webhook's secret from %s",
                    *(WRONG_KEYS_PER_MINUTE, address),
                )
                headers = {"Retry-After": str(math.ceil(wait)), "Connection": "close"}
                return Response(status_code=429, headers=headers)
            return Response(status_code=403)
        raw = await _read_limited_body(request)
        if raw is None:
            return Response(status_code=413)
        update = _parse_update_body(raw)
        if update is None:
            return Response(status_code=400)
        try:
            await handle_update(update)
        except Exception as error:
            failure_count = failures[update.update_id] = failures.get(update.update_id, 0) + 1
            if failure_count >= MAX_UPDATE_ATTEMPTS and not is_transient_intake_error(error):
                log.exception("update %d failed and was skipped", update.update_id)
                return Response(status_code=200)
            reason = type(error).__name__
            log.warning("update %d could not be stored: %s", update.update_id, reason)
            return Response(status_code=503, headers={"Retry-After": "5"})
        return Response(status_code=200)

    return Route(path, endpoint, methods=["POST"])


async def _read_limited_body(request: Request) -> bytes | None:
    """Return the body. None if it is too large."""
    raw_body = bytearray()
    async for piece in request.stream():
        raw_body += piece
        if len(raw_body) > MAX_UPDATE_BYTES:
            return None
    return bytes(raw_body)


def _parse_update_body(raw_body: bytes) -> Update | None:
    try:
        data: Any = json.loads(raw_body)
    except (ValueError, RecursionError):
        return None
    update_json = reduce_unreadable_update_to_id(data)
    return None if update_json is None else parse_telegram_update(update_json)
