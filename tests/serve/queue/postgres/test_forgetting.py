"""What is erased or deleted on PostgreSQL is in no row of any table, while a fleet serves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.serve.queue.postgres.workers import asked, member, until
from tests.serve.service.served_agents import inbound
from tests.session.find_text_in_store import places_of
from tests.stores.places import Postgres
from trimtab.engine.log.message import make_text_message
from trimtab.errors import ProviderFailureDetails
from trimtab.stores.postgres import PostgresStore
from trimtab_serve.forgetting import erasure, stored_sessions
from trimtab_serve.service.sender import with_sender

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

ONE, TWO = "default/helper/one", "default/helper/two"
WORD = "zq4711needle"


async def found(conninfo, store):
    return await places_of(WORD, Postgres(conninfo), store)


async def test_a_turn_that_another_process_runs_writes_nothing_of_what_is_erased(
    conninfo, tmp_path
):
    async with (
        member(conninfo, tmp_path, name="one", script=[f"You are {WORD}."]) as working,
        member(conninfo, tmp_path, name="two", run=False) as other,
    ):
        await working.say(f"hold {WORD}", key="a")
        await until(lambda: asked(tmp_path))
        done = await other.service.erase_message(ONE, "m2", why="asked for")
        assert done.user_texts == (f"hold {WORD}",)
        assert await found(conninfo, other.service.store) == []
        (tmp_path / "go").touch()
        await other.quiet()
        # Its reply was refused, and asked for again of a model that sees nothing of it.
        assert asked(tmp_path) == [f"one: hold {WORD}", "one: [erased]"]
        assert await working.texts() == ["[erased]", "I am one."]
        assert [reply.text for reply in await other.sent()] == ["I am one."]
        assert await found(conninfo, other.service.store) == []


async def test_a_turn_that_another_process_runs_leaves_nothing_of_what_is_deleted(
    conninfo, tmp_path
):
    async with (
        member(conninfo, tmp_path, name="one", script=[f"You are {WORD}."]) as working,
        member(conninfo, tmp_path, name="two", run=False) as other,
    ):
        await working.say(f"hold {WORD}", key="a")
        await until(lambda: asked(tmp_path))
        await other.service.delete_session(ONE)
        assert await found(conninfo, other.service.store) == []
        (tmp_path / "go").touch()
        await other.quiet()
        assert await found(conninfo, other.service.store) == []
        assert await other.service.store.position(ONE) == 0


async def test_a_turn_that_another_process_runs_writes_nothing_of_a_user_who_is_erased(
    conninfo, tmp_path
):
    async with (
        member(conninfo, tmp_path, name="one", script=["Hello.", f"You are {WORD}."]) as working,
        member(conninfo, tmp_path, name="two", run=False) as other,
    ):
        for key, user, text in (("a", "bob", "I am Bob"), ("b", "anna", f"hold {WORD}")):
            said = with_sender(make_text_message("user", text), user)
            await working.service.post(replace(inbound("", key=key), message=said))
            await until(lambda key=key: other.service.store.find_key(ONE, key))
        await until(lambda: len(asked(tmp_path)) == 2)
        # A second one waits behind the turn that runs.
        said = with_sender(make_text_message("user", f"more {WORD}"), "anna")
        await other.service.post(replace(inbound("", key="c"), message=said))

        done = await erasure.erase_user(other.service, "default", "anna", by="office")

        assert done.sessions == 0
        assert done.messages >= 1
        (tmp_path / "go").touch()
        await other.quiet()
        assert await found(conninfo, other.service.store) == []
        assert (await working.texts())[0] == "I am Bob"


async def test_dead_letters_and_replies_that_wait_say_nothing_of_what_is_erased(conninfo, tmp_path):
    script = [
        f"You are {WORD}.",
        ProviderFailureDetails(kind="refused", message=f"{WORD} is refused"),
    ]
    async with member(conninfo, tmp_path, script=script) as working:
        await working.say(f"I am {WORD}", key="a")
        await working.quiet()
        await working.say(f"I am {WORD}", key="a", session=TWO)
        await until(working.queue.list_dead_letters)
        tables = await found(conninfo, working.service.store)
        assert {"trimtab.inbox", "trimtab.outbox", "trimtab.dead"} < {*tables}
        store = await PostgresStore.connect(conninfo)
        for session in (ONE, TWO):
            last = await store.position(session)
            # As the command line does, beside the processes that serve.
            await stored_sessions.erase_stored_message(conninfo, store, session, f"m2-m{last}")
        assert await found(conninfo, store) == []
        assert [one.why for one in await working.queue.list_dead_letters()] == [
            "ProviderError: the details were erased together with a message"
        ]
        await stored_sessions.delete_stored_session(conninfo, store, TWO)
        assert await working.queue.list_dead_letters() == []
        await store.close()
