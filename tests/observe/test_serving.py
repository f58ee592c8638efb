"""What doors, queues and deliveries tell of themselves, counted where it happens."""

import time
from dataclasses import replace

import pytest

from tests.server.served_agents import SESSION, agent, letter, served, until
from tests.session.summarised_chats import GOOD, talk, writer
from trimtab.errors import StoreUnavailable
from trimtab.observe import server_metrics
from trimtab.observe.label_limiter import OTHER_LABEL
from trimtab.observe.turn_metrics_and_endpoint import render_metrics
from trimtab.providers.protocol_and_failures import ProviderFailureDetails
from trimtab.server.channels.http.app import HttpServerState, create_http_app
from trimtab.server.delivery import (
    MAX_DELIVERY_ATTEMPTS,
    ReplyDelivery,
    RetryDelivery,
    Undeliverable,
)
from trimtab.server.postgres.procrastinate_jobs import SUMMARY_QUEUE, JobPayload
from trimtab.server.postgres.turn_and_summary_jobs import TurnAndSummaryJobHandlers
from trimtab.server.schedules.protocol import ScheduleNotPosted
from trimtab.server.schedules.runner import ScheduleRunner
from trimtab.server.served_turn import ServedTurn
from trimtab.server.service import QueueFull
from trimtab.testing import MemoryStore, ScriptedProvider
from trimtab.testing.memory_queue import MemoryQueue

pytestmark = pytest.mark.anyio


async def test_letters_are_counted_by_tenant_and_by_what_became_of_them(counted):
    bot = served("Hm.")
    assert await bot.say("One.", key="k1")
    assert not await bot.say("One.", key="k1")
    await bot.turns.wait_until_idle()
    assert not await bot.say("One.", key="k1")
    bot.service.max_queued_messages = 0
    with pytest.raises(QueueFull):
        await bot.say("Two.", key="k2")
    told = {
        outcome: counted("trimtab_inbound_messages_total", tenant="default", outcome=outcome)
        for outcome in ("accepted", "duplicate", "rejected")
    }
    assert told == {"accepted": 1, "duplicate": 2, "rejected": 1}


async def test_a_letter_takes_from_its_arrival_to_the_end_of_its_turn(memory, counted):
    mail = MemoryQueue(memory)
    helper = agent(ScriptedProvider("anthropic", ["Hm."]), memory)
    session = await helper.open_session(SESSION)
    for number, ago in enumerate((100.0, 20.0, -5.0)):
        words = letter(f"Word {number}.", key=f"k{number}")
        await mail.post(replace(words, at=time.time() - ago))
    await ServedTurn(helper, mail, session, on_event=lambda _: None).run()
    assert counted("trimtab_message_latency_seconds_count", agent="helper") == 3
    assert 120 <= counted("trimtab_message_latency_seconds_sum", agent="helper") < 180


async def test_a_turn_that_fails_is_counted_until_it_is_given_up(counted):
    bot = served(ProviderFailureDetails(kind="auth", message="no"))
    await bot.say("One.", key="k1")
    await bot.turns.wait_until_idle()
    assert counted("trimtab_dead_letters_total") == 1
    assert counted("trimtab_turn_retries_total") == 0


async def test_a_turn_that_is_tried_again_is_counted(counted):
    bot = served(*[ProviderFailureDetails(kind="overloaded", message="busy")] * 20)
    await bot.say("One.", key="k1")
    await until(lambda: counted("trimtab_turn_retries_total") == 1)
    assert counted("trimtab_dead_letters_total") == 0
    await bot.turns.drain(0)


async def test_deliveries_are_counted_by_door_and_by_how_they_ended(counted):
    ends = [None, RetryDelivery(0, "wait"), Undeliverable("gone"), OSError("who knows")]
    bot = served(*["Hm."] * len(ends))

    async def deliver(_):
        end = ends.pop(0)
        if end is not None:
            raise end

    for number in range(len(ends)):
        await bot.say("Go.", key=f"k{number}", session=f"default/helper/s{number}")
    await bot.turns.wait_until_idle()
    await ReplyDelivery(bot.service.queue, {"phone": deliver}).deliver_due()
    told = {
        outcome: counted("trimtab_deliveries_total", channel="phone", outcome=outcome)
        for outcome in ("sent", "deferred", "rejected", "unknown", "abandoned")
    }
    assert told == {"sent": 1, "deferred": 1, "rejected": 1, "unknown": 1, "abandoned": 0}
    assert counted("trimtab_delivery_duration_seconds_count", channel="phone") == 1


async def test_a_reply_that_is_not_tried_again_is_counted(counted, monkeypatch):
    monkeypatch.setattr("trimtab.server.delivery.MAX_DELIVERY_ATTEMPTS", 1)
    assert MAX_DELIVERY_ATTEMPTS > 1

    async def deliver(_):
        raise OSError("who knows")

    bot = served("Hm.")
    await bot.say("Go.", key="k1")
    await bot.turns.wait_until_idle()
    await ReplyDelivery(bot.service.queue, {"phone": deliver}).deliver_due()
    assert counted("trimtab_deliveries_total", channel="phone", outcome="abandoned") == 1


async def test_a_mail_that_cannot_be_reached_by_deliveries_is_counted(counted):
    class Away(MemoryQueue):
        async def mark_delivered(self, number):
            raise StoreUnavailable("no disk")

    async def deliver(_):
        pass

    store = MemoryStore()
    bot = served("Hm.", store=store, mail=Away(store))
    await bot.say("Go.", key="k1")
    await bot.turns.wait_until_idle()
    await ReplyDelivery(bot.service.queue, {"phone": deliver}).deliver_due()
    assert counted("trimtab_store_errors_total", error="StoreUnavailable") == 1


async def test_a_summary_that_the_fleet_makes_is_counted(counted):
    bot = served(policy="rolling")
    bot.service.agents["helper"].summariser = writer(*[GOOD] * 3)
    async with bot.service.open_session(SESSION) as session:
        await talk(session, 20)
    jobs = TurnAndSummaryJobHandlers(bot.service, queue=None, slots=None)  # pyright: ignore[reportArgumentType]
    await jobs.run_summary_job(JobPayload(session=SESSION, kind=SUMMARY_QUEUE))
    assert counted("trimtab_summaries_total") == counted("trimtab_summary_tokens_count") == 1


class Clockwork:
    """Schedules of which one runs, then one cannot."""

    def __init__(self):
        self._left = [_Due(), ScheduleNotPosted("daily", StoreUnavailable("no disk"))]

    async def run_next_due(self, now, agents, *, excluding=()):
        found = self._left.pop(0) if self._left else None
        if isinstance(found, ScheduleNotPosted):
            raise found
        return found

    async def next_due(self, agents, *, excluding=()):
        return None


class _Due:
    id, next_run_at = "nightly", 1.0


async def test_schedules_are_counted_by_whether_they_could_be_run(counted):
    await ScheduleRunner(Clockwork(), ["helper"]).run_due()  # pyright: ignore[reportArgumentType]
    assert counted("trimtab_schedule_runs_total", outcome="ran") == 1
    assert counted("trimtab_schedule_runs_total", outcome="failed") == 1


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
    bot = served(ProviderFailureDetails(kind="auth", message="no"))
    await bot.say("One.", key="k1")
    await bot.turns.wait_until_idle()
    await bot.turns.drain(0)
    await bot.say("Two.", key="k2", session="default/helper/two")
    app = create_http_app(
        HttpServerState(service=bot.service, schedule_turn=nothing, render_metrics=render_metrics)
    )
    assert await asked(app, "/metrics") == 200
    assert counted("trimtab_dead_letter_sessions") == 1
    assert counted("trimtab_queued_messages") >= 1
    assert await asked(app, "/zanzibar") == 404
    assert counted("trimtab_http_requests_total", route="/metrics", status="200") == 1
    assert counted("trimtab_http_request_duration_seconds_count", route=OTHER_LABEL) == 1


def test_http_requests_are_counted_by_route_and_never_by_path(counted):
    server_metrics.count_http_request("GET", "/v1/sessions/{id}", 200, 0.01)
    server_metrics.count_http_request("GET", "", 404, 0.01)
    server_metrics.count_http_request("ZANZIBAR", "", 405, 0.01)
    assert counted("trimtab_http_requests_total", route="/v1/sessions/{id}", status="200") == 1
    assert counted("trimtab_http_requests_total", route=OTHER_LABEL) == 2
    assert counted("trimtab_http_requests_total", method=OTHER_LABEL) == 1
    assert counted("trimtab_http_request_duration_seconds_count", method="GET") == 2


def test_open_streams_are_counted(counted):
    with server_metrics.track_open_stream(), server_metrics.track_open_stream():
        assert counted("trimtab_event_streams_open") == 2
    assert counted("trimtab_event_streams_open") == 0
