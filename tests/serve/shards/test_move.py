"""A session moves from one database to another: all of it, once, whatever happens meanwhile."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

from tests.serve.queue.postgres.workers import asked, member, until
from tests.serve.queue.queues import inbound
from tests.serve.schedules.places import schedule
from tests.serve.shards.shards import ONE
from trimtab.cli.app import app
from trimtab.engine.log.message import make_text_message
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import SessionMoved, SessionNotFound
from trimtab.session import Session
from trimtab.session.recorder import SessionRecorder
from trimtab.stores.postgres.moves import compute_move_lock_key
from trimtab_serve.channels.http.problems import convert_error_to_problem
from trimtab_serve.schedules.store import ScheduleNotPosted
from trimtab_serve.shards import move as moving
from trimtab_serve.shards.move import MoveRefused, Shards, open_shards
from trimtab_serve.shards.session_rows import (
    TABLES_THAT_STAY,
    copy_rows,
    list_session_tables,
)

pytestmark = pytest.mark.anyio

TWO = "acme/helper/two"
SAID = make_text_message("user", "said in the other database")


@asynccontextmanager
async def mover(source, target, **options):
    async with open_shards(source.conninfo, target.conninfo, "b", **options) as shards:
        shards.wait_for_turn_s = 0.0
        yield shards


async def move(source, target, session=ONE, **options):
    async with mover(source, target, **options) as shards:
        return await shards.move_session(session)


async def test_every_row_of_a_session_is_in_the_other_database_and_nowhere_else(source, target):
    await source.fill()
    before = await source.sums()
    assert all(count for count, _ in before.values()), before
    assert await move(source, target)
    assert await target.sums() == before
    assert {count for count, _ in (await source.sums()).values()} == {0}
    assert await source.jobs() == []


async def test_every_table_moves_or_says_why_it_stays(source):
    tables = await source.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'trimtab'::regnamespace"
        " AND relkind IN ('r', 'p') AND NOT relispartition"
    )
    async with source.queue.borrow_connection() as connection:
        moved = {table.name for table in await list_session_tables(connection, ONE)}
    by_session = await source.execute(
        "SELECT table_name FROM information_schema.columns"
        " WHERE table_schema = 'trimtab' AND column_name IN ('session', 'session_id')"
    )
    reasons = {*TABLES_THAT_STAY, "schedule_runs", "sessions"}
    assert {name for (name,) in tables} - {name for (name,) in by_session} <= reasons
    assert moved.isdisjoint(TABLES_THAT_STAY)


async def test_a_moved_session_continues_where_it_is_and_is_refused_where_it_was(source, target):
    await source.fill()
    await source.execute("DELETE FROM trimtab.dead")
    position = await source.store.position(ONE)
    kept = await Session.open(source.store, ONE)
    await move(source, target)
    assert await source.answers("d") == "b"
    assert await target.answers("d") == "taken"
    assert await target.waiting() == ["a", "b", "c", "schedule/default/helper/morning/1", "d"]
    assert await target.jobs() == [ONE]
    assert await target.store.position(ONE) == position
    assert await source.store.sessions() == []
    for late in (
        lambda: kept.add(SAID),
        kept.refresh,
        lambda: source.store.checkpoint(ONE, Snapshot(seq=1)),
        lambda: source.store.rewrite(ONE, [], lambda event: event),
        lambda: source.store.delete(ONE),
        lambda: Session.create(source.store, ONE, model="gpt-4o"),
    ):
        with pytest.raises(SessionMoved, match="'b'"):
            await late()
    opened = await Session.open(target.store, ONE)
    await SessionRecorder(opened).claim()
    assert opened.window.accounting.epoch == 2


async def test_a_session_moves_back_with_what_was_said_meanwhile(source, target):
    await source.fill()
    kept = await Session.open(source.store, ONE)
    await move(source, target)
    await (await Session.open(target.store, ONE)).add(SAID)
    await move(target, source)
    await kept.refresh()
    newest = kept.window.newest_user_entry
    assert newest is not None
    assert newest.message == SAID
    assert (await source.answers("d"), await target.answers("d")) == ("taken", "b")


class Killed(Exception):
    pass


def die_in(shards, step):
    """End both connections as the kernel does for a process that is killed."""

    async def die(*_arguments, **_options):
        for connection in (shards.source, shards.target):
            connection.pgconn.finish()
        raise Killed

    return (step, die)


@pytest.mark.parametrize(
    "step", ["_reserve_place", "copy_rows", "_close", "_hand_over", "delete_rows", "_open"]
)
async def test_after_a_kill_at_any_step_one_database_has_the_session_and_another_try_ends_it(
    source, target, step, monkeypatch
):
    await source.fill()
    before = await source.sums()
    with monkeypatch.context() as patched:
        async with mover(source, target) as shards:
            place = Shards if step.startswith("_") else moving
            patched.setattr(place, *die_in(shards, step))
            with pytest.raises(Killed):
                await shards.move_session(ONE)
    if step == "_open":  # it has left and not arrived: nobody may answer before it has
        assert (await source.answers("d"), await target.answers("d")) == ("b", "moving")
    else:
        assert await source.sums() == before
        answers = [await source.answers("d"), await target.answers("d")]
        assert answers[0] == "taken"
        # Nothing of the other database is sent here before it is closed for the session.
        assert answers[1] == ("taken" if step == "_reserve_place" else "moving")
        if step == "_reserve_place":
            await target.execute("DELETE FROM trimtab.inbox")
        before = await source.sums()
    assert await move(source, target)
    assert await target.sums() == before
    assert (await source.answers("e"), await target.answers("e")) == ("b", "taken")
    assert not await move(source, target)


async def test_a_closed_session_is_opened_by_the_first_request_after_its_mover_is_gone(
    source, target
):
    await source.fill()
    key = "(sha256, name, tenant, role, created_at) VALUES ('', 'phone', 'acme', 'talk', 0)"
    await source.execute(f"INSERT INTO trimtab.api_keys {key}")
    async with mover(source, target) as shards:
        async with shards.source.transaction():
            await shards._try_close(ONE, wait=False)
        await shards.source.execute("SELECT pg_advisory_lock($1)", [compute_move_lock_key(ONE)])
        assert await source.answers("d") == "moving"
        with pytest.raises(ScheduleNotPosted):
            await source.schedules().run_next_due(9e9, ["helper"])
    schedules = await source.schedules().run_next_due(9e9, ["helper"])
    assert schedules is not None
    assert await source.answers("d") == "taken"


async def test_a_post_that_waited_while_the_session_was_closed_is_refused(source, target):
    await source.fill()
    kept = await Session.open(source.store, ONE)
    async with mover(source, target) as shards:
        lock = [compute_move_lock_key(ONE)]
        await shards.source.execute("SELECT pg_advisory_lock($1)", lock)
        async with shards.source.transaction():
            await shards._try_close(ONE, wait=False)
            late = asyncio.create_task(source.queue.post(inbound("late", session=ONE)))
            adding = asyncio.create_task(kept.add(SAID))
            await until(lambda: has_waiting(source, 2))
        with pytest.raises(SessionMoved):
            await late
        with pytest.raises(SessionMoved):
            await adding
    assert "late" not in await source.waiting()


async def has_waiting(shard, count):
    rows = await shard.execute(
        "SELECT pid FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return len(rows) == count


async def test_rows_that_change_while_they_are_copied_are_copied_again(source, target, monkeypatch):
    await source.fill()
    copies = []

    async def copy_then_change(*arguments, **options):
        copies.append(options.get("whole"))
        await copy_rows(*arguments, **options)
        if len(copies) == 1:  # a message is erased in the log, and another one is added
            query = "UPDATE trimtab.events SET body = replace(body, 'after', 'erased')"
            await source.execute(query)
            await (await Session.open(source.store, ONE)).add(SAID)
        if len(copies) == 2:
            await source.execute("UPDATE trimtab.dead SET why = 'changed'")

    monkeypatch.setattr(moving, "copy_rows", copy_then_change)
    assert await move(source, target)
    assert copies == [None, False, True]
    assert await target.queue.dead_letter_reason(ONE) == "changed"
    texts = [entry.message.text for entry in (await open_window(target)).entries.values()]
    assert texts[-2:] == ["erased the checkpoint", SAID.text]


async def open_window(shard):
    return (await Session.open(shard.store, ONE)).window


async def test_what_cannot_be_moved_stays_as_it_is(source, target):
    await source.fill()
    with pytest.raises(SessionNotFound):
        await move(source, target, TWO)
    await Session.create(target.store, ONE, model="gpt-4o")
    with pytest.raises(MoveRefused, match="of its own"):
        await move(source, target)
    async with mover(source, target) as first:
        lock = [compute_move_lock_key(ONE)]
        await first.source.execute("SELECT pg_advisory_lock($1)", lock)
        with pytest.raises(MoveRefused, match="another process"):
            await move(source, target)
    with pytest.raises(MoveRefused, match="same database"):
        await move(source, source)
    assert (await source.answers("d"), await target.answers("d")) == ("taken", "taken")


async def test_what_belongs_to_a_bot_or_to_agent_yaml_moves_only_on_request(source, target):
    chat, nightly = "default/helper/telegram:4242", "default/helper/nightly"
    for session in (chat, nightly):
        await Session.create(source.store, session, model="gpt-4o")
    await source.schedules().upsert(schedule(when="* * * * *", now=0.0, session=nightly))
    for session in (chat, nightly):
        with pytest.raises(MoveRefused, match="--with-bots"):
            await move(source, target, session)
    async with mover(source, target) as shards:
        with pytest.raises(MoveRefused, match="--with-bots"):
            await anext(aiter(shards.move_tenant("default")))
    assert await source.answers("d", "default/helper/new") == "taken"
    async with mover(source, target, with_bots=True) as shards:
        moved = [session async for session in shards.move_tenant("default")]
    assert moved == [nightly, chat]


async def test_a_tenant_moves_with_all_sessions_and_begins_new_ones_there(source, target):
    others = ["acme2/helper/one", "acm/helper/one"]
    for session in (ONE, TWO, *others):
        await Session.create(source.store, session, model="gpt-4o")
    async with mover(source, target) as shards:
        moves = shards.move_tenant("acme")
        assert await anext(moves) == ONE
        # Meanwhile: what has not moved is here, and what is new is there.
        assert await source.answers("d", TWO) == "taken"
        new = "acme/helper/new"
        assert (await source.answers("d", new), await target.answers("d", new)) == ("b", "taken")
        with pytest.raises(SessionMoved):
            await Session.create(source.store, new, model="gpt-4o")
        assert [session async for session in moves] == [TWO]
    assert [one.session for one in await source.store.sessions()] == sorted(others)
    assert await target.waiting(TWO) == ["d"]
    async with mover(target, source) as shards:
        assert len([session async for session in shards.move_tenant("acme")]) == 2
    assert await source.answers("d", new) == "taken"


async def test_the_keys_of_a_tenant_work_in_the_other_database(source, target):
    await Session.create(source.store, ONE, model="gpt-4o")
    await source.execute(
        "INSERT INTO trimtab.api_keys (sha256, name, tenant, agents, role, created_at, expires_at)"
        " VALUES ('1', 'web', 'acme', '{helper}', 'talk', 5, 9e9),"
        " ('2', 'other', 'acme2', NULL, 'admin', 5, NULL)"
    )
    for _ in range(2):
        async with mover(source, target) as shards:
            [session async for session in shards.move_tenant("acme")]
    rows = "SELECT sha256, name, tenant, agents, role, created_at, expires_at FROM trimtab.api_keys"
    assert await target.execute(rows) == [(b"1", "web", "acme", ["helper"], "talk", 5.0, 9e9)]


async def test_a_tenant_does_not_move_if_the_other_database_has_another_key_of_that_name(
    source, target
):
    await Session.create(source.store, ONE, model="gpt-4o")
    insert = "INSERT INTO trimtab.api_keys (sha256, name, tenant, role, created_at) VALUES "
    await source.execute(insert + "('1', 'web', 'acme', 'talk', 0)")
    await target.execute(insert + "('2', 'web', 'acme', 'talk', 0)")
    async with mover(source, target) as shards:
        with pytest.raises(MoveRefused, match="another key called 'web'"):
            await anext(aiter(shards.move_tenant("acme")))
    assert await source.answers("d", "acme/helper/new") == "taken"


async def test_a_turn_that_is_interrupted_by_a_move_is_answered_once_in_the_other_database(
    source, target, tmp_path
):
    session = "default/helper/one"
    async with member(source.conninfo, tmp_path, name="one") as one:
        await one.say("hold on")
        await until(lambda: asked(tmp_path))
        async with member(target.conninfo, tmp_path, name="two") as two:
            assert await move(source, target, session)
            (tmp_path / "go").touch()
            await two.quiet()
            await one.quiet()
            assert await two.texts() == ["hold on", "I am two."]
            assert len(await two.sent()) == 1
            assert await one.sent() == []


async def test_http_says_where_a_session_is_or_when_to_ask_again():
    for shard, status, headers in (
        (None, 503, {"Retry-After": "1"}),
        ("b", 421, {"Trimtab-Shard": "b"}),
    ):
        problem = convert_error_to_problem(SessionMoved(ONE, shard))
        assert problem is not None
        assert (problem.kind.status, problem.headers) == (status, headers)


def test_the_command_moves_a_session_and_a_tenant_and_says_so(database, second_database):
    source, target = database, second_database

    def run(*arguments):
        return CliRunner().invoke(app, ["move", *arguments], env={"TRIMTAB_STORE": source})

    asyncio.run(create(source, ONE, TWO))
    to = ("--to", target, "--shard", "b")
    first, again, rest = run(ONE, *to), run(ONE, *to), run("acme", *to)
    assert (first.exit_code, again.exit_code, rest.exit_code) == (0, 0, 0), first.stderr
    assert f"moved session {ONE} to b" in first.stderr
    assert f"session {ONE} was already moved" in again.stderr
    assert "moved 1 session of tenant acme to b" in rest.stderr
    assert run(ONE, "--to", "./folder", "--shard", "b").exit_code == 2
    assert run(ONE, "--to", target, "--shard", "b c").exit_code == 2
    assert run("acme/helper/none", *to).exit_code == 2
    mistyped = run("acmee", *to)
    assert mistyped.exit_code == 2
    assert "neither sessions nor keys of tenant acmee" in mistyped.stderr
    assert run("acme", *to).exit_code == 0


async def create(conninfo, *sessions):
    from tests.serve.shards.shards import opened

    async with opened(conninfo) as shard:
        for session in sessions:
            await Session.create(shard.store, session, model="gpt-4o")
