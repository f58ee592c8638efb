"""A Bot API on a real socket, in a thread of this process."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from trimtab.testing.server.serving import address, listen
from trimtab.testing.telegram.api import BotApi, Hook

PAUSE = 0.02
"""Seconds between two looks for updates to be pushed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBotApi:
    """A Bot API that listens."""

    url: str
    """Where: what `telegram.api` is set to."""
    api: BotApi
    """What it knows."""


@contextmanager
def serve(api: BotApi | None = None, *, port: int = 0) -> Generator[ServedBotApi]:
    """Serve a Bot API from a thread while the block lasts; a port of 0 takes a free one."""
    import uvicorn

    from trimtab.testing.telegram.app import app_of

    made = api or BotApi()
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    config = uvicorn.Config(
        app_of(made),
        access_log=False,
        log_config=None,
        log_level="error",
        lifespan="off",
        # As long as the real one; a shorter one races with clients that use a connection again.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
    )
    server, listener, ended = uvicorn.Server(config), listen(port), threading.Event()
    serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    pushing = threading.Thread(target=_push, args=(made, ended), daemon=True)
    serving.start()
    pushing.start()
    try:
        yield ServedBotApi(url=address(listener), api=made)
    finally:
        ended.set()
        server.should_exit = True
        serving.join(timeout=30)
        pushing.join(timeout=30)
        listener.close()


def _push(api: BotApi, ended: threading.Event) -> None:
    """Post updates to the webhook in order, each until it was taken."""
    while not ended.wait(PAUSE):
        for update in api.waiting():
            hook = api.hook
            if hook is None or ended.is_set() or not _posted(hook, update):
                break
            api.confirmed(update["update_id"])


def _posted(hook: Hook, update: dict[str, Any]) -> bool:
    place = urlsplit(hook.url)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=10)
    headers = {"Content-Type": "application/json"}
    if hook.secret is not None:
        headers["X-Telegram-Bot-Api-Secret-Token"] = hook.secret
    try:
        connection.request("POST", place.path or "/", json.dumps(update), headers)
        return 200 <= connection.getresponse().status < 300
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _is_news(record: logging.LogRecord) -> bool:
    """A reply that ends without an end was meant to."""
    return "without completing response" not in record.getMessage()
