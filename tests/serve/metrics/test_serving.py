"""What channels, queues and deliveries tell of themselves, counted where it happens."""

import asyncio
import logging
import math
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.serve.metrics.exported import samples
from tests.serve.queue.memory_queue import MemoryQueue
from tests.serve.service.served_agents import SESSION, agent, inbound, served, until, with_ceilings
from tests.session.summarised_chats import GOOD, talk, writer
from trimtab.engine.log.event import Usage
from trimtab.errors import ProviderFailureDetails, StoreUnavailable
from trimtab.stores.base import PoolUsage
from trimtab.testing import MemoryStore, ScriptedProvider, ScriptedReply
from trimtab_serve.channels.http.app import HttpServerState, create_http_app
from trimtab_serve.forgetting import erasure
from trimtab_serve.forgetting.retention import RetentionRunner
from trimtab_serve.forgetting.user_shares import find_user_shares
from trimtab_serve.metrics import recording as server_metrics
from trimtab_serve.metrics.labels import OTHER_LABEL, PayerLabels, reset_payer, set_payer
from trimtab_serve.metrics.prometheus import render_metrics
from trimtab_serve.process.jobs import TurnAndSummaryJobHandlers
from trimtab_serve.queue.postgres.procrastinate_jobs import SUMMARY_QUEUE, JobPayload
from trimtab_serve.schedules.runner import ScheduleRunner
from trimtab_serve.schedules.store import ScheduleNotPosted
from trimtab_serve.service.delivery import (
    MAX_DELIVERY_ATTEMPTS,
    ReplyDelivery,
    RetryDelivery,
    Undeliverable,
)
from trimtab_serve.service.service import QueueFull
from trimtab_serve.service.turn import ServedTurn

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_messages_are_counted_by_tenant_and_by_what_became_of_them(counted):
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


async def test_a_cost_ceiling_that_is_reached_is_counted_and_logged_and_no_call_is(counted, caplog):
    bot = served()
    with_ceilings(bot.service, max_per_day=0.01)
    with caplog.at_level(logging.WARNING, "trimtab.spending"):
        await bot.say("Hello.", key="1")
        await bot.turns.wait_until_idle()
    (record,) = [each for each in caplog.records if each.name == "trimtab.spending"]
    assert (record.ceiling, record.tenant, record.session) == ("day", "default", SESSION)
    assert counted("trimtab_cost_ceiling_refusals_total", agent="helper", ceiling="day") == 1
    assert counted("trimtab_turns_total", agent="helper", outcome="cost_ceiling") == 1
    assert counted("trimtab_turns_running", agent="helper") == 0
    assert counted("trimtab_model_calls_total") == 0


async def test_a_served_turn_is_paid_for_by_its_own_agent_whoever_has_started_it(counted):
    spent = Usage(input=1_000, output=0)
    bot = served(ScriptedReply(text="Hm.", usage=spent))
    with paid_by("chief"):
        await bot.say("One.", key="k1")
        await bot.turns.wait_until_idle()
    paid = "trimtab_agent_cost_dollars_total"
    assert counted(paid, agent="helper", tenant="default") > 0
    assert counted(paid, agent="chief") == 0


@contextmanager
def paid_by(agent):
    token = set_payer(PayerLabels(agent, ""))
    try:
        yield
    finally:
        reset_payer(token)


async def test_a_message_takes_from_its_arrival_to_the_end_of_its_turn(memory, counted):
    queue = MemoryQueue(memory)
    helper = agent(ScriptedProvider("anthropic", ["Hm."]), memory)
    session = await helper.open_session(SESSION)
    for number, ago in enumerate((100.0, 20.0, -5.0)):
        words = inbound(f"Word {number}.", key=f"k{number}")
        await queue.post(replace(words, at=time.time() - ago))
    await ServedTurn(helper, queue, session, on_event=lambda _: None).run()
    assert counted("trimtab_message_latency_seconds_count", agent="helper") == 3
    assert 120 <= counted("trimtab_message_latency_seconds_sum", agent="helper") < 180


async def test_a_turn_that_fails_is_counted_until_it_is_given_up(counted):
    bot = served(ProviderFailureDetails(kind="refused", message="no"))
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


async def test_deliveries_are_counted_by_channel_and_by_how_they_ended(counted):
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
    monkeypatch.setattr("trimtab_serve.service.delivery.MAX_DELIVERY_ATTEMPTS", 1)
    assert MAX_DELIVERY_ATTEMPTS > 1

    async def deliver(_):
        raise OSError("who knows")

    bot = served("Hm.")
    await bot.say("Go.", key="k1")
    await bot.turns.wait_until_idle()
    await ReplyDelivery(bot.service.queue, {"phone": deliver}).deliver_due()
    assert counted("trimtab_deliveries_total", channel="phone", outcome="abandoned") == 1


async def test_a_queue_that_cannot_be_reached_by_deliveries_is_counted(counted):
    class Away(MemoryQueue):
        async def mark_delivered(self, number):
            raise StoreUnavailable("no disk")

    async def deliver(_):
        pass

    store = MemoryStore()
    bot = served("Hm.", store=store, queue=Away(store))
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

    async def find(self, *, agent, limit):
        return []


class _Due:
    id, next_run_at = "nightly", 1.0
    trigger = SimpleNamespace(timezone="UTC")


async def test_schedules_are_counted_by_whether_they_could_be_run(counted):
    await ScheduleRunner(Clockwork(), ["helper"]).run_due()  # pyright: ignore[reportArgumentType]
    assert counted("trimtab_schedule_runs_total", outcome="ran") == 1
    assert counted("trimtab_schedule_runs_total", outcome="failed") == 1


async def test_sessions_that_were_too_old_are_counted_by_agent(counted):
    held = served("Hello.", retain_for="1h")
    await held.say("Hi.", key="a")
    await held.turns.wait_until_idle()
    later = RetentionRunner(service=held.service, tenant_ages={}, clock=lambda: time.time() + 3_601)
    assert await later.delete_expired() == 1
    assert counted("trimtab_retention_deleted_total", agent="helper") == 1


async def test_erasures_of_users_and_tenants_are_counted_by_their_end(counted, monkeypatch):
    held, running = served(), list[float]()

    async def watched(*args):
        running.append(counted("trimtab_erasures_running"))
        return await find_user_shares(*args)

    monkeypatch.setattr(erasure, "find_user_shares", watched)
    await erasure.erase_user(held.service, "default", "anna", by="office")
    await erasure.erase_tenant(held.service, "default", by="office")
    assert counted("trimtab_erasures_total", kind="user", outcome="done") == 1
    assert counted("trimtab_erasures_total", kind="tenant", outcome="done") == 1
    assert (running, counted("trimtab_erasures_running")) == ([1], 0)


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


def metrics_app(bot):
    return create_http_app(
        HttpServerState(service=bot.service, schedule_turn=nothing, render_metrics=render_metrics)
    )


async def test_what_waits_and_what_was_given_up_is_asked_for_when_metrics_are_read(counted):
    bot = served(ProviderFailureDetails(kind="refused", message="no"))
    await bot.say("One.", key="k1")
    await bot.turns.wait_until_idle()
    await bot.turns.drain(0)
    await bot.say("Two.", key="k2", session="default/helper/two")
    app = metrics_app(bot)
    assert await asked(app, "/metrics") == 200
    assert counted("trimtab_dead_letter_sessions") == 1
    assert counted("trimtab_queued_messages") >= 1
    assert await asked(app, "/zanzibar") == 404
    assert counted("trimtab_http_requests_total", route="/metrics", status="200") == 1
    assert counted("trimtab_http_request_duration_seconds_count", route=OTHER_LABEL) == 1


async def test_the_age_of_the_oldest_message_is_that_of_the_first_without_an_answer():
    bot = served()
    app = metrics_app(bot)
    await bot.turns.drain(0)
    age = ("trimtab_oldest_waiting_message_age_seconds", frozenset())
    assert await asked(app, "/metrics") == 200
    assert samples()[age] == 0
    now = time.time()
    for name, ago in (("one", 500.0), ("two", 900.0), ("three", 20.0)):
        words = inbound("Hm.", key=name, session=f"default/helper/{name}")
        await bot.service.queue.post(replace(words, at=now - ago))
    assert await asked(app, "/metrics") == 200
    assert 500 <= samples()[age] < 560


class SilentQueue(MemoryQueue):
    """A store that never answers, as a database whose network is gone."""

    async def depth(self, prefix=""):
        await asyncio.Event().wait()
        return 0

    async def check_writable(self):
        await asyncio.Event().wait()


class RefusingQueue(MemoryQueue):
    async def depth(self, prefix=""):
        raise StoreUnavailable("no database")

    async def check_writable(self):
        raise StoreUnavailable("no database")


@pytest.mark.parametrize("queue", [SilentQueue, RefusingQueue])
async def test_while_the_store_is_away_all_other_metrics_are_shown(queue, counted, monkeypatch):
    where = "trimtab_serve.channels.http.endpoints.health"
    monkeypatch.setattr(f"{where}.STORE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(f"{where}.METRICS_TIMEOUT_S", 0.05)
    store = MemoryStore()
    away = metrics_app(served(store=store, queue=queue(store)))
    assert await asked(away, "/metrics") == 200
    reachable = ("trimtab_store_reachable", frozenset())
    assert samples()[reachable] == 0
    assert math.isnan(samples()["trimtab_queued_messages", frozenset()])
    assert counted("trimtab_store_errors_total", error="StoreUnavailable") == 1
    assert await asked(away, "/readyz") == 503
    assert counted("trimtab_store_errors_total", error="StoreUnavailable") == 2
    assert await asked(metrics_app(served()), "/metrics") == 200
    assert samples()[reachable] == 1
    assert samples()["trimtab_queued_messages", frozenset()] == 0


async def test_a_request_that_fails_for_the_store_is_counted(counted):
    class Away(MemoryQueue):
        async def list_dead_letters(self, *, prefix="", limit=100):
            raise StoreUnavailable("no database")

    store = MemoryStore()
    app = metrics_app(served(store=store, queue=Away(store)))
    assert await asked(app, "/v1/dead-letters") == 503
    assert counted("trimtab_store_errors_total", error="StoreUnavailable") == 1


def test_a_pool_of_connections_is_measured_when_it_is_looked_at():
    in_use = 3
    own = frozenset({("pool", "sessions")})
    with server_metrics.watch_pool("sessions", lambda: PoolUsage(in_use, 16, 2)):
        assert samples()["trimtab_pool_connections_in_use", own] == 3
        in_use = 7
        told = samples()
        assert told["trimtab_pool_connections_in_use", own] == 7
        assert told["trimtab_pool_connections_max", own] == 16
        assert told["trimtab_pool_requests_waiting", own] == 2
    assert ("trimtab_pool_connections_in_use", own) not in samples()


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


def test_what_waits_for_a_provider_is_shown():
    def shown() -> list[str]:
        return render_metrics()[0].decode().splitlines()

    server_metrics.set_waiting_retries(3)
    server_metrics.set_provider_circuits({"anthropic": True, "openai at example.com": False})
    assert "trimtab_turns_waiting_to_retry 3.0" in shown()
    circuit = "trimtab_provider_circuit_open"
    assert f'{circuit}{{provider="anthropic"}} 1.0' in shown()
    assert f'{circuit}{{provider="openai at example.com"}} 0.0' in shown()
