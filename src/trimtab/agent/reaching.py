"""What is wrong with how an agent is reached, where the values alone do not tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo, available_timezones

from trimtab.agent.cron import five_fields
from trimtab.agent.document import Document, Path
from trimtab.agent.doors import Discord, Schedule, Telegram, chat_named
from trimtab.agent.spec import Spec

Wrong = tuple[Path, str]
"""Where, and what, without its path."""
EVERYBODY = "*"

_NUMBER = re.compile(r"-?[0-9]+")
_NAME = re.compile(r"@[A-Za-z][A-Za-z0-9_]{3,31}")
_BOT = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")


def wrong_doors(spec: Spec, found: Document) -> Iterator[Wrong]:
    """All of it, each with its path."""
    if spec.telegram is not None:
        yield from _telegram(spec.telegram, found)
    if spec.discord is not None:
        yield from _discord(spec.discord, found)
    for name, schedule in spec.schedules.items():
        for key, why in _schedule(schedule, spec):
            yield ("schedules", name, *key), why


def _telegram(block: Telegram, found: Document) -> Iterator[Wrong]:
    if not _BOT.fullmatch(block.token.strip()):
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
            if why := _nobody_on_telegram(who, _written(("telegram", key, at), found)):
                yield ("telegram", key, at), why
    for at, rule in enumerate(block.rules):
        if why := _nobody_on_telegram(rule.who, _written(("telegram", "rules", at, "who"), found)):
            yield ("telegram", "rules", at, "who"), why


def _discord(block: Discord, found: Document) -> Iterator[Wrong]:
    for key, listed in (("allow", block.allow), ("deny", block.deny)):
        for at, who in enumerate(listed):
            path = ("discord", key, at)
            if str(who) != EVERYBODY and not str(who).isdecimal():
                yield (
                    path,
                    (
                        f"is {_written(path, found)}, and Discord knows everybody by a number: "
                        "switch on Developer Mode in Discord's settings, then right-click and "
                        'Copy ID; `"*"` is everybody'
                    ),
                )


def _schedule(schedule: Schedule, spec: Spec) -> Iterator[tuple[Sequence[str], str]]:
    if schedule.cron is None and schedule.at is None:
        yield (), "has no time; give `cron` for again and again, or `at` for once"
    if schedule.cron is not None and schedule.at is not None:
        yield (), "has `cron` and `at`; keep the one that is meant"
    try:
        ZoneInfo(schedule.timezone)
    except (KeyError, ValueError, OSError):
        yield ("timezone",), f"is no time zone; {_zone_like(schedule.timezone)}"
    if schedule.at is not None:
        try:
            datetime.fromisoformat(schedule.at.strip())
        except ValueError:
            yield ("at",), "is no date and time; it looks like 2027-01-31 08:00"
    if schedule.cron is not None and (why := _no_cron(schedule.cron)):
        yield ("cron",), why
    if not schedule.says.strip():
        yield ("says",), "is empty; write what the agent is told when it is due"
    if schedule.to is None:
        return
    try:
        door, _, _ = chat_named(schedule.to)
    except ValueError as error:
        yield ("to",), _without(schedule.to, error)
        return
    if (spec.telegram if door == "telegram" else spec.discord) is None:
        yield (
            ("to",),
            (
                f"names a chat on {door.capitalize()}, and the agent has no bot there; add the "
                f"block `{door}` with its token"
            ),
        )


def _zone_like(name: str) -> str:
    """Somebody who writes `Zurich` means Europe/Zurich."""
    city = name.rpartition("/")[2].replace(" ", "_").casefold()
    known = sorted(available_timezones())
    same = [zone for zone in known if city and zone.rpartition("/")[2].casefold() == city]
    return f"did you mean {same[0]}?" if same else "it looks like Europe/Zurich or UTC"


def _no_cron(text: str) -> str | None:
    try:
        five_fields(text)
    except ValueError as error:
        return _without(text, error)
    except ModuleNotFoundError:
        return None  # whoever serves it is told which package is missing
    return None


def _without(text: str, error: ValueError) -> str:
    """What is said of a text without the text: it may have come from the environment."""
    return str(error).removeprefix(f"{text[:60]!r} ")


def _nobody_on_telegram(who: int | str, written: str) -> str | None:
    text = str(who)
    if text == EVERYBODY or _NUMBER.fullmatch(text) or _NAME.fullmatch(text):
        return None
    hint = f"write `@{text}`, or" if _NAME.fullmatch(f"@{text}") else "write"
    return (
        f"is {written}, which is nobody on Telegram; {hint} the number of a user or a chat, which "
        '@userinfobot tells; `"*"` is everybody'
    )


def _written(path: Path, found: Document) -> str:
    """A value as the file has it: what came from the environment is not told."""
    mark = found.marks.get(path)
    return f"`{mark.written}`" if mark is not None and mark.written else "something else"
