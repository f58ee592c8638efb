"""A conversation that is longer than the model's window, over Telegram, with ends in between."""

from __future__ import annotations

import asyncio

import pytest

from tests.serve.channels.telegram.running_bots import ADA, running
from trimtab.stores.files import FileStore
from trimtab.testing import ScriptedCall
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue

MESSAGES = 36
LIFE = 12
"""Messages after which the bot is started anew."""
WINDOW = 6_000


@pytest.mark.slow
def test_a_conversation_longer_than_the_window_goes_on_and_loses_nothing(served, tmp_path):
    """Each request fits, each message is answered once, and the first is found by the last."""

    async def life(first: int) -> list[int]:
        store = FileStore(tmp_path)
        queue = await SqliteMessageQueue.open(store)
        script = [f"Noted {number}." for number in range(first, first + LIFE)]
        model = {"context_window": WINDOW, "max_output_tokens": 300}
        async with running(served, *script, store=store, queue=queue, model=model) as bot:
            for number in range(first, first + LIFE):
                served.simulator.post_user_message(
                    ADA, (f"Parcel-{number:03} is in box {number * 7}. {'word ' * 240}")
                )
                await bot.settled()
            requests = [len(str(one["messages"])) for one in bot.provider.requests]
            if first + LIFE == MESSAGES:
                bot.provider.add_replies(
                    ScriptedCall(name="search_history", arguments={"query": "Parcel-000"})
                )
                bot.provider.add_replies("It is in box 0.")
                served.simulator.post_user_message(ADA, "Where is Parcel-000?")
                await bot.settled()
                found = str(bot.provider.requests[-1]["messages"][-1])
                assert "Parcel-000 is in box 0." in found
                users = [text for role, text in await bot.texts() if role == "user"]
                assert [text[:10] for text in users[:MESSAGES]] == [
                    f"Parcel-{number:03}" for number in range(MESSAGES)
                ]
        await store.close()
        return requests

    sizes = [size for first in range(0, MESSAGES, LIFE) for size in asyncio.run(life(first))]
    assert len(sizes) == MESSAGES
    assert max(sizes[12:]) < 4 * WINDOW
    late, middle = sizes[24:], sizes[12:24]
    assert sum(late) < 1.2 * sum(middle)
    assert served.simulator.list_bot_texts(ADA) == [
        *(f"Noted {number}." for number in range(MESSAGES)),
        "It is in box 0.",
    ]
