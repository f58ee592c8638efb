"""A strict Discord on a local port: its gateway and the part of its REST API that bots use.

It numbers its events and sends them again to a client that resumes. It refuses what Discord
refuses, with the same messages, enforces rate limits, and records all requests.
"""

from tests.simulators.discord.interactions import SlashInteraction as SlashInteraction
from tests.simulators.discord.options import DiscordSimulatorOptions as DiscordSimulatorOptions
from tests.simulators.discord.requests import RecordedDiscordRequest as RecordedDiscordRequest
from tests.simulators.discord.simulator import DiscordSimulator as DiscordSimulator
from tests.simulators.discord.simulator import (
    serve_simulated_discord as serve_simulated_discord,
)

__all__ = [
    "DiscordSimulator",
    "DiscordSimulatorOptions",
    "RecordedDiscordRequest",
    "SlashInteraction",
    "serve_simulated_discord",
]
