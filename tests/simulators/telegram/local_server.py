"""Serve a Bot API on a real socket, in a thread of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from tests.simulators.telegram.simulator import TelegramSimulator, WebhookTarget
from trimtab.testing.server.local_server import (
    build_quiet_server,
    serve_in_thread,
)

PUSH_INTERVAL_S = 0.02
"""Seconds between two checks for updates to push."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTelegramSimulator:
    """A Bot API that listens on a local port."""

    url: str
    """The address, for `telegram.api`."""
    simulator: TelegramSimulator
    """The simulator: its chats, updates and recorded calls."""


@contextmanager
def serve_simulated_telegram(
    simulator: TelegramSimulator | None = None, *, port: int = 0
) -> Generator[ServedTelegramSimulator]:
    """Serve a Bot API from a thread while the `with` block lasts.

    Args:
        simulator: The simulator to serve. By default a new one.
        port: The port. 0 takes a free one.

    Yields:
        The served simulator, with its address.
    """
    telegram = simulator or TelegramSimulator()

    def build_app() -> Any:
        from tests.simulators.telegram.http_app import build_bot_api_app

        return build_bot_api_app(telegram)

    # As long as the real one; a shorter one races with clients that use a connection again.
    server = build_quiet_server(build_app, timeout_keep_alive=75)
    end_event = threading.Event()
    pushing = threading.Thread(target=_push_updates, args=(telegram, end_event), daemon=True)
    pushing.start()
    try:
        with serve_in_thread(server, port) as url:
            yield ServedTelegramSimulator(url=url, simulator=telegram)
    finally:
        end_event.set()
        pushing.join(timeout=30)


def _push_updates(simulator: TelegramSimulator, ended: threading.Event) -> None:
    """Post updates to the webhook in order, and repeat each until it is accepted."""
    while not ended.wait(PUSH_INTERVAL_S):
        for update in simulator.list_pending_updates():
            hook = simulator.webhook
            if hook is None or ended.is_set() or not _post_update(hook, update):
                break
            simulator.confirm_update(update["update_id"])


def _post_update(webhook: WebhookTarget, update: dict[str, Any]) -> bool:
    place = urlsplit(webhook.url)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=10)
    headers = {"Content-Type": "application/json"}
    if webhook.secret is not None:
        headers["X-Telegram-Bot-Api-Secret-Token"] = webhook.secret
    try:
        connection.request("POST", place.path or "/", json.dumps(update), headers)
        return 200 <= connection.getresponse().status < 300
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
