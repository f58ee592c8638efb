"""Tools for your own tests: a store in memory, a scripted provider, and strict simulators.

The simulated provider and the simulated Telegram need the extra `testing`. The simulated Discord
needs the extra `discord`. Everything else needs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.testing.discord.options import DiscordSimulatorOptions as DiscordSimulatorOptions
    from trimtab.testing.discord.simulator import DiscordSimulator as DiscordSimulator
    from trimtab.testing.discord.simulator import serve_simulated_discord as serve_simulated_discord
    from trimtab.testing.memory_store import MemoryStore as MemoryStore
    from trimtab.testing.replies import ScriptedCall as ScriptedCall
    from trimtab.testing.replies import ScriptedReply as ScriptedReply
    from trimtab.testing.scripted_provider import BrokenReply as BrokenReply
    from trimtab.testing.scripted_provider import InvalidRequestSent as InvalidRequestSent
    from trimtab.testing.scripted_provider import ScriptedProvider as ScriptedProvider
    from trimtab.testing.scripted_provider import ScriptExhausted as ScriptExhausted
    from trimtab.testing.server.local_server import ServedSimulator as ServedSimulator
    from trimtab.testing.server.local_server import (
        serve_simulated_provider as serve_simulated_provider,
    )
    from trimtab.testing.server.options import ProviderSimulatorOptions as ProviderSimulatorOptions
    from trimtab.testing.server.request_log import RecordedRequest as RecordedRequest
    from trimtab.testing.server.simulator import ProviderSimulator as ProviderSimulator
    from trimtab.testing.telegram.local_server import (
        ServedTelegramSimulator as ServedTelegramSimulator,
    )
    from trimtab.testing.telegram.local_server import (
        serve_simulated_telegram as serve_simulated_telegram,
    )
    from trimtab.testing.telegram.simulator import TelegramSimulator as TelegramSimulator

__all__ = [
    "BrokenReply",
    "DiscordSimulator",
    "DiscordSimulatorOptions",
    "InvalidRequestSent",
    "MemoryStore",
    "ProviderSimulator",
    "ProviderSimulatorOptions",
    "RecordedRequest",
    "ScriptExhausted",
    "ScriptedCall",
    "ScriptedProvider",
    "ScriptedReply",
    "ServedSimulator",
    "ServedTelegramSimulator",
    "TelegramSimulator",
    "serve_simulated_discord",
    "serve_simulated_provider",
    "serve_simulated_telegram",
]

_HOMES = {
    "BrokenReply": "testing.scripted_provider",
    "DiscordSimulator": "testing.discord.simulator",
    "DiscordSimulatorOptions": "testing.discord.options",
    "MemoryStore": "testing.memory_store",
    "ProviderSimulator": "testing.server.simulator",
    "ProviderSimulatorOptions": "testing.server.options",
    "RecordedRequest": "testing.server.request_log",
    "InvalidRequestSent": "testing.scripted_provider",
    "ScriptExhausted": "testing.scripted_provider",
    "ScriptedCall": "testing.replies",
    "ScriptedProvider": "testing.scripted_provider",
    "ScriptedReply": "testing.replies",
    "ServedSimulator": "testing.server.local_server",
    "ServedTelegramSimulator": "testing.telegram.local_server",
    "TelegramSimulator": "testing.telegram.simulator",
    "serve_simulated_discord": "testing.discord.simulator",
    "serve_simulated_provider": "testing.server.local_server",
    "serve_simulated_telegram": "testing.telegram.local_server",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use, because some names need an extra."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab.testing' has no attribute {name!r}")
    return getattr(import_module(f"trimtab.{_HOMES[name]}"), name)
