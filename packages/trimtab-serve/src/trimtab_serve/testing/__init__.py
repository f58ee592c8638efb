"""Simulators of Telegram and Discord for your own tests.

The simulated Telegram needs the extra `testing`, the simulated Discord the extra `discord`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab_serve.testing.discord.options import (
        DiscordSimulatorOptions as DiscordSimulatorOptions,
    )
    from trimtab_serve.testing.discord.simulator import DiscordSimulator as DiscordSimulator
    from trimtab_serve.testing.discord.simulator import (
        serve_simulated_discord as serve_simulated_discord,
    )
    from trimtab_serve.testing.telegram.local_server import (
        ServedTelegramSimulator as ServedTelegramSimulator,
    )
    from trimtab_serve.testing.telegram.local_server import (
        serve_simulated_telegram as serve_simulated_telegram,
    )
    from trimtab_serve.testing.telegram.simulator import TelegramSimulator as TelegramSimulator


__all__ = [
    "DiscordSimulator",
    "DiscordSimulatorOptions",
    "ServedTelegramSimulator",
    "TelegramSimulator",
    "serve_simulated_discord",
    "serve_simulated_telegram",
]

_HOMES = {
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
