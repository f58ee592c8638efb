"""When a key was last used: coarse, beside the key file, and never at the cost of a request."""

from __future__ import annotations

import asyncio
import json
import logging
import stat

import pytest

from tests.serve.channels.http.running_apps import house, until
from trimtab_serve.channels.http import api_key_last_use as module
from trimtab_serve.channels.http.api_key_last_use import (
    ApiKeyLastUse,
    build_last_use_path,
    read_api_key_last_use,
)
from trimtab_serve.channels.http.api_keys import (
    ApiKeyFile,
    create_api_key,
    read_stored_api_keys,
    write_key_file,
)
from trimtab_serve.metrics.prometheus import render_metrics

pytestmark = pytest.mark.anyio

WHO = ({"key_name": "web"}, {"key_name": "idle"})


@pytest.fixture
def file(tmp_path):
    return tmp_path / "keys.json"


async def test_requests_write_nothing_and_metrics_say_when_a_key_was_used(file):
    async with house(keys=file, who=WHO) as served, served.http("web") as http:
        before = file.stat()
        for _ in range(5):
            await http.get("/v1/agents")
        after = file.stat()
        assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
        assert not build_last_use_path(file).exists()
        shown = render_metrics()[0].decode()
        assert 'trimtab_api_key_last_used_timestamp_seconds{key="web"}' in shown
        assert 'trimtab_api_key_last_used_timestamp_seconds{key="idle"}' not in shown


async def test_all_uses_of_a_minute_are_one_write_and_the_last_ones_are_kept_at_the_end(
    file, monkeypatch
):
    monkeypatch.setattr(module, "SAVE_INTERVAL_S", 0.05)
    write_key_file(file, [create_api_key(name, role="read")[1] for name in ("web", "other")])
    keys, writes = ApiKeyFile(file), []
    replace = module._replace_file
    monkeypatch.setattr(module, "_replace_file", lambda *a: (writes.append(a), replace(*a)))
    saving = asyncio.create_task(keys.save_last_use_regularly())
    for _ in range(100):
        keys.last_use.record("web")
    await until(lambda: writes)
    assert len(writes) == 1
    await asyncio.sleep(0.2)
    assert len(writes) == 1  # nothing new
    keys.last_use.record("other")
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    path = build_last_use_path(file)
    assert set(read_api_key_last_use(path)) == {"web", "other"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keys_that_are_made_and_revoked_meanwhile_lose_nothing(file):
    write_key_file(file, [create_api_key("web", role="read")[1]])
    keys = ApiKeyFile(file)
    keys.last_use.record("web")
    # `trimtab keys create` in another process, between use and write.
    write_key_file(file, [*read_stored_api_keys(file), create_api_key("new", role="talk")[1]])
    keys.last_use.save({"web", "new"})
    assert [key.name for key in read_stored_api_keys(file)] == ["web", "new"]
    keys.last_use.record("new")
    keys.last_use.save({"new"})  # web was revoked
    assert set(read_api_key_last_use(build_last_use_path(file))) == {"new"}


def test_of_two_processes_the_later_use_stays(file, monkeypatch):
    one, two = ApiKeyLastUse(file), ApiKeyLastUse(file)
    for last_use, at in ((one, 200.0), (two, 100.0)):
        monkeypatch.setattr(module.time, "time", lambda at=at: at)
        last_use.record("web")
        last_use.save({"web"})
    assert read_api_key_last_use(one.path) == {"web": 200.0}


def test_a_folder_that_cannot_be_written_is_told_once_and_ends_nothing(file, caplog):
    last_use = ApiKeyLastUse(file)
    last_use.path.mkdir()  # no file can take its place, also not root's
    with caplog.at_level(logging.WARNING, "trimtab.http"):
        for _ in range(3):
            last_use.record("web")
            last_use.save({"web"})
    assert caplog.text.count("the last use of keys is not stored") == 1
    assert not [path for path in file.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"version": 2}', '{"version": 1, "last_used": {"a": "b"}}', '{"version": 1}'],
)
def test_a_file_that_is_none_counts_as_empty(file, text):
    path = build_last_use_path(file)
    path.write_text(text)
    assert read_api_key_last_use(path) == {}
    last_use = ApiKeyLastUse(file)
    last_use.record("web")
    last_use.save({"web"})
    assert list(json.loads(path.read_text())["last_used"]) == ["web"]
