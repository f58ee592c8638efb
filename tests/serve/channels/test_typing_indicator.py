"""That the bot is writing is shown from a message until its reply, and no longer."""

from __future__ import annotations

import asyncio

import pytest

from tests.serve.service.served_agents import SESSION, Gated, inbound, served, until
from trimtab.errors import StoreUnavailable
from trimtab_serve.channels import typing_indicator
from trimtab_serve.channels.typing_indicator import TypingIndicator

pytestmark = pytest.mark.anyio


class Shown(list[str]):
    async def show(self, target: str) -> None:
        self.append(target)


def is_shown() -> bool:
    return any(task.get_name() == f"typing in {SESSION}" for task in asyncio.all_tasks())


async def test_the_sign_is_repeated_until_the_turn_is_over(monkeypatch):
    monkeypatch.setattr(typing_indicator, "REPLY_GRACE_S", 0.01)
    gate, shown = Gated("Done."), Shown()
    bot = served(provider=gate)
    typing = TypingIndicator(bot.service, shown.show, interval_s=0.01)
    assert await typing.post_message(inbound("Begin.", key="k"), "here")
    await until(lambda: len(shown) >= 3)
    assert set(shown) == {"here"}
    gate.open.set()
    await until(lambda: not is_shown())
    assert len(typing._turns) == 0


async def test_a_message_that_is_known_already_shows_nothing_for_long():
    shown = Shown()
    bot = served("Done.")
    typing = TypingIndicator(bot.service, shown.show, interval_s=60.0)
    assert await typing.post_message(inbound("Begin.", key="k"), "here")
    await bot.turns.wait_until_idle()
    typing.on_reply_sent(SESSION)
    await until(lambda: not is_shown())
    assert not await typing.post_message(inbound("Begin.", key="k"), "here")
    await until(lambda: not is_shown())


async def test_a_message_that_could_not_be_kept_shows_nothing_for_long(monkeypatch):
    bot, shown = served("Done."), Shown()

    async def away(_: object) -> bool:
        raise StoreUnavailable("the disk is away")

    monkeypatch.setattr(bot.service.queue, "post", away)
    typing = TypingIndicator(bot.service, shown.show, interval_s=60.0)
    with pytest.raises(StoreUnavailable):
        await typing.post_message(inbound("Begin.", key="k"), "here")
    await until(lambda: not is_shown())


async def test_a_turn_of_which_nothing_is_heard_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(typing_indicator, "TURN_SILENCE_TIMEOUT_S", 0.05)
    gate, shown = Gated("Done."), Shown()
    bot = served(provider=gate)
    typing = TypingIndicator(bot.service, shown.show, interval_s=0.01)
    await typing.post_message(inbound("Begin.", key="k"), "here")
    await until(lambda: not is_shown())
    gate.open.set()
    await bot.turns.wait_until_idle()


async def test_a_sign_that_fails_ends_in_silence():
    async def refused(_: str) -> None:
        raise ConnectionError("reset")

    bot = served("Done.")
    typing = TypingIndicator(bot.service, refused, interval_s=60.0)
    await typing.post_message(inbound("Begin.", key="k"), "here")
    await until(lambda: not is_shown())
    await bot.turns.wait_until_idle()
