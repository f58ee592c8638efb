"""One life of the bot of `bot_months.py`: a process that serves until it is killed.

    python -m tests.soak.bot_life FOLDER BOT_API MODEL_API NOW

Its clock is set to `NOW`, and to the date of each message that is newer: to all that runs in here
the months pass.
"""

from __future__ import annotations

import time

_REAL = time.time
_ahead = 0.0


def _now() -> float:
    return _REAL() + _ahead


if __name__ == "__main__":
    # Before anything is imported that takes the clock as it finds it.
    time.time = _now

import asyncio  # noqa: E402 - see above
import logging  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from telegram import Update  # noqa: E402

from tests.simulators.telegram.simulator import TEST_BOT_TOKEN  # noqa: E402
from trimtab.stores.files import FileStore  # noqa: E402
from trimtab_serve.agent.agent import open_agent  # noqa: E402
from trimtab_serve.agent.config.spec import AgentSpec, TelegramSpec  # noqa: E402
from trimtab_serve.channels.telegram import TelegramChannel  # noqa: E402
from trimtab_serve.process.local_turns import LocalTurnRunner  # noqa: E402
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue  # noqa: E402
from trimtab_serve.service.delivery import ReplyDelivery  # noqa: E402
from trimtab_serve.service.events.bus import LocalEventBus  # noqa: E402
from trimtab_serve.service.service import AgentService  # noqa: E402

AGENT, WINDOW = "helper", 6_000
"""The agent's name, and its model's window in tokens."""
PACE = 0.01
"""Seconds between two messages in the chat: the local Bot API sets no pace."""


class Channel(TelegramChannel):
    """The channel, with a clock that follows the messages."""

    async def take(self, update: Update) -> None:
        """Take in one update at its own time."""
        global _ahead  # noqa: PLW0603 - it is the process's clock
        message = update.message
        if message is not None:
            _ahead = max(_ahead, message.date.timestamp() - _REAL())
        await super().handle_update(update)


def spec_of(model_api: str) -> AgentSpec:
    """What would stand in `agent.yaml`."""
    model = {
        "name": "claude-sonnet-4-5",
        "base_url": model_api,
        "api_key": "benchmark",
        "context_window": WINDOW,
        "max_output_tokens": 300,
    }
    return AgentSpec.model_validate({"name": AGENT, "model": model})


async def live(folder: Path, bot_api: str, model_api: str) -> None:
    """Serve until the end."""
    store = FileStore(folder, fsync=False)
    async with open_agent(spec_of(model_api), folder, store=store) as agent:
        queue = await SqliteMessageQueue.open(store, fsync=False)
        service = AgentService(
            agents={AGENT: agent}, store=store, queue=queue, event_bus=LocalEventBus()
        )
        turns = LocalTurnRunner(service)
        block = TelegramSpec.model_validate(
            {"token": TEST_BOT_TOKEN, "allow": ["*"], "api": bot_api}
        )
        channel = Channel(service, AGENT, block, min_interval_s=PACE, poll_timeout_s=10.0)
        delivery = ReplyDelivery(queue, {channel.name: channel.deliver})
        queue.on_posted, queue.on_replies = turns.request_turn, delivery.wake
        await turns.resume_waiting()
        await asyncio.gather(channel.run(), delivery.run())


if __name__ == "__main__":
    _ahead = float(sys.argv[4]) - _REAL()
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(live(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
