"""A strict Bot API on a local port for tests of bots: no Telegram, no token, no network.

It refuses what the real API refuses, with the same messages. It keeps chats and their messages,
delivers updates or pushes them to a webhook, and records all calls.
"""

from tests.simulators.telegram.api_errors import TelegramRefusal as TelegramRefusal
from tests.simulators.telegram.api_errors import (
    make_bad_request_refusal as make_bad_request_refusal,
)
from tests.simulators.telegram.api_errors import make_flood_refusal as make_flood_refusal
from tests.simulators.telegram.api_errors import (
    make_forbidden_refusal as make_forbidden_refusal,
)
from tests.simulators.telegram.chats import TelegramChat as TelegramChat
from tests.simulators.telegram.chats import make_telegram_user as make_telegram_user
from tests.simulators.telegram.local_server import (
    ServedTelegramSimulator as ServedTelegramSimulator,
)
from tests.simulators.telegram.local_server import (
    serve_simulated_telegram as serve_simulated_telegram,
)
from tests.simulators.telegram.rate_limits import TelegramRateLimits as TelegramRateLimits
from tests.simulators.telegram.simulator import OneTimeTelegramFault as OneTimeTelegramFault
from tests.simulators.telegram.simulator import RecordedBotCall as RecordedBotCall
from tests.simulators.telegram.simulator import TelegramSimulator as TelegramSimulator

__all__ = [
    "OneTimeTelegramFault",
    "RecordedBotCall",
    "ServedTelegramSimulator",
    "TelegramChat",
    "TelegramRateLimits",
    "TelegramRefusal",
    "TelegramSimulator",
    "make_bad_request_refusal",
    "make_flood_refusal",
    "make_forbidden_refusal",
    "make_telegram_user",
    "serve_simulated_telegram",
]
