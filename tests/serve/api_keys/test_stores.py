"""What every store of keys does: a change is in force at the next lookup, in every process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trimtab_serve.api_keys.api_key import ApiKeyExists, create_api_key, hash_api_key

pytestmark = pytest.mark.anyio


async def test_a_key_is_found_by_its_hash_with_all_that_was_said_of_it(keys, again):
    text, key = create_api_key(
        "web", tenant="acme", agents=("helper", "other"), role="read", expires=2e9
    )
    assert await keys.is_empty()
    await keys.add(key)
    assert await again.find(hash_api_key(text)) == key
    assert await again.find(hash_api_key(f"{text}x")) is None
    assert await again.find(b"") is None
    assert not await again.is_empty()


async def test_a_key_that_another_process_revokes_is_found_no_more(keys, again):
    _, key = create_api_key("web", role="talk")
    await keys.add(key)
    assert await again.find(key.sha256) == key
    assert await keys.revoke("web")
    assert await again.find(key.sha256) is None
    assert not await again.revoke("web")


async def test_no_two_keys_have_one_name_and_the_first_stays(keys, again):
    _, first = create_api_key("web", role="talk")
    _, second = create_api_key("web", role="admin", tenant="acme")
    await keys.add(first)
    with pytest.raises(ApiKeyExists, match="already is a key called web"):
        await again.add(second)
    assert await keys.list() == [first]
    assert await keys.find(second.sha256) is None


async def test_keys_are_listed_by_age_and_by_what_expires_next(keys):
    made = [
        replace(create_api_key(name, role="read")[1], created=at, expires=expires)
        for at, (name, expires) in enumerate(
            {"a": 300.0, "c": None, "b": 200.0, "past": 50.0}.items()
        )
    ]
    for key in reversed(made):
        await keys.add(key)
    assert [key.name for key in await keys.list()] == ["a", "c", "b", "past"]
    assert [key.name for key in await keys.list_expiring(100.0, limit=9)] == ["b", "a"]
    assert [key.name for key in await keys.list_expiring(100.0, limit=1)] == ["b"]


async def test_the_latest_use_stays_whichever_process_writes_last(keys, again):
    used, idle = (create_api_key(name, role="read")[1] for name in ("used", "idle"))
    for key in (used, idle):
        await keys.add(key)
    await keys.save_last_use({used.sha256: 200.0, b"revoked meanwhile": 300.0})
    await again.save_last_use({used.sha256: 100.0})
    assert [key.last_used for key in await keys.list()] == [200.0, None]
    await again.save_last_use({used.sha256: 201.0, idle.sha256: 7.0})
    assert [key.last_used for key in await keys.list()] == [201.0, 7.0]


def test_an_expiry_that_is_no_number_has_passed():
    _, key = create_api_key("web", role="read", expires=float("nan"))
    assert key.has_expired(0.0)
