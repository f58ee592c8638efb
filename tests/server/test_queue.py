"""What every mail promises."""

import asyncio
from dataclasses import replace

import pytest

from tests.server.queues import PHONE, S, claimed, give_up, keys, lent, letter, numbers, reply
from trimtab.errors import StaleOwner
from trimtab.log.message import Media, Message, Text
from trimtab.server.queue.inbound_outbound import InboundMessage, ReplyRoute
from trimtab.session import Session

pytestmark = pytest.mark.anyio

OTHER = "default/helper/two"
FOREIGN = "acme/helper/one"


async def test_letters_wait_in_the_order_they_came_each_once(mail):
    assert [await mail.post(letter(key)) for key in ("a", "b", "a", "c")] == [
        True,
        True,
        False,
        True,
    ]
    assert await keys(mail) == ["a", "b", "c"]
    given = await numbers(mail)
    assert given == sorted(set(given))
    assert await keys(mail, after=given[0], limit=1) == ["b"]


async def test_a_letter_comes_back_as_it_was(mail):
    said = Message(
        role="user",
        parts=(
            Text(text="half \udc00, é\n🙂"),
            Media(kind="image", mime="image/png", data="aGk="),
        ),
    )
    sent = InboundMessage(
        session=S,
        message=said,
        key="k/1 🙂",
        at=1.25,
        route=ReplyRoute(channel="phone", address={"number": 7, "thread": None, "of": ["x"]}),
    )
    await mail.post(sent)
    (found,) = await mail.pending(S)
    assert (found.message, found.key, found.at, found.route) == (
        said,
        sent.key,
        sent.at,
        sent.route,
    )


async def test_a_letter_keeps_the_id_of_the_request_that_brought_it(mail):
    await mail.post(replace(letter("a"), request_id="r/1"))
    await mail.post(letter("b"))
    assert [one.request_id for one in await mail.pending(S)] == ["r/1", ""]


async def test_the_same_key_in_two_sessions_is_two_letters(mail):
    assert await mail.post(letter("a"))
    assert await mail.post(letter("a", session=OTHER))
    assert await keys(mail, OTHER) == ["a"]


async def test_the_same_letter_posted_many_times_at_once_is_kept_once(mail):
    kept = await asyncio.gather(*(mail.post(letter("a")) for _ in range(20)))
    assert sum(kept) == 1
    assert await keys(mail) == ["a"]


async def test_many_letters_at_once_are_all_kept(mail):
    await asyncio.gather(*(mail.post(letter(f"k{n}")) for n in range(100)))
    assert sorted(await keys(mail)) == sorted(f"k{n}" for n in range(100))


async def test_finishing_removes_what_was_taken_and_keeps_the_replies(mail, store):
    epoch = await claimed(store)
    for key in ("a", "b", "c"):
        await mail.post(letter(key))
    await mail.finish_turn(S, epoch, (await numbers(mail))[:2], [reply("r1"), reply("r2")])
    assert await keys(mail) == ["c"]
    (first,) = await mail.lease_replies(["phone"], limit=10, lease_s=60)
    assert (first.key, first.text, first.route, first.attempts) == ("r1", "answer r1", PHONE, 0)


async def test_a_letter_that_was_answered_is_in_the_log_and_not_kept_again(mail, store):
    epoch = await claimed(store)
    assert await mail.post(letter("a"))
    opened = await Session.open(store, S)
    await opened.add(letter("a").message, key="a")
    await mail.finish_turn(S, epoch, await numbers(mail), [])
    assert not await mail.post(letter("a"))
    assert await keys(mail) == []
    assert await mail.post(letter("b"))


async def test_a_turn_that_was_taken_over_can_finish_nothing(mail, store):
    epoch = await claimed(store, times=2)
    await mail.post(letter("a"))
    with pytest.raises(StaleOwner):
        await mail.finish_turn(S, epoch - 1, await numbers(mail), [reply("r1")])
    assert await keys(mail) == ["a"]
    assert await lent(mail) == []
    await mail.finish_turn(S, epoch, await numbers(mail), [reply("r1")])
    assert await keys(mail) == []


async def test_of_a_session_that_is_gone_no_reply_is_kept(mail, store):
    epoch = await claimed(store)
    await mail.post(letter("a"))
    await store.delete(S)
    await mail.finish_turn(S, epoch, await numbers(mail), [reply("r1")])
    assert (await keys(mail), await lent(mail)) == ([], [])


async def test_a_reply_whose_key_is_known_is_not_kept_again_even_when_it_has_left(mail, store):
    epoch = await claimed(store)
    await mail.finish_turn(S, epoch, [], [reply("r1")])
    await mail.finish_turn(S, epoch, [], [reply("r1")])
    (found,) = await mail.lease_replies(["phone"], limit=10, lease_s=60)
    await mail.mark_delivered(found.number)
    assert await lent(mail) == []
    await mail.finish_turn(S, epoch, [], [reply("r1"), reply("r2")])
    assert await lent(mail) == ["r2"]


async def test_sessions_with_letters_are_taken_up_at_a_start_but_not_those_given_up(mail):
    for session in (S, OTHER, FOREIGN):
        await mail.post(letter("a", session=session))
    await give_up(mail, OTHER)
    assert sorted(await mail.list_waiting_sessions()) == sorted([S, FOREIGN])


async def test_depth_counts_a_tenants_letters_and_all(mail, store):
    epoch = await claimed(store)
    for key, session in (("a", S), ("b", S), ("a", OTHER), ("a", FOREIGN)):
        await mail.post(letter(key, session=session))
    assert [await mail.depth(p) for p in ("", "default/", "acme/", "default/helper/o", "x/")] == [
        4,
        3,
        1,
        2,
        0,
    ]
    await mail.finish_turn(S, epoch, await numbers(mail), [])
    assert await mail.depth("default/") == 1


async def test_the_oldest_is_the_first_that_came_of_those_that_wait(mail, store):
    assert await mail.oldest_waiting_at() is None
    epoch = await claimed(store)
    for at, session in ((100.5, OTHER), (200.5, S), (150.5, FOREIGN)):
        await mail.post(replace(letter("a", session=session), at=at))
    assert await mail.oldest_waiting_at() == 100.5
    await give_up(mail, OTHER)
    assert await mail.oldest_waiting_at() == 200.5
    await mail.finish_turn(S, epoch, await numbers(mail), [])
    assert await mail.oldest_waiting_at() == 150.5
    await mail.revive(OTHER)
    assert await mail.oldest_waiting_at() == 100.5


async def test_letters_that_were_given_up_do_not_count_until_they_wait_again(mail, store):
    epoch = await claimed(store)
    for key, session in (("a", S), ("b", S), ("a", OTHER), ("a", FOREIGN)):
        await mail.post(letter(key, session=session))

    async def depths():
        return [await mail.depth(prefix) for prefix in ("", "default/", "default/helper/o")]

    await give_up(mail)
    await give_up(mail)
    assert await depths() == [2, 1, 0]
    await mail.revive(S)
    assert await depths() == [4, 3, 2]
    await give_up(mail)
    await mail.post(letter("c"))
    assert await depths() == [5, 4, 3]
    await give_up(mail)
    await mail.finish_turn(S, epoch, (await numbers(mail))[:1], [])
    assert await depths() == [4, 3, 2]
    await give_up(mail)
    await mail.forget_session(S)
    assert await depths() == [2, 1, 0]


async def test_what_is_given_up_is_shown_with_its_reason_and_its_apology_goes_out(mail):
    await mail.post(letter("a"))
    await mail.post(letter("b"))
    await give_up(mail, S, "CannotFit: too large", [reply("sorry")])
    (found,) = await mail.list_dead_letters()
    assert (found.session, found.why, found.messages) == (S, "CannotFit: too large", 2)
    assert await lent(mail) == ["sorry"]
    assert await mail.list_dead_letters(prefix="acme/") == []


async def test_a_turn_that_was_taken_over_can_give_up_nothing(mail, store):
    epoch = await claimed(store, times=2)
    await mail.post(letter("a"))
    (found,) = await mail.pending(S)
    assert not await mail.dead_letter_session(found, epoch - 1, "broken", [reply("sorry")])
    assert (await mail.list_dead_letters(), await lent(mail)) == ([], [])
    assert await mail.dead_letter_session(found, epoch, "broken", [reply("sorry")])
    assert len(await mail.list_dead_letters()) == 1
    assert await lent(mail) == ["sorry"]


@pytest.mark.parametrize("knew", [True, False], ids=["it knew the turn", "it knew of none"])
async def test_a_letter_that_another_has_answered_cannot_be_given_up(mail, store, knew):
    epoch = await claimed(store)
    await mail.post(letter("a"))
    (found,) = await mail.pending(S)
    await mail.post(letter("b"))
    await mail.finish_turn(S, epoch, [found.number], [])
    assert not await mail.dead_letter_session(
        found, epoch if knew else None, "broken", [reply("sorry")]
    )
    assert (await mail.list_dead_letters(), await lent(mail)) == ([], [])
    assert await mail.list_waiting_sessions() == [S]


async def test_the_newest_given_up_comes_first(mail):
    for session in (S, OTHER, FOREIGN):
        await mail.post(letter("a", session=session))
        await give_up(mail, session)
    assert [one.session for one in await mail.list_dead_letters(limit=2)] == [FOREIGN, OTHER]


async def test_why_a_session_was_given_up_is_its_own_and_that_of_letters_alone(mail, store):
    epoch = await claimed(store)
    await mail.finish_turn(S, epoch, [], [reply("r1")])
    (lost,) = await mail.lease_replies(["phone"], limit=10, lease_s=60)
    await mail.mark_undeliverable(lost.number, "the chat is gone")
    await mail.post(letter("a"))
    await mail.post(letter("a", session=f"{S}1"))
    await give_up(mail, f"{S}1")
    assert [await mail.dead_letter_reason(name) for name in (S, f"{S}1")] == [None, "broken"]
    await give_up(mail, S, "too large")
    assert await mail.dead_letter_reason(S) == "too large"
    await mail.finish_turn(S, epoch, await numbers(mail), [])
    assert await mail.dead_letter_reason(S) is None


async def test_what_was_given_up_can_be_revived_once(mail):
    await mail.post(letter("a"))
    assert not await mail.revive(S)
    await give_up(mail)
    assert await mail.revive(S)
    assert await mail.list_dead_letters() == []
    assert await mail.list_waiting_sessions() == [S]
    assert not await mail.revive(S)


async def test_a_new_letter_takes_up_what_was_given_up(mail):
    await mail.post(letter("a"))
    await give_up(mail)
    await mail.post(letter("b"))
    assert await mail.list_dead_letters() == []
    assert await keys(mail) == ["a", "b"]


async def test_replies_of_a_session_go_one_after_the_other_and_others_beside_them(mail, store):
    epoch = await claimed(store)
    await mail.finish_turn(S, epoch, [], [reply("r1"), reply("r2")])
    await claimed(store, OTHER)
    await mail.finish_turn(OTHER, 1, [], [reply("q1", session=OTHER)])
    found = await mail.lease_replies(["phone"], limit=10, lease_s=60)
    assert [one.key for one in found] == ["r1", "q1"]
    assert await lent(mail) == []
    await mail.mark_delivered(found[0].number)
    assert await lent(mail) == ["r2"]


async def test_no_more_is_lent_than_was_asked_for(mail, store):
    for n in range(5):
        session = f"default/helper/s{n}"
        epoch = await claimed(store, session)
        await mail.finish_turn(session, epoch, [], [reply(f"r{n}", session=session)])
    assert [await lent(mail, limit=2), await lent(mail, limit=2)] == [["r0", "r1"], ["r2", "r3"]]


async def test_a_door_gets_what_is_its_own(mail, store):
    epoch = await claimed(store)
    letterbox = ReplyRoute(channel="letterbox", address={})
    await mail.finish_turn(S, epoch, [], [reply("r1", route=letterbox), reply("r2")])
    assert await lent(mail, "phone") == ["r2"]
    assert await lent(mail, "phone") == []
    assert await lent(mail, "letterbox", "phone") == ["r1"]


async def test_what_was_lent_and_not_heard_of_comes_back_marked(mail, store):
    epoch = await claimed(store)
    await mail.finish_turn(S, epoch, [], [reply("r1")])
    seen = [(await mail.lease_replies(["phone"], limit=1, lease_s=0))[0].attempts for _ in range(3)]
    assert seen == [0, 1, 2]


async def test_what_was_put_off_unsent_is_not_marked_and_what_may_have_arrived_is(mail, store):
    epoch = await claimed(store)
    await mail.finish_turn(S, epoch, [], [reply("r1"), reply("r2")])
    (first,) = await mail.lease_replies(["phone"], limit=10, lease_s=60)
    await mail.postpone_reply(first.number, delay_s=0, why="slow down", maybe_sent=False)
    (again,) = await mail.lease_replies(["phone"], limit=10, lease_s=60)
    assert (again.key, again.attempts) == ("r1", 0)
    await mail.postpone_reply(first.number, delay_s=0, why="no answer", maybe_sent=True)
    (again,) = await mail.lease_replies(["phone"], limit=10, lease_s=60)
    assert (again.key, again.attempts) == ("r1", 1)
    await mail.postpone_reply(first.number, delay_s=600, why="slow down", maybe_sent=False)
    assert await lent(mail) == []


async def test_what_is_refused_stands_in_nobodys_way(mail, store):
    epoch = await claimed(store)
    await mail.finish_turn(S, epoch, [], [reply("r1"), reply("r2")])
    (first,) = await mail.lease_replies(["phone"], limit=10, lease_s=60)
    await mail.mark_undeliverable(first.number, "the chat is gone")
    assert await lent(mail) == ["r2"]


async def test_of_a_session_that_is_deleted_nothing_is_left(mail, store):
    epoch = await claimed(store)
    await mail.post(letter("a"))
    await mail.post(letter("b", session=OTHER))
    await mail.finish_turn(S, epoch, [], [reply("r1")])
    await give_up(mail)
    await mail.forget_session(S)
    assert (await keys(mail), await lent(mail), await mail.list_dead_letters()) == ([], [], [])
    assert await keys(mail, OTHER) == ["b"]
    assert await mail.post(letter("a"))


async def test_all_that_waits_is_there_after_a_restart(mail, store, place):
    epoch = await claimed(store)
    for key in ("a", "b"):
        await mail.post(letter(key))
    await mail.post(letter("c", session=OTHER))
    await give_up(mail, OTHER)
    first, _ = await numbers(mail)
    await mail.finish_turn(S, epoch, [first], [reply("r1"), reply("r2")])
    assert await lent(mail, lease=0.0) == ["r1"]
    await mail.close()
    await store.close()
    store, again = await place.open()
    try:
        assert await keys(again) == ["b"]
        assert await again.list_waiting_sessions() == [S]
        assert [one.session for one in await again.list_dead_letters()] == [OTHER]
        (found,) = await again.lease_replies(["phone"], limit=10, lease_s=60)
        assert (found.key, found.attempts) == ("r1", 1)
        await again.post(letter("d"))
        assert await keys(again) == ["b", "d"]
        await again.finish_turn(S, epoch, [], [reply("r1")])
        await again.mark_delivered(found.number)
        assert await lent(again) == ["r2"]
    finally:
        await again.close()
        await store.close()


async def test_of_messages_that_are_erased_nothing_is_said_and_their_letters_wait_on(mail, store):
    epoch = await claimed(store)
    await mail.post(letter("a", "the erased words"))
    await mail.post(letter("b", "other words"))
    await mail.post(letter("a", "the erased words", session=OTHER))
    await mail.finish_turn(S, epoch, [], [reply("r1", seq=7), reply("r2", seq=8)])
    await give_up(mail, S, "ProviderError: the erased words are not allowed")
    await mail.erase_messages(S, [7], ["a"])
    first, second = await mail.pending(S)
    assert (first.key, first.message.text) == ("a", "[erased]")
    assert (second.key, second.message.text) == ("b", "other words")
    assert [one.message.text for one in await mail.pending(OTHER)] == ["the erased words"]
    (dead,) = await mail.list_dead_letters()
    assert dead.why == "ProviderError: the details were erased together with a message"
    assert await lent(mail) == ["r2"]
    await mail.finish_turn(S, epoch, [], [reply("r1", seq=7)])
    assert await lent(mail) == []  # it is known, and does not leave after all


async def test_an_erased_reply_that_was_refused_does_not_come_back(mail, store):
    epoch = await claimed(store)
    await mail.finish_turn(S, epoch, [], [reply("r1", seq=7), reply("r2", seq=8)])
    for _ in range(2):
        (found,) = await mail.lease_replies(["phone"], limit=1, lease_s=60)
        await mail.mark_undeliverable(found.number, f"cannot parse {found.text}")
    await mail.erase_messages(S, [7], [])
    (dead,) = await mail.list_dead_letters()
    assert (dead.replies, dead.why) == (1, "the details were erased together with a message")
    assert await mail.revive(S)
    assert await lent(mail) == ["r2"]
