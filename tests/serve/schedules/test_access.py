"""Schedules of a tenant end with its keys; those of the operator and of chats do not."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.serve.schedules.places import at, run, schedule
from trimtab_serve.api_keys.api_key import create_api_key
from trimtab_serve.api_keys.store import ApiKeyStore
from trimtab_serve.schedules.store import TooManySchedules
from trimtab_serve.usage.tenant_limits import TenantLimitReached

pytestmark = pytest.mark.anyio
NOON = at("2026-11-15 12:00")
MINUTE = "* * * * *"
TENANT: dict[str, Any] = {"session": "acme/helper/one", "origin": "tool", "route": None}
OWN: dict[str, Any] = {"id": "acme/helper/one/1", **TENANT}


@pytest.fixture
def keys(kept, place):
    return ApiKeyStore(place.queue.transactions)


@pytest.fixture(autouse=True)
async def no_keys(keys):
    for key in await keys.list():
        await keys.revoke(key.name)


async def add(keys, name: str, **options: Any) -> None:
    given: dict[str, Any] = {"tenant": "acme", "role": "talk", **options}
    await keys.add(create_api_key(name, **given)[1])


async def test_a_tenants_schedule_runs_while_it_has_a_key_and_again_when_it_gets_one(
    kept, place, keys, caplog
):
    await kept.add(schedule(when=MINUTE, now=NOON, **OWN), limit=9)
    await add(keys, "first")
    assert await run(kept, NOON + 60) == 1
    await keys.revoke("first")
    with caplog.at_level(logging.INFO, "trimtab.schedules"):
        for minute in (2, 3, 4):
            assert await run(kept, NOON + 60 * minute) == 0
    assert len(await place.keys()) == 1
    log = await kept.list_runs()
    assert [entry.due for entry in log] == [NOON + 60 * minute for minute in (4, 3, 2, 1)]
    reason = "tenant acme has no valid key that may talk to helper"
    assert [entry.reason for entry in log] == [reason] * 3 + [""]
    assert caplog.text.count(reason) == 1
    await add(keys, "second")
    assert await run(kept, NOON + 300) == 1
    assert await kept.next_due(("helper",)) == NOON + 360
    assert len(await place.keys()) == 2  # what was skipped is not made up for
    # The next loss is told again.
    await keys.revoke("second")
    await run(kept, NOON + 360)
    assert caplog.text.count(reason) == 2


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({}, 1),
        ({"role": "admin"}, 1),
        ({"agents": ("helper", "other")}, 1),
        ({"expires": NOON + 61}, 1),
        ({"role": "read"}, 0),
        ({"agents": ("other",)}, 0),
        ({"expires": NOON + 60}, 0),
        ({"tenant": "acme2"}, 0),
        ({"tenant": "default"}, 0),
        ({"role": "metrics", "tenant": "default"}, 0),
    ],
    ids=json.dumps,
)
async def test_only_a_key_that_could_have_sent_the_message_counts(kept, keys, options, runs):
    await kept.add(schedule(when=MINUTE, now=NOON, **OWN), limit=9)
    await add(keys, "some", **options)
    assert await run(kept, NOON + 60) == runs


async def test_chats_files_and_callers_of_this_machine_need_no_key(kept, place):
    chat: dict[str, Any] = {
        "id": "default/helper/telegram:1/2",
        "session": "default/helper/telegram:1",
    }
    await kept.add(schedule(when=MINUTE, now=NOON, origin="tool", **chat), limit=9)
    local: dict[str, Any] = {
        "id": "default/helper/one/3",
        "session": "default/helper/one",
        "route": None,
    }
    await kept.add(schedule(when=MINUTE, now=NOON, origin="tool", **local), limit=9)
    await kept.upsert(schedule(when=MINUTE, now=NOON))
    assert await run(kept, NOON + 60) == 3


async def test_one_tenant_without_a_key_holds_up_nobody(kept, keys):
    for number in range(5):
        own = {**OWN, "id": f"acme/helper/one/{number}"}
        await kept.add(schedule(when=MINUTE, now=NOON, **own), limit=9)
    other = {**TENANT, "id": "zoo/helper/one/1", "session": "zoo/helper/one"}
    await kept.add(schedule(when=MINUTE, now=NOON, **other), limit=9)
    await add(keys, "zoo", tenant="zoo")
    ran = await kept.run_next_due(NOON + 60, ("helper",))
    assert ran is not None
    assert ran.id == "zoo/helper/one/1"
    assert await kept.run_next_due(NOON + 60, ("helper",)) is None


async def test_a_tenant_that_stores_as_much_as_it_may_runs_none_until_it_deletes(kept, keys):
    await kept.add(schedule(when=MINUTE, now=NOON, **OWN), limit=9)
    await add(keys, "web")

    def refuse(session: str) -> None:
        raise TenantLimitReached("bytes", "tenant acme", 9, 8, "delete sessions")

    kept.access.check_storage = refuse
    assert await run(kept, NOON + 60) == 0
    (entry,) = await kept.list_runs()
    assert "tenant acme stores 9 bytes, and the limit is 8" in entry.reason
    kept.access.check_storage = lambda _: None
    assert await run(kept, NOON + 120) == 1


async def test_a_tenant_has_a_limit_over_all_its_sessions_and_others_do_not_count(kept):
    async def plan(session: str, number: int, **limits: int) -> Any:
        made = {**TENANT, "id": f"{session}/{number}", "session": session}
        return await kept.add(schedule(when=MINUTE, now=NOON, **made), limit=3, **limits)

    for session in ("acme2/helper/one", "acme-/helper/one", "acm/helper/one"):
        await plan(session, 1)
    for number in range(4):
        await plan(f"acme/helper/s{number}", 1, tenant_limit=4)
    with pytest.raises(TooManySchedules, match="tenant acme has 4 schedules, which is the limit"):
        await plan("acme/helper/new", 1, tenant_limit=4)
    # A call that is repeated finds what it made; the limit of a session is its own.
    assert (await plan("acme/helper/s1", 1, tenant_limit=4)).id == "acme/helper/s1/1"
    assert await kept.remove("acme/helper/s1/1")
    await plan("acme/helper/new", 1, tenant_limit=4)
    for number in (2, 3):
        await plan("acme/helper/new", number)
    with pytest.raises(TooManySchedules, match="session 'acme/helper/new' has 3 schedules"):
        await plan("acme/helper/new", 4, tenant_limit=100)
