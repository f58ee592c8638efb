"""A strict Discord on a local port: its gateway and the part of its REST API that bots use.

It numbers what it tells and tells it again to whoever resumes, refuses what Discord refuses, in its
words, limits what is too much, and records what it received. Needs the extra `discord`.
"""

from trimtab.testing.discord.interactions import SlashInteraction as SlashInteraction
from trimtab.testing.discord.options import DiscordSimulatorOptions as DiscordSimulatorOptions
from trimtab.testing.discord.request_bodies_and_faults import (
    RecordedDiscordRequest as RecordedDiscordRequest,
)
from trimtab.testing.discord.simulator import DiscordSimulator as DiscordSimulator
from trimtab.testing.discord.simulator import serve_simulated_discord as serve_simulated_discord

__all__ = [
    "DiscordSimulator",
    "DiscordSimulatorOptions",
    "RecordedDiscordRequest",
    "SlashInteraction",
    "serve_simulated_discord",
]
