"""The store in PostgreSQL: its tables, what is made from the log, and writers that meet."""

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection, AsyncRawCursor, conninfo, sql
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from typer.testing import CliRunner

from tests.agents import Clock
from tests.conversations import prose, user
from tests.session.summarised_chats import GOOD, rolling, writer
from tests.stores import places
from tests.stores.events import call, called, claimed, held, returned, said
from trimtab import stores
from trimtab.cli.app import app
from trimtab.engine.log.erase import erase_event_payload
from trimtab.engine.log.event import Edit, Event
from trimtab.engine.recall.search import (
    Query,
    get_searchable_text,
    rank_scored_positions,
    score_text,
)
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import (
    DatabaseNotMigrated,
    DatabaseSchemaTooNew,
    DuplicateIdempotencyKey,
    LogDamaged,
    PositionTaken,
    StaleOwner,
    StoreNotWritable,
    StoreUnavailable,
)
from trimtab.session import Session
from trimtab.session.loading import load_session_state
from trimtab.session.turn import run_turn
from trimtab.stores.large_texts import decompress_text
from trimtab.stores.postgres import PostgresStore, migrations
from trimtab.stores.postgres.append import build_append_statement
from trimtab.stores.postgres.connection_pool import ConnectionPool
from trimtab.stores.postgres.escaping import (
    compute_partition,
    compute_session_uuid,
    escape_for_text_column,
    unescape_from_text_column,
)
from trimtab.stores.postgres.migrations import (
    Migration,
    list_pending_migrations,
    load_migrations,
    migrate,
)
from trimtab.stores.postgres.queries import QUERIES
from trimtab.stores.postgres.store import LIST_BY_RECENCY_SQL
from trimtab.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@pytest.fixture
def empty(template):
    """A database without tables; the template says whether there is a server."""
    with places.database("") as made:
        yield made


@pytest.fixture
async def store(migrated):
    async with opened(migrated) as made:
        yield made


@asynccontextmanager
async def opened(database, **options):
    made = await PostgresStore.connect(database, **options)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def raw(database, *, autocommit=False):
    async with await AsyncConnection.connect(
        database, autocommit=autocommit, cursor_factory=AsyncRawCursor
    ) as connection:
        yield connection


async def rows(database, query, *parameters):
    async with raw(database, autocommit=True) as connection:
        return await (await connection.execute(query, parameters)).fetchall()


async def somebody_waits(database):
    """Return once a statement waits for a lock; each look is a round trip."""
    query = """SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    async with asyncio.timeout(20), raw(database, autocommit=True) as connection:
        while not await (await connection.execute(query)).fetchall():
            pass


def summary(seq, text, first=1, last=1):
    return Event(
        seq=seq, at=1e9 + seq, body=Edit(op="summarise", first=first, last=last, text=text)
    )


async def test_connections_have_a_name_of_ours_unless_they_were_given_one(migrated):
    async def named(database):
        pool = await ConnectionPool.open(database, max_size=1, wait=5, purpose="queue")
        try:
            return await pool.fetch(b"SELECT current_setting('application_name')", [])
        finally:
            await pool.close()

    assert await named(migrated) == [("trimtab queue",)]
    own = conninfo.make_conninfo(migrated, application_name="bots")
    assert await named(own) == [("bots",)]


async def test_a_pool_tells_what_is_lent_and_who_waits(migrated):
    pool = await ConnectionPool.open(migrated, max_size=2, wait=5)
    try:
        assert pool.usage() == (0, 2, 0)
        async with pool.borrow():
            assert pool.usage() == (1, 2, 0)
            async with pool.borrow():
                third = asyncio.create_task(pool.fetch(b"SELECT 1", []))
                await asyncio.sleep(0)
                assert pool.usage() == (2, 2, 1)
            assert await third == [(1,)]
        assert pool.usage() == (0, 2, 0)
    finally:
        await pool.close()


async def test_a_fresh_database_is_migrated_once(empty):
    names = [migration.name for migration in load_migrations()]
    assert await migrate(empty) == names
    assert await migrate(empty) == []
    found = await rows(empty, "SELECT name, checksum FROM trimtab.migrations ORDER BY version")
    assert found == [(migration.name, migration.checksum) for migration in load_migrations()]


async def test_many_may_migrate_at_once_and_each_step_is_done_by_one(empty):
    done = await asyncio.gather(*(migrate(empty) for _ in range(4)))
    assert sorted(name for each in done for name in each) == [one.name for one in load_migrations()]


def test_the_command_migrates_and_says_what_was_done(empty):
    def run(*arguments, env=None):
        done = CliRunner().invoke(app, ["migrate", *arguments], env=env)
        return done.exit_code, done.output

    status, said = run("--database", empty)
    assert status == 0
    *steps, queue = said.splitlines()
    assert steps == [f"applied {one.name}" for one in load_migrations()]
    assert queue.startswith("applied procrastinate ")
    assert run(env={"TRIMTAB_DATABASE": empty}) == (
        0,
        "nothing to do: the database is up to date\n",
    )
    assert run(env={"DATABASE_URL": empty}) == (0, "nothing to do: the database is up to date\n")
    assert run("--database", empty, "--json") == (0, '{"applied": []}\n')


async def test_a_database_without_tables_says_to_migrate(empty):
    with pytest.raises(
        DatabaseNotMigrated, match="has no tables of trimtab; run `trimtab migrate`"
    ):
        await PostgresStore.connect(empty)


LATER = Migration(
    version=2, name="0002_colours", sql=b"ALTER TABLE trimtab.dead ADD COLUMN colour text"
)
BREAKING = b"-- breaks: releases without 000%d\n"


async def apply_later_migrations(database, monkeypatch, *later):
    """Migrate a database as a later release would."""
    known = load_migrations()
    monkeypatch.setattr(migrations, "load_migrations", lambda: (*known, *later))
    done = await migrate(database)
    monkeypatch.undo()
    return done


async def test_a_release_runs_on_the_tables_of_the_next_one(migrated, monkeypatch, caplog):
    assert await apply_later_migrations(migrated, monkeypatch, LATER) == ["0002_colours"]
    async with opened(migrated) as store:
        await store.append("s", [said(1), call(2, 100)])
        await store.checkpoint("s", Snapshot(seq=2, state={}))
        assert await store.position("s") == 2
    assert await migrate(migrated) == []
    assert await list_pending_migrations(migrated) == []
    assert "is at version 2 (0002_colours), made by a newer release; this release" in caplog.text


@pytest.mark.parametrize(("needed", "known", "runs"), [(2, 1, False), (3, 2, False), (2, 2, True)])
async def test_a_release_refuses_tables_that_break_it(migrated, monkeypatch, needed, known, runs):
    """A column goes one release after its last use, so the previous release may still run."""
    dropped = Migration(
        version=3, name="0003_gone", sql=BREAKING % needed + b"DROP TABLE trimtab.dead"
    )
    await apply_later_migrations(migrated, monkeypatch, LATER, dropped)
    release = (*load_migrations(), LATER)[:known]
    monkeypatch.setattr(migrations, "load_migrations", lambda: release)
    for step in (migrate, list_pending_migrations, PostgresStore.connect):
        if runs:
            answer = await step(migrated)
            if isinstance(answer, PostgresStore):
                await answer.close()
            continue
        with pytest.raises(
            DatabaseSchemaTooNew,
            match=rf"version 3 \(0003_gone\), which needs a release that knows version {needed}; "
            rf"this release knows only versions up to {known}; upgrade trimtab",
        ):
            await step(migrated)


@pytest.mark.parametrize(
    "line", [b"-- breaks: everything\n", b"-- breaks\n", b"-- breaks: releases"]
)
def test_a_first_line_that_declares_nothing_readable_is_an_error(line):
    with pytest.raises(ValueError, match="first line of migration 0002_x cannot be read"):
        _ = Migration(version=2, name="0002_x", sql=line + b"SELECT 1").needed_version


def test_no_migration_needs_a_version_that_is_later_than_its_own():
    assert all(one.needed_version <= one.version for one in load_migrations())


async def test_a_migration_that_was_another_is_refused(migrated):
    await rows_none(migrated, "UPDATE trimtab.migrations SET checksum = 'x'")
    for step in (migrate, PostgresStore.connect):
        with pytest.raises(DatabaseSchemaTooNew, match=r"version 1 of database .* another release"):
            await step(migrated)


async def test_a_later_migration_is_applied_to_what_is_there(migrated, monkeypatch):
    first = load_migrations()
    await rows_none(migrated, "INSERT INTO trimtab.dead VALUES ('s', 'why', 1)")
    monkeypatch.setattr(migrations, "load_migrations", lambda: (*first, LATER))
    with pytest.raises(DatabaseNotMigrated, match="is at version 1, but this release needs 2"):
        await PostgresStore.connect(migrated)
    assert await list_pending_migrations(migrated) == ["0002_colours"]
    assert await migrate(migrated) == ["0002_colours"]
    assert await migrate(migrated) == []
    assert await rows(migrated, "SELECT session, colour FROM trimtab.dead") == [("s", None)]


async def rows_none(database, query):
    async with raw(database, autocommit=True) as connection:
        await connection.execute(query)


def test_an_address_in_place_of_connections_says_how_to_connect():
    with pytest.raises(TypeError, match=r"`await PostgresStore\.connect\(url\)`"):
        PostgresStore("postgresql://ann:secret@db/agents")  # pyright: ignore[reportArgumentType]


async def test_a_database_that_is_down_at_start_is_named():
    with pytest.raises(StoreUnavailable, match=r"database nowhere at 127\.0\.0\.1:1 cannot be"):
        await PostgresStore.connect("host=127.0.0.1 port=1 user=u password=hush dbname=nowhere")


async def test_conversation_context_has_the_summary_and_counts_all_messages(store, migrated):
    session = str(uuid4())
    await store.append(session, [said(1), said(2)])
    await store.append(session, [summary(3, "first"), said(4)])
    await store.checkpoint(session, Snapshot(seq=3))
    await store.append(session, [summary(5, "second \x00"), said(6, at=2e9)])
    found = await rows(
        migrated,
        """SELECT conversation_id, summary, message_count,
            extract(epoch FROM last_summarised_at)::float8, extract(epoch FROM updated_at)::float8
        FROM trimtab.conversation_context""",
    )
    assert found == [(UUID(session), "second \x01\x01", 4, 1e9 + 5, 2e9)]


async def test_conversation_context_is_up_to_date_after_each_run(store, migrated):
    name = str(uuid4())
    session = await rolling(store, name, clock=Clock())
    model = ScriptedProvider("anthropic", [f"answer {n} in src/part_{n}.py" for n in range(20)])
    query = """SELECT conversation_id, summary, message_count, last_summarised_at IS NOT NULL,
        updated_at >= last_summarised_at FROM trimtab.conversation_context"""
    for number in range(20):
        words = prose(300, f"question {number} of item_{number}")
        await run_turn(session, model, message=user(words), summariser=writer(GOOD))
        await session.wait_for_background()
        made = session.window.summary
        told = made.text if made is not None else None
        is_there = True if made is not None else None
        found = await rows(migrated, query)
        assert found == [(UUID(name), told, 2 * (number + 1), made is not None, is_there)]
    assert session.window.accounting.summary_stats.made >= 2


async def test_a_clock_that_is_far_off_spoils_no_view(store, migrated):
    await store.append("s", [said(1, at=1e300), replace(call(2, 1), at=-1e300)])
    found = await rows(migrated, "SELECT message_count FROM trimtab.conversation_context")
    assert found == [(1,)]
    assert [stored.updated for stored in await store.sessions()] == [-1e300]


async def test_a_large_text_is_kept_once_in_each_session_and_compressed(store, migrated):
    text = "la " * 10_000
    for session in ("one", "two"):
        await store.append(session, [said(1, text), said(2, text)])
    found = await rows(migrated, "SELECT length(data) FROM trimtab.blobs")
    assert len(found) == 2
    assert max(found)[0] < 1_000


async def test_a_read_only_database_is_named(migrated):
    limited = conninfo.make_conninfo(migrated, options="-c default_transaction_read_only=on")
    async with opened(limited) as made:
        with pytest.raises(StoreNotWritable, match="takes no writes"):
            await made.append("s", [said(1)])


async def test_of_ten_connections_at_one_position_one_wins(migrated):
    async with opened(migrated, max_size=10) as made:
        for seq in range(1, 21):
            tries = (made.append("s", [said(seq, f"writer {n}")]) for n in range(10))
            results = await asyncio.gather(*tries, return_exceptions=True)
            lost = [result for result in results if isinstance(result, PositionTaken)]
            assert (len(lost), results.count(None)) == (9, 1)
            assert {(error.requested, error.position) for error in lost} == {(seq, seq)}
        assert len(await held(made, "s")) == 20


async def test_a_key_is_taken_once_by_ten_connections(migrated):
    async with opened(migrated, max_size=10) as made:

        async def send():
            while True:
                seq = await made.position("s") + 1
                try:
                    return await made.append("s", [said(seq, key="k")])
                except PositionTaken:
                    continue

        results = await asyncio.gather(*(send() for _ in range(10)), return_exceptions=True)
        assert results.count(None) == 1
        assert {
            error.position for error in results if isinstance(error, DuplicateIdempotencyKey)
        } == {1}
        assert await made.position("s") == 1


async def test_an_append_that_meets_a_claim_in_flight_is_stale(store, migrated):
    await store.append("s", [claimed(1, 1)])
    async with raw(migrated) as other:
        await other.execute(*build_append_statement("s", [claimed(2, 2)], 2))
        with pytest.raises(PositionTaken):
            await store.append("s", [said(3)], epoch=1)
        stale = asyncio.create_task(store.append("s", [said(2)], epoch=1))
        await somebody_waits(migrated)
        await other.commit()
    with pytest.raises(StaleOwner) as refused:
        await stale
    assert (refused.value.epoch, refused.value.newest) == (1, 2)
    with pytest.raises(StaleOwner):
        await store.append("s", [said(3)], epoch=1)


async def test_a_claim_that_meets_an_append_in_flight_decides_again(store, migrated):
    await store.append("s", [claimed(1, 1)])
    async with raw(migrated) as other:
        await other.execute(*build_append_statement("s", [said(2)], 1))
        claim = asyncio.create_task(store.append("s", [claimed(2, 2)]))
        await somebody_waits(migrated)
        await other.commit()
    with pytest.raises(PositionTaken):
        await claim
    await store.append("s", [said(3)], epoch=1)  # the claim has left no trace


async def test_a_claim_survives_a_checkpoint_in_flight(store, migrated):
    await store.append("s", [said(1)])
    async with raw(migrated) as other:
        await other.execute(QUERIES["move_checkpoint"], [compute_session_uuid("s"), 1])
        claim = asyncio.create_task(store.append("s", [claimed(2, 7), call(3, 5)]))
        await somebody_waits(migrated)
        await other.commit()
    await claim
    with pytest.raises(StaleOwner):
        await store.append("s", [said(4)], epoch=6)
    assert await rows(migrated, "SELECT epoch, checkpoint FROM trimtab.sessions") == [(7, 1)]


async def test_a_session_is_begun_by_one(migrated):
    async with opened(migrated, max_size=10) as made:
        for round_ in range(5):
            tries = (made.append(f"s{round_}", [said(1, f"{n}")]) for n in range(10))
            results = await asyncio.gather(*tries, return_exceptions=True)
            assert results.count(None) == 1
            assert len(await held(made, f"s{round_}")) == 1


async def test_nothing_of_a_deleted_session_is_left_by_an_append_in_flight(store, migrated):
    await store.append("s", [said(1, "word " * 5_000), call(2, 5)])
    await store.checkpoint("s", Snapshot(seq=2))
    async with raw(migrated) as other:
        await other.execute(*build_append_statement("s", [said(3)], None))
        deletion = asyncio.create_task(store.delete("s"))
        await somebody_waits(migrated)
        await other.commit()
    await deletion
    for table in ("sessions", "events", "blobs", "words", "snapshots", "llm_calls"):
        assert await rows(migrated, f"SELECT FROM trimtab.{table}") == [], table


async def test_an_append_that_meets_a_deletion_in_flight_is_refused(store, migrated):
    await store.append("s", [said(1)])
    async with raw(migrated) as other:
        for name in ("delete_session", "delete_events"):
            await other.execute(QUERIES[name], [compute_session_uuid("s")])
        late = asyncio.create_task(store.append("s", [said(2)]))
        await somebody_waits(migrated)
        await other.commit()
    with pytest.raises(PositionTaken) as refused:
        await late
    assert refused.value.position == 0
    await store.append("s", [said(1, "anew")])


async def everything(database):
    """All that the tables hold, as COPY says it, and large texts as they were."""
    query = "SELECT relname FROM pg_stat_user_tables WHERE schemaname = 'trimtab'"
    tables = await rows(database, query)
    told: list[bytes] = []
    async with raw(database) as connection:
        for (table,) in tables:
            copied = sql.SQL("COPY (SELECT * FROM trimtab.{}) TO STDOUT").format(
                sql.Identifier(table)
            )
            async with connection.cursor().copy(copied) as copy:
                told += [bytes(block) async for block in copy]
    for (data,) in await rows(database, "SELECT data FROM trimtab.blobs"):
        told.append(decompress_text(data).encode("utf-8", "surrogatepass"))
    return b"\n".join(told)


async def test_an_erased_text_is_nowhere_in_the_database(store, migrated):
    secret, large = "hunter2secret", "hunter2secret " * 2_000
    events = [said(1, "hello"), said(2, secret), said(3, large), said(4, "other " * 3_000)]
    await store.append("s", [*events, summary(5, f"said {secret}", 1, 3), call(6, 5)])
    await store.checkpoint("s", Snapshot(seq=6))
    await store.append("s", [said(7, f"again {large}")])
    assert b"hunter2secret" in await everything(migrated)

    def change(event):
        for first, last in ((2, 3), (7, 7)):
            event = erase_event_payload(event, first, last)
        return event

    await store.rewrite("s", [said(8, "done")], change)
    assert b"hunter2" not in await everything(migrated)
    assert await store.search("s", "hunter", limit=5) == []
    assert await store.search("s", "other erased done", limit=5) == [8, 7, 4, 3, 2]
    assert len(await rows(migrated, "SELECT FROM trimtab.blobs")) == 1
    assert [event.seq async for event in store.events("s")] == list(range(1, 9))


async def test_a_message_of_very_many_words_is_found_by_each(store):
    words = " ".join(f"w{number:07}" for number in range(150_000))
    await store.append("s", [said(1, words), said(2, "w0000001")])
    await store.checkpoint("s", Snapshot(seq=2))
    assert await store.search("s", "w0000001 w0149999", limit=5) == [1, 2]


@pytest.fixture(scope="module")
def runner(template):
    """One loop and one store for all examples of a property."""
    with places.database(template) as database, asyncio.Runner() as loop:
        made = loop.run(PostgresStore.connect(database))
        yield loop, made
        loop.run(made.close())


WILD = st.text(st.sampled_from("aAbBéİſß'\\:*&|!() <->%_0١漢字ひカ한\n\x00\ud800🙂"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(WILD, min_size=1, max_size=8), query=WILD, at=st.integers(0, 8))
def test_a_search_finds_what_the_definition_finds(runner, texts, query, at):
    loop, made = runner
    session = str(uuid4())
    events = [said(seq, text) for seq, text in enumerate(texts, 1)]
    events += [called(len(events) + 1, "f", texts[0]), returned(len(events) + 2, texts[-1])]

    async def search():
        await made.append(session, events)
        if at:
            await made.checkpoint(session, Snapshot(seq=min(at, len(events))))
        return await made.search(session, query, limit=5)

    wanted = Query.parse(query)
    pure = rank_scored_positions(
        ((score_text(wanted, get_searchable_text(event)), event.seq) for event in events), 5
    )
    assert loop.run(search()) == pure


@given(st.lists(st.text(st.characters(), max_size=4), max_size=6))
def test_names_are_written_so_that_their_order_stays(names):
    stored = [escape_for_text_column(name) for name in names]
    assert [unescape_from_text_column(name) for name in stored] == names
    assert all("\x00" not in name for name in stored)
    assert [unescape_from_text_column(n) for n in sorted(stored, key=str.encode)] == sorted(names)


def test_no_two_names_meet_in_one_id():
    made = compute_session_uuid("a")
    assert compute_session_uuid(str(made)) != made
    own = uuid4()
    assert compute_session_uuid(str(own)) == own
    assert compute_session_uuid(str(own).upper()) != own


async def test_the_partition_is_the_one_that_postgresql_reckons(migrated):
    query = """SELECT n FROM generate_series(0, 15) AS n
        WHERE satisfies_hash_partition('trimtab.events'::regclass, 16, n, $1)"""
    async with raw(migrated, autocommit=True) as connection:
        for number in range(100):
            name = f"session {number}"
            found = await (await connection.execute(query, [compute_session_uuid(name)])).fetchall()
            assert found == [(compute_partition(name),)]


async def test_every_statement_of_a_session_scans_one_partition_of_a_table(migrated):
    """Planned for any session, as the store's connections plan them."""
    async with raw(migrated) as connection:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        for name, query in QUERIES.items():
            statement = query.decode()
            if "session = $1" not in statement or ":events" in statement:
                continue
            if "session_usage" in statement:  # a row for a session, in a table that is not divided
                continue
            await connection.execute(f"PREPARE {name} AS {statement}".encode())
            count = max(int(number) for number in re.findall(r"\$(\d+)", statement))
            given = ", ".join([f"'{uuid4()}'", *["NULL"] * (count - 1)])
            cursor = await connection.execute(f"EXPLAIN EXECUTE {name} ({given})".encode())
            plan = "\n".join(line for (line,) in await cursor.fetchall())
            partitions = set(re.findall(r"Scan [^\n]*on (\w+_\d\d) ", plan))
            assert partitions, plan
            assert len(partitions) == len({partition[:-3] for partition in partitions}), plan


async def test_no_connection_is_held_by_a_reader_that_pauses(migrated):
    async with opened(migrated, max_size=1, wait=5) as made:
        await made.append("s", [said(seq) for seq in range(1, 1_200)])
        reader = made.events("s")
        assert (await anext(reader)).seq == 1
        assert await made.position("s") == 1_199
        assert [event.seq async for event in reader] == list(range(2, 1_200))


def test_psycopg_errors_that_are_no_ones_fault_but_ours_stay_themselves():
    from trimtab.stores.postgres.error_translation import translate_psycopg_error

    assert translate_psycopg_error(psycopg.errors.SyntaxError("x"), "here") is None


async def test_events_without_the_row_of_their_session_are_an_error_and_no_wait(migrated):
    store = await PostgresStore.connect(migrated)
    try:
        session = await Session.create(store, "a", model="gpt-4o")
        await session.add(user("Hello."))
        await rows_none(migrated, "DELETE FROM trimtab.sessions")
        again = await Session.open_or_create(store, "a", model="gpt-4o")
        with pytest.raises(LogDamaged, match="nothing can be added to session 'a'"):
            await asyncio.wait_for(again.add(user("And now?")), 10)
    finally:
        await store.close()


async def test_turns_within_ten_seconds_leave_the_place_of_a_session_by_recency(store):
    clock = iter((100.0, 105.0, 110.0, 110.1, 90.0))

    def claim(seq):
        return Event(seq=seq, at=next(clock), body=claimed(seq, seq).body)

    await store.append("acme/a/x", [said(1, at=50.0)])
    places_by_recency = []
    for seq in range(2, 7):
        await store.append("acme/a/x", [claim(seq)])
        (entry,) = await store.recent_sessions("acme/a/")
        places_by_recency.append(entry.active)
    # A clock that was set back is believed.
    assert places_by_recency == [100.0, 100.0, 100.0, 110.1, 90.0]


async def test_sessions_of_a_user_and_by_recency_are_found_by_an_index(store, migrated):
    async with await AsyncConnection.connect(migrated, autocommit=True) as connection:
        await connection.execute("SET enable_seqscan = off")
        cursor = AsyncRawCursor(connection)
        for query, parameters, index in (
            (QUERIES["sessions_about"], [[1]], "events_00_subject_session_idx"),
            (LIST_BY_RECENCY_SQL, ["acme/a/", 9, 1e9, ""], "Backward using sessions_active"),
        ):
            await cursor.execute(b"EXPLAIN " + query, parameters)
            plan = "\n".join(line for (line,) in await cursor.fetchall())
            assert index in plan


async def test_no_plan_is_compiled(store):
    # It takes longer than to run any of our statements.
    assert await store._fetch(b"SELECT current_setting('jit')", []) == [("off",)]


async def test_a_store_shares_the_pool_of_an_application_and_leaves_it_as_it_was(migrated):
    """Its rows, its cursors and its transactions are those of the application."""
    options = {"row_factory": dict_row, "autocommit": False}
    async with AsyncConnectionPool(migrated, kwargs=options, min_size=1, open=False) as pool:
        store = await PostgresStore.connect(pool)
        session = await Session.create(store, "s", model="claude-sonnet-5-5")
        async with session.claim_turn(wait=0):  # the pool has no second connection
            await session.add(user("Hello."))
            await session.request()
        await store.checkpoint("s", await _snapshot_of(session))
        assert await store.search("s", "Hello", limit=1)
        with pytest.raises(PositionTaken):
            await store.append("s", [said(2)])
        await store.close()
        async with pool.connection() as connection:
            cursor = await connection.execute("SELECT %s::int AS number", [7])
            assert await cursor.fetchone() == {"number": 7}
            assert connection.info.transaction_status.name == "INTRANS"
    reopened = await PostgresStore.connect(migrated)
    assert [event.seq async for event in reopened.events("s")] == [1, 2, 3, 4, 5]
    await reopened.close()


async def _snapshot_of(session):
    state, _ = await load_session_state(session.store, session.id)
    return state.window.checkpoint()


async def test_a_program_migrates_its_database_without_the_command_line(empty):
    first = await stores.migrate(empty)
    assert first
    assert await stores.migrate(empty) == []
    async with await PostgresStore.connect(empty) as store:
        assert await store.position("s") == 0
