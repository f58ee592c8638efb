"""What doors hand in: whose it is, how much may wait, and what becomes of deleted sessions."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.worker.served import SESSION, Gated, letter, served, until
from trimtab.providers.provider import Failure
from trimtab.stores.errors import NoSession
from trimtab.stores.files import FileStore
from trimtab.testing import MemoryStore
from trimtab.testing.mail import MemoryMail
from trimtab.worker.files import FileMail
from trimtab.worker.service import Crowded, NoAgent

pytestmark = pytest.mark.anyio


async def test_a_letter_for_an_agent_that_is_not_served_is_refused():
    house = served()
    for session in ("default/other/one", "nonsense"):
        with pytest.raises(NoAgent, match="there is helper"):
            await house.service.post(letter("Hello.", key="a", session=session))


async def test_a_tenant_with_too_much_waiting_is_refused_and_others_are_not():
    gated = Gated(*["Done."] * 5)
    house = served(provider=gated, on_message="queue")
    house.service.max_waiting = 3
    for n in range(3):
        await house.say(f"{n}", key=f"{n}", session=f"a/helper/s{n}")
    with pytest.raises(Crowded, match="3 messages wait and 3 may"):
        await house.say("more", key="more", session="a/helper/s0")
    await house.say("0", key="0", session="b/helper/s0")
    gated.open.set()
    await house.turns.idle()
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(Crowded):  # a count that is too many holds for a moment
                assert await house.say("more", key="more", session="a/helper/s0")
                break
            await asyncio.sleep(0.001)
    await house.turns.idle()


async def test_what_was_given_up_keeps_nobody_out():
    wrong = Failure(kind="auth", message="revoked")
    house = served(*[wrong] * 4, *["Done."] * 2)
    house.service.max_waiting = 3
    for session in ("a/helper/s0", "a/helper/s1", "a/helper/s2", "b/helper/s0"):
        await house.say("before", key="before", session=session)
    await house.turns.idle()
    assert len(await house.service.mail.dead()) == 4
    for session in ("a/helper/s0", "a/helper/new"):
        assert await house.say("again", key="again", session=session)
    await house.turns.idle()
    assert len(await house.service.mail.dead()) == 3


async def test_what_waits_is_not_counted_for_each_letter(monkeypatch):
    house = served(*["Done."] * 300)
    counted = []
    depth = house.service.mail.depth

    async def counting(prefix=""):
        counted.append(prefix)
        return await depth(prefix)

    monkeypatch.setattr(house.service._crowd, "_depth", counting)
    for n in range(200):
        await house.say(f"{n}", key=f"{n}")
    assert 1 <= len(counted) < 20
    await house.turns.idle()


async def test_deleting_a_session_breaks_its_turn_off_and_leaves_nothing():
    gated = Gated("One.", "Two.")
    house = served(provider=gated)
    await house.say("Hello.", key="a")
    await until(lambda: gated.waiting)
    await house.say("Hello?", key="b")
    await house.service.delete(SESSION)
    await house.turns.idle()
    assert await house.service.store.position(SESSION) == 0
    assert await house.service.mail.depth() == 0
    assert await house.sent() == []
    with pytest.raises(NoSession):
        await house.service.delete(SESSION)
    gated.open.set()
    await house.say("Anew.", key="a")
    await house.turns.idle()
    assert await house.texts() == [("user", "Anew."), ("assistant", "One.")]
    assert [reply.text for reply in await house.sent()] == ["One."]


async def test_what_is_deleted_on_files_is_not_sent_to_the_model_again(tmp_path):
    store = FileStore(tmp_path)
    gated = Gated("One.", "Two.")
    house = served(provider=gated, store=store, mail=await FileMail.open(store))
    await house.say("Forget this.", key="a")
    await until(lambda: gated.waiting)
    gated.open.set()
    await house.service.delete(SESSION)
    await house.turns.idle()
    assert gated.begun == ["Forget this."]
    assert await store.position(SESSION) == 0
    await house.service.close()
    await store.close()


class Slow(MemoryMail):
    """A mail that forgets when it is let, and says that it was asked to."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.may = asyncio.Event()
        self.asked: list[str] = []

    async def forget(self, session: str) -> None:
        self.asked.append(session)
        await self.may.wait()
        await super().forget(session)


async def test_letters_are_forgotten_before_a_turn_is_broken_off():
    store = MemoryStore()
    mail = Slow(store)
    gated = Gated("One.")
    house = served(provider=gated, store=store, mail=mail)
    await house.say("Forget this.", key="a")
    await until(lambda: gated.waiting)
    deleting = asyncio.create_task(house.service.delete(SESSION))
    await until(lambda: mail.asked)
    running = list(gated.waiting)
    mail.may.set()
    await deleting
    gated.open.set()
    await house.turns.idle()
    assert running == gated.begun == ["Forget this."]


async def test_a_session_that_is_being_deleted_has_no_further_turn_before_it_is():
    gated = Gated("Anew.")
    house = served(provider=gated)
    asked, may = asyncio.Event(), asyncio.Event()

    async def held(_):
        asked.set()
        await may.wait()

    house.service.forgetting.append(held)
    await house.say("Forget this.", key="a")
    await until(lambda: gated.waiting)
    deleting = asyncio.create_task(house.service.delete(SESSION))
    await asked.wait()
    house.turns.due(SESSION)
    await house.say("Another's.", key="a", session="default/helper/two")
    await until(lambda: "Another's." in gated.begun)
    assert gated.begun == ["Forget this.", "Another's."]
    may.set()
    await deleting
    gated.open.set()
    await house.turns.idle()
    assert gated.begun == ["Forget this.", "Another's."]


async def test_whoever_watches_hears_the_turn():
    house = served("Hello to you.")
    with house.service.live.watch(SESSION) as heard:
        await house.say("Hello.", key="a")
        await house.turns.idle()
        kinds = [type(heard.get_nowait()).__name__ for _ in range(heard.qsize())]
    assert kinds[-2:] == ["Replied", "Ended"]
    assert "Piece" in kinds


async def test_a_turn_that_does_not_run_here_is_asked_to_stop_wherever_it_does(monkeypatch):
    house = served()
    asked: list[str] = []
    monkeypatch.setattr(house.service.live, "ask_to_stop", asked.append)
    assert not house.service.stop(SESSION)
    assert asked == [SESSION]
