"""The Bot API client: python-telegram-bot with timeouts, and without the token in logs."""

from __future__ import annotations

import logging
import os
from typing import Any, cast

import httpx
from telegram import Bot
from telegram.error import TelegramError
from telegram.request import HTTPXRequest

from trimtab_serve.agent.config.spec import TelegramSpec
from trimtab_serve.channels.telegram.update_validation import reduce_unreadable_update_to_id

# Without this, the library warns for each duration that it reads.
os.environ.setdefault("PTB_TIMEDELTA", "true")

CONNECT_TIMEOUT_S = 10.0
"""Seconds in which a connection must be established."""
READ_TIMEOUT_S = 20.0
"""Seconds in which Telegram must answer. A long poll adds its own time."""
UPLOAD_TIMEOUT_S = 30.0
"""Seconds for sending a picture."""
MAX_CONNECTIONS = 64
"""Maximum number of concurrent requests."""


class InvalidTelegramToken(ValueError):
    """Telegram does not know the bot."""

    def __init__(self) -> None:
        super().__init__(
            "Telegram does not accept the token in `telegram.token`; ask @BotFather for the bot's "
            "token and set the variable that the file refers to"
        )


def create_telegram_bot(config: TelegramSpec) -> Bot:
    """Create a bot that is not connected yet."""
    api = config.api.rstrip("/")
    _mask_token_in_logs(config.token)
    try:
        return Bot(
            config.token,
            base_url=f"{api}/bot",
            base_file_url=f"{api}/file/bot",
            request=_create_http_request(HTTPXRequest),
            get_updates_request=_create_http_request(TolerantGetUpdatesRequest),
        )
    except TelegramError:
        raise InvalidTelegramToken from None


def _create_http_request(request_class: type[HTTPXRequest]) -> HTTPXRequest:
    return request_class(
        connection_pool_size=MAX_CONNECTIONS,
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        write_timeout=READ_TIMEOUT_S,
        media_write_timeout=UPLOAD_TIMEOUT_S,
        pool_timeout=CONNECT_TIMEOUT_S,
    )


class TolerantGetUpdatesRequest(HTTPXRequest):
    """Reads updates so that an invalid one does not block all others."""

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Parse the payload like the library, and leave unreadable updates empty."""
        data: Any = HTTPXRequest.parse_json_payload(payload)
        if isinstance(data, dict):
            response = cast("dict[str, Any]", data)
            if isinstance(response.get("result"), list):
                response["result"] = [
                    one
                    for raw in response["result"]
                    if (one := reduce_unreadable_update_to_id(raw))
                ]
            return response
        raise TelegramError("Invalid server response")


def failed_before_sending(error: TelegramError) -> bool:
    """Whether a request failed before anything was sent."""
    return isinstance(
        error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout
    )


class _TokenLogFilter(logging.Filter):
    """Removes a bot's token from log lines, because it is part of every address."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if self._token in text:
            record.msg = text.replace(self._token, "…")
            record.args = ()
        return True

    def masks(self, token: str) -> bool:
        return self._token == token


def _mask_token_in_logs(token: str) -> None:
    for name in ("httpx", "telegram.Bot", "telegram.request.BaseRequest"):
        logger = logging.getLogger(name)
        token_filters = (one for one in logger.filters if isinstance(one, _TokenLogFilter))
        if not any(one.masks(token) for one in token_filters):
            logger.addFilter(_TokenLogFilter(token))
