"""A strict Discord on a local port: its gateway and the part of its REST API that bots use.

It numbers what it tells and tells it again to whoever resumes, refuses what Discord refuses, in its
words, limits what is too much, and records what it received. Needs the extra `discord`.
"""

from trimtab.testing.discord.interactions import Interaction as Interaction
from trimtab.testing.discord.options import Options as Options
from trimtab.testing.discord.requests import Request as Request
from trimtab.testing.discord.serving import serve as serve
from trimtab.testing.discord.simulator import Simulator as Simulator

__all__ = ["Interaction", "Options", "Request", "Simulator", "serve"]
