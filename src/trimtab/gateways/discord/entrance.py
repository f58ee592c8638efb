"""The door itself: one connection after another, as long as it is open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import aiohttp
import discord

from trimtab.agent.doors import Discord
from trimtab.gateways.discord.bot import Bot
from trimtab.gateways.discord.errors import NotLetIn
from trimtab.gateways.discord.hearing import Hearing
from trimtab.gateways.discord.indicator import Indicator
from trimtab.gateways.discord.pace import Pace
from trimtab.gateways.discord.sending import Sending
from trimtab.gateways.lists import is_listed
from trimtab.worker.delivery import Never
from trimtab.worker.letters import Outbound
from trimtab.worker.service import Service

SETTLE = 5.0
"""Seconds that what has come in has to be kept before the door is closed."""
FINAL = (4004, 4010, 4011, 4012, 4013)
"""Codes of Discord after which another attempt would end in the same."""

log = logging.getLogger("trimtab.discord")


class DiscordDoor:
    """One bot."""

    def __init__(self, service: Service, agent: str, block: Discord, pace: Pace) -> None:
        self._block = block
        self._pace = pace
        self._bot: Bot | None = None
        self._indicator = Indicator(service, self._show_typing, every=pace.typing)
        self._hearing = Hearing(service, agent, block, self._indicator, pace)
        self._sending = Sending(lambda: self._bot)

    @property
    def name(self) -> str:
        """What its routes are called."""
        return "discord"

    @property
    def routes(self) -> Sequence[Any]:
        """None: Discord is listened to, it does not call."""
        return ()

    async def run(self) -> None:
        """Take in what comes, until cancelled. Raises `NotLetIn`."""
        loop = asyncio.get_running_loop()
        wait = self._pace.again
        while True:
            begun = loop.time()
            await self._connected()
            if loop.time() - begun > self._pace.longest:
                wait = self._pace.again
            await asyncio.sleep(wait)
            wait = min(wait * 2, self._pace.longest)

    async def deliver(self, reply: Outbound) -> None:
        """Send one reply; raises as `delivery.Deliver` says."""
        if is_listed(self._block.deny, {str(reply.route.address.get("channel"))}):
            raise Never("the channel is in discord.deny")
        await self._sending.send(reply)
        self._indicator.replied(reply.session)

    async def close(self) -> None:
        """Keep what has come in, and leave."""
        await self._hearing.settle(SETTLE)
        await self._indicator.close()
        await self._leave()

    async def _connected(self) -> None:
        """One client, until it can go on no more."""
        self._bot = bot = Bot(self._hearing, api=self._block.api, pace=self._pace)
        try:
            await bot.start(self._block.token)
        except discord.LoginFailure:
            raise NotLetIn(
                "Discord does not accept the token; copy it anew from the developer portal, "
                "Bot, Reset Token"
            ) from None
        except discord.PrivilegedIntentsRequired:
            raise NotLetIn(
                "the bot may not read messages; switch on Message Content Intent in the developer "
                "portal, Bot, Privileged Gateway Intents"
            ) from None
        except discord.ConnectionClosed as closed:
            if closed.code in FINAL:
                raise NotLetIn(
                    f"Discord ended the connection with code {closed.code}; look whether the "
                    "token is the newest one"
                ) from None
            log.warning("the connection to Discord ended: %s", closed)
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            log.warning("Discord cannot be reached: %r", error)
        except Exception:
            # What Discord sent could not even be taken apart. A new session begins, and what was
            # said meanwhile is looked up.
            log.exception("the connection to Discord broke")
        finally:
            await self._leave()

    async def _leave(self) -> None:
        bot, self._bot = self._bot, None
        if bot is not None:
            await bot.close()

    async def _show_typing(self, channel: int) -> None:
        if self._bot is not None and self._bot.logged_in:
            await self._bot.http.send_typing(channel)
