"""Users and tenants are forgotten whole, and nothing of others; what is exported is what goes."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import replace

import pytest

from tests import pictures
from tests.serve.forgetting import histories
from tests.serve.queue import queues
from tests.serve.queue.queues import reply
from tests.serve.service.served_agents import agent
from tests.session.find_text_in_store import places_of
from tests.stores.places import Files as FilesPlace
from tests.stores.places import Postgres as PostgresPlace
from trimtab.engine.log.edits import ERASED_PLACEHOLDER, erase_message_payload
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Media, Message, Text, ToolCall, ToolResult, make_text_message
from trimtab.engine.log.redaction import redactor
from trimtab.errors import StoreUnavailable
from trimtab.session import Session
from trimtab.stores.files import FileStore
from trimtab.testing import ScriptedProvider
from trimtab_serve.forgetting import erasure, export
from trimtab_serve.forgetting.user_shares import find_user_shares
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.schedules.schedule import Schedule, ScheduleOrigin
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.schedules.tools import build_erased_call_schedules_hook, derive_schedule_number
from trimtab_serve.schedules.triggers import parse_one_time_trigger
from trimtab_serve.service.erasure_records import FileErasureRecords, list_running_and_recorded
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.sender import find_sender, with_sender
from trimtab_serve.service.service import AgentService

pytestmark = pytest.mark.anyio

WORD = "zq4711needle"
ANNA, BOB = "telegram:1001", "telegram:2002"
GROUP = "default/helper/telegram:-500"
PICTURE = pictures.text(pictures.png(3, 2))


@pytest.fixture(params=["files"])
def place(request, tmp_path):
    with queues.made(request.param, tmp_path / "sessions") as found:
        yield found


@pytest.fixture
async def service(opened):
    store, queue = opened
    provider = ScriptedProvider("anthropic", ["So it is."] * 100)
    made = AgentService(
        agents={"helper": agent(provider, store)},
        store=store,
        queue=queue,
        event_bus=LocalEventBus(),
    )
    schedules = ScheduleStore(queue.transactions)
    if isinstance(store, FileStore):
        made.erasure_records = FileErasureRecords(store.root)
    else:
        from trimtab_serve.forgetting.postgres_records import PostgresErasureRecords

        made.erasure_records = PostgresErasureRecords(queue.borrow_connection)
    made.schedules = schedules
    made.delete_hooks.append(schedules.forget_session)
    made.erase_hooks.append(build_erased_call_schedules_hook(schedules))
    yield made
    await made.sessions.close()


async def holders(service, needle=WORD):
    store = service.store
    if isinstance(store, FileStore):
        return await places_of(needle, FilesPlace(store.root), store)
    async with service.queue.borrow_connection() as connection:
        return await places_of(needle, PostgresPlace(connection.info.dsn), store)


def by(user, text, *, private=False):
    return with_sender(make_text_message("user", text), user, is_private=private)


async def talk(store, session, *messages):
    """A session with these messages; the handles of them."""
    if await store.position(session):
        opened = await Session.open(store, session)
    else:
        opened = await Session.create(store, session, model="gpt-4o")
    handles = [
        await opened.add(one if isinstance(one, Message) else make_text_message("assistant", one))
        for one in messages
    ]
    await opened.recorder.checkpoint()
    await opened.close()
    return handles


async def texts(store, session):
    return [
        event.body.message.text
        async for event in store.events(session)
        if isinstance(event.body, MessageAdded)
    ]


def waiting(session, key, message):
    return InboundMessage(session=session, message=message, key=key, at=1.5, route=queues.PHONE)


def reminder(session, number, text, *, origin: ScheduleOrigin = "tool"):
    return Schedule(
        id=f"{session}/{number}" if origin == "tool" else "default/helper/daily",
        session=session,
        message=text,
        trigger=parse_one_time_trigger("2099-01-01 08:00", "UTC"),
        origin=origin,
        created_at=1.0,
        next_run_at=4e9,
    )


async def collect(lines):
    return [json.loads(json.dumps(line)) async for line in lines]


async def test_a_user_s_own_chat_is_deleted_with_all_that_waits_or_is_scheduled(service):
    own = f"default/helper/{ANNA}"
    # From before senders were recorded: the name alone says whose it is.
    await talk(service.store, own, make_text_message("user", f"I am {WORD}"), f"Hello {WORD}.")
    await service.queue.post(waiting(own, "w", by(ANNA, f"{WORD} again", private=True)))
    await service.queue.finish_turn(own, 99, [], [replace(reply("r", session=own), text=WORD)])
    await service.schedules.add(reminder(own, "1", f"Ask {WORD}"), limit=9)
    await service.schedules.upsert(reminder(own, "", "Good morning", origin="file"))
    opened = await Session.open(service.store, own)
    copy = await opened.fork("default/helper/a-copy")
    await copy.close()
    await talk(service.store, f"default/helper/{BOB}", by(BOB, "I am Bob", private=True), "Hello.")
    assert len(await holders(service)) >= 3

    done = await erasure.erase_user(service, "default", ANNA, by="office")

    assert (done.sessions, done.messages, done.configured_schedules) == (2, 0, ("helper/daily",))
    assert await holders(service) == []
    assert [one.session for one in await service.store.sessions()] == [f"default/helper/{BOB}"]
    again = await erasure.erase_user(service, "default", ANNA, by="office")
    assert (again.sessions, again.messages) == (0, 0)


async def test_a_chat_of_two_is_known_by_what_was_recorded_where_its_name_does_not_say_it(service):
    chat, other = "default/helper/discord:77", "default/helper/discord:78"
    old = make_text_message("user", f"before: {WORD}")
    await talk(service.store, chat, old, "Yes.", by("discord:5", "later", private=True), "Yes.")
    await talk(service.store, other, make_text_message("user", "somebody"), "Yes.")
    done = await erasure.erase_user(service, "default", "discord:5", by="office")
    assert done.sessions == 1
    assert await holders(service) == []
    assert await texts(service.store, other) == ["somebody", "Yes."]


async def test_in_a_group_the_user_s_messages_go_and_the_answers_to_them(service):
    picture = Media(kind="image", mime="image/png", data=PICTURE)
    call = ToolCall(id="c", name="look", arguments=json.dumps({"q": WORD}))
    found = ToolResult(call_id="c", content=(Text(text=f"{WORD} lives there"),))
    await talk(
        service.store,
        GROUP,
        by(BOB, "Who was that?"),
        "Nobody.",
        replace(by(ANNA, ""), parts=(Text(text=f"I am {WORD}"), picture), plain=False),
        Message(role="assistant", parts=(call,)),
        by(BOB, "Me too"),
        Message(role="tool", parts=(found,)),
        f"Hello {WORD}.",
        by(BOB, "And me?"),
        "Hello Bob.",
    )
    await service.queue.post(waiting(GROUP, "b", by(BOB, "Are you there?")))
    assert await holders(service)
    assert await holders(service, PICTURE)

    done = await erasure.erase_user(service, "default", ANNA, by="office")

    assert (done.sessions, done.messages) == (0, 4)
    assert await holders(service) == []
    assert await holders(service, PICTURE) == []
    assert await holders(service, ANNA) == []
    gone = ERASED_PLACEHOLDER
    said = [text for text in await texts(service.store, GROUP) if text != f"{gone}\n{gone}"]
    assert said == ["Who was that?", "Nobody.", "", "Me too", "", gone, "And me?", "Hello Bob."]
    (left,) = await service.queue.pending(GROUP)
    assert left.message.text == "Are you there?"


async def test_a_schedule_that_the_user_asked_for_goes_from_a_group_with_its_runs(service):
    session = await Session.create(service.store, GROUP, model="gpt-4o")
    await session.add(by(BOB, "hi"))
    await session.add(make_text_message("assistant", "Hi."))
    await session.add(by(ANNA, f"Remind me of {WORD}"))
    epoch = await session.recorder.claim()
    handle = await session.add(
        Message(role="assistant", parts=(ToolCall(id="c", name="schedule_task", arguments="{}"),))
    )
    key = f"{GROUP}/{epoch}/{handle}.0/c"
    await session.recorder.record_tool_start(key)
    done = ToolResult(call_id="c", content=(Text(text="Scheduled."),))
    await session.add(Message(role="tool", parts=(done,)))
    await session.add(make_text_message("assistant", "I will."))
    number = derive_schedule_number(key)
    run = make_text_message("user", f"Tell her: {WORD}")
    await session.add(run, key=f"schedule/{GROUP}/{number}/123")
    await session.add(make_text_message("assistant", f"{WORD}, as you wished."))
    await session.close()
    await service.schedules.add(reminder(GROUP, number, f"Tell her: {WORD}"), limit=9)

    await erasure.erase_user(service, "default", ANNA, by="office")

    assert await holders(service) == []
    assert (await texts(service.store, GROUP))[:2] == ["hi", "Hi."]
    assert await service.schedules.find(session=GROUP) == []


async def test_messages_that_wait_in_a_group_are_answered_without_what_they_said(service):
    await talk(service.store, GROUP, by(BOB, "hi"), "Hi.")
    await service.queue.post(waiting(GROUP, "a", by(ANNA, f"I am {WORD}")))
    await service.queue.post(waiting(GROUP, "b", by(BOB, "I am Bob")))
    for one in await service.queue.pending(GROUP):
        await service.queue.dead_letter_session(one, None, f"Broken: {WORD} is refused", [])
    done = await erasure.erase_user(service, "default", ANNA, by="office")
    assert (done.sessions, done.messages, done.waiting) == (0, 0, 1)
    assert await holders(service) == []
    said = [one.message.text for one in await service.queue.pending(GROUP)]
    assert said == [ERASED_PLACEHOLDER, "I am Bob"]


async def test_a_user_of_whom_only_a_first_message_waits_is_forgotten_as_well(service):
    own = f"default/helper/{ANNA}"
    await service.queue.post(waiting(own, "a", by(ANNA, f"I am {WORD}", private=True)))
    done = await erasure.erase_user(service, "default", ANNA, by="office")
    assert done.sessions == 1
    assert await holders(service) == []


async def test_other_tenants_and_other_agents_keep_what_is_theirs(service):
    for session in ("acme/helper/x", "acme/other/x", "zeta/helper/x"):
        await talk(service.store, session, by("anna", f"I am {WORD}"), "Hello.")
    done = await erasure.erase_user(service, "acme", "anna", by="office", agents=("helper",))
    assert done.sessions == 1
    left = [one.session for one in await service.store.sessions()]
    assert left == ["acme/other/x", "zeta/helper/x"]


async def test_a_tenant_is_forgotten_whole(service):
    for name in ("one", "two"):
        await talk(service.store, f"acme/helper/{name}", by("anna", f"I am {WORD}"), "Hello.")
    await service.queue.post(waiting("acme/gone/new", "a", make_text_message("user", WORD)))
    await service.schedules.add(reminder("acme/helper/none", "1", WORD), limit=9)
    await talk(service.store, "acmes/helper/one", by("anna", "of another tenant"), "Hello.")
    done = await erasure.erase_tenant(service, "acme", by="office")
    assert done.sessions == 3
    assert await holders(service) == []
    assert [one.session for one in await service.store.sessions()] == ["acmes/helper/one"]
    again = await erasure.erase_tenant(service, "acme", by="office")
    assert again.sessions == 0


async def test_an_export_is_what_would_be_erased_and_says_where_it_ends(service):
    own = f"default/helper/{ANNA}"
    picture = Media(kind="image", mime="image/png", data=PICTURE)
    shown = Message(role="user", parts=(Text(text="Look"), picture), plain=False)
    await talk(service.store, own, with_sender(shown, ANNA, is_private=True), "I see.")
    await service.queue.post(waiting(own, "w", by(ANNA, "More", private=True)))
    await service.schedules.add(reminder(own, "1", "Ask her"), limit=9)
    messages = (by(BOB, "Hi"), "Hi Bob.", by(ANNA, "And I?"), "Hi Anna.")
    await talk(service.store, GROUP, *messages)

    lines = await collect(export.export_user(service, "default", ANNA))

    assert lines[0].pop("at") > 0
    assert lines[0] == {"kind": "export", "v": 1, "tenant": "default", "user": ANNA}
    assert lines[-1] == {"kind": "end", "sessions": 2, "messages": 5, "unreadable": []}
    told = [(one["kind"], one["session"], one.get("text")) for one in lines[1:-1]]
    assert told == [
        ("session", "helper/telegram:-500", None),
        ("message", "helper/telegram:-500", "And I?"),
        ("message", "helper/telegram:-500", "Hi Anna."),
        ("session", f"helper/{ANNA}", None),
        ("message", f"helper/{ANNA}", "Look"),
        ("message", f"helper/{ANNA}", "I see."),
        ("waiting", f"helper/{ANNA}", "More"),
        ("schedule", f"helper/{ANNA}", "Ask her"),
    ]
    assert [one["whole"] for one in lines if one["kind"] == "session"] == [False, True]
    look = lines[5]
    assert look["handle"].startswith("m")
    assert (look["role"], look["user"], look["at"] > 0) == ("user", ANNA, True)
    assert look["parts"][1] == {"media": "image", "mime": "image/png", "data": PICTURE}
    whole = await collect(export.export_tenant(service, "default"))
    assert "Hi Bob." in [one.get("text") for one in whole]
    assert whole[-1]["messages"] == 7


async def test_what_was_done_is_recorded_without_the_content_or_the_name(service):
    session = "acme/helper/one"
    messages = (by(ANNA, WORD), "Hello.", by(BOB, "hi"), "Hi.", by("carl", "me"), "Hi Carl.")
    await talk(service.store, session, *messages)
    records = service.erasure_records
    await erasure.erase_message(service, session, "m2", by="office", why=f"because of {BOB}")
    await erasure.erase_user(service, "acme", BOB, by="office")
    await erasure.delete_session(service, session, by="desk")
    await erasure.erase_tenant(service, "acme", by="office")
    with pytest.raises(LookupError):
        await erasure.delete_session(service, session, by="desk")
    await erasure.erase_tenant(service, "other", by="office")
    found = await records.newest("acme")
    told = [(one.kind, one.by, one.outcome, one.sessions, one.messages) for one in found]
    assert told == [
        ("tenant", "office", "done", 0, 0),
        ("session", "desk", "done", 1, 0),
        ("user", "office", "done", 0, 2),
        ("message", "office", "done", 0, 1),
    ]
    for name in (ANNA, BOB, WORD):
        assert await holders(service, name) == []
    of_bob = await records.newest("acme", target=await records.digest(BOB))
    assert [one.outcome for one in of_bob] == ["done"]
    assert [one.kind for one in await records.newest("acme", limit=1)] == ["tenant"]
    assert len(await records.newest(None)) == 5
    assert await records.digest(BOB) != await records.digest(ANNA)


async def test_a_record_that_a_crash_cut_off_spoils_no_other(service):
    records = service.erasure_records
    if not isinstance(records, FileErasureRecords):
        pytest.skip("a database cuts nothing off")
    await erasure.erase_tenant(service, "acme", by="one")
    path = service.store.root / ".erasures" / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    await erasure.erase_tenant(service, "acme", by="two")
    assert [one.by for one in await records.newest("acme")] == ["two"]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_sender_is_neither_redacted_nor_counted_and_goes_with_the_whole_message(service):
    opened = await Session.create(
        service.store, "default/helper/s", model="gpt-4o", redact=redactor("email")
    )
    plain = await opened.add(make_text_message("user", "ask a@example.com"))
    named = await opened.add(by("b@example.com", "ask a@example.com"))
    sizes = {handle: opened.window.entries[int(handle[1:])].sizes for handle in (plain, named)}
    assert sizes[plain] == sizes[named]
    message = opened.window.entries[int(named[1:])].message
    assert (message.text, find_sender(message)) == ("ask [redacted: email]", "b@example.com")
    both = replace(by("b", ""), parts=(Text(text="one"), Text(text="two")), plain=False)
    assert find_sender(erase_message_payload(both, 0)) == "b"
    assert find_sender(erase_message_payload(both, None)) is None


@pytest.mark.parametrize("kind", ["user", "tenant"])
async def test_an_erasure_that_never_comes_to_an_end_is_not_recorded_as_done(
    service, monkeypatch, kind
):
    delete = AgentService.delete_session
    # Each name comes before the last one in the list, so only the next pass finds it.
    numbers = iter(range(99, 0, -1))

    async def somebody_goes_on_writing(self, session, *args, **options):
        await delete(self, session, *args, **options)
        await talk(
            service.store,
            f"default/helper/{ANNA}:{next(numbers):02}",
            with_sender(make_text_message("user", "again"), ANNA),
            "Hello.",
        )

    await talk(
        service.store,
        f"default/helper/{ANNA}",
        with_sender(make_text_message("user", "hi"), ANNA),
        "Hello.",
    )
    monkeypatch.setattr(AgentService, "delete_session", somebody_goes_on_writing)
    erasing = (
        erasure.erase_user(service, "default", ANNA, by="test")
        if kind == "user"
        else erasure.erase_tenant(service, "default", by="test")
    )
    with pytest.raises(StoreUnavailable, match="10 passes"):
        await erasing
    newest = (await service.erasure_records.newest("default"))[0]
    assert newest.outcome == "failed"


@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.soak)])
async def test_what_is_found_of_a_user_is_what_a_search_of_all_sessions_finds(service, count):
    owned = shared = 0
    for seed in range(count):
        pick = random.Random(seed)  # noqa: S311 - a history, not a secret
        await histories.write_history(service, pick)
        for user in histories.USERS:
            found = await find_user_shares(service, "acme", user, None, [])
            searched = await find_user_shares(histories.scanned(service), "acme", user, None, [])
            # A fork comes before what it was copied from, but the search decides by how much.
            assert {*found} == {*searched}, (seed, user)
            owned += sum(share.is_own for share in found)
            shared += sum(not share.is_own for share in found)
        for one in await service.store.sessions(limit=1_000):
            if pick.random() < 0.7:
                await service.store.delete(one.session)
    assert min(owned, shared) > count


async def start(service, tenant="default", user=ANNA):
    return await erasure.start_erasure(service.erasure_records, tenant, user=user, by="office")


async def state(service, job):
    found = await erasure.find_erasure(service.erasure_records, job.tenant, job.id)
    assert found is not None
    return found


async def test_a_job_that_a_process_left_is_continued_by_the_next(service, monkeypatch):
    for name in ("one", "two", "three"):
        await talk(service.store, f"default/helper/{name}", by(ANNA, f"I am {WORD}"), "Hello.")
    delete, deleted = AgentService.delete_session, asyncio.Event()

    async def one_and_no_more(self, session):
        if deleted.is_set():
            await asyncio.Event().wait()
        await delete(self, session)
        deleted.set()

    job = await start(service)
    with monkeypatch.context() as patch:
        patch.setattr(AgentService, "delete_session", one_and_no_more)
        running = asyncio.create_task(erasure.run_erasure(service))
        await deleted.wait()
        # The same request again is the same job, and nobody else can run it now.
        assert (await start(service)).id == job.id
        assert not await erasure.run_erasure(service)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    left = await state(service, job)
    assert (left.state, left.user, left.sessions, left.to_do) == ("running", ANNA, 1, 2)
    (listed,) = await list_running_and_recorded(service.erasure_records, "default")
    assert (listed.outcome, listed.id) == ("running", job.id)
    assert await erasure.run_erasure(service)
    ended = await state(service, job)
    assert (ended.state, ended.user, ended.sessions, ended.to_do) == ("done", "", 3, 0)
    assert await holders(service) == []
    assert await holders(service, ANNA) == []
    (listed,) = await list_running_and_recorded(service.erasure_records, "default")
    assert (listed.outcome, listed.id, listed.sessions) == ("done", job.id, 3)
    assert not await erasure.run_erasure(service)


async def test_what_was_erased_before_a_process_is_killed_is_counted(service, monkeypatch):
    for name in "abc":
        await Session.create(service.store, f"acme/helper/{name}", model="gpt-4o")
    job = await erasure.start_erasure(service.erasure_records, "acme", by="test")
    delete, stored_counts = AgentService.delete_session, list[int]()

    async def look_then_delete(self, session):
        stored_counts.append((await state(service, job)).sessions)
        await delete(self, session)

    monkeypatch.setattr(AgentService, "delete_session", look_then_delete)
    assert await erasure.run_erasure(service)
    assert stored_counts == [0, 1, 2]


async def test_the_jobs_of_a_tenant_run_one_at_a_time_and_those_of_others_beside_them(service):
    first, second, other = [
        await start(service, tenant, user)
        for tenant, user in (("acme", ANNA), ("acme", BOB), ("zeta", ANNA))
    ]
    records = service.erasure_records
    leased = [await records.claim_job(None, lease_s=60) for _ in range(3)]
    assert [job and job.id for job in leased] == [first.id, other.id, None]
    assert await records.claim_job(second.id, lease_s=60) is None
    await records.save_job(replace(first, finished_at=time.time(), user=""))
    again = await records.claim_job(None, lease_s=60)
    assert again is not None
    assert again.id == second.id
    assert await records.claim_job(first.id, lease_s=60) is None


async def test_a_job_fails_when_the_store_was_unavailable_several_times(service, monkeypatch):
    async def unavailable(*_):
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(erasure, "find_user_shares", unavailable)
    monkeypatch.setattr(erasure, "LEASE_S", 0.0)
    job = await start(service)
    for attempt in range(1, erasure.MAX_ATTEMPTS + 1):
        assert (await state(service, job)).state == "running"
        assert await erasure.run_erasure(service)
        assert (await state(service, job)).attempts == attempt
    ended = await state(service, job)
    assert (ended.state, ended.reason) == ("failed", "the disk is full")
    assert not await erasure.run_erasure(service)


async def test_a_fork_that_was_copied_before_and_written_after_an_erasure_is_deleted(service):
    await talk(service.store, GROUP, by(BOB, "hi"), "Hi.", by(ANNA, f"I am {WORD}"), "Hello.")
    await talk(service.store, "default/helper/bob", by(BOB, "I am Bob."), "Hello.")
    job = await start(service)

    async def fork(session, since):
        opened = await Session.open(service.store, session)
        await (await opened.fork("default/helper/copy")).close()
        await opened.close()
        await erasure.delete_copy_of_erased_data(service, "default/helper/copy", since)

    now = time.time()
    for finished_at in (None, now - 30):
        await service.erasure_records.save_job(replace(job, finished_at=finished_at))
        with pytest.raises(erasure.CopyOfErasedData):
            await fork(GROUP, now)
        assert await service.store.position("default/helper/copy") == 0
    await fork("default/helper/bob", now)
    await service.delete_session("default/helper/copy")
    await fork(GROUP, now + 3_600)
