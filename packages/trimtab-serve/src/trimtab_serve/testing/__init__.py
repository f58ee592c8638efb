"""Simulators of Telegram and Discord for your own tests.

The simulated Telegram needs the extra `testing`, the simulated Discord the extra `discord`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


__all__ = [
    "DiscordObject",
    "DiscordSimulator",
    "DiscordSimulatorOptions",
    "OneTimeTelegramFault",
    "RecordedBotCall",
    "RecordedDiscordRequest",
    "ServedTelegramSimulator",
    "SlashInteraction",
    "TelegramChat",
    "TelegramRateLimits",
    "TelegramRefusal",
    "TelegramSimulator",
    "WebhookTarget",
    "serve_simulated_discord",
    "serve_simulated_telegram",
]

_HOMES = {
    "DiscordObject": "discord.world",
    "SlashInteraction": "discord.interactions",
    "RecordedDiscordRequest": "discord.requests",
    "TelegramChat": "telegram.chats",
    "TelegramRateLimits": "telegram.rate_limits",
    "TelegramRefusal": "telegram.api_errors",
    "OneTimeTelegramFault": "telegram.simulator",
    "RecordedBotCall": "telegram.simulator",
    "WebhookTarget": "telegram.simulator",
    "DiscordSimulator": "discord.simulator",
    "DiscordSimulatorOptions": "discord.options",
    "ServedTelegramSimulator": "telegram.local_server",
    "TelegramSimulator": "telegram.simulator",
    "serve_simulated_discord": "discord.simulator",
    "serve_simulated_telegram": "telegram.local_server",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use, because some names need an extra."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab_serve.testing' has no attribute {name!r}")
    return getattr(import_module(f"trimtab_serve.testing.{_HOMES[name]}"), name)
