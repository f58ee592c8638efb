"""What doors, queues and deliveries tell of themselves, counted where it happens."""

import time
from dataclasses import replace

import pytest

from tests.session.summarising import GOOD, talk, writer
from tests.worker.served import SESSION, agent, letter, served, until
from trimtab.gateways.http.app import Offer, make_app
from trimtab.observe import serving
from trimtab.observe.labels import OTHER
from trimtab.observe.prometheus import render
from trimtab.providers.provider import Failure
from trimtab.stores.errors import StoreUnavailable
from trimtab.testing import MemoryStore, ScriptedProvider
from trimtab.testing.mail import MemoryMail
from trimtab.worker.delivery import TRIES, Delivery, Later, Never
from trimtab.worker.fleet_jobs import Jobs
from trimtab.worker.postgres.queue import SUMMARIES, Due
from trimtab.worker.schedules.door import ScheduleDoor
from trimtab.worker.schedules.schedules import CannotRun
from trimtab.worker.service import Crowded
from trimtab.worker.turns import Turning

pytestmark = pytest.mark.anyio


async def test_letters_are_counted_by_tenant_and_by_what_became_of_them(counted):
    bot = served("Hm.")
    assert await bot.say("One.", key="k1")
    assert not await bot.say("One.", key="k1")
    await bot.turns.idle()
    assert not await bot.say("One.", key="k1")
    bot.service.max_waiting = 0
    with pytest.raises(Crowded):
        await bot.say("Two.", key="k2")
    told = {
        outcome: counted("trimtab_letters_total", tenant="default", outcome=outcome)
        for outcome in ("taken", "known", "crowded")
    }
    assert told == {"taken": 1, "known": 2, "crowded": 1}


async def test_a_letter_takes_from_its_arrival_to_the_end_of_its_turn(memory, counted):
    mail = MemoryMail(memory)
    helper = agent(ScriptedProvider("anthropic", ["Hm."]), memory)
    session = await helper.session(SESSION)
    for number, ago in enumerate((100.0, 20.0, -5.0)):
        words = letter(f"Word {number}.", key=f"k{number}")
        await mail.post(replace(words, at=time.time() - ago))
    await Turning(helper, mail, session, tell=lambda _: None).run()
    assert counted("trimtab_letter_seconds_count", agent="helper") == 3
    assert 120 <= counted("trimtab_letter_seconds_sum", agent="helper") < 180


async def test_a_turn_that_fails_is_counted_until_it_is_given_up(counted):
    bot = served(Failure(kind="auth", message="no"))
    await bot.say("One.", key="k1")
    await bot.turns.idle()
    assert counted("trimtab_dead_letters_total") == 1
    assert counted("trimtab_turn_retries_total") == 0


async def test_a_turn_that_is_tried_again_is_counted(counted):
    bot = served(*[Failure(kind="overloaded", message="busy")] * 20)
    await bot.say("One.", key="k1")
    await until(lambda: counted("trimtab_turn_retries_total") == 1)
    assert counted("trimtab_dead_letters_total") == 0
    await bot.turns.drain(0)


async def test_deliveries_are_counted_by_door_and_by_how_they_ended(counted):
    ends = [None, Later(0, "wait"), Never("gone"), OSError("who knows")]
    bot = served(*["Hm."] * len(ends))

    async def deliver(_):
        end = ends.pop(0)
        if end is not None:
            raise end

    for number in range(len(ends)):
        await bot.say("Go.", key=f"k{number}", session=f"default/helper/s{number}")
    await bot.turns.idle()
    await Delivery(bot.service.mail, {"phone": deliver}).once()
    told = {
        outcome: counted("trimtab_deliveries_total", door="phone", outcome=outcome)
        for outcome in ("sent", "put_off", "refused", "unknown", "given_up")
    }
    assert told == {"sent": 1, "put_off": 1, "refused": 1, "unknown": 1, "given_up": 0}
    assert counted("trimtab_delivery_seconds_count", door="phone") == 1


async def test_a_reply_that_is_not_tried_again_is_counted(counted, monkeypatch):
    monkeypatch.setattr("trimtab.worker.delivery.TRIES", 1)
    assert TRIES > 1

    async def deliver(_):
        raise OSError("who knows")

    bot = served("Hm.")
    await bot.say("Go.", key="k1")
    await bot.turns.idle()
    await Delivery(bot.service.mail, {"phone": deliver}).once()
    assert counted("trimtab_deliveries_total", door="phone", outcome="given_up") == 1


async def test_a_mail_that_cannot_be_reached_by_deliveries_is_counted(counted):
    class Away(MemoryMail):
        async def delivered(self, number):
            raise StoreUnavailable("no disk")

    async def deliver(_):
        pass

    store = MemoryStore()
    bot = served("Hm.", store=store, mail=Away(store))
    await bot.say("Go.", key="k1")
    await bot.turns.idle()
    await Delivery(bot.service.mail, {"phone": deliver}).once()
    assert counted("trimtab_store_errors_total", error="StoreUnavailable") == 1


async def test_a_summary_that_the_fleet_makes_is_counted(counted):
    bot = served(policy="rolling")
    bot.service.agents["helper"].summariser = writer(*[GOOD] * 3)
    async with bot.service.using(SESSION) as session:
        await talk(session, 20)
    jobs = Jobs(bot.service, mail=None, slots=None)  # pyright: ignore[reportArgumentType]
    await jobs.summary(Due(session=SESSION, kind=SUMMARIES))
    assert counted("trimtab_summaries_total") == counted("trimtab_summary_tokens_count") == 1


class Clockwork:
    """Schedules of which one runs, then one cannot."""

    def __init__(self):
        self._left = [_Due(), CannotRun("daily", StoreUnavailable("no disk"))]

    async def run_next(self, now, agents, *, without=()):
        found = self._left.pop(0) if self._left else None
        if isinstance(found, CannotRun):
            raise found
        return found

    async def next_due(self, agents, *, without=()):
        return None


class _Due:
    id, next_run_at = "nightly", 1.0


async def test_schedules_are_counted_by_whether_they_could_be_run(counted):
    await ScheduleDoor(Clockwork(), ["helper"]).once()  # pyright: ignore[reportArgumentType]
    assert counted("trimtab_schedules_total", outcome="ran") == 1
    assert counted("trimtab_schedules_total", outcome="failed") == 1


async def nothing(_):
    pass


async def asked(app, path):
    """The status of a GET, as a server would ask it."""
    told = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        told.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b""}
    await app({**scope, "headers": [(b"host", b"localhost")]}, receive, send)
    return told[0]["status"]


async def test_what_waits_and_what_was_given_up_is_asked_for_when_metrics_are_read(counted):
    bot = served(Failure(kind="auth", message="no"))
    await bot.say("One.", key="k1")
    await bot.turns.idle()
    await bot.turns.drain(0)
    await bot.say("Two.", key="k2", session="default/helper/two")
    app = make_app(Offer(service=bot.service, due=nothing, metrics=render))
    assert await asked(app, "/metrics") == 200
    assert counted("trimtab_sessions_dead") == 1
    assert counted("trimtab_letters_waiting") >= 1
    assert await asked(app, "/zanzibar") == 404
    assert counted("trimtab_http_requests_total", route="/metrics", status="200") == 1
    assert counted("trimtab_http_seconds_count", route=OTHER) == 1


def test_http_requests_are_counted_by_route_and_never_by_path(counted):
    serving.http_ended("GET", "/v1/sessions/{id}", 200, 0.01)
    serving.http_ended("GET", "", 404, 0.01)
    serving.http_ended("ZANZIBAR", "", 405, 0.01)
    assert counted("trimtab_http_requests_total", route="/v1/sessions/{id}", status="200") == 1
    assert counted("trimtab_http_requests_total", route=OTHER) == 2
    assert counted("trimtab_http_requests_total", method=OTHER) == 1
    assert counted("trimtab_http_seconds_count", method="GET") == 2


def test_open_streams_are_counted(counted):
    with serving.streaming(), serving.streaming():
        assert counted("trimtab_streams_open") == 2
    assert counted("trimtab_streams_open") == 0
