"""Check channels and schedules for problems that no single value shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo, available_timezones

from trimtab_serve.agent.config.cron_syntax import normalise_cron
from trimtab_serve.agent.config.spec import (
    AgentSpec,
    DiscordSpec,
    ScheduleSpec,
    TelegramSpec,
    parse_chat_address,
)
from trimtab_serve.agent.config.yaml_document import ConfigPath, YamlDocument

PathProblem = tuple[ConfigPath, str]
"""The path of a problem, and its text without the path."""
ANYBODY_WILDCARD = "*"

_TELEGRAM_ID = re.compile(r"-?[0-9]+")
_TELEGRAM_USERNAME = re.compile(r"@[A-Za-z][A-Za-z0-9_]{3,31}")
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
_TELEGRAM_BOT_TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")


def check_channels_and_schedules(spec: AgentSpec, document: YamlDocument) -> Iterator[PathProblem]:
    """Yield every problem of the channels and schedules, with its path."""
    if spec.telegram is not None:
        yield from _check_telegram(spec.telegram, document)
    if spec.discord is not None:
        yield from _check_discord(spec.discord, document)
    for name, schedule in spec.schedules.items():
        for key, why in _check_schedule(schedule, spec):
            yield ("schedules", name, *key), why


def is_webhook_secret(secret: str | None) -> bool:
    """Whether Telegram accepts a secret for a webhook, and nobody guesses it."""
    return _WEBHOOK_SECRET.fullmatch(secret or "") is not None


def _check_telegram(block: TelegramSpec, document: YamlDocument) -> Iterator[PathProblem]:
    if not _TELEGRAM_BOT_TOKEN.fullmatch(block.token.strip()):
        yield (
            ("telegram", "token"),
            (
                "is not a valid bot token, such as 123456:ABC-def; get one from @BotFather and "
                "write `${TELEGRAM_TOKEN}` here"
            ),
        )
    if block.webhook is not None and not block.webhook.startswith("https://"):
        yield (
            ("telegram", "webhook"),
            (
                "must begin with https://, because Telegram calls no other addresses; without "
                "`webhook`, the bot polls Telegram"
            ),
        )
    advice = "create one with `openssl rand -hex 32` and write `secret: ${TELEGRAM_SECRET}`"
    if block.webhook is not None and not block.secret:
        yield (
            ("telegram", "webhook"),
            (f"needs `secret` next to it, or anybody could send messages as Telegram; {advice}"),
        )
    elif block.webhook is not None and not is_webhook_secret(block.secret):
        yield (
            ("telegram", "secret"),
            f"must have 16 to 256 letters, digits, _ or -, so that nobody guesses it; {advice}",
        )
    for key, ids in (("allow", block.allow), ("deny", block.deny)):
        for at, who in enumerate(ids):
            if why := _explain_invalid_telegram_id(
                who, _quote_as_written(("telegram", key, at), document)
            ):
                yield ("telegram", key, at), why
    for at, rule in enumerate(block.rules):
        if why := _explain_invalid_telegram_id(
            rule.who, _quote_as_written(("telegram", "rules", at, "who"), document)
        ):
            yield ("telegram", "rules", at, "who"), why


def _check_discord(block: DiscordSpec, document: YamlDocument) -> Iterator[PathProblem]:
    for key, ids in (("allow", block.allow), ("deny", block.deny)):
        for at, who in enumerate(ids):
            path = ("discord", key, at)
            if str(who) != ANYBODY_WILDCARD and not str(who).isdecimal():
                yield (
                    path,
                    (
                        f"is {_quote_as_written(path, document)}, but Discord ids are numbers; "
                        "switch on Developer Mode in Discord's settings, then right-click and "
                        'Copy ID; `"*"` means everybody'
                    ),
                )


def _check_schedule(schedule: ScheduleSpec, spec: AgentSpec) -> Iterator[tuple[Sequence[str], str]]:
    if schedule.cron is None and schedule.at is None:
        yield (), "has no time; set `cron` to run repeatedly, or `at` to run once"
    if schedule.cron is not None and schedule.at is not None:
        yield (), "has both `cron` and `at`; keep one of them"
    try:
        ZoneInfo(schedule.timezone)
    except (KeyError, ValueError, OSError):
        yield ("timezone",), f"is not a time zone; {_suggest_time_zone(schedule.timezone)}"
    if schedule.at is not None:
        try:
            datetime.fromisoformat(schedule.at.strip())
        except ValueError:
            yield ("at",), "is not a date and time; write it as 2027-01-31 08:00"
    if schedule.cron is not None and (why := _check_cron(schedule.cron)):
        yield ("cron",), why
    if not schedule.message.strip():
        yield ("message",), "is empty; write the message that the agent gets at the scheduled time"
    if schedule.to is None:
        return
    try:
        platform, _, _ = parse_chat_address(schedule.to)
    except ValueError as error:
        yield ("to",), _without_quoted_value(schedule.to, error)
        return
    if (spec.telegram if platform == "telegram" else spec.discord) is None:
        yield (
            ("to",),
            (
                f"names a chat on {platform.capitalize()}, but the agent has no bot there; add the "
                f"block `{platform}` with its token"
            ),
        )


def _suggest_time_zone(name: str) -> str:
    """Suggest a time zone: for `Zurich`, Europe/Zurich."""
    city = name.rpartition("/")[2].replace(" ", "_").casefold()
    zones = sorted(available_timezones())
    same = [zone for zone in zones if city and zone.rpartition("/")[2].casefold() == city]
    return f"did you mean {same[0]}?" if same else "use a name such as Europe/Zurich or UTC"


def _check_cron(text: str) -> str | None:
    try:
        normalise_cron(text)
    except ValueError as error:
        return _without_quoted_value(text, error)
    except ModuleNotFoundError:
        return None  # the server reports which package is missing
    return None


def _without_quoted_value(text: str, error: ValueError) -> str:
    """Describe a problem with a value without quoting the value, which may be a secret."""
    return str(error).removeprefix(f"{text[:60]!r} ")


def _explain_invalid_telegram_id(who: int | str, written: str) -> str | None:
    text = str(who)
    if (
        text == ANYBODY_WILDCARD
        or _TELEGRAM_ID.fullmatch(text)
        or _TELEGRAM_USERNAME.fullmatch(text)
    ):
        return None
    hint = f"write `@{text}`, or" if _TELEGRAM_USERNAME.fullmatch(f"@{text}") else "write"
    return (
        f"is {written}, which is not a Telegram user or chat; {hint} the number of a user or a "
        'chat, which you get from @userinfobot; `"*"` means everybody'
    )


def _quote_as_written(path: ConfigPath, document: YamlDocument) -> str:
    """Quote a value as written in the file, so that values from the environment are not shown."""
    mark = document.marks.get(path)
    return f"`{mark.written}`" if mark is not None and mark.written else "something else"
