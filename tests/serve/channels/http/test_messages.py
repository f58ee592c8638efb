"""What is said is kept once and answered; what is answered can be watched."""

from __future__ import annotations

import asyncio

import pytest

from tests.pictures import JPEG_TEXT, PNG_TEXT, WAV_TEXT, png, text
from tests.serve.channels.http.running_apps import MESSAGES, Held, house, problem, until
from tests.serve.queue.queues import give_up, inbound, reply
from tests.serve.service.served_agents import FORBIDDEN, Censor
from trimtab.errors import ProviderFailureDetails
from trimtab.session.events import turn_event_to_json
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.testing import ScriptedCall
from trimtab_serve.client import ApiError, RemoteTurnFailed

pytestmark = pytest.mark.anyio

SESSION = "default/helper/one"
BROKEN = ProviderFailureDetails(kind="refused", message="no such key")


async def look(asked: ToolInvocation) -> str:
    return "It rains."


LOOK = Tool(
    definition={"name": "look", "description": "Look.", "input_schema": {"type": "object"}},
    run=look,
)


async def test_a_message_is_kept_and_answered():
    async with house("Hello.") as served, served.http() as http:
        answer = await http.post(MESSAGES, json={"text": "Hi.", "key": "k1"})
        assert answer.status_code == 202
        assert answer.json() == {
            "key": "k1",
            "duplicate": False,
            "after": 1,
            "events_url": "/v1/agents/helper/sessions/one/events",
        }
        assert answer.headers["location"] == "/v1/agents/helper/sessions/one/events?after=1"
        await served.turns.wait_until_idle()
        told = [(m.role, m.text, m.key) async for m in served.session().history()]
        assert told == [("user", "Hi.", "k1"), ("assistant", "Hello.", None)]


async def test_what_is_sent_again_with_its_key_is_not_said_again():
    async with house("Hello.") as served, served.http() as http:
        session = served.session()
        assert await session.ask("Hi.", key="k1") == "Hello."
        assert (await session.send("Hi.", key="k1")).duplicate
        assert await session.ask("Hi.", key="k1") == "Hello."
        headers = {"Idempotency-Key": "k1"}
        assert (await http.post(MESSAGES, json={"text": "Hi."}, headers=headers)).json()[
            "duplicate"
        ]
        other = await http.post(MESSAGES, json={"text": "Something else."}, headers=headers)
        told = problem(other, 422, "idempotency-key-reused")
        assert "another message already has the key k1" in told["detail"]
        served.leave_unanswered()
        await session.send("Waits.", key="k2")
        assert (await session.send("Waits.", key="k2")).duplicate
        with pytest.raises(ApiError, match="another message already has the key k2"):
            await session.send("Waits not.", key="k2")
        assert len([m async for m in session.history()]) == 2
        other = {"text": "Hi.", "key": "k2"}
        problem(await http.post(MESSAGES, json=other, headers=headers), 422, "invalid-request")


async def test_a_turn_with_tools_is_seen_as_it_happens():
    script = [ScriptedCall(name="look", arguments={}), "It rains, they say."]
    async with house(*script, tools=[LOOK]) as served:
        events = [event async for event in served.session().stream("How is the weather?")]
        kinds = [event.kind for event in events if event.kind != "message.delta"]
        assert kinds == [
            *("message", "turn.started", "model_call.finished", "message"),
            *("tool.started", "message", "model_call.finished", "message", "turn.finished"),
        ]
        tool = next(e.data for e in events if e.kind == "tool.started")
        assert (tool["name"], tool["arguments"]) == ("look", "{}")
        call = next(e.data for e in events if e.kind == "model_call.finished")
        assert (call["outcome"], call["limit"]) == ("ok", None)
        assert call["usage"]["output"] > 0
        result = next(e.data for e in events if e.data.get("tool_results"))
        assert result["role"] == "tool"
        assert result["tool_results"] == [
            {"call_id": tool["call_id"], "text": "It rains.", "is_error": False}
        ]
        pieces = "".join(e.data["text"] for e in events if e.kind == "message.delta")
        assert pieces == "It rains, they say."


async def test_pictures_come_with_the_message():
    async with house("A dot.") as served:
        picture = {"type": "image", "mime": "image/png", "data": PNG_TEXT}
        said = [{"type": "text", "text": "What is it?"}, picture]
        assert await served.session().ask(said) == "A dot."
        (first, _) = [m async for m in served.session().history()]
        assert [(m.type, m.mime) for m in first.media] == [("image", "image/png")]
        sent = served.provider.requests[0]["messages"][-1]["content"]
        assert [part["type"] for part in sent] == ["text", "image"]


CUT = text(png()[:20])
UNFIT = {
    "a type that nobody takes": (
        {"type": "image", "mime": "image/tiff", "data": "QUI="},
        (
            "parts.1.mime: the image (image/tiff) cannot be sent: its type is image/tiff; as image "
            "this model accepts image/png, image/jpeg, image/gif, image/webp"
        ),
    ),
    "a drawing of text": (
        {"type": "image", "mime": "image/svg+xml", "data": text(b"<svg/>")},
        "parts.1.mime: the image (image/svg+xml) cannot be sent: its bytes are image/svg+xml",
    ),
    "an archive": (
        {"type": "file", "mime": "application/zip", "data": "QUI="},
        (
            "parts.1.mime: the file (application/zip) cannot be sent: its type is "
            "application/zip; as file this model accepts application/pdf, text/plain"
        ),
    ),
    "two bytes": (
        {"type": "image", "mime": "image/png", "data": "QUI="},
        (
            "parts.1.data: the image (image/png) cannot be sent: its bytes are not image/png: they "
            "begin with 41 42"
        ),
    ),
    "a document of two bytes": (
        {"type": "document", "mime": "application/pdf", "data": "QUI="},
        "parts.1.data: the document (application/pdf) cannot be sent: its bytes are not",
    ),
    "a picture that is cut off": (
        {"type": "image", "mime": "image/png", "data": CUT},
        (
            "parts.1.data: the image (image/png) cannot be sent: it cannot be decoded: it is cut "
            "off after 20 bytes"
        ),
    ),
    "sound for a model that cannot hear": (
        {"type": "audio", "mime": "audio/wav", "data": WAV_TEXT},
        "parts.1.mime: the audio (audio/wav) cannot be sent: this model does not accept audio",
    ),
}


async def test_what_the_model_cannot_be_given_is_refused_with_the_field_and_what_is_taken():
    async with house("Fine.") as served, served.http() as http:
        for case, (part, words) in UNFIT.items():
            body = {"parts": [{"type": "text", "text": "Look."}, part]}
            told = problem(await http.post(MESSAGES, json=body), 422, "invalid-request")
            assert told["detail"].startswith(words), case
            field, _, detail = told["detail"].partition(": ")
            assert told["errors"] == [{"field": field, "detail": detail}]
            assert not await served.service.store.position("default/helper/one")
        assert served.provider.requests == []
        assert await served.session().ask("And now?") == "Fine."


async def test_a_picture_under_a_wrong_name_is_taken_under_its_own():
    async with house("A dot.", "Some notes.") as served:
        picture = {"type": "image", "mime": "image/png", "data": JPEG_TEXT}
        assert await served.session().ask([picture]) == "A dot."
        [block] = served.provider.requests[0]["messages"][-1]["content"]
        assert block["source"]["media_type"] == "image/jpeg"
        notes = {"type": "document", "mime": "text/plain", "data": text(b"Buy milk.")}
        assert await served.session().ask([notes]) == "Some notes."
        [block] = served.provider.requests[1]["messages"][-1]["content"]
        assert block["text"] == "[document, text/plain]\n Buy milk."


REJECTED = ProviderFailureDetails(kind="rejected", message="Could not process image", status=400)


async def test_what_the_provider_does_not_take_fails_one_message_and_not_the_session():
    async with house(REJECTED, "A dot.", REJECTED, "Hello.") as served:
        session = served.session()
        picture = {"type": "image", "mime": "image/png", "data": PNG_TEXT}
        with pytest.raises(RemoteTurnFailed, match="rejected: Could not process image"):
            await session.ask([{"type": "text", "text": "What is it?"}, picture])
        state = await session.state()
        assert (state.waiting, state.failure_reason) == (0, "rejected: Could not process image")
        assert [len(one.media) async for one in session.history()] == [1]
        assert await served.own.list_dead_letters() == []
        # Nothing is hidden before something else is said: it can be tried again as it is.
        assert await session.resume()
        await served.turns.wait_until_idle()
        assert (await session.state()).failure_reason is None
        events = [event async for event in session.stream([picture])]
        assert (events[-1].kind, events[-1].data["reason"]) == ("turn.finished", "rejected")
        assert events[-1].data["detail"] == "Could not process image"
        events = [event async for event in session.stream("Hello?")]
        hidden = next(event.data for event in events if event.kind == "context.edited")
        assert hidden["reason"] == "rejected by the provider: Could not process image"
        assert events[-1].data["reason"] == "done"
        sent = str(served.provider.requests[-1]["messages"])
        assert sent.count(PNG_TEXT) == 1  # of the message that was taken in the end
        assert (await session.why(hidden["handle"])).reason == hidden["reason"]


async def test_who_waits_for_a_message_that_was_put_off_gets_its_own_answer():
    async with house(provider=Censor(), session={"debounce": 0.05}) as served:
        session = served.session()
        texts = ("One.", "Two.", FORBIDDEN, "Three.")
        ends = await asyncio.gather(*map(session.ask, texts), return_exceptions=True)
        said = [message.text async for message in session.history() if not message.undone]
    answers = dict(zip(texts, ends, strict=True))
    assert str(answers.pop(FORBIDDEN)) == "rejected: flagged"
    for question, answer in answers.items():
        # The answer of its turn, which may have taken another message after it.
        assert str(answer) in said[said.index(question) :][1:3]


async def test_who_follows_later_sees_the_same_end():
    async with house(REJECTED, "Hello.") as served:
        session = served.session()
        with pytest.raises(RemoteTurnFailed):
            await session.ask("What is it?", key="k")
        again = [event async for event in session.stream("What is it?", key="k")]
        assert (again[-1].kind, again[-1].data["reason"]) == ("turn.finished", "rejected")


async def test_a_message_during_a_turn_is_answered_in_its_order():
    provider = Held("One moment.", "Both done.", after=3)
    async with house(provider=provider, session={"on_message": "queue"}) as served:
        session = served.session()
        first = asyncio.create_task(session.ask("First."))
        await provider.reached.wait()
        accepted = await session.send("Second.")
        assert not accepted.duplicate
        state = await session.state()
        assert (state.running, state.waiting) == (True, 2)
        provider.go_on.set()
        assert await first == "One moment."
        await served.turns.wait_until_idle()
        told = [m.text async for m in session.history()]
        assert told == ["First.", "One moment.", "Second.", "Both done."]


async def test_a_turn_that_failed_for_good_is_told_listed_and_tried_again():
    async with house(BROKEN, BROKEN, BROKEN, "At last.") as served, served.client() as client:
        session = client.session("helper", "one")
        with pytest.raises(RemoteTurnFailed, match="no such key"):
            await session.ask("Hi.")
        assert "no such key" in str((await session.state()).failure_reason)
        (dead,) = await client.list_dead_letters()
        assert (dead.agent, dead.name, dead.messages) == ("helper", "one", 1)
        async with served.http() as http:
            assert (await http.post("/v1/dead-letters/retry", json={})).json() == {"sessions": 1}
            await until(lambda: len(served.provider.requests) == 2)
            await served.turns.wait_until_idle()
            assert (
                await http.post("/v1/dead-letters/helper/one/retry", json={})
            ).status_code == 202
            await until(lambda: len(served.provider.requests) == 3)
            await served.turns.wait_until_idle()
            assert await session.resume()
            await served.turns.wait_until_idle()
            problem(await http.post("/v1/dead-letters/helper/one/retry", json={}), 404, "not-found")
        assert [m.text async for m in session.history()] == ["Hi.", "At last."]
        assert await client.list_dead_letters() == []


async def test_a_reply_that_never_arrived_fails_no_turn():
    provider = Held("Fine.", after=2)
    async with house(provider=provider) as served:
        session, queue = await served.own.create_session("helper", "one"), served.service.queue
        await queue.finish_turn(SESSION, 0, [], [reply("r1")])
        (lost,) = await queue.lease_replies(["phone"], limit=1, lease_s=60)
        await queue.mark_undeliverable(lost.number, "the bot was blocked")
        answer = asyncio.create_task(session.ask("How are you?"))
        await provider.reached.wait()
        assert (await session.state()).failure_reason is None
        provider.go_on.set()
        assert await answer == "Fine."


async def test_a_turn_that_was_given_up_is_told_however_many_sessions_are_called_alike():
    async with house() as served:
        queue = served.service.queue
        served.leave_unanswered()
        await served.session().send("Hi.")
        for name in (SESSION, *(f"{SESSION}{number}" for number in range(101))):
            await queue.post(inbound("k1", session=name))
            await give_up(queue, name, f"broken: {name}")
        assert (await served.session().state()).failure_reason == f"broken: {SESSION}"


async def test_a_turn_that_was_stopped_before_a_reply_is_resumed():
    provider = Held(ScriptedCall(name="look", arguments={}), "Done.", after=2)
    async with house(provider=provider, tools=[LOOK]) as served:
        session = served.session()
        running = asyncio.create_task(_kinds(session))
        await provider.reached.wait()
        assert await session.stop()
        async with asyncio.timeout(30):
            kinds = await running
        assert kinds[-1] == ("turn.finished", "stopped")
        assert not await session.stop()
        provider.go_on.set()
        assert await session.resume()
        await served.turns.wait_until_idle()
        assert [m.text async for m in session.history()][-1] == "Done."
        assert not await session.resume()


async def _kinds(session):
    return [(event.kind, event.data.get("reason")) async for event in session.stream("Go.")]


async def test_more_than_may_wait_is_refused_with_how_many():
    async with house(
        provider=Held("x"), max_queued_messages=2, session={"debounce": 30.0}
    ) as served:
        session = served.session()
        for number in range(2):
            await session.send(f"{number}")
        with pytest.raises(ApiError, match=r"2 messages wait \(limit 2\)") as refused:
            await session.send("One more.")
        assert (refused.value.status, refused.value.retry_after) == (429, 5)


UNFIT_BODIES = [
    ({}, "body", "set either text or parts"),
    ({"text": ""}, "text", "at least 1 character"),
    ({"text": 7}, "text", "valid string"),
    ({"text": "x", "parts": [{"type": "text", "text": "y"}]}, "body", "either text or parts"),
    ({"parts": []}, "parts", "at least 1"),
    ({"parts": [{"type": "image", "mime": "image/png"}]}, "parts.0.image", "data or url"),
    ({"parts": [{"type": "sound"}]}, "parts.0", "found using"),
    ({"text": "x", "key": "with space"}, "key", "pattern"),
    (
        *({"text": "x", "role": "system"}, "role"),
        "unknown field (the known fields are text, parts, key, user)",
    ),
    ({"txt": "x"}, "txt", "unknown field (did you mean text?)"),
    (
        {"parts": [{"type": "text", "text": "x", "body": 1}]},
        *("parts.0.text.body", "unknown field (the known fields are type, text)"),
    ),
    (
        {"parts": [{"type": "image", "mime": "image/png", "dat": "AA=="}]},
        *("parts.0.image.dat", "unknown field (did you mean data?)"),
    ),
    *(
        ({"text": "x", field: "y"}, field, "unknown field")
        for field in ("tenant", "session", "system", "__proto__")
    ),
    # A caller cannot play a tool or the model.
    ({"parts": [{"type": "tool_result", "call_id": "c", "text": "x"}]}, "parts.0", "found using"),
    ({"parts": [{"type": "tool_use", "id": "c", "name": "x"}]}, "parts.0", "found using"),
    ({"parts": [{"type": "thinking", "thinking": "x"}]}, "parts.0", "found using"),
    (
        {"parts": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
        *("parts.0.text.cache_control", "unknown field"),
    ),
]


async def test_a_body_that_does_not_fit_is_refused_with_the_field():
    async with house() as served, served.http() as http:
        for body, field, why in UNFIT_BODIES:
            told = problem(await http.post(MESSAGES, json=body), 422, "invalid-request")
            assert told["errors"][0]["field"] == field
            assert why in told["errors"][0]["detail"]
        listed = await http.get("/v1/agents/helper/sessions")
        assert listed.json()["sessions"] == []


async def test_a_reply_is_stopped_at_once_and_what_was_said_is_kept():
    provider = Held("One two three four five six seven eight nine ten.", after=6)
    async with house(provider=provider) as served:
        session = served.session()
        running = asyncio.create_task(_kinds(session))
        await provider.reached.wait()
        assert await session.stop()
        async with asyncio.timeout(30):
            kinds = await running
        assert kinds[-1] == ("turn.finished", "stopped")
        kept = [m.text async for m in session.history()][-1]
        assert kept
        assert kept != "Hi."
        assert "One two three four five six seven eight nine ten.".startswith(kept)
        await served.turns.wait_until_idle()
        assert (await session.state()).waiting == 0


async def test_what_a_turn_emits_has_the_same_names_and_values_over_http():
    """`on_event` and `--json` see a turn in memory, and HTTP sees it in the log."""
    script = [ScriptedCall(name="look", arguments={}), "It rains, they say."]
    async with house(*script, tools=[LOOK]) as served:
        with served.service.event_bus.subscribe(SESSION) as queue:
            events = [event async for event in served.session().stream("How is the weather?")]
            emitted = [queue.get_nowait() for _ in range(queue.qsize())]
        compared = {"message": 2, "tool.started": 1, "model_call.finished": 2}
        for event in emitted:
            values = turn_event_to_json(event)
            if (kind := values.pop("type")) in compared:
                for name in ("model", "seconds", "cost"):  # the log does not have them
                    values.pop(name, None)
                same = [e for e in events if e.kind == kind and values.items() <= e.data.items()]
                assert same, (kind, values)
                compared[kind] -= 1
        assert set(compared.values()) == {0}
