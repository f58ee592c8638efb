"""Ids that people can read, and the session that --continue means."""

import re
from datetime import UTC, datetime

import pytest

from tests.conversations import user
from trimtab.session import Session
from trimtab.testing import MemoryStore
from trimtab_serve.cli.chat.state import find_newest_chat_session, generate_session_id

pytestmark = pytest.mark.anyio


def test_an_id_says_when_and_sorts_by_it():
    at = datetime(2026, 11, 15, 8, 44, tzinfo=UTC)
    assert generate_session_id(at, lambda letters: letters[0]) == "2026-11-15-0844-aaaa"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-\d{4}-[a-z2-9]{4}", generate_session_id())


async def test_the_newest_session_is_the_one_that_was_written_to_last():
    store = MemoryStore()
    assert await find_newest_chat_session(store) is None
    for number, name in ((1, "b"), (3, "a"), (2, "c"), (7, "default/helper/x")):
        made = await Session.create(
            store, name, model="claude-sonnet-4-5", clock=lambda n=number: float(n)
        )
        await made.add(user("hello"))
    await Session.create(store, "empty", model="claude-sonnet-4-5", clock=lambda: 9.0)
    found = await find_newest_chat_session(store)
    assert found is not None
    assert found.session == "a"
