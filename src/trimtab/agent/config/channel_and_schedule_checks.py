"""What is wrong with how an agent is reached, where the values alone do not tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo, available_timezones

from trimtab.agent.config.cron_syntax import normalise_cron
from trimtab.agent.config.spec import (
    AgentSpec,
    DiscordSpec,
    ScheduleSpec,
    TelegramSpec,
    parse_chat_address,
)
from trimtab.agent.config.yaml_document import ConfigPath, YamlDocument

PathProblem = tuple[ConfigPath, str]
"""Where, and what, without its path."""
ANYBODY_WILDCARD = "*"

_TELEGRAM_ID = re.compile(r"-?[0-9]+")
_TELEGRAM_USERNAME = re.compile(r"@[A-Za-z][A-Za-z0-9_]{3,31}")
_TELEGRAM_BOT_TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")


def check_channels_and_schedules(spec: AgentSpec, document: YamlDocument) -> Iterator[PathProblem]:
    """All of it, each with its path."""
    if spec.telegram is not None:
        yield from _check_telegram(spec.telegram, document)
    if spec.discord is not None:
        yield from _check_discord(spec.discord, document)
    for name, schedule in spec.schedules.items():
        for key, why in _check_schedule(schedule, spec):
            yield ("schedules", name, *key), why


def _check_telegram(block: TelegramSpec, document: YamlDocument) -> Iterator[PathProblem]:
    if not _TELEGRAM_BOT_TOKEN.fullmatch(block.token.strip()):
        yield (
            ("telegram", "token"),
            (
                "is no token of a bot, which looks like 123456:ABC-def; ask @BotFather for it and "
                "write `${TELEGRAM_TOKEN}` here"
            ),
        )
    if block.webhook is not None and not block.webhook.startswith("https://"):
        yield (
            ("telegram", "webhook"),
            (
                "must begin with https://: Telegram calls no other; leave it out and the bot asks "
                "Telegram for news itself"
            ),
        )
    if block.webhook is not None and not block.secret:
        yield (
            ("telegram", "webhook"),
            (
                "needs `secret` beside it, or anybody could speak for Telegram; make one with "
                "`openssl rand -hex 32` and write `secret: ${TELEGRAM_SECRET}`"
            ),
        )
    for key, listed in (("allow", block.allow), ("deny", block.deny)):
        for at, who in enumerate(listed):
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
    for key, listed in (("allow", block.allow), ("deny", block.deny)):
        for at, who in enumerate(listed):
            path = ("discord", key, at)
            if str(who) != ANYBODY_WILDCARD and not str(who).isdecimal():
                yield (
                    path,
                    (
                        f"is {_quote_as_written(path, document)}, and Discord knows everybody "
                        "by a number: "
                        "switch on Developer Mode in Discord's settings, then right-click and "
                        'Copy ID; `"*"` is everybody'
                    ),
                )


def _check_schedule(schedule: ScheduleSpec, spec: AgentSpec) -> Iterator[tuple[Sequence[str], str]]:
    if schedule.cron is None and schedule.at is None:
        yield (), "has no time; give `cron` for again and again, or `at` for once"
    if schedule.cron is not None and schedule.at is not None:
        yield (), "has `cron` and `at`; keep the one that is meant"
    try:
        ZoneInfo(schedule.timezone)
    except (KeyError, ValueError, OSError):
        yield ("timezone",), f"is no time zone; {_suggest_time_zone(schedule.timezone)}"
    if schedule.at is not None:
        try:
            datetime.fromisoformat(schedule.at.strip())
        except ValueError:
            yield ("at",), "is no date and time; it looks like 2027-01-31 08:00"
    if schedule.cron is not None and (why := _check_cron(schedule.cron)):
        yield ("cron",), why
    if not schedule.message.strip():
        yield ("message",), "is empty; write the message that the agent gets when it is due"
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
                f"names a chat on {platform.capitalize()}, and the agent has no bot there; add the "
                f"block `{platform}` with its token"
            ),
        )


def _suggest_time_zone(name: str) -> str:
    """Somebody who writes `Zurich` means Europe/Zurich."""
    city = name.rpartition("/")[2].replace(" ", "_").casefold()
    known = sorted(available_timezones())
    same = [zone for zone in known if city and zone.rpartition("/")[2].casefold() == city]
    return f"did you mean {same[0]}?" if same else "it looks like Europe/Zurich or UTC"


def _check_cron(text: str) -> str | None:
    try:
        normalise_cron(text)
    except ValueError as error:
        return _without_quoted_value(text, error)
    except ModuleNotFoundError:
        return None  # whoever serves it is told which package is missing
    return None


def _without_quoted_value(text: str, error: ValueError) -> str:
    """What is said of a text without the text: it may have come from the environment."""
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
        f"is {written}, which is nobody on Telegram; {hint} the number of a user or a chat, which "
        '@userinfobot tells; `"*"` is everybody'
    )


def _quote_as_written(path: ConfigPath, document: YamlDocument) -> str:
    """A value as the file has it: what came from the environment is not told."""
    mark = document.marks.get(path)
    return f"`{mark.written}`" if mark is not None and mark.written else "something else"
