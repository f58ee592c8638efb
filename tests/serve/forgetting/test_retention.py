"""Old sessions go by themselves; what somebody still waits for stays."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from tests.serve.forgetting.test_forgetting import WORD, holders, reminder, talk, texts
from tests.serve.forgetting.test_forgetting import place as place
from tests.serve.forgetting.test_forgetting import service as service
from tests.serve.queue import queues
from tests.serve.queue.queues import give_up, inbound, reply
from tests.serve.service.served_agents import Gated, agent, served, until
from trimtab.engine.log.message import make_text_message
from trimtab.errors import LogDamaged, StoreUnavailable
from trimtab.testing import ScriptedProvider
from trimtab_serve.forgetting.retention import RetentionRunner
from trimtab_serve.metrics import definitions
from trimtab_serve.service.service import AgentService

pytestmark = pytest.mark.anyio

ONE, TWO = "default/helper/one", "default/helper/two"
DAY = 86_400.0


def runner(service, *, days_later=0.0, tenants=None, age: str | None = "90d", **options):
    provider = ScriptedProvider("anthropic", [])
    service.agents = {"helper": agent(provider, service.store, retain_for=age)}
    return RetentionRunner(
        service=service,
        tenant_ages=tenants or {},
        clock=lambda: time.time() + days_later * DAY,
        **options,
    )


async def names(service):
    return [one.session for one in await service.store.sessions()]


def said(text):
    return make_text_message("user", text)


def deleted_total():
    return definitions.retention_deleted.labels("helper")._value.get()


async def test_a_session_goes_when_its_last_event_is_too_old_and_not_before(service):
    await talk(service.store, ONE, said(f"I am {WORD}"), "Hello.")
    await service.queue.finish_turn(ONE, 99, [], [replace(reply("r", session=ONE), text=WORD)])
    before = deleted_total()
    assert await runner(service, days_later=89.9).delete_expired() == 0
    assert await names(service) == [ONE]
    assert await runner(service, days_later=90.1).delete_expired() == 1
    assert await names(service) == []
    assert await holders(service) == []
    assert deleted_total() == before + 1
    (record,) = await service.erasure_records.newest("default")
    assert (record.by, record.kind, record.agent, record.sessions, record.target) == (
        "retention",
        "session",
        "helper",
        1,
        "",
    )


async def test_nothing_goes_where_no_age_is_set(service):
    await talk(service.store, ONE, said("hi"), "Hello.")
    assert await runner(service, days_later=9_999, age=None).delete_expired() == 0
    assert await service.erasure_records.newest(None) == []


async def test_a_tenant_s_age_holds_in_place_of_the_agent_s(service):
    for session in ("acme/helper/x", "acme/unserved/x", "long/helper/x", "other/helper/x"):
        await talk(service.store, session, said("hi"), "Hello.")
    tenants = {"acme": "12h", "long": "forever"}
    assert await runner(service, days_later=1, tenants=tenants).delete_expired() == 2
    assert await names(service) == ["long/helper/x", "other/helper/x"]
    assert await runner(service, days_later=91, tenants=tenants).delete_expired() == 1
    assert await names(service) == ["long/helper/x"]


async def test_a_session_stays_while_something_waits_or_is_yet_to_come_in_it(service):
    for session in (ONE, TWO, "default/helper/three"):
        await talk(service.store, session, said("hi"), "Hello.")
    await service.queue.post(inbound("a", session=ONE))
    await service.schedules.add(reminder(TWO, "1", "Remind me"), limit=9)
    assert await runner(service, days_later=91).delete_expired() == 1
    assert await names(service) == [ONE, TWO]
    await service.schedules.remove(f"{TWO}/1")
    assert await runner(service, days_later=91).delete_expired() == 1
    assert await names(service) == [ONE]


async def test_dead_letters_are_as_old_as_when_they_were_given_up(service):
    await talk(service.store, ONE, said("hi"), "Hello.")
    await service.queue.post(inbound("a", f"I am {WORD}", session=ONE))
    await service.queue.post(inbound("b", f"I am {WORD}", session=TWO))
    await give_up(service.queue, ONE)
    await give_up(service.queue, TWO)
    assert await runner(service, days_later=89).delete_expired() == 0
    assert len(await service.queue.list_dead_letters()) == 2
    assert await runner(service, days_later=91).delete_expired() == 2
    assert await service.queue.list_dead_letters() == []
    assert await holders(service) == []


async def test_of_a_dead_letter_whose_session_never_began_nothing_is_left(service):
    await service.queue.post(inbound("a", f"I am {WORD}", session=TWO))
    await give_up(service.queue, TWO, why=f"Broken: {WORD}")
    assert await holders(service)
    assert await runner(service, days_later=91).delete_expired() == 1
    assert await holders(service) == []
    assert await service.queue.pending(TWO) == []


async def test_a_message_that_comes_while_its_session_is_deleted_is_kept(service):
    await talk(service.store, ONE, said("hi"), "Hello.")

    async def post(_session):
        await service.queue.post(inbound("new", session=ONE))

    service.delete_hooks.append(post)
    assert await runner(service, days_later=91).delete_expired() == 1
    assert [one.key for one in await service.queue.pending(ONE)] == ["new"]


async def test_a_session_that_has_gone_on_since_it_was_listed_stays(service, monkeypatch):
    await talk(service.store, ONE, said("hi"), "Hello.")
    find = service.schedules.find

    async def say_more(**which):
        await talk(service.store, ONE, said("more"), "Yes.")
        return await find(**which)

    monkeypatch.setattr(service.schedules, "find", say_more)
    assert await runner(service, days_later=91).delete_expired() == 0
    assert await texts(service.store, ONE) == ["hi", "Hello.", "more", "Yes."]


async def test_it_looks_again_by_itself_and_whatever_fails(service, caplog):
    await talk(service.store, ONE, said("hi"), "Hello.")
    ages = runner(service, days_later=91, interval_s=0.01)
    listed, fails = service.store.sessions, [True]

    async def sessions(**which):
        if fails:
            fails.pop()
            raise OSError("the disk is away")
        return await listed(**which)

    service.store.sessions = sessions
    task = asyncio.create_task(ages.run())
    async with asyncio.timeout(10):
        while await service.store.position(ONE):  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "the disk is away" in caplog.text


async def test_a_turn_that_runs_keeps_its_session(tmp_path):
    with queues.made("memory", tmp_path) as found:
        store, queue = await found.open()
    gated = Gated("Hello.")
    held = served(queue=queue, store=store, provider=gated, retain_for="1h")
    ages = RetentionRunner(service=held.service, tenant_ages={}, clock=lambda: time.time() + DAY)
    await held.say("hi", key="a", session=ONE)
    await until(lambda: gated.waiting)
    # As in a turn that is resumed: nothing waits, and yet it runs.
    await queue.finish_turn(ONE, 99, [one.number for one in await queue.pending(ONE)], [])
    assert await ages.delete_expired() == 0
    gated.open.set()
    await held.turns.wait_until_idle()
    assert await ages.delete_expired() == 1


async def test_a_session_that_cannot_be_deleted_does_not_keep_the_others(
    service, monkeypatch, caplog
):
    for session in (ONE, TWO):
        await talk(service.store, session, said("hi"), "Hello.")
    delete = AgentService.delete_idle_session

    async def damaged(self, session, *args, **options):
        if session == ONE:
            raise LogDamaged(f"session {session}: line 3 is damaged")
        await delete(self, session, *args, **options)

    monkeypatch.setattr(AgentService, "delete_idle_session", damaged)
    assert await runner(service, days_later=91).delete_expired() == 1
    assert await names(service) == [ONE]
    assert "could not delete the old session default/helper/one: session" in caplog.text


async def test_deletions_are_recorded_though_the_store_goes_away_during_a_look(
    service, monkeypatch
):
    for session in (ONE, TWO):
        await talk(service.store, session, said("hi"), "Hello.")
    delete = AgentService.delete_idle_session

    async def goes_away(self, session, *args, **options):
        if session == TWO:
            raise StoreUnavailable("the disk is away")
        await delete(self, session, *args, **options)

    monkeypatch.setattr(AgentService, "delete_idle_session", goes_away)
    before = deleted_total()
    with pytest.raises(StoreUnavailable):
        await runner(service, days_later=91).delete_expired()
    assert deleted_total() == before + 1
    (record,) = await service.erasure_records.newest("default")
    assert record.sessions == 1


async def test_deleted_sessions_are_counted_one_by_one(service, monkeypatch):
    for number in range(3):
        await talk(service.store, f"default/helper/{number}", said("hi"), "Hello.")
    delete, counts = AgentService.delete_idle_session, list[float]()
    before = deleted_total()

    async def watched(self, session):
        counts.append(deleted_total() - before)
        await delete(self, session)

    monkeypatch.setattr(AgentService, "delete_idle_session", watched)
    assert await runner(service, days_later=91).delete_expired() == 3
    assert counts == [0, 1, 2]
