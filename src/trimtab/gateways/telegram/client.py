"""The Bot API through python-telegram-bot, without its way to tell secrets."""

from __future__ import annotations

import logging
import os
from typing import Any, cast

from trimtab.agent.doors import Telegram
from trimtab.core.utf8 import whole_pairs_in
from trimtab.gateways.telegram.shapes import wrong_in

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

CONNECT = 10.0
"""Seconds in which a connection must be made."""
READ = 20.0
"""Seconds that Telegram has to answer; a long poll has its own time on top."""
UPLOAD = 30.0
"""Seconds for a picture to go out."""
POOL = 64
"""Requests at the same time."""

log = logging.getLogger("trimtab.telegram")


class BadToken(ValueError):
    """Telegram does not know the bot."""

    def __init__(self) -> None:
        super().__init__(
            "Telegram refuses the token of `telegram.token`; ask @BotFather for the bot's token "
            "and set the variable that the file refers to"
        )


def bot_of(block: Telegram) -> Bot:
    """A bot that is not connected yet."""
    api = block.api.rstrip("/")
    _hide(block.token)
    try:
        return Bot(
            block.token,
            base_url=f"{api}/bot",
            base_file_url=f"{api}/file/bot",
            request=_request(HTTPXRequest),
            get_updates_request=_request(Forgiving),
        )
    except TelegramError:
        raise BadToken from None


def _request(kind: type[HTTPXRequest]) -> HTTPXRequest:
    return kind(
        connection_pool_size=POOL,
        connect_timeout=CONNECT,
        read_timeout=READ,
        write_timeout=READ,
        media_write_timeout=UPLOAD,
        pool_timeout=CONNECT,
    )


class Forgiving(HTTPXRequest):
    """Lets no single update that makes no sense stand in the way of all others."""

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """As the library does, with what it could not read left empty."""
        data: Any = HTTPXRequest.parse_json_payload(payload)
        if isinstance(data, dict):
            found = cast("dict[str, Any]", data)
            if isinstance(found.get("result"), list):
                found["result"] = [one for raw in found["result"] if (one := readable(raw))]
            return found
        raise TelegramError("Invalid server response")


def readable(raw: Any) -> dict[str, Any] | None:
    """An update that the library can read: itself, or its number alone; None without one."""
    number: Any = cast("dict[str, Any]", raw).get("update_id") if isinstance(raw, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        log.warning("something that is no update was ignored")
        return None
    found = cast("dict[str, Any]", raw)
    if update_from(found) is not None:
        return _copy(found)
    return {"update_id": number}


def update_from(raw: dict[str, Any], bot: Bot | None = None) -> Update | None:
    """An update as the library reads it; None where it makes no sense."""
    if (wrong := wrong_in(raw)) is not None:
        log.warning("update %s cannot be read and was ignored: %s", raw.get("update_id"), wrong)
        return None
    try:
        # It takes parts out of what it is given.
        return Update.de_json(_copy(raw), bot)
    except Exception as error:  # noqa: BLE001 - the library checks little and fails anyhow
        told = type(error).__name__
        log.warning("update %s cannot be read and was ignored: %s", raw.get("update_id"), told)
        return None


def _copy(raw: dict[str, Any]) -> dict[str, Any]:
    """The same without halves of characters, which nobody behind us could pass on."""
    return whole_pairs_in(raw)


def never_left(error: TelegramError) -> bool:
    """Whether a request failed before anything was sent."""
    return isinstance(
        error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout
    )


class _Hidden(logging.Filter):
    """Takes a bot's token out of what is logged: it is part of every address."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def filter(self, record: logging.LogRecord) -> bool:
        told = record.getMessage()
        if self._token in told:
            record.msg, record.args = told.replace(self._token, "…"), ()
        return True

    def hides(self, token: str) -> bool:
        return self._token == token


def _hide(token: str) -> None:
    for name in ("httpx", "telegram.Bot", "telegram.request.BaseRequest"):
        logger = logging.getLogger(name)
        known = (one for one in logger.filters if isinstance(one, _Hidden))
        if not any(one.hides(token) for one in known):
            logger.addFilter(_Hidden(token))
