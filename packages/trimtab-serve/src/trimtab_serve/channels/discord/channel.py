"""The channel of a Discord bot. It reconnects until it is closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import aiohttp
import discord

from trimtab_serve.agent.config.spec import DiscordSpec
from trimtab_serve.channels.access_list import matches_access_list
from trimtab_serve.channels.discord import DiscordLoginRefused, DiscordTiming
from trimtab_serve.channels.discord.gateway_client import DiscordBot
from trimtab_serve.channels.discord.message_intake import DiscordMessageIntake
from trimtab_serve.channels.discord.reply_sender import DiscordReplySender
from trimtab_serve.channels.typing_indicator import TypingIndicator
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.service.delivery import Undeliverable
from trimtab_serve.service.retries import compute_backoff_s
from trimtab_serve.service.service import AgentService

CLOSE_TIMEOUT_S = 5.0
"""Seconds for received messages to reach the queue before the channel closes."""
FATAL_CLOSE_CODES = (4004, 4010, 4011, 4012, 4013)
"""Discord close codes after which another attempt would fail in the same way."""

log = logging.getLogger("trimtab.discord")


class DiscordChannel:
    """The channel of one bot."""

    def __init__(
        self, service: AgentService, agent_name: str, config: DiscordSpec, timing: DiscordTiming
    ) -> None:
        self._config = config
        self._timing = timing
        self._bot: DiscordBot | None = None
        self._typing_indicator = TypingIndicator(
            service, self._show_typing, interval_s=timing.typing_interval_s
        )
        self._intake = DiscordMessageIntake(
            service, agent_name, config, self._typing_indicator, timing
        )
        self._reply_sender = DiscordReplySender(lambda: self._bot)

    @property
    def name(self) -> str:
        """The channel name in its routes."""
        return "discord"

    @property
    def routes(self) -> Sequence[Any]:
        """No routes, because Discord does not call this server."""
        return ()

    async def run(self) -> None:
        """Receive messages until cancelled. Raises `DiscordLoginRefused`."""
        loop = asyncio.get_running_loop()
        first_s = self._timing.first_reconnect_wait_s
        max_s = self._timing.max_retry_wait_s
        failures = 0
        while True:
            start_time = loop.time()
            await self._run_connection()
            failures = 1 if loop.time() - start_time > max_s else failures + 1
            await asyncio.sleep(compute_backoff_s(failures, first_s=first_s, max_s=max_s))

    async def deliver(self, reply: OutboundMessage) -> None:
        """Send one reply. Raises the errors of `delivery.DeliverReply`."""
        if matches_access_list(self._config.deny, {str(reply.route.address.get("channel"))}):
            raise Undeliverable("the channel is in discord.deny")
        await self._reply_sender.send_reply(reply)
        self._typing_indicator.on_reply_sent(reply.session)

    async def close(self) -> None:
        """Store the received messages, and disconnect."""
        await self._intake.wait_until_idle(CLOSE_TIMEOUT_S)
        await self._typing_indicator.close()
        await self._disconnect()

    async def _run_connection(self) -> None:
        """Run one client until its connection fails for good."""
        self._bot = bot = DiscordBot(self._intake, api_url=self._config.api, timing=self._timing)
        try:
            await bot.start(self._config.token)
        except discord.LoginFailure:
            raise DiscordLoginRefused(
                "Discord does not accept the token; copy a new one from the developer portal, "
                "Bot, Reset Token"
            ) from None
        except discord.PrivilegedIntentsRequired:
            raise DiscordLoginRefused(
                "the bot may not read messages; enable Message Content Intent in the developer "
                "portal, Bot, Privileged Gateway Intents"
            ) from None
        except discord.ConnectionClosed as closing:
            if closing.code in FATAL_CLOSE_CODES:
                raise DiscordLoginRefused(
                    f"Discord closed the connection with code {closing.code}; check that the token "
                    "is the newest one"
                ) from None
            log.warning("Discord closed the connection: %s", closing)
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            log.warning("Discord cannot be reached: %r", error)
        except Exception:
            # The library could not parse what Discord sent. The next connection fetches missed
            # messages.
            log.exception("connection to Discord failed")
        finally:
            await self._disconnect()

    async def _disconnect(self) -> None:
        bot = self._bot
        self._bot = None
        if bot is not None:
            await bot.close()

    async def _show_typing(self, channel: int) -> None:
        if self._bot is not None and self._bot.logged_in:
            await self._bot.http.send_typing(channel)
