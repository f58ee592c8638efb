"""Discord as a way to talk to an agent. Needs the extra `discord`."""

from __future__ import annotations

import warnings

from trimtab.agent.doors import Discord
from trimtab.gateways.discord.errors import NotLetIn as NotLetIn
from trimtab.gateways.discord.pace import Pace as Pace
from trimtab.worker.door import Door
from trimtab.worker.service import Service

__all__ = ["NotLetIn", "Pace", "door"]


def door(service: Service, agent: str, block: Discord, *, pace: Pace | None = None) -> Door:
    """The door to one bot on Discord: `run` it, and let it `deliver`."""
    try:
        with warnings.catch_warnings():
            # discord.py's part for voice, which nothing here uses, loads what Python is to drop.
            warnings.filterwarnings("ignore", "'audioop'", DeprecationWarning)
            from trimtab.gateways.discord.entrance import DiscordDoor
    except ImportError as error:
        raise ImportError("Discord needs its library: pip install 'trimtab[discord]'") from error
    return DiscordDoor(service, agent, block, pace or Pace())
