"""What `agent.yaml` says about how the agent is reached: HTTP, chat platforms, set times."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from trimtab.agent.block import Block, Count, Flag, Seconds, Tokens
from trimtab.agent.references import typed

Port = Annotated[int, Field(ge=0, le=65_535, strict=True), BeforeValidator(typed)]
Identity = Annotated[int | str, BeforeValidator(typed)]

_TO = re.compile(r"(telegram|discord):(-?[0-9]{1,20})(?::([0-9]{1,20}))?")


class Serve(Block):
    host: str = "127.0.0.1"
    """The address that HTTP listens on. Anything but this machine's own needs `keys`."""
    port: Port = 8080
    """The port that HTTP listens on; 0 takes a free one."""
    keys: str | None = None
    """A file beside this one with the API keys that are accepted, written by `trimtab keys`."""
    origins: tuple[str, ...] = ()
    """Web pages that may ask from a browser, `https://app.example.com`; none where it is empty."""
    at_once: Tokens = 32
    """Turns that one process runs at the same time."""
    tenant_at_once: Tokens | None = None
    """Turns of one tenant that run at the same time, over all processes; no limit where it is
    missing."""
    max_body: Tokens = 1_048_576
    """Bytes that one request may have."""
    rate: Tokens = 600
    """Requests that one key may make in a minute."""
    max_waiting: Tokens = 10_000
    """Messages of one tenant that may wait for their turns; beyond that new ones are refused."""
    drain: Seconds = 30.0
    """Seconds that running turns have to end when the server is stopped; the rest is handed on."""


class TelegramRule(Block):
    """What holds for some of those who are answered."""

    who: Identity
    """An id of a user or a chat, an `@name`, or `"*"`; the first rule that matches holds."""
    groups: Literal["mention", "all", "off"] | None = None
    """In groups: when this sender is answered; as for all others where it is missing."""
    commands: tuple[str, ...] | None = None
    """Commands that are obeyed, without the slash: `[help, context]`; all where it is missing."""
    media: Flag = True
    """Whether pictures and files are taken."""


class Telegram(Block):
    token: str
    """The bot's token from BotFather, as a reference: `${TELEGRAM_TOKEN}`."""
    webhook: str | None = None
    """The public address, `https://bots.example.com/telegram`, at which Telegram calls this
    server; where it is missing the bot asks Telegram for news itself."""
    secret: str | None = None
    """What Telegram must say to prove that it is Telegram, as a reference; needed with
    `webhook`."""
    allow: tuple[Identity, ...] = ()
    """Who is answered: ids of users or chats, or `@names`. Nobody where it is empty; `"*"` is
    everybody."""
    deny: tuple[Identity, ...] = ()
    """Who is not answered, whatever `allow` says."""
    groups: Literal["mention", "all", "off"] = "mention"
    """In groups: answer where the bot is named or replied to, answer everything, or nothing."""
    rules: tuple[TelegramRule, ...] = ()
    """What holds for single senders or chats, the first that matches."""
    max_file: Tokens = 4_194_304
    """Bytes of a picture or a file that are taken; of larger ones the model is told."""
    stream: Flag = True
    """Show the reply while it is being written."""
    api: str = "https://api.telegram.org"
    """Where the Bot API is."""


class Discord(Block):
    token: str
    """The bot's token from the developer portal, as a reference: `${DISCORD_TOKEN}`."""
    allow: tuple[Identity, ...] = ()
    """Who is answered: ids of users, channels or servers. Nobody where it is empty; `"*"` is
    everybody."""
    deny: tuple[Identity, ...] = ()
    """Who is not answered, whatever `allow` says."""
    threads: Flag = True
    """Answer a mention in a channel in a thread of its own, which is then a session."""
    max_file: Tokens = 4_194_304
    """Bytes of a picture or a file that are taken; of larger ones the model is told."""
    api: str = "https://discord.com/api/v10"
    """Where Discord's API is."""


class Schedule(Block):
    says: str
    """What the agent is told when it is due."""
    cron: str | None = None
    """When, as minute, hour, day, month, weekday: `0 8 * * mon-fri`. Either this or `at`."""
    at: str | None = None
    """Once, at a date and time: `2027-01-31 08:00`. Either this or `cron`."""
    timezone: str = "UTC"
    """Whose clock is meant: `Europe/Zurich`."""
    session: str | None = None
    """The session it happens in; where it is missing, that of the chat that gets the result, or
    one of its own, `schedule:` and its name."""
    to: str | None = None
    """Who gets the result: `telegram:123456`, `discord:987654`; nobody but the log where it is
    missing."""
    missed: Literal["skip", "once", "all"] = "once"
    """What becomes of runs that were missed because nothing ran: none, one for all, or each."""
    late: Count = 86_400
    """Seconds after which a missed run is not made up for any more."""


def chat_named(to: str) -> tuple[str, int, int | None]:
    """The platform, the chat and its topic that `to` names. Raises `ValueError`."""
    found = _TO.fullmatch(to.strip())
    if found is None or (found[1] == "discord" and found[3]):
        raise ValueError(
            f"{to[:60]!r} names no chat; it looks like telegram:123456, telegram:-1001234:7 for a "
            "topic of a group, or discord:987654 for a channel"
        )
    return found[1], int(found[2]), int(found[3]) if found[3] else None
