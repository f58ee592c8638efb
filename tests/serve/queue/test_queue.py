"""What every queue promises."""

import asyncio
from dataclasses import replace

import pytest

from tests.serve.queue.queues import PHONE, S, claimed, give_up, inbound, keys, lent, numbers, reply
from trimtab.engine.log.message import Media, Message, Text, make_text_message
from trimtab.errors import StaleOwner
from trimtab.session import Session
from trimtab_serve.queue.messages import InboundMessage, ReplyRoute

pytestmark = pytest.mark.anyio

OTHER = "default/helper/two"
FOREIGN = "acme/helper/one"


async def test_messages_wait_in_the_order_they_came_each_once(queue):
    assert [await queue.post(inbound(key)) for key in ("a", "b", "a", "c")] == [
        True,
        True,
        False,
        True,
    ]
    assert await keys(queue) == ["a", "b", "c"]
    given = await numbers(queue)
    assert given == sorted(set(given))
    assert await keys(queue, after=given[0], limit=1) == ["b"]


async def test_a_message_comes_back_as_it_was(queue):
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
    await queue.post(sent)
    (found,) = await queue.pending(S)
    assert (found.message, found.key, found.at, found.route) == (
        said,
        sent.key,
        sent.at,
        sent.route,
    )


async def test_a_message_keeps_the_id_of_the_request_that_brought_it(queue):
    await queue.post(replace(inbound("a"), request_id="r/1"))
    await queue.post(inbound("b"))
    assert [one.request_id for one in await queue.pending(S)] == ["r/1", ""]


async def test_waiting_messages_are_found_by_key_and_measured_however_many_there_are(queue):
    for n in range(120):
        await queue.post(inbound(f"k{n}"))
    found = await queue.find_waiting(S, "k119")
    assert found == (await queue.pending(S, limit=200))[-1]
    assert await queue.find_waiting(S, "k120") is None
    assert await queue.find_waiting(OTHER, "k1") is None
    before = await queue.measure_waiting(S)
    large = make_text_message("user", "x" * 50_000)
    await queue.post(replace(inbound("large"), message=large))
    after = await queue.measure_waiting(S)
    assert (before.messages, after.messages) == (120, 121)
    assert 50_000 < after.bytes - before.bytes < 51_000
    empty = await queue.measure_waiting(OTHER)
    assert (empty.messages, empty.bytes) == (0, 0)


async def test_the_same_key_in_two_sessions_is_two_messages(queue):
    assert await queue.post(inbound("a"))
    assert await queue.post(inbound("a", session=OTHER))
    assert await keys(queue, OTHER) == ["a"]


async def test_the_same_message_posted_many_times_at_once_is_kept_once(queue):
    kept = await asyncio.gather(*(queue.post(inbound("a")) for _ in range(20)))
    assert sum(kept) == 1
    assert await keys(queue) == ["a"]


async def test_many_messages_at_once_are_all_kept(queue):
    await asyncio.gather(*(queue.post(inbound(f"k{n}")) for n in range(100)))
    assert sorted(await keys(queue)) == sorted(f"k{n}" for n in range(100))


async def test_finishing_removes_what_was_taken_and_keeps_the_replies(queue, store):
    epoch = await claimed(store)
    for key in ("a", "b", "c"):
        await queue.post(inbound(key))
    await queue.finish_turn(S, epoch, (await numbers(queue))[:2], [reply("r1"), reply("r2")])
    assert await keys(queue) == ["c"]
    (first,) = await queue.lease_replies(["phone"], limit=10, lease_s=60)
    assert (first.key, first.text, first.route, first.attempts) == ("r1", "answer r1", PHONE, 0)


async def test_a_message_that_was_answered_is_in_the_log_and_not_kept_again(queue, store):
    epoch = await claimed(store)
    assert await queue.post(inbound("a"))
    opened = await Session.open(store, S)
    await opened.add(inbound("a").message, key="a")
    await queue.finish_turn(S, epoch, await numbers(queue), [])
    assert not await queue.post(inbound("a"))
    assert await keys(queue) == []
    assert await queue.post(inbound("b"))


async def test_a_turn_that_was_taken_over_can_finish_nothing(queue, store):
    epoch = await claimed(store, times=2)
    await queue.post(inbound("a"))
    with pytest.raises(StaleOwner):
        await queue.finish_turn(S, epoch - 1, await numbers(queue), [reply("r1")])
    assert await keys(queue) == ["a"]
    assert await lent(queue) == []
    await queue.finish_turn(S, epoch, await numbers(queue), [reply("r1")])
    assert await keys(queue) == []


async def test_of_a_session_that_is_gone_no_reply_is_kept(queue, store):
    epoch = await claimed(store)
    await queue.post(inbound("a"))
    await store.delete(S)
    await queue.finish_turn(S, epoch, await numbers(queue), [reply("r1")])
    assert (await keys(queue), await lent(queue)) == ([], [])


async def test_a_reply_whose_key_is_known_is_not_kept_again_even_when_it_has_left(queue, store):
    epoch = await claimed(store)
    await queue.finish_turn(S, epoch, [], [reply("r1")])
    await queue.finish_turn(S, epoch, [], [reply("r1")])
    (found,) = await queue.lease_replies(["phone"], limit=10, lease_s=60)
    await queue.mark_delivered(found.number)
    assert await lent(queue) == []
    await queue.finish_turn(S, epoch, [], [reply("r1"), reply("r2")])
    assert await lent(queue) == ["r2"]


async def test_sessions_with_messages_are_taken_up_at_a_start_but_not_those_given_up(queue):
    for session in (S, OTHER, FOREIGN):
        await queue.post(inbound("a", session=session))
    await give_up(queue, OTHER)
    assert sorted(await queue.list_waiting_sessions()) == sorted([S, FOREIGN])


async def test_depth_counts_a_tenants_messages_and_all(queue, store):
    epoch = await claimed(store)
    for key, session in (("a", S), ("b", S), ("a", OTHER), ("a", FOREIGN)):
        await queue.post(inbound(key, session=session))
    assert [await queue.depth(p) for p in ("", "default/", "acme/", "default/helper/o", "x/")] == [
        4,
        3,
        1,
        2,
        0,
    ]
    await queue.finish_turn(S, epoch, await numbers(queue), [])
    assert await queue.depth("default/") == 1


async def test_the_oldest_is_the_first_that_came_of_those_that_wait(queue, store):
    assert await queue.oldest_waiting_at() is None
    epoch = await claimed(store)
    for at, session in ((100.5, OTHER), (200.5, S), (150.5, FOREIGN)):
        await queue.post(replace(inbound("a", session=session), at=at))
    assert await queue.oldest_waiting_at() == 100.5
    await give_up(queue, OTHER)
    assert await queue.oldest_waiting_at() == 200.5
    await queue.finish_turn(S, epoch, await numbers(queue), [])
    assert await queue.oldest_waiting_at() == 150.5
    await queue.revive(OTHER)
    assert await queue.oldest_waiting_at() == 100.5


async def test_messages_that_were_given_up_do_not_count_until_they_wait_again(queue, store):
    epoch = await claimed(store)
    for key, session in (("a", S), ("b", S), ("a", OTHER), ("a", FOREIGN)):
        await queue.post(inbound(key, session=session))

    async def depths():
        return [await queue.depth(prefix) for prefix in ("", "default/", "default/helper/o")]

    await give_up(queue)
    await give_up(queue)
    assert await depths() == [2, 1, 0]
    await queue.revive(S)
    assert await depths() == [4, 3, 2]
    await give_up(queue)
    await queue.post(inbound("c"))
    assert await depths() == [5, 4, 3]
    await give_up(queue)
    await queue.finish_turn(S, epoch, (await numbers(queue))[:1], [])
    assert await depths() == [4, 3, 2]
    await give_up(queue)
    await queue.forget_session(S)
    assert await depths() == [2, 1, 0]


async def test_what_is_given_up_is_shown_with_its_reason_and_its_apology_goes_out(queue):
    await queue.post(inbound("a"))
    await queue.post(inbound("b"))
    await give_up(queue, S, "CannotFit: too large", [reply("sorry")])
    (found,) = await queue.list_dead_letters()
    assert (found.session, found.why, found.messages) == (S, "CannotFit: too large", 2)
    assert await lent(queue) == ["sorry"]
    assert await queue.list_dead_letters(prefix="acme/") == []


async def test_a_turn_that_was_taken_over_can_give_up_nothing(queue, store):
    epoch = await claimed(store, times=2)
    await queue.post(inbound("a"))
    (found,) = await queue.pending(S)
    assert not await queue.dead_letter_session(found, epoch - 1, "broken", [reply("sorry")])
    assert (await queue.list_dead_letters(), await lent(queue)) == ([], [])
    assert await queue.dead_letter_session(found, epoch, "broken", [reply("sorry")])
    assert len(await queue.list_dead_letters()) == 1
    assert await lent(queue) == ["sorry"]


@pytest.mark.parametrize("knew", [True, False], ids=["it knew the turn", "it knew of none"])
async def test_a_message_that_another_has_answered_cannot_be_given_up(queue, store, knew):
    epoch = await claimed(store)
    await queue.post(inbound("a"))
    (found,) = await queue.pending(S)
    await queue.post(inbound("b"))
    await queue.finish_turn(S, epoch, [found.number], [])
    assert not await queue.dead_letter_session(
        found, epoch if knew else None, "broken", [reply("sorry")]
    )
    assert (await queue.list_dead_letters(), await lent(queue)) == ([], [])
    assert await queue.list_waiting_sessions() == [S]


async def test_the_newest_given_up_comes_first(queue):
    for session in (S, OTHER, FOREIGN):
        await queue.post(inbound("a", session=session))
        await give_up(queue, session)
    assert [one.session for one in await queue.list_dead_letters(limit=2)] == [FOREIGN, OTHER]


async def test_why_a_session_was_given_up_is_its_own_and_that_of_messages_alone(queue, store):
    epoch = await claimed(store)
    await queue.finish_turn(S, epoch, [], [reply("r1")])
    (lost,) = await queue.lease_replies(["phone"], limit=10, lease_s=60)
    await queue.mark_undeliverable(lost.number, "the chat is gone")
    await queue.post(inbound("a"))
    await queue.post(inbound("a", session=f"{S}1"))
    await give_up(queue, f"{S}1")
    assert [await queue.dead_letter_reason(name) for name in (S, f"{S}1")] == [None, "broken"]
    await give_up(queue, S, "too large")
    assert await queue.dead_letter_reason(S) == "too large"
    await queue.finish_turn(S, epoch, await numbers(queue), [])
    assert await queue.dead_letter_reason(S) is None


async def test_what_was_given_up_can_be_revived_once(queue):
    await queue.post(inbound("a"))
    assert not await queue.revive(S)
    await give_up(queue)
    assert await queue.revive(S)
    assert await queue.list_dead_letters() == []
    assert await queue.list_waiting_sessions() == [S]
    assert not await queue.revive(S)


async def test_a_new_message_takes_up_what_was_given_up(queue):
    await queue.post(inbound("a"))
    await give_up(queue)
    await queue.post(inbound("b"))
    assert await queue.list_dead_letters() == []
    assert await keys(queue) == ["a", "b"]


async def test_replies_of_a_session_go_one_after_the_other_and_others_beside_them(queue, store):
    epoch = await claimed(store)
    await queue.finish_turn(S, epoch, [], [reply("r1"), reply("r2")])
    await claimed(store, OTHER)
    await queue.finish_turn(OTHER, 1, [], [reply("q1", session=OTHER)])
    found = await queue.lease_replies(["phone"], limit=10, lease_s=60)
    assert [one.key for one in found] == ["r1", "q1"]
    assert await lent(queue) == []
    await queue.mark_delivered(found[0].number)
    assert await lent(queue) == ["r2"]


async def test_no_more_is_lent_than_was_asked_for(queue, store):
    for n in range(5):
        session = f"default/helper/s{n}"
        epoch = await claimed(store, session)
        await queue.finish_turn(session, epoch, [], [reply(f"r{n}", session=session)])
    assert [await lent(queue, limit=2), await lent(queue, limit=2)] == [["r0", "r1"], ["r2", "r3"]]


async def test_a_channel_gets_what_is_its_own(queue, store):
    epoch = await claimed(store)
    postbox = ReplyRoute(channel="postbox", address={})
    await queue.finish_turn(S, epoch, [], [reply("r1", route=postbox), reply("r2")])
    assert await lent(queue, "phone") == ["r2"]
    assert await lent(queue, "phone") == []
    assert await lent(queue, "postbox", "phone") == ["r1"]


async def test_what_was_lent_and_not_heard_of_comes_back_marked(queue, store):
    epoch = await claimed(store)
    await queue.finish_turn(S, epoch, [], [reply("r1")])
    seen = [
        (await queue.lease_replies(["phone"], limit=1, lease_s=0))[0].attempts for _ in range(3)
    ]
    assert seen == [0, 1, 2]


async def test_what_was_put_off_unsent_is_not_marked_and_what_may_have_arrived_is(queue, store):
    epoch = await claimed(store)
    await queue.finish_turn(S, epoch, [], [reply("r1"), reply("r2")])
    (first,) = await queue.lease_replies(["phone"], limit=10, lease_s=60)
    await queue.postpone_reply(first.number, delay_s=0, why="slow down", maybe_sent=False)
    (again,) = await queue.lease_replies(["phone"], limit=10, lease_s=60)
    assert (again.key, again.attempts) == ("r1", 0)
    await queue.postpone_reply(first.number, delay_s=0, why="no answer", maybe_sent=True)
    (again,) = await queue.lease_replies(["phone"], limit=10, lease_s=60)
    assert (again.key, again.attempts) == ("r1", 1)
    await queue.postpone_reply(first.number, delay_s=600, why="slow down", maybe_sent=False)
    assert await lent(queue) == []


async def test_what_is_refused_stands_in_nobodys_way(queue, store):
    epoch = await claimed(store)
    await queue.finish_turn(S, epoch, [], [reply("r1"), reply("r2")])
    (first,) = await queue.lease_replies(["phone"], limit=10, lease_s=60)
    await queue.mark_undeliverable(first.number, "the chat is gone")
    assert await lent(queue) == ["r2"]


async def test_of_a_session_that_is_deleted_nothing_is_left(queue, store):
    epoch = await claimed(store)
    await queue.post(inbound("a"))
    await queue.post(inbound("b", session=OTHER))
    await queue.finish_turn(S, epoch, [], [reply("r1")])
    await give_up(queue)
    await queue.forget_session(S)
    assert (await keys(queue), await lent(queue), await queue.list_dead_letters()) == ([], [], [])
    assert await keys(queue, OTHER) == ["b"]
    assert await queue.post(inbound("a"))


async def test_all_that_waits_is_there_after_a_restart(queue, store, place):
    epoch = await claimed(store)
    for key in ("a", "b"):
        await queue.post(inbound(key))
    await queue.post(inbound("c", session=OTHER))
    await give_up(queue, OTHER)
    first, _ = await numbers(queue)
    await queue.finish_turn(S, epoch, [first], [reply("r1"), reply("r2")])
    assert await lent(queue, lease=0.0) == ["r1"]
    await queue.close()
    await store.close()
    store, again = await place.open()
    try:
        assert await keys(again) == ["b"]
        assert await again.list_waiting_sessions() == [S]
        assert [one.session for one in await again.list_dead_letters()] == [OTHER]
        (found,) = await again.lease_replies(["phone"], limit=10, lease_s=60)
        assert (found.key, found.attempts) == ("r1", 1)
        await again.post(inbound("d"))
        assert await keys(again) == ["b", "d"]
        await again.finish_turn(S, epoch, [], [reply("r1")])
        await again.mark_delivered(found.number)
        assert await lent(again) == ["r2"]
    finally:
        await again.close()
        await store.close()


async def test_of_messages_that_are_erased_nothing_is_said_and_their_messages_wait_on(queue, store):
    epoch = await claimed(store)
    await queue.post(inbound("a", "the erased words"))
    await queue.post(inbound("b", "other words"))
    await queue.post(inbound("a", "the erased words", session=OTHER))
    await queue.finish_turn(S, epoch, [], [reply("r1", seq=7), reply("r2", seq=8)])
    await give_up(queue, S, "ProviderError: the erased words are not allowed")
    await queue.erase_messages(S, [7], ["a"])
    first, second = await queue.pending(S)
    assert (first.key, first.message.text) == ("a", "[erased]")
    assert (second.key, second.message.text) == ("b", "other words")
    assert [one.message.text for one in await queue.pending(OTHER)] == ["the erased words"]
    (dead,) = await queue.list_dead_letters()
    assert dead.why == "ProviderError: the details were erased together with a message"
    assert await lent(queue) == ["r2"]
    await queue.finish_turn(S, epoch, [], [reply("r1", seq=7)])
    assert await lent(queue) == []  # it is known, and does not leave after all


async def test_an_erased_reply_that_was_refused_does_not_come_back(queue, store):
    epoch = await claimed(store)
    await queue.finish_turn(S, epoch, [], [reply("r1", seq=7), reply("r2", seq=8)])
    for _ in range(2):
        (found,) = await queue.lease_replies(["phone"], limit=1, lease_s=60)
        await queue.mark_undeliverable(found.number, f"cannot parse {found.text}")
    await queue.erase_messages(S, [7], [])
    (dead,) = await queue.list_dead_letters()
    assert (dead.replies, dead.why) == (1, "the details were erased together with a message")
    assert await queue.revive(S)
    assert await lent(queue) == ["r2"]
