"""What keys, connections and log lines are held to is counted where it happens."""

import asyncio
import logging
import time

import pytest

from tests.serve.metrics.exported import samples
from tests.serve.queue.memory_queue import MemoryQueue
from tests.serve.service.served_agents import until
from trimtab.testing import MemoryStore
from trimtab_serve.api_keys import last_use
from trimtab_serve.api_keys.api_key import create_api_key
from trimtab_serve.api_keys.store import ApiKeyStore
from trimtab_serve.channels.http.authentication import WRONG_KEYS_PER_MINUTE, CallerAuthentication
from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.process.http_connections import ConnectionLimits, OpenConnections
from trimtab_serve.process.logging_setup import MAX_LINES_PER_MINUTE, RepeatedLineFilter

pytestmark = pytest.mark.slow


class Connection:
    address = "192.0.2.1"

    def evict(self) -> None:
        pass


@pytest.mark.anyio
async def test_keys_are_counted_by_why_they_are_refused_and_shown_with_their_times(
    counted, monkeypatch
):
    keys, now = ApiKeyStore(MemoryQueue(MemoryStore()).transactions), time.time()
    text, lasting = create_api_key("lasting", role="read", expires=now + 100)
    old_text, old = create_api_key("old", role="read", expires=now - 100)
    for key in (lasting, old):
        await keys.add(key)
    asked = CallerAuthentication(keys, 600)
    await asked.authenticate({"authorization": f"Bearer {text}"}, "")
    headers = [{}, {"authorization": f"Bearer {old_text}"}]
    for given in [*headers, *[{"authorization": "Bearer x"}] * WRONG_KEYS_PER_MINUTE]:
        with pytest.raises(HttpProblem):
            await asked.authenticate(given, "192.0.2.1")
    told = {
        reason: counted("trimtab_api_key_rejections_total", reason=reason)
        for reason in ("missing", "expired", "wrong", "paced")
    }
    assert told == {"missing": 1, "expired": 1, "wrong": WRONG_KEYS_PER_MINUTE - 1, "paced": 1}
    monkeypatch.setattr(last_use, "SAVE_INTERVAL_S", 0.0)
    assert asked.last_use is not None
    saving = asyncio.create_task(asked.last_use.save_regularly())
    by_key = frozenset({("key", "lasting")})
    await until(lambda: ("trimtab_api_key_expiry_timestamp_seconds", by_key) in samples())
    saving.cancel()
    shown = samples()
    assert shown["trimtab_api_key_expiry_timestamp_seconds", by_key] == lasting.expires
    assert shown["trimtab_api_key_last_used_timestamp_seconds", by_key] >= now


def test_connections_are_counted(counted):
    table = OpenConnections(ConnectionLimits(total=1, per_address=1))
    for _ in range(20):
        table.open(Connection())
    assert samples()["trimtab_http_connections_open", frozenset()] == len(table) == 9
    assert counted("trimtab_http_connections_closed_total", reason="evicted") == 11


def test_log_lines_that_are_left_out_are_counted(counted):
    lines = RepeatedLineFilter(lambda: 0.0)
    for _ in range(MAX_LINES_PER_MINUTE + 3):
        lines.filter(logging.makeLogRecord({"name": "asyncio", "levelno": 40, "msg": "again"}))
    assert counted("trimtab_log_lines_suppressed_total", logger="asyncio") == 3
