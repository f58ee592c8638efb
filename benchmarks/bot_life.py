"""One life of the bot of `bot_months.py`: a process that serves until it is killed.

    python -m benchmarks.bot_life FOLDER BOT_API MODEL_API NOW

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

from trimtab.agent.agent import running  # noqa: E402
from trimtab.agent.doors import Telegram  # noqa: E402
from trimtab.agent.spec import Spec  # noqa: E402
from trimtab.gateways.telegram import TelegramDoor  # noqa: E402
from trimtab.stores.files import FileStore  # noqa: E402
from trimtab.testing.telegram.api import TOKEN  # noqa: E402
from trimtab.worker.delivery import Delivery  # noqa: E402
from trimtab.worker.files import FileMail  # noqa: E402
from trimtab.worker.live import LocalLive  # noqa: E402
from trimtab.worker.local import LocalTurns  # noqa: E402
from trimtab.worker.service import Service  # noqa: E402

AGENT, WINDOW = "helper", 6_000
"""The agent's name, and its model's window in tokens."""
PACE = 0.01
"""Seconds between two messages in the chat: the local Bot API sets no pace."""


class Door(TelegramDoor):
    """The door, with a clock that follows the messages."""

    async def take(self, update: Update) -> None:
        """Take in one update at its own time."""
        global _ahead  # noqa: PLW0603 - it is the process's clock
        message = update.message
        if message is not None:
            _ahead = max(_ahead, message.date.timestamp() - _REAL())
        await super().take(update)


def spec_of(model_api: str) -> Spec:
    """What would stand in `agent.yaml`."""
    model = {
        "name": "claude-sonnet-4-5",
        "base_url": model_api,
        "api_key": "benchmark",
        "context_window": WINDOW,
        "max_output_tokens": 300,
    }
    return Spec.model_validate({"name": AGENT, "model": model})


async def live(folder: Path, bot_api: str, model_api: str) -> None:
    """Serve until the end."""
    store = FileStore(folder, fsync=False)
    async with running(spec_of(model_api), folder, store=store) as agent:
        mail = await FileMail.open(store, fsync=False)
        service = Service(agents={AGENT: agent}, store=store, mail=mail, live=LocalLive())
        turns = LocalTurns(service)
        block = Telegram.model_validate({"token": TOKEN, "allow": ["*"], "api": bot_api})
        door = Door(service, AGENT, block, pace=PACE, poll=10.0)
        delivery = Delivery(mail, {door.name: door.deliver})
        mail.due, mail.replied = turns.due, delivery.due
        await turns.resume()
        await asyncio.gather(door.run(), delivery.run())


if __name__ == "__main__":
    _ahead = float(sys.argv[4]) - _REAL()
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(live(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
