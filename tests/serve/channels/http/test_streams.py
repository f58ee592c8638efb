"""Streams: from anywhere, after any break, every event once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from unittest.mock import AsyncMock

import pytest

from tests.serve.channels.http.running_apps import (
    EVENTS,
    MESSAGES,
    PATIENCE,
    Held,
    house,
    problem,
    until,
)
from tests.serve.channels.http.test_messages import LOOK
from trimtab.engine.log.event import TurnProgressRecord
from trimtab.session import Session
from trimtab.testing import MemoryStore, ScriptedCall
from trimtab_serve.channels.http import sse as following_module
from trimtab_serve.channels.http.hub import SessionHub
from trimtab_serve.channels.http.message_keys import to_stored_key
from trimtab_serve.channels.http.sse import (
    SESSION_DELETED,
    SessionEventStream,
    StreamEndConditions,
    StreamPosition,
    encode_sse_frame,
    parse_event_id,
)
from trimtab_serve.client import ApiError, RemoteTurnFailed, ServerUnreachable

pytestmark = pytest.mark.anyio

LONG = "It rains in the morning, and in the afternoon the sun comes out for an hour or two."
STREAM = {"Accept": "text/event-stream"}
SESSION = "default/helper/one"
DELETED = 'event: turn.failed\ndata: {"reason":"deleted","detail":"the session was deleted"}'


def told(event):
    return (event.kind, event.id, event.data)


async def seen(session, after):
    """The events behind a place, up to the end of a turn."""
    found = []
    async with asyncio.timeout(PATIENCE), aclosing(session.follow_events(after)) as events:
        async for event in events:
            found.append(told(event))
            if event.kind == "turn.finished":
                break
    return found


async def test_whoever_comes_back_to_any_place_gets_exactly_what_follows_it():
    script = [ScriptedCall(name="look", arguments={}), LONG]
    async with house(*script, tools=[LOOK]) as served:
        session = served.session()
        async for _ in session.stream("How is the weather?"):
            pass
        whole = await seen(session, "0")
        assert len(whole) == len({place for _, place, _ in whole}) > 8
        for number, (_, place, _) in enumerate(whole[:-1]):
            assert await seen(session, place) == whole[number + 1 :]


@pytest.mark.parametrize("after", [2, 3, 4, 8])
async def test_a_reply_that_is_being_written_is_taken_up_where_the_connection_broke(after):
    """One reader drops and comes back while the model is at a piece; one never drops."""
    provider = Held(LONG, after=after)
    async with house(provider=provider, session={"on_disconnect": "continue"}) as served:
        session = served.session()
        pieces, place = "", None
        async with asyncio.timeout(PATIENCE), aclosing(session.stream("Well?")) as events:
            async for event in events:
                pieces += event.data["text"] if event.kind == "message.delta" else ""
                place = event.id or place
                if event.kind == ("message.delta" if after > 2 else "turn.started"):
                    break
        await provider.reached.wait()
        steady = asyncio.create_task(_text(session, "0"))
        provider.go_on.set()
        assert pieces + await _text(session, place) == LONG
        assert await steady == LONG


async def _text(session, after):
    pieces = ""
    async with asyncio.timeout(PATIENCE), aclosing(session.follow_events(after)) as events:
        async for event in events:
            if event.kind == "turn.finished":
                return pieces
            pieces += event.data["text"] if event.kind == "message.delta" else ""
            if event.kind == "message" and event.data["role"] == "assistant" and not pieces:
                pieces = event.data["text"]  # it was there when we came
    return pieces


async def test_a_message_that_is_sent_again_goes_on_behind_the_last_event():
    async with house(LONG) as served, served.http() as http:
        session = served.session()
        events = [told(event) async for event in session.stream("Well?", key="k1")]
        for number, (_, place, _) in enumerate(events[:-1]):
            headers = {**STREAM, "Last-Event-ID": str(place)}
            body = {"text": "Well?", "key": "k1"}
            answer = await http.post(MESSAGES, json=body, headers=headers)
            lines = answer.text.splitlines()
            # A piece that came before the usage was known stands behind it in the log.
            kinds = sorted(line[7:] for line in lines if line.startswith("event: "))
            assert kinds == sorted(kind for kind, _, _ in events[number + 1 :])
            ids = [line[4:] for line in lines if line.startswith("id: ")]
            assert ids[-2:] == [place for _, place, _ in events[number + 1 :]][-2:]
            assert answer.text.count(LONG) == sum(LONG in str(e) for e in events[number + 1 :])


async def test_a_turn_that_ends_as_the_server_closes_is_streamed_to_its_end():
    store = MemoryStore()
    session = await Session.create(store, SESSION, model="claude-sonnet-4-5")
    await session.add({"role": "user", "content": "Well?"}, key="k")
    recorder = session.recorder
    await recorder.claim()
    hub = SessionHub(store, SESSION)
    closing = False

    @asynccontextmanager
    async def hold_read():
        """The turn ends, and the server closes, right after the log was read."""
        nonlocal closing
        yield
        if stream._position.log_position == session.window.seq and not closing:
            await recorder.end_turn()
            closing = True
            hub.notify_log_changed()

    conditions = StreamEndConditions(
        is_closing=lambda: closing,
        is_caller_valid=AsyncMock(return_value=True),
        hold_read=hold_read,
        until_answered_key="k",
    )
    stream = SessionEventStream(store, SESSION, hub, StreamPosition(log_position=0), conditions)
    frames = b"".join([frame async for frame in stream.iterate_frames()])
    assert b"event: turn.finished" in frames
    assert b"event: reconnect" not in frames


async def test_a_place_that_the_log_does_not_reach_is_told_and_what_comes_next_follows():
    async with house("One.", "Two.") as served:
        session = served.session()
        await session.ask("First.")
        end = str((await session.state()).position)
        for place in (f"{int(end) + 1}", "999999"):
            async with asyncio.timeout(PATIENCE), aclosing(session.follow_events(place)) as events:
                assert told(await anext(events)) == ("stream.reset", end, {"unknown_id": place})
        async with asyncio.timeout(PATIENCE), aclosing(session.follow_events("999.5")) as events:
            first = await anext(events)
            assert told(first) == ("stream.reset", end, {"unknown_id": "999.5"})
            waiting = asyncio.create_task(anext(events))
            await until(lambda: served.offer.hubs._hubs)
            await session.send("Second.")
            assert (await waiting).data["text"] == "Second."


async def test_what_is_no_place_is_refused():
    async with house("One.") as served, served.http() as http:
        await served.session().ask("First.")
        for place in ("x", "-1", "1.2.3.4", "1e3", "٣", "9" * 19, "1;2", "../x"):
            answer = await http.get(EVENTS, params={"after": place})
            assert "must be an event id" in problem(answer, 422, "invalid-request")["detail"]
            if place.isascii():
                answer = await http.get(EVENTS, headers={"Last-Event-ID": place})
                problem(answer, 422, "invalid-request")


def test_a_place_is_read_as_it_is_written():
    for place in (
        StreamPosition(log_position=12),
        StreamPosition(log_position=12, text_chars=57),
        StreamPosition(log_position=12, text_chars=57, thinking_chars=3),
        StreamPosition(log_position=0, thinking_chars=3),
    ):
        assert parse_event_id(str(place)) == place


async def following(served, http):
    """Somebody who follows, when that has begun."""
    hub = served.offer.hubs._hubs["default/helper/one"]
    before = hub.subscribers
    task = asyncio.create_task(http.get(EVENTS))
    await until(lambda: hub.subscribers > before)
    return task


async def test_followers_are_told_when_the_server_stops_and_readers_of_an_answer_get_it_first():
    provider = Held(LONG, after=5)
    async with house(provider=provider) as served, served.http() as http:
        session = served.session()
        answer = asyncio.create_task(session.ask("Well?"))
        await provider.reached.wait()
        follower = await following(served, http)
        served.offer.drain()
        assert "event: reconnect" in (await follower).text
        with pytest.raises(ApiError, match="accepts no new messages") as refused:
            await session.send("More?")
        assert (refused.value.status, refused.value.retry_after) == (503, 1)
        provider.go_on.set()
        assert await answer == LONG


async def test_a_stream_ends_when_its_session_is_deleted():
    async with house("One.") as served, served.http() as http:
        session = served.session()
        await session.ask("First.")
        follower = await following(served, http)
        await session.delete()
        assert (await follower).text.endswith(f"{DELETED}\n\n")


async def test_an_answer_fails_with_its_session_and_does_not_begin_it_anew():
    provider = Held(LONG, after=5)
    async with house(provider=provider) as served:
        session = served.session()
        answer = asyncio.create_task(session.ask("Well?"))
        await provider.reached.wait()
        await session.delete()
        with pytest.raises(RemoteTurnFailed, match="the session was deleted"):
            await answer
        assert await served.service.store.position(SESSION) == 0
        assert len(provider.requests) == 1


async def test_whoever_comes_back_to_a_session_that_is_gone_does_not_begin_it_anew():
    async with house() as served, served.http() as http:
        headers = {**STREAM, "Last-Event-ID": "4.2"}
        answer = await http.post(MESSAGES, json={"text": "Well?", "key": "k1"}, headers=headers)
        assert "has no session one" in problem(answer, 404, "not-found")["detail"]
        assert await served.service.store.position(SESSION) == 0


@pytest.mark.parametrize("said", [None, 0, 1, 9])
async def test_a_stream_ends_when_another_process_deletes_its_session_or_begins_it_anew(
    said, monkeypatch
):
    """By its name alone it is the same session, however much is said in the new one."""
    monkeypatch.setattr(following_module, "LOG_POLL_INTERVAL_S", 0.01)
    async with house("One.") as served:
        session, store = served.session(), served.service.store
        await session.ask("First.")
        async with aclosing(session.follow_events("0")) as events:
            before = [await anext(events) for _ in range(await store.position(SESSION) - 2)]
            await store.delete(SESSION)
            if said is not None:
                anew = await Session.create(store, SESSION, model="claude-sonnet-4-5")
                for number in range(said):
                    await anew.add({"role": "user", "content": f"Anew {number}."})
            async with asyncio.timeout(PATIENCE):
                after = [told(event) async for event in events]
        assert before[-1].kind == "turn.finished"
        assert after == [("turn.failed", None, SESSION_DELETED)]


async def test_a_session_that_is_begun_anew_is_seen_being_written():
    """Whoever listens to it has heard of the longer one that was deleted amid a reply."""
    provider = Held(*[LONG] * 5, after=5)
    provider.go_on.set()
    async with house(provider=provider) as served:
        session = served.session()
        for number in range(3):
            await session.ask(f"{number}")
        provider.reached.clear()
        provider.go_on.clear()
        answer = asyncio.create_task(session.ask("Well?"))
        await provider.reached.wait()
        await until(lambda: served.offer.hubs._hubs[SESSION].partial_reply)
        await session.delete()
        with pytest.raises(RemoteTurnFailed):
            await answer
        pieces = ""
        async for event in session.stream("Anew."):
            if event.kind == "message.delta":
                pieces += event.data["text"]
                provider.go_on.set()
        assert pieces == LONG


async def test_a_stream_that_does_nothing_but_end_is_given_up(monkeypatch):
    async def run(self):
        yield b"retry: 1000\n\n"

    monkeypatch.setattr(following_module.SessionEventStream, "iterate_frames", run)
    async with house("One.") as served, served.client(reconnect_timeout=0.1) as client:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ServerUnreachable, match="ended the stream before its last event"):
                await client.session("helper", "one").ask("First.")


async def test_a_stream_that_says_that_it_is_alive_is_not_given_up(monkeypatch):
    patience, begun = 0.5, asyncio.get_running_loop().time()

    async def run(self):
        yield b": still here\n\n"
        if asyncio.get_running_loop().time() - begun > 2 * patience:
            yield encode_sse_frame(None, "turn.finished", {"reason": "done"})

    monkeypatch.setattr(following_module.SessionEventStream, "iterate_frames", run)
    async with house("One.") as served, served.client(reconnect_timeout=patience) as client:
        events = [event async for event in client.session("helper", "one").stream("First.")]
        assert [event.kind for event in events] == ["turn.finished"]


async def test_an_answer_ends_although_nobody_said_that_its_turn_was_over():
    """A process that dies between the reply and the end of its turn leaves the log so."""
    async with house("One.") as served:
        session = served.session()
        await session.ask("First.", key="k1")
        store = served.service.store
        events = [event async for event in store.events("default/helper/one")]
        assert isinstance(events[-1].body, TurnProgressRecord)
        await session.delete()
        torn = await Session.create(store, "default/helper/one", model="claude-sonnet-4-5")
        await torn.add({"role": "user", "content": "First."}, key=to_stored_key("k1"))
        await torn.add({"role": "assistant", "content": "One."})
        await torn.close()
        assert await session.ask("First.", key="k1") == "One."


async def test_a_reader_who_does_not_read_holds_nobody_up():
    texts = [LONG * 40] * 3
    async with house(*texts) as served, served.http() as http:
        session = served.session()
        await session.send("0")
        async with http.stream("GET", EVENTS, params={"after": "0"}) as slow:
            for number in range(1, 3):
                assert await session.ask(str(number)) == texts[0]
            read = b""
            async for chunk in slow.aiter_raw():
                read += chunk
                if read.count(b"event: turn.finished\n") == len(texts) or len(read) > 100_000:
                    break
        assert read.count(b"event: message\n") == 6


async def test_whoever_sends_with_a_place_that_the_log_does_not_reach_is_told_and_gets_the_answer():
    async with house("One.") as served, served.http() as http:
        session = served.session()
        await session.ask("First.", key="k1")
        headers = {**STREAM, "Last-Event-ID": "999"}
        answer = await http.post(MESSAGES, json={"text": "First.", "key": "k1"}, headers=headers)
        kinds = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
        assert (kinds[0], kinds[-1]) == ("stream.reset", "turn.finished")
        assert "One." in answer.text
