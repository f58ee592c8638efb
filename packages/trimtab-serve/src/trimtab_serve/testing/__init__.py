"""Simulators of Telegram and Discord for your own tests.

The simulated Telegram needs the extra `testing`, the simulated Discord the extra `discord`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab_serve.testing.discord.interactions import SlashInteraction as SlashInteraction
    from trimtab_serve.testing.discord.options import (
        DiscordSimulatorOptions as DiscordSimulatorOptions,
    )
    from trimtab_serve.testing.discord.requests import (
        RecordedDiscordRequest as RecordedDiscordRequest,
    )
    from trimtab_serve.testing.discord.simulator import DiscordSimulator as DiscordSimulator
    from trimtab_serve.testing.discord.simulator import (
        serve_simulated_discord as serve_simulated_discord,
    )
    from trimtab_serve.testing.discord.world import DiscordObject as DiscordObject
    from trimtab_serve.testing.telegram.api_errors import TelegramRefusal as TelegramRefusal
    from trimtab_serve.testing.telegram.chats import TelegramChat as TelegramChat
    from trimtab_serve.testing.telegram.local_server import (
        ServedTelegramSimulator as ServedTelegramSimulator,
    )
    from trimtab_serve.testing.telegram.local_server import (
        serve_simulated_telegram as serve_simulated_telegram,
    )
    from trimtab_serve.testing.telegram.rate_limits import TelegramRateLimits as TelegramRateLimits
    from trimtab_serve.testing.telegram.simulator import (
        OneTimeTelegramFault as OneTimeTelegramFault,
    )
    from trimtab_serve.testing.telegram.simulator import RecordedBotCall as RecordedBotCall
    from trimtab_serve.testing.telegram.simulator import TelegramSimulator as TelegramSimulator
    from trimtab_serve.testing.telegram.simulator import WebhookTarget as WebhookTarget


_HOMES = {
    "DiscordObject": "testing.discord.world",
    "SlashInteraction": "testing.discord.interactions",
    "RecordedDiscordRequest": "testing.discord.requests",
    "TelegramChat": "testing.telegram.chats",
    "TelegramRateLimits": "testing.telegram.rate_limits",
    "TelegramRefusal": "testing.telegram.api_errors",
    "OneTimeTelegramFault": "testing.telegram.simulator",
    "RecordedBotCall": "testing.telegram.simulator",
    "WebhookTarget": "testing.telegram.simulator",
    "DiscordSimulator": "testing.discord.simulator",
    "DiscordSimulatorOptions": "testing.discord.options",
    "ServedTelegramSimulator": "testing.telegram.local_server",
    "TelegramSimulator": "testing.telegram.simulator",
    "serve_simulated_discord": "testing.discord.simulator",
    "serve_simulated_telegram": "testing.telegram.local_server",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)
