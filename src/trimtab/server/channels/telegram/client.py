"""The Bot API through python-telegram-bot, without its way to tell secrets."""

from __future__ import annotations

import logging
import os
from typing import Any, cast

from trimtab.agent.config.spec import TelegramSpec
from trimtab.server.channels.telegram.update_schema import find_invalid_update_field
from trimtab.text.utf8 import replace_lone_surrogates_in_json

# The library asks to be told so that it may give durations as such; else it warns at each.
os.environ.setdefault("PTB_TIMEDELTA", "true")

try:
    import httpx
    from telegram import Bot, Update
    from telegram.error import TelegramError
    from telegram.request import HTTPXRequest
except ImportError as error:
    raise ImportError(
        "Telegram needs python-telegram-bot: pip install 'trimtab[telegram]'"
    ) from error

CONNECT_TIMEOUT_S = 10.0
"""Seconds in which a connection must be made."""
READ_TIMEOUT_S = 20.0
"""Seconds that Telegram has to answer; a long poll has its own time on top."""
UPLOAD_TIMEOUT_S = 30.0
"""Seconds for a picture to go out."""
MAX_CONNECTIONS = 64
"""Requests at the same time."""

log = logging.getLogger("trimtab.telegram")


class InvalidTelegramToken(ValueError):
    """Telegram does not know the bot."""

    def __init__(self) -> None:
        super().__init__(
            "Telegram refuses the token of `telegram.token`; ask @BotFather for the bot's token "
            "and set the variable that the file refers to"
        )


def create_telegram_bot(config: TelegramSpec) -> Bot:
    """A bot that is not connected yet."""
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
    """Lets no single update that makes no sense stand in the way of all others."""

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """As the library does, with what it could not read left empty."""
        data: Any = HTTPXRequest.parse_json_payload(payload)
        if isinstance(data, dict):
            found = cast("dict[str, Any]", data)
            if isinstance(found.get("result"), list):
                found["result"] = [
                    one for raw in found["result"] if (one := sanitise_raw_update(raw))
                ]
            return found
        raise TelegramError("Invalid server response")


def sanitise_raw_update(raw_update: Any) -> dict[str, Any] | None:
    """An update that the library can read: itself, or its number alone; None without one."""
    number: Any = (
        cast("dict[str, Any]", raw_update).get("update_id")
        if isinstance(raw_update, dict)
        else None
    )
    if not isinstance(number, int) or isinstance(number, bool):
        log.warning("something that is no update was ignored")
        return None
    found = cast("dict[str, Any]", raw_update)
    if parse_telegram_update(found) is not None:
        return _without_lone_surrogates(found)
    return {"update_id": number}


def parse_telegram_update(raw_update: dict[str, Any], bot: Bot | None = None) -> Update | None:
    """An update as the library reads it; None where it makes no sense."""
    if (wrong := find_invalid_update_field(raw_update)) is not None:
        log.warning(
            "update %s cannot be read and was ignored: %s", raw_update.get("update_id"), wrong
        )
        return None
    try:
        # It takes parts out of what it is given.
        return Update.de_json(_without_lone_surrogates(raw_update), bot)
    except Exception as error:  # noqa: BLE001 - the library checks little and fails anyhow
        told = type(error).__name__
        log.warning(
            "update %s cannot be read and was ignored: %s", raw_update.get("update_id"), told
        )
        return None


def _without_lone_surrogates(raw_update: dict[str, Any]) -> dict[str, Any]:
    """The same without halves of characters, which nobody behind us could pass on."""
    return replace_lone_surrogates_in_json(raw_update)


def failed_before_sending(error: TelegramError) -> bool:
    """Whether a request failed before anything was sent."""
    return isinstance(
        error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout
    )


class _TokenLogFilter(logging.Filter):
    """Takes a bot's token out of what is logged: it is part of every address."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def filter(self, record: logging.LogRecord) -> bool:
        told = record.getMessage()
        if self._token in told:
            record.msg, record.args = told.replace(self._token, "…"), ()
        return True

    def masks(self, token: str) -> bool:
        return self._token == token


def _mask_token_in_logs(token: str) -> None:
    for name in ("httpx", "telegram.Bot", "telegram.request.BaseRequest"):
        logger = logging.getLogger(name)
        known = (one for one in logger.filters if isinstance(one, _TokenLogFilter))
        if not any(one.masks(token) for one in known):
            logger.addFilter(_TokenLogFilter(token))
