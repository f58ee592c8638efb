"""When a key was last used: coarse, and never at the cost of a request."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.serve.channels.http.running_apps import house, until
from tests.serve.queue.memory_queue import MemoryQueue
from trimtab.errors import StoreUnavailable
from trimtab.testing import MemoryStore
from trimtab_serve.api_keys import last_use as module
from trimtab_serve.api_keys.api_key import create_api_key
from trimtab_serve.api_keys.last_use import ApiKeyLastUse
from trimtab_serve.api_keys.store import ApiKeyStore
from trimtab_serve.metrics.prometheus import render_metrics

pytestmark = pytest.mark.anyio

WHO = ({"key_name": "web"}, {"key_name": "idle"})


@pytest.fixture
async def stored():
    keys = ApiKeyStore(MemoryQueue(MemoryStore()).transactions)
    made = [create_api_key(name, role="read")[1] for name in ("web", "other")]
    for key in made:
        await keys.add(key)
    return keys, *made


async def test_requests_write_nothing_and_metrics_say_when_a_key_was_used(monkeypatch):
    async with house(keys=True, who=WHO) as served, served.http("web") as http:
        monkeypatch.setattr(served.api_keys, "save_last_use", None)
        for _ in range(5):
            assert (await http.get("/v1/agents")).status_code == 200
        shown = render_metrics()[0].decode()
        assert 'trimtab_api_key_last_used_timestamp_seconds{key="web"}' in shown
        assert 'trimtab_api_key_last_used_timestamp_seconds{key="idle"}' not in shown


async def test_all_uses_of_a_minute_are_one_write_and_the_last_ones_are_kept_at_the_end(
    stored, monkeypatch
):
    monkeypatch.setattr(module, "SAVE_INTERVAL_S", 0.01)
    keys, web, other = stored
    writes: list[list[bytes]] = []
    save = keys.save_last_use

    async def count(times):
        writes.append([*times])
        await save(times)

    monkeypatch.setattr(keys, "save_last_use", count)
    last_use = ApiKeyLastUse(keys)
    saving = asyncio.create_task(last_use.save_regularly())
    for _ in range(100):
        last_use.record(web)
    await until(lambda: writes)
    await asyncio.sleep(0.05)
    assert writes == [[web.sha256]]  # and nothing while nothing is new
    last_use.record(other)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    assert writes[1:] == [[other.sha256]]
    assert None not in [key.last_used for key in await keys.list()]


async def test_a_store_that_is_away_loses_no_use_and_ends_nothing(stored, monkeypatch, caplog):
    keys, web, other = stored
    last_use = ApiKeyLastUse(keys)

    async def fail(*_args, **_options):
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "trimtab.http"):
        for name in ("save_last_use", "list_expiring"):
            patched.setattr(keys, name, fail)
        last_use.record(web)
        await last_use.save()
        await last_use._show_expiries()
    assert caplog.text.count("retrying in a minute") == 2
    last_use.record(other)
    await last_use.save()
    assert None not in [key.last_used for key in await keys.list()]
