"""What a tenant at a limit may no longer do, and what it still may."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tests.serve.channels.http.running_apps import Held, House, house, problem, until
from trimtab.engine.log.message import make_text_message
from trimtab.errors import StoreUnavailable
from trimtab.session import Session
from trimtab.stores.factory import find_spending_ledger
from trimtab.stores.files import FileStore
from trimtab.stores.spending import CallReservation, CostCeilings
from trimtab_serve.agent.config.spec import TenantLimitsSpec
from trimtab_serve.channels.discord.message_intake import RETRYABLE_INTAKE_ERRORS
from trimtab_serve.channels.telegram.polling import is_transient_intake_error
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.usage import tenant_limits as module
from trimtab_serve.usage.protocol import FullStorage, TenantTotals
from trimtab_serve.usage.sqlite import SqliteUsageCounters
from trimtab_serve.usage.tenant_limits import MessageRateExceeded, TenantLimitReached, TenantLimits

pytestmark = pytest.mark.anyio

WHO = (
    {"key_name": "acme", "tenant": "acme"},
    {"key_name": "zoo", "tenant": "zoo"},
    {"key_name": "own"},
)
SESSIONS = "/v1/agents/helper/sessions"


def limits_of(served: House) -> TenantLimits:
    assert served.service.tenant_limits is not None
    return served.service.tenant_limits


class limited:  # noqa: N801 - read as a word
    """A house on files whose tenants have these limits. The tenant `default` has larger ones."""

    def __init__(self, folder, *script, provider=None, **limits):
        self._folder, self._script, self._provider = folder, script, provider
        self._limits = TenantLimitsSpec.model_validate(limits)

    async def __aenter__(self):
        store = FileStore(self._folder, fsync=False)
        queue = await SqliteMessageQueue.open(store, fsync=False)
        self._house = house(
            *self._script, provider=self._provider, keys=True, who=WHO, store=store, queue=queue
        )
        served = await self._house.__aenter__()
        counters = SqliteUsageCounters(queue.database, store)
        larger = TenantLimitsSpec(sessions=99, bytes=10**9, session_bytes=10**9)
        limits = TenantLimits(counters, self._limits, {"default": larger})
        served.service.tenant_limits = limits
        served.service.delete_hooks.append(limits.forget)
        return served

    async def __aexit__(self, *error):
        await self._house.__aexit__(*error)


async def test_a_tenant_with_too_many_sessions_makes_no_more_and_uses_those_it_has(tmp_path):
    async with limited(tmp_path, *["Hello."] * 9, sessions=2) as served:
        async with served.http("acme") as http, served.client("acme") as client:
            assert await client.session("helper", "one").ask("Hi.") == "Hello."
            assert (await http.post(SESSIONS, json={"name": "two"})).status_code == 201
            await limits_of(served).count()
            for path, body in (
                (SESSIONS, {"name": "three"}),
                (f"{SESSIONS}/three/messages", {"text": "Hi."}),
                (f"{SESSIONS}/one/fork", {"name": "three"}),
            ):
                told = problem(await http.post(path, json=body), 403, "limit-reached")
                assert (told["name"], told["used"], told["limit"]) == ("sessions", 2, 2)
                assert "tenant acme stores 2 sessions, and the limit is 2" in told["detail"]
                assert "delete sessions" in told["detail"]
            assert await client.session("helper", "one").ask("Hi.") == "Hello."
            assert (await http.delete(f"{SESSIONS}/two")).status_code in (200, 204)
            await limits_of(served).count()
            assert (await http.post(SESSIONS, json={"name": "three"})).status_code == 201
        for other in ("zoo", "own"):
            async with served.http(other) as http:
                for number in range(3 if other == "own" else 2):
                    answer = await http.post(SESSIONS, json={"name": f"s{number}"})
                    assert answer.status_code == 201
                await limits_of(served).count()


async def test_forks_that_come_at_once_do_not_pass_a_limit_together(tmp_path):
    async with (
        limited(tmp_path, "Hello.", sessions=4) as served,
        served.http("acme") as http,
        served.client("acme") as client,
    ):
        await client.session("helper", "one").ask("Hi.")
        answers = await asyncio.gather(
            *(http.post(f"{SESSIONS}/one/fork", json={"name": f"f{n}"}) for n in range(8))
        )
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [403] * 5


async def test_a_full_session_answers_everything_but_messages_and_its_turn_ends(tmp_path):
    provider = Held("Hello.", "Never asked.")
    async with (
        limited(tmp_path, provider=provider, session_bytes=20_000) as served,
        served.http("acme") as http,
        served.client("acme") as client,
    ):
        session = client.session("helper", "one")
        answer = asyncio.create_task(session.ask("x" * 30_000))
        await provider.reached.wait()
        limits_of(served).note_change("acme/helper/one")
        await limits_of(served).count()
        path = f"{SESSIONS}/one"
        told = problem(
            await http.post(f"{path}/messages", json={"text": "Hi."}), 403, "limit-reached"
        )
        assert told["name"] == "session_bytes"
        assert told["used"] > told["limit"] == 20_000
        assert "continue in a new session, or delete this one" in told["detail"]
        provider.go_on.set()
        assert await answer == "Hello."
        for read in ("", "/history", "/context", "/search?q=hello"):
            assert (await http.get(f"{path}{read}")).status_code == 200, read
        for action in ("stop", "compact"):
            assert (await http.post(f"{path}/{action}", json={})).status_code < 300, action
        other = await http.post(f"{SESSIONS}/two/messages", json={"text": "Hi."})
        assert other.status_code == 202
        assert (await http.delete(path)).status_code in (200, 204)
        await limits_of(served).count()
        assert (await http.post(f"{path}/messages", json={"text": "Hi."})).status_code == 202
        await served.turns.wait_until_idle()


async def test_a_tenant_that_stores_too_much_sends_and_forks_no_more(tmp_path):
    async with limited(tmp_path, *["Hello."] * 9, bytes=20_000) as served:
        async with served.http("acme") as http, served.client("acme") as client:
            await client.session("helper", "one").ask("x" * 19_000)
            await until(lambda: limits_of(served)._changed)
            await limits_of(served).count()
            for path, body in (
                (f"{SESSIONS}/one/messages", {"text": "Hi."}),
                (f"{SESSIONS}/two/messages", {"text": "Hi."}),
                (f"{SESSIONS}/one/fork", {}),
                (SESSIONS, {}),
            ):
                told = problem(await http.post(path, json=body), 403, "limit-reached")
                assert told["name"] == "bytes"
        async with served.client("zoo") as client:
            assert await client.session("helper", "one").ask("Hi.") == "Hello."
        async with served.client("own") as client:
            for _ in range(2):
                assert await client.session("helper", "one").ask("x" * 30_000) == "Hello."
                await limits_of(served).count()


async def test_a_session_that_is_deleted_while_it_is_counted_leaves_no_name(tmp_path, monkeypatch):
    store = FileStore(tmp_path, fsync=False)
    queue = await SqliteMessageQueue.open(store, fsync=False)
    session = "acme/helper/one"
    opened = await Session.open_or_create(store, session, model="claude-sonnet-4-5")
    await opened.add(make_text_message("user", "Hi."))
    await opened.close()
    counters = SqliteUsageCounters(queue.database, store)
    limits = TenantLimits(counters, TenantLimitsSpec(sessions=1))
    measured, go_on, measure = asyncio.Event(), asyncio.Event(), store.measure_sessions

    async def measure_slowly(names):
        sizes = await measure(names)
        measured.set()
        await go_on.wait()
        return sizes

    async def delete():
        await limits.forget(session)
        await store.delete(session)

    monkeypatch.setattr(store, "measure_sessions", measure_slowly)
    limits.note_change(session)
    counting = asyncio.create_task(limits.count())
    await measured.wait()
    deleting = asyncio.create_task(delete())
    await asyncio.wait([deleting], timeout=0.1)
    go_on.set()
    await asyncio.gather(counting, deleting)
    await limits.count()
    full = await counters.find_full(session_bytes=1, tenant_sessions=1, tenant_bytes=1)
    assert full == FullStorage()
    await queue.close()


class Counters:
    """Counters that are away at first, and remember what they were asked."""

    def __init__(self):
        self.measured: list[str] = []
        self.away = True

    async def measure(self, sessions):
        if self.away:
            raise StoreUnavailable("gone")
        self.measured += map(str, sessions)

    async def find_full(self, **_limits):
        totals = TenantTotals(sessions=1, stored_bytes=7)
        return FullStorage(tenants={"acme": totals})


async def test_messages_that_wait_and_dead_letters_count_as_stored(tmp_path):
    async with limited(tmp_path, bytes=50_000) as served:
        served.leave_unanswered()
        async with served.http("acme") as http, served.http("own") as own:
            message = {"text": "x" * 20_000}
            statuses: list[int] = []
            for number in range(4):
                path = f"{SESSIONS}/s{number}/messages"
                statuses.append((await http.post(path, json=message)).status_code)
            assert statuses == [202, 202, 403, 403]
            told = problem(
                await http.post(f"{SESSIONS}/s9/messages", json=message), 403, "limit-reached"
            )
            assert (told["name"], told["limit"]) == ("bytes", 50_000)
            assert told["used"] > 40_000
            queue = served.service.queue
            for name in ("s0", "s1"):
                (waiting,) = await queue.pending(f"acme/helper/{name}")
                assert await queue.dead_letter_session(waiting, None, "broken")
            await limits_of(served).count()
            answer = await http.post(f"{SESSIONS}/s0/messages", json=message)
            assert answer.status_code == 403
            # The chats of a bot belong to this tenant: it has a limit of its own.
            assert (await own.post(f"{SESSIONS}/s0/messages", json=message)).status_code == 202


async def test_many_small_messages_that_wait_count_as_well(tmp_path):
    async with limited(tmp_path, bytes=40_000) as served, served.http("acme") as http:
        served.leave_unanswered()
        statuses = [
            (await http.post(f"{SESSIONS}/s/messages", json={"text": "x" * 2_000})).status_code
            for _ in range(30)
        ]
    assert 403 in statuses
    assert statuses.count(202) * 2_000 < 40_000


async def test_a_tenant_has_limits_of_its_own_and_what_is_not_set_is_as_for_all():
    shared = TenantLimitsSpec(sessions=7, bytes=70, schedules=7)
    counters: Any = Counters()
    limits = TenantLimits(counters, shared, {"acme": TenantLimitsSpec(bytes=700)})
    acme, zoo = limits.limits_of("acme"), limits.limits_of("zoo")
    assert (acme.sessions, acme.bytes, acme.schedules) == (7, 700, 7)
    assert zoo == shared


async def test_a_tenant_reads_what_it_stores_and_its_limits(tmp_path):
    async with limited(tmp_path, "Hello.", sessions=5, bytes=50_000) as served:
        async with served.client("acme") as client:
            await client.session("helper", "one").ask("Hi.")
        await limits_of(served).count()
        usages: dict[str, Any] = {}
        for name in ("acme", "zoo", "own"):
            async with served.http(name) as http:
                usages[name] = (await http.get("/v1/usage")).json()
    assert usages["acme"].pop("stored_bytes") > 100
    assert usages["acme"] == {
        "tenant": "acme",
        "sessions": 1,
        "max_sessions": 5,
        "max_stored_bytes": 50_000,
        "max_session_bytes": 268_435_456,
        "max_messages_per_minute": None,
        "cost_today": None,
        "max_cost_per_day": None,
    }
    assert (usages["zoo"]["sessions"], usages["zoo"]["stored_bytes"]) == (0, 0)
    assert (usages["own"]["tenant"], usages["own"]["max_sessions"]) == ("default", 99)


async def test_a_tenant_reads_what_it_has_cost_today(tmp_path):
    async with limited(tmp_path, cost_per_day=5.0) as served, served.http("acme") as http:
        ledger = find_spending_ledger(served.service.store)
        call = CallReservation(
            agent="other",
            tenant="acme",
            session="acme/other/s",
            micros=1_250_000,
            session_log_micros=0,
            now=time.time(),
            expires_after_s=9,
        )
        await ledger.reserve(call, CostCeilings(tenant_per_day=5_000_000))
        usage = (await http.get("/v1/usage")).json()
    assert (usage["cost_today"], usage["max_cost_per_day"]) == (1.25, 5.0)


async def test_a_tenant_that_sends_too_fast_is_told_when_to_go_on(tmp_path):
    async with limited(tmp_path, messages_per_minute=60) as served:
        served.leave_unanswered()
        async with served.http("acme") as http, served.http("zoo") as zoo:
            path = f"{SESSIONS}/s/messages"
            answers = [await http.post(path, json={"text": "x"}) for _ in range(11)]
            assert [answer.status_code for answer in answers] == [202] * 10 + [429]
            told = problem(answers[-1], 429, "too-many-requests")
            assert (told["messages_per_minute"], answers[-1].headers["retry-after"]) == (60, "1")
            assert "tenant acme sends too fast: the limit is 60 messages a minute" in told["detail"]
            assert (await zoo.post(path, json={"text": "x"})).status_code == 202


async def test_a_bot_has_the_rate_of_its_tenant_and_takes_the_message_later():
    counters: Any = Counters()
    limits = TenantLimits(
        counters, TenantLimitsSpec(), {"default": TenantLimitsSpec(messages_per_minute=60)}
    )
    counters.find_totals = AsyncMock(return_value={})
    for _ in range(10):
        async with limits.admit("default/helper/telegram:1", 1):
            pass
    with pytest.raises(MessageRateExceeded) as refusal:
        async with limits.admit("default/helper/telegram:2", 1):
            pass
    assert is_transient_intake_error(refusal.value)
    assert isinstance(refusal.value, RETRYABLE_INTAKE_ERRORS)
    async with limits.admit("acme/helper/s", 1):
        pass


async def test_counting_goes_on_after_the_store_was_away_and_loses_no_change(monkeypatch, caplog):
    monkeypatch.setattr(module, "COUNT_INTERVAL_S", 0.001)
    counters: Any = Counters()
    limits = TenantLimits(counters, TenantLimitsSpec(bytes=7))
    for session in ("acme/helper/one", "default/helper/one", "no-tenant"):
        limits.note_change(session)
    with caplog.at_level(logging.WARNING, "trimtab.server"):
        counting = asyncio.create_task(limits.run())
        await until(lambda: "counting what tenants store failed" in caplog.text)
    counters.away = False
    await until(lambda: counters.measured)
    counting.cancel()
    assert sorted(counters.measured) == ["acme/helper/one", "default/helper/one"]
    await asyncio.gather(counting, return_exceptions=True)
    await limits.count()
    with pytest.raises(TenantLimitReached, match="tenant acme stores 7 bytes, and the limit is 7"):
        limits.check_message("acme/helper/two")
    limits.check_message("acme2/helper/two")
