"""What a value of an agent's file must be besides its type. `spec.py` names the check beside the
setting. Values are not quoted, because they may be secrets from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from ipaddress import ip_network
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic_core import PydanticCustomError

from trimtab.engine.policy.config import parse_policy_config
from trimtab.options import RESERVED_PARAMS, find_forbidden_params
from trimtab.stores.factory import check_store_location
from trimtab_serve.agent.config.cron_syntax import normalise_cron

PROBLEM_TYPE = "setting_problem"
"""The type of the errors that are raised here. Their message is complete but for the path."""
WRITTEN = "{written}"
"""In a message: the value as it is written in the file."""
ANYBODY_WILDCARD = "*"

_TELEGRAM_ID = re.compile(r"-?[0-9]+")
_TELEGRAM_USERNAME = re.compile(r"@[A-Za-z][A-Za-z0-9_]{3,31}")
_TELEGRAM_BOT_TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
_CHAT_ADDRESS = re.compile(r"(telegram|discord):(-?[0-9]{1,20})(?::([0-9]{1,20}))?")
_HOW_TO_CREATE_IT = "create one with `openssl rand -hex 32` and write `secret: ${TELEGRAM_SECRET}`"
_FILE_EQUIVALENTS = {
    "model=": "set model.name",
    "add(message)": "remove it: the session supplies the messages",
    "system=": "set system, next to model",
    "tools=": "set tools, next to model",
    "max_output_tokens=": "set model.max_output_tokens",
    "request(stream=True)": "remove it: replies are always streamed",
}
"""For each way to set a parameter in Python, the way to set it in the file."""


def problem(why: str, *path: str) -> PydanticCustomError:
    """Return the error for the setting that is checked, or for one below it. A text that begins
    with a colon follows the path without a space."""
    return PydanticCustomError(PROBLEM_TYPE, "{why}", {"why": why, "path": path})


def check_telegram_token(token: str) -> str:
    if not _TELEGRAM_BOT_TOKEN.fullmatch(token.strip()):
        raise problem(
            "is not a valid bot token, such as 123456:ABC-def; get one from @BotFather and write "
            "`${TELEGRAM_TOKEN}` here"
        )
    return token


def check_webhook_address(webhook: str) -> str:
    if not webhook.startswith("https://"):
        raise problem(
            "must begin with https://, because Telegram calls no other addresses; without "
            "`webhook`, the bot polls Telegram"
        )
    return webhook


def check_webhook_secret(webhook: str | None, secret: str | None) -> None:
    if webhook is not None and not secret:
        why = "needs `secret` next to it, or anybody could send messages as Telegram"
        raise problem(f"{why}; {_HOW_TO_CREATE_IT}", "webhook")
    if webhook is not None and not _WEBHOOK_SECRET.fullmatch(secret or ""):
        why = "must have 16 to 256 letters, digits, _ or -, so that nobody guesses it"
        raise problem(f"{why}; {_HOW_TO_CREATE_IT}", "secret")


def check_telegram_identity(who: int | str) -> int | str:
    text = str(who)
    patterns = (_TELEGRAM_ID, _TELEGRAM_USERNAME)
    if text == ANYBODY_WILDCARD or any(pattern.fullmatch(text) for pattern in patterns):
        return who
    hint = f"write `@{text}`, or" if _TELEGRAM_USERNAME.fullmatch(f"@{text}") else "write"
    raise problem(
        f"is {WRITTEN}, which is not a Telegram user or chat; {hint} the number of a user or a "
        'chat, which you get from @userinfobot; `"*"` means everybody'
    )


def check_discord_identity(who: int | str) -> int | str:
    if str(who) != ANYBODY_WILDCARD and not str(who).isdecimal():
        raise problem(
            f"is {WRITTEN}, but Discord ids are numbers; switch on Developer Mode in Discord's "
            'settings, then right-click and Copy ID; `"*"` means everybody'
        )
    return who


def check_cron(text: str) -> str:
    try:
        normalise_cron(text)
    except ValueError as error:
        raise problem(_without_quoted_value(text, error)) from None
    except ModuleNotFoundError:
        pass  # the server reports which package is missing
    return text


def check_moment(text: str) -> str:
    try:
        datetime.fromisoformat(text.strip())
    except ValueError:
        raise problem("is not a date and time; write it as 2027-01-31 08:00") from None
    return text


def check_time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise problem(f"is not a time zone; {_suggest_time_zone(name)}") from None
    return name


def _suggest_time_zone(name: str) -> str:
    """Suggest a time zone: for `Zurich`, Europe/Zurich."""
    city = name.rpartition("/")[2].replace(" ", "_").casefold()
    zones = sorted(available_timezones())
    same = [zone for zone in zones if city and zone.rpartition("/")[2].casefold() == city]
    return f"did you mean {same[0]}?" if same else "use a name such as Europe/Zurich or UTC"


def check_scheduled_message(text: str) -> str:
    if not text.strip():
        raise problem("is empty; write the message that the agent gets at the scheduled time")
    return text


def parse_chat_address(address: str) -> tuple[str, int, int | None]:
    """Return the platform, the chat and the topic that `to` names. Raises `ValueError`."""
    match = _CHAT_ADDRESS.fullmatch(address.strip())
    if match is None or (match[1] == "discord" and match[3]):
        raise ValueError(
            f"{address[:60]!r} is not a valid chat; write telegram:123456, "
            "telegram:-1001234:7 for a "
            "topic of a group, or discord:987654 for a channel"
        )
    return match[1], int(match[2]), int(match[3]) if match[3] else None


def check_chat_address(address: str) -> str:
    try:
        parse_chat_address(address)
    except ValueError as error:
        raise problem(_without_quoted_value(address, error)) from None
    return address


def _without_quoted_value(text: str, error: ValueError) -> str:
    return str(error).removeprefix(f"{text[:60]!r} ")


def check_regular_expression(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise problem(f"is not a regular expression: {error.msg}") from None
    return pattern


def check_network(proxy: str) -> str:
    try:
        ip_network(proxy)
    except ValueError:
        why = "must be an address or a network, such as 10.0.0.7 or 10.1.0.0/16"
        raise problem(why) from None
    return proxy


def check_store_setting(store: str) -> str:
    try:
        check_store_location(store)
    except ValueError as error:
        raise problem(f": {error}") from None
    return store


def check_param_name(name: str) -> str:
    if name in RESERVED_PARAMS:
        raise problem(f"cannot be set here; {_FILE_EQUIVALENTS[RESERVED_PARAMS[name]]}")
    return name


def check_params(params: dict[str, Any]) -> dict[str, Any]:
    for name, why in find_forbidden_params(params).items():
        path = (name,) if name in params else ("extra_body", name)
        raise problem(f"cannot be set here: {why}", *path)
    return params


def check_policy_settings(settings: Mapping[str, Any], block: str = "") -> None:
    """Check settings of a policy, of which those of a block stand together under its name."""
    try:
        parse_policy_config({block: settings} if block else settings)
    except ValueError as error:
        setting, _, why = str(error).partition(" ")
        raise problem(why, *setting.removeprefix(f"{block}.").split(".")) from None
