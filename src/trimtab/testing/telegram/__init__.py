"""A strict Bot API on a local port, for tests of bots: no Telegram, no token, no network.

It refuses what the real one refuses, in its words, keeps chats and their messages, hands updates
out or pushes them to a webhook, and records what it was asked to do. Needs the extra `testing`.
"""

from trimtab.testing.telegram.api import Asked as Asked
from trimtab.testing.telegram.api import BotApi as BotApi
from trimtab.testing.telegram.api import Trouble as Trouble
from trimtab.testing.telegram.chats import Chat as Chat
from trimtab.testing.telegram.chats import user as user
from trimtab.testing.telegram.limits import Limits as Limits
from trimtab.testing.telegram.refusals import Refusal as Refusal
from trimtab.testing.telegram.refusals import bad as bad
from trimtab.testing.telegram.refusals import flood as flood
from trimtab.testing.telegram.refusals import forbidden as forbidden
from trimtab.testing.telegram.serving import ServedBotApi as ServedBotApi
from trimtab.testing.telegram.serving import serve as serve

__all__ = [
    "Asked",
    "BotApi",
    "Chat",
    "Limits",
    "Refusal",
    "ServedBotApi",
    "Trouble",
    "bad",
    "flood",
    "forbidden",
    "serve",
    "user",
]
