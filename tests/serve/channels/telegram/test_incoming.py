"""How updates come in: polling, webhook, redelivery, malformed ones, outages, rivals."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.serve.channels.telegram.running_bots import ADA, free_socket, listening, running, until
from tests.serve.queue.memory_queue import MemoryQueue
from tests.simulators.telegram import (
    OneTimeTelegramFault,
    TelegramSimulator,
    serve_simulated_telegram,
)
from tests.simulators.telegram.api_errors import TelegramRefusal
from trimtab.errors import StoreUnavailable
from trimtab.testing import MemoryStore
from trimtab_serve.agent.config.spec import TelegramSpec
from trimtab_serve.channels.telegram import TelegramChannel
from trimtab_serve.channels.telegram.bot_api_client import InvalidTelegramToken

pytestmark = pytest.mark.anyio

SECRET = "s3cret_of-this-test"  # noqa: S105 - of nobody


async def test_an_update_is_confirmed_when_it_is_kept_and_not_before(served):
    store = MemoryStore()
    queue = _Away(store)
    async with running(served, "Hello.", store=store, queue=queue) as bot:
        served.simulator.post_user_message(ADA, "Hello.")
        await until(lambda: queue.asked > 0)
        assert served.simulator.list_pending_updates()
        queue.away = False
        await bot.settled()
        assert served.simulator.list_bot_texts(ADA) == ["Hello."]


async def test_a_redelivered_update_runs_once(served):
    store = MemoryStore()
    async with running(served, "Hello.", store=store) as bot:
        served.simulator.post_user_message(ADA, "Hello.")
        first = served.simulator.list_pending_updates()
        await bot.settled()
    served.simulator.redeliver_updates(first)
    async with running(served, "Again.", store=store) as bot:
        await bot.settled()
        assert bot.provider.requests == []
        assert await bot.texts() == [("user", "Hello."), ("assistant", "Hello.")]


async def test_malformed_updates_are_passed_over_and_sound_ones_answered(served):
    person = {"id": ADA, "is_bot": False, "first_name": "Ada"}
    chat = {"id": ADA, "type": "private"}
    good = {"message_id": 1, "date": 1, "chat": chat, "from": person, "text": "x"}
    async with running(served, "Hello.") as bot:
        for bad in (
            {"message": {}},
            {"message": 7},
            {"message": {**good, "chat": {**chat, "id": "7"}}},
            {"message": {**good, "chat": {**chat, "id": True}}},
            {"message": {**good, "chat": {**chat, "id": 2**70}}},
            {"message": {**good, "from": {**person, "id": "../x"}}},
            {"message": {**good, "text": 5}},
            {"message": {**good, "entities": [{"type": "bold"}]}},
            {"message": {**good, "date": "yesterday"}},
        ):
            served.simulator.push_update(bad)
        served.simulator.post_user_message(ADA, "Hello.")
        await bot.settled()
        assert await bot.texts() == [("user", "Hello."), ("assistant", "Hello.")]


async def test_halves_of_characters_are_replaced(served):
    async with running(served, "Hello.") as bot:
        served.simulator.post_user_message(ADA, "half \ud83d and whole 😀")
        await bot.settled()
        assert (await bot.texts())[0] == ("user", "half \ufffd and whole 😀")


async def test_entities_that_reach_out_of_the_text_do_no_harm(served):
    wild = [
        {"type": "bot_command", "offset": 0, "length": 900},
        {"type": "mention", "offset": 50, "length": 9},
    ]
    async with running(served, "Hello.") as bot:
        served.simulator.post_user_message(ADA, "😀 /reset", entities=wild)
        await bot.settled()
        assert (await bot.texts())[0] == ("user", "😀 /reset")


@pytest.mark.parametrize(
    "trouble",
    [
        OneTimeTelegramFault(),
        OneTimeTelegramFault(refusal=TelegramRefusal(code=502, description="Bad Gateway")),
    ],
)
def test_an_outage_of_telegram_is_waited_for(served, monkeypatch, trouble):
    monkeypatch.setattr("trimtab_serve.channels.telegram.polling.FIRST_RETRY_S", 0.01)

    async def run() -> None:
        served.simulator.fail_calls("getMe", trouble)
        served.simulator.fail_calls("deleteWebhook", trouble)
        async with running(served, "Hello.") as bot:
            served.simulator.post_user_message(ADA, "Hello.")
            await bot.settled()
            assert served.simulator.list_bot_texts(ADA) == ["Hello."]

    asyncio.run(run())


def test_polling_goes_on_when_the_server_was_away(monkeypatch):
    monkeypatch.setattr("trimtab_serve.channels.telegram.polling.FIRST_RETRY_S", 0.01)

    async def run() -> None:
        api = TelegramSimulator()
        api.get_or_add_chat(ADA, "Ada")
        held = ExitStack()
        served = held.enter_context(serve_simulated_telegram(api))
        port = urlsplit(served.url).port or 0
        async with running(served, "One.", "Two.") as bot:
            api.post_user_message(ADA, "One?")
            await bot.settled()
            await asyncio.to_thread(held.close)
            api.post_user_message(ADA, "Two?")
            with serve_simulated_telegram(api, port=port):
                await bot.settled()
                assert api.list_bot_texts(ADA) == ["One.", "Two."]

    asyncio.run(run())


def test_a_rival_is_named_and_polling_goes_on(served, caplog, monkeypatch):
    monkeypatch.setattr("trimtab_serve.channels.telegram.polling.CONFLICT_RETRY_S", 0.01)

    async def run() -> None:
        async with running(served, "Hello.") as bot:
            await until(lambda: served.simulator.poll_count > 0)
            await asyncio.to_thread(_poll_once, served)
            served.simulator.post_user_message(ADA, "Hello.")
            await bot.settled()
            assert served.simulator.list_bot_texts(ADA) == ["Hello."]

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert any("another process polls this bot" in line for line in caplog.messages)


async def test_a_wrong_token_says_what_to_do(served):
    async with running(served, run=False) as bot:
        wrong = f"{served.simulator.id}:{'x' * 35}"
        block = TelegramSpec(token=wrong, allow=("*",), api=served.url)
        made = TelegramChannel(bot.service, "helper", block)
        with pytest.raises(InvalidTelegramToken, match="@BotFather"):
            await made.run()
        await made.close()


def test_the_token_is_in_no_log_line(served, caplog):
    async def run() -> None:
        async with running(served, "Hello.") as bot:
            served.simulator.post_user_message(ADA, "Hello.")
            await bot.settled()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    assert served.simulator.token not in caplog.text


async def test_the_webhook_takes_what_has_the_secret_and_nothing_else(served):
    listener = free_socket()
    host, port = listener.getsockname()
    own: dict[str, Any] = {"webhook": f"http://{host}:{port}/telegram", "secret": SECRET}
    async with (
        running(served, "Hello.", **own) as bot,
        listening(bot.channel.routes, listener),
    ):
        await until(lambda: served.simulator.webhook is not None)
        assert served.simulator.webhook.secret == SECRET
        statuses = [
            await asyncio.to_thread(_post, port, body, secret)
            for body, secret in (
                (b"{}", "wrong"),
                (b"{}", None),
                (b"{}", "é"),
                (b"{}", SECRET),
                (b"not json", SECRET),
                (b"[" * 100_000, SECRET),
                (b" " * 2_000_000, SECRET),
                (json.dumps({"update_id": 1}).encode(), SECRET),
            )
        ]
        assert statuses == [403, 403, 403, 400, 400, 400, 413, 200]
        served.simulator.post_user_message(ADA, "Hello.")
        await bot.settled()
        assert served.simulator.list_bot_texts(ADA) == ["Hello."]
        assert served.simulator.poll_count == 0


async def test_a_webhook_that_cannot_keep_an_update_is_asked_again(served):
    listener = free_socket()
    host, port = listener.getsockname()
    own: dict[str, Any] = {"webhook": f"http://{host}:{port}/telegram", "secret": SECRET}
    store = MemoryStore()
    queue = _Away(store)
    async with (
        running(served, "Hello.", store=store, queue=queue, **own) as bot,
        listening(bot.channel.routes, listener),
    ):
        served.simulator.post_user_message(ADA, "Hello.")
        await until(lambda: queue.asked > 1)
        queue.away = False
        await bot.settled()
        assert await bot.texts() == [("user", "Hello."), ("assistant", "Hello.")]


async def test_guesses_of_the_webhook_secret_are_rate_limited_and_telegram_is_not(served):
    listener = free_socket()
    host, port = listener.getsockname()
    own: dict[str, Any] = {"webhook": f"http://{host}:{port}/telegram", "secret": SECRET}
    async with running(served, **own) as bot, listening(bot.channel.routes, listener):
        update = json.dumps({"update_id": 1}).encode()
        guesses = [await asyncio.to_thread(_post, port, update, f"g{n}") for n in range(23)]
        assert guesses == [403] * 20 + [429] * 3
        assert await asyncio.to_thread(_post, port, update, SECRET) == 200


@pytest.mark.parametrize("secret", [None, "a", "x" * 15, "with spaces in it!"])
def test_a_webhook_needs_a_secret(secret):
    with pytest.raises(ValueError, match="openssl rand"):
        TelegramSpec.model_validate(
            {"token": "1:a", "webhook": "https://x.example/t", "secret": secret}
        )


class _Away(MemoryQueue):
    """A queue whose store is away for a while."""

    away, asked = True, 0

    async def post(self, inbound):
        self.asked += 1
        if self.away:
            raise StoreUnavailable("the disk is full")
        return await super().post(inbound)


def _poll_once(served) -> None:
    place = urlsplit(served.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=10)
    connection.request("GET", f"/bot{served.simulator.token}/getUpdates?timeout=0")
    connection.getresponse().read()
    connection.close()


def _post(port: int, body: bytes, secret: str | None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {} if secret is None else {"X-Telegram-Bot-Api-Secret-Token": secret.encode()}
    connection.request("POST", "/telegram", body, headers)
    status = connection.getresponse().status
    connection.close()
    return status
