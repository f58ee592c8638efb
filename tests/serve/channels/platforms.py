"""Telegram and Discord behind one interface, so that one suite can ask the same of both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from tests.serve.channels.discord import running_bots as house
from tests.serve.channels.telegram import running_bots as bots
from tests.simulators.discord import serve_simulated_discord
from tests.simulators.telegram import (
    OneTimeTelegramFault,
    make_flood_refusal,
    serve_simulated_telegram,
)
from trimtab_serve.channels.discord.message_splitting import (
    MAX_MESSAGE_UTF16_UNITS as DISCORD_UNITS,
)
from trimtab_serve.channels.discord.reply_sender import RESENT_NOTICE as DISCORD_NOTICE
from trimtab_serve.channels.telegram.message_splitting import (
    MAX_MESSAGE_UTF16_UNITS as TELEGRAM_UNITS,
)
from trimtab_serve.channels.telegram.reply_sender import RESENT_NOTICE as TELEGRAM_NOTICE
from trimtab_serve.queue.messages import OutboundMessage, ReplyRoute

NAMES = ("telegram", "discord")
WAIT_S = 30
"""Seconds that a platform asks to wait for."""

Outcome = Literal["arrives", "must wait", "arrives without an answer", "is lost"]
"""What becomes of the next message that the bot sends."""


@dataclass
class Platform:
    """A bot that is connected, and what its users see of it."""

    name: str
    max_units: int
    """UTF-16 units of one message."""
    resent_notice: str
    """What stands before a message that may be there already."""
    address: dict[str, Any]
    deliver: Callable[[OutboundMessage], Awaitable[None]]
    texts: Callable[[], list[str]]
    """What the bot has said, in order."""
    plan: Callable[..., None]
    """Takes the outcomes of the next messages."""
    pass_time: Callable[[], None]
    """As if what the platform asked to wait for were over."""

    @property
    def session(self) -> str:
        return f"default/helper/{self.name}:{next(iter(self.address.values()))}"

    def reply(self, text: str, attempts: int = 0) -> OutboundMessage:
        route = ReplyRoute(channel=self.name, address=self.address)
        return OutboundMessage(
            session=self.session, seq=3, text=text, route=route, key="k", attempts=attempts
        )

    def paragraphs(self, count: int) -> list[str]:
        """So many that each is a message of its own."""
        words = self.max_units * 8 // 10 // 5
        return [f"Part {number}: " + "word " * (words - 4) + "end." for number in range(count)]


@asynccontextmanager
async def connected(name: str) -> AsyncGenerator[Platform]:
    async with _telegram() if name == "telegram" else _discord() as platform:
        yield platform


@asynccontextmanager
async def _telegram() -> AsyncGenerator[Platform]:
    faults = {
        "arrives": None,
        "must wait": OneTimeTelegramFault(refusal=make_flood_refusal(WAIT_S)),
        "arrives without an answer": OneTimeTelegramFault(carried_out=True),
        "is lost": OneTimeTelegramFault(),
    }
    with serve_simulated_telegram() as telegram:
        telegram.simulator.get_or_add_chat(bots.ADA, "Ada", username="ada")
        async with bots.running(telegram, deliver=False) as bot:
            yield Platform(
                name="telegram",
                max_units=TELEGRAM_UNITS,
                resent_notice=f"{TELEGRAM_NOTICE}\n\n",
                address={"chat": bots.ADA},
                deliver=bot.channel.deliver,
                texts=lambda: telegram.simulator.list_bot_texts(bots.ADA),
                plan=lambda *outcomes: telegram.simulator.fail_calls(
                    "sendMessage", *(faults[one] for one in outcomes)
                ),
                pass_time=bot.channel._message_sender._paused_until.clear,
            )


@asynccontextmanager
async def _discord() -> AsyncGenerator[Platform]:
    rate_limit = {"message": "You are being rate limited.", "retry_after": WAIT_S, "global": False}
    faults: dict[str, dict[str, Any]] = {
        "must wait": {"status": 429, "body": rate_limit, "headers": {"Via": "1.1 simulated"}},
        "arrives without an answer": {"status": 503, "carries_out_first": True},
        "is lost": {"status": 503},
    }
    async with serve_simulated_discord() as discord, house.living(discord) as bot:
        channel = discord.open_direct_channel(discord.add_user("Ada"))

        def plan(*outcomes: Outcome) -> None:
            before = 0
            for outcome in outcomes:
                if outcome == "arrives":
                    before += 1
                    continue
                discord.fail_requests(
                    "POST", r"/messages$", requests_before=before, **faults[outcome]
                )
                before = 0

        yield Platform(
            name="discord",
            max_units=DISCORD_UNITS,
            resent_notice=DISCORD_NOTICE,
            address={"channel": channel},
            deliver=bot.channel.deliver,
            texts=lambda: discord.list_posted_texts(channel),
            plan=plan,
            pass_time=lambda: None,
        )
