"""The queue of one machine: one process, shared commits, and nothing left of what is erased."""

import asyncio
import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests import warm
from tests.serve.queue.queues import S, claimed, give_up, inbound, keys, lent, numbers, reply
from tests.serve.service.served_agents import until
from tests.soak.crash.sqlite_calls import can_wrap_sqlite_writes
from trimtab.errors import LogDamaged, StoreFull, StoreNotWritable, StoreUnavailable
from trimtab.stores.files import FileStore
from trimtab_serve.queue.sqlite import database as databases
from trimtab_serve.queue.sqlite import queue as sqlite_queue
from trimtab_serve.queue.sqlite.database import QueueInUse, SqliteDatabase
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
TWO = "default/helper/two"
GREP, MOUNT, UMOUNT = (shutil.which(name) or name for name in ("grep", "mount", "umount"))
HOLDER = """
import asyncio, sys
from trimtab.stores.files import FileStore
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue

async def main():
    await SqliteMessageQueue.open(FileStore(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


@contextmanager
def holder(root):
    """Another process that serves from the folder."""
    with warm.Popen(
        [sys.executable, "-c", HOLDER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


async def opened(root, **own):
    return await SqliteMessageQueue.open(FileStore(root), **own)


def database_of(root):
    return root / ".server" / "server.db"


def inside(queue) -> SqliteDatabase:
    assert isinstance(queue.database, SqliteDatabase)
    return queue.database


def found_in_files(root, word):
    """Names of the files that hold a word. Looked at by another process: one that opens and closes
    the files of a database would lose its own locks on them."""
    told = subprocess.run(
        [GREP, "-rlF", word, str(root / ".server")], capture_output=True, text=True, check=False
    )
    return sorted(Path(line).name for line in told.stdout.splitlines())


@contextmanager
def held_commit(queue, monkeypatch):
    """Commits that wait until they are let go; gives what is set when one does, and what lets it
    go."""
    begun, go, real = threading.Event(), threading.Event(), SqliteDatabase._commit

    def held(database):
        begun.set()
        go.wait(10)
        real(database)

    with monkeypatch.context() as patched:
        patched.setattr(SqliteDatabase, "_commit", held)
        try:
            yield begun, go
        finally:
            go.set()


@pytest.mark.process
async def test_a_second_process_is_refused_and_told_who_serves(tmp_path):
    with holder(tmp_path) as process:
        with pytest.raises(QueueInUse, match=f"process {process.pid} serves") as refused:
            await opened(tmp_path)
        assert refused.value.holder == str(process.pid)
    queue = await opened(tmp_path)
    await queue.close()


async def test_the_queue_is_no_session(tmp_path):
    queue = await opened(tmp_path)
    await queue.post(inbound("a"))
    assert await FileStore(tmp_path).sessions() == []
    await queue.close()


async def test_nobody_else_may_read_it(tmp_path):
    before = os.umask(0)
    try:
        queue = await opened(tmp_path)
        await queue.post(inbound("a"))
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in (tmp_path / ".server").iterdir()
        }
        await queue.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("lock", "server.db", "server.db-shm", "server.db-wal"), 0o600)
    assert stat.S_IMODE((tmp_path / ".server").stat().st_mode) == 0o700


async def test_what_is_posted_beside_the_server_is_noticed_by_it(tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "FOREIGN_WRITE_POLL_S", 0.05)
    due = []
    queue = await opened(tmp_path, on_posted=due.append)
    await queue.post(inbound("a"))
    beside = await opened(tmp_path, serve=False)
    await beside.post(inbound("b", session=TWO))
    await beside.close()
    await until(lambda: TWO in due)
    assert await keys(queue, TWO) == ["b"]
    await queue.close()


async def test_a_database_of_a_later_release_is_refused(tmp_path):
    await (await opened(tmp_path)).close()
    with closing(sqlite3.connect(database_of(tmp_path))) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreUnavailable, match=r"format version 2, .* reads 1: upgrade trimtab"):
        await opened(tmp_path)


async def test_a_message_of_a_later_release_is_refused(tmp_path):
    queue = await opened(tmp_path)
    await queue.post(inbound("a"))
    await queue.close()
    with closing(sqlite3.connect(database_of(tmp_path))) as connection:
        connection.execute("""UPDATE inbox SET body = replace(body, '"v":1', '"v":2')""")
        connection.commit()
    queue = await opened(tmp_path)
    with pytest.raises(ValueError, match="unknown queue record version 2: this release reads 1"):
        await queue.pending(S)
    await queue.close()


async def test_a_file_that_is_no_database_is_damage_and_the_lock_is_given_back(tmp_path):
    queue = await opened(tmp_path)
    await queue.post(inbound("a"))
    await queue.close()
    data = database_of(tmp_path).read_bytes()
    database_of(tmp_path).write_bytes(b"nonsense" * (len(data) // 8))
    for _ in range(2):
        with pytest.raises(LogDamaged, match="restore it from a backup"):
            await opened(tmp_path)


async def test_writes_that_come_while_one_is_committed_share_the_next_commit(tmp_path, monkeypatch):
    commits, real = [], SqliteDatabase._commit
    queue = await opened(tmp_path)
    with held_commit(queue, monkeypatch) as (begun, go):
        held = SqliteDatabase._commit
        monkeypatch.setattr(
            SqliteDatabase, "_commit", lambda database: (commits.append(1), held(database))
        )
        first = asyncio.create_task(queue.post(inbound("first")))
        await until(begun.is_set)
        others = [asyncio.create_task(queue.post(inbound(f"k{n}"))) for n in range(200)]
        await until(lambda: len(inside(queue)._handed_in) == 200)
        go.set()
        assert all(await asyncio.gather(first, *others))
        assert len(await keys(queue, limit=500)) == 201
        assert len(commits) == 2
    monkeypatch.setattr(SqliteDatabase, "_commit", real)
    await queue.close()


async def test_a_write_that_fails_leaves_those_it_shares_a_commit_with_alone(tmp_path, monkeypatch):
    queue = await opened(tmp_path)

    def half(connection):
        queue.post_in_transaction(connection, inbound("half"))
        raise LookupError("after its first half")

    with held_commit(queue, monkeypatch) as (begun, go):
        tasks = [asyncio.create_task(queue.post(inbound("first")))]
        await until(begun.is_set)
        tasks += [
            asyncio.create_task(one)
            for one in (
                queue.post(inbound("b")),
                queue.database.write(half),
                queue.post(inbound("c")),
            )
        ]
        await until(lambda: len(inside(queue)._handed_in) == 3)
        go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in results] == [bool, bool, LookupError, bool]
    assert sorted(await keys(queue)) == ["b", "c", "first"]
    await queue.close()


async def test_a_message_whose_sender_was_cancelled_is_kept_and_its_turn_follows(
    tmp_path, monkeypatch
):
    due = []
    queue = await opened(tmp_path, on_posted=due.append)
    with held_commit(queue, monkeypatch) as (begun, go):
        task = asyncio.create_task(queue.post(inbound("a")))
        await until(begun.is_set)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        go.set()
    await queue.post(inbound("b", session=TWO))
    assert await keys(queue) == ["a"]
    assert due == [S, TWO]
    await queue.close()


async def test_a_message_that_is_answered_while_it_is_posted_again_is_not_kept_again(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    queue = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await queue.post(inbound("a"))
    looked, go, find = asyncio.Event(), asyncio.Event(), store.find_key

    async def slowly(session, key):
        found = await find(session, key)
        looked.set()
        await go.wait()
        return found

    store.find_key = slowly
    again = asyncio.create_task(queue.post(inbound("a")))
    await looked.wait()
    await queue.finish_turn(S, epoch, await numbers(queue), [])
    go.set()
    assert not await again
    assert await keys(queue) == []
    await queue.close()
    await store.close()


async def test_a_closed_queue_says_so(tmp_path):
    queue = await opened(tmp_path)
    await queue.close()
    for ask in (
        queue.depth,
        queue.list_waiting_sessions,
        queue.oldest_waiting_at,
        queue.check_writable,
    ):
        with pytest.raises(StoreUnavailable, match="closed"):
            await ask()
    with pytest.raises(StoreUnavailable, match="closed"):
        await queue.post(inbound("a"))


async def test_a_write_beyond_a_limit_of_files_leaves_nothing_and_the_next_one_works(tmp_path):
    queue = await opened(tmp_path)
    await queue.post(inbound("a"))
    size = (tmp_path / ".server" / "server.db-wal").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, limits[1]))
    try:
        results = await asyncio.gather(
            *(queue.post(inbound(f"k{n}", "x" * 400)) for n in range(2)), return_exceptions=True
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [type(one) for one in results] == [StoreUnavailable, StoreUnavailable]
    assert await keys(queue) == ["a"]
    assert await queue.post(inbound("k0"))
    await queue.check_writable()
    await queue.close()
    queue = await opened(tmp_path)
    assert await keys(queue) == ["a", "k0"]
    await queue.close()


@contextmanager
def small_disk(folder):
    """A disk of one megabyte."""
    folder.mkdir()
    made = subprocess.run(
        [MOUNT, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([UMOUNT, "-l", str(folder)], check=True)


def grow(disk):
    subprocess.run([MOUNT, "-o", "remount,size=4m", str(disk)], check=True)


@pytest.mark.process
@pytest.mark.skipif(shutil.which("mount") is None, reason="needs mount")
async def test_on_a_full_disk_what_was_acknowledged_stays_and_nothing_else_is_said_to_be(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        store = FileStore(disk, fsync=False)
        queue = await SqliteMessageQueue.open(store)
        epoch = await claimed(store)
        kept = []

        async def fill():
            for number in range(1_000):
                await queue.post(inbound(f"k{number}", "x" * 3_000))
                kept.append(f"k{number}")

        with pytest.raises(StoreFull, match="no space is left"):
            await fill()
        assert len(kept) > 20
        with pytest.raises(StoreFull):
            await queue.check_writable()
        assert await keys(queue, limit=2_000) == kept
        with pytest.raises(StoreFull):
            # What cannot be overwritten cannot be said to be gone.
            await queue.forget_session(TWO)
        await store.close()
        grow(disk)
        await queue.check_writable()
        assert await queue.post(inbound("more"))
        await queue.finish_turn(S, epoch, (await numbers(queue))[:1], [])
        assert (await keys(queue, limit=2_000)) == [*kept[1:], "more"]
        await queue.close()
        queue = await opened(disk)
        assert (await keys(queue, limit=2_000)) == [*kept[1:], "more"]
        await queue.close()


async def test_another_process_that_writes_is_waited_for_and_then_named(tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "BUSY_TIMEOUT_S", 1.0)
    queue = await opened(tmp_path)
    with closing(sqlite3.connect(database_of(tmp_path), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another process"):
            await queue.post(inbound("a"))
        waiting = asyncio.create_task(queue.post(inbound("b")))
        await asyncio.sleep(0.05)
        assert await queue.pending(S) == []  # those who read are not held up
        other.execute("ROLLBACK")
        assert await waiting
    assert await keys(queue) == ["b"]
    await queue.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_folder_that_may_not_be_written_to_is_named(tmp_path):
    await (await opened(tmp_path)).close()
    database_of(tmp_path).chmod(0o400)
    (tmp_path / ".server").chmod(0o500)
    with pytest.raises(StoreNotWritable):
        await opened(tmp_path)


async def exchange(queue, epoch, number):
    """A message that comes, is answered, and whose reply leaves."""
    await queue.post(inbound(f"k{number}", "x" * 300))
    await queue.finish_turn(S, epoch, await numbers(queue), [reply(f"r{number}", seq=number)])
    (found,) = await queue.lease_replies(["phone"], limit=1, lease_s=60)
    await queue.mark_delivered(found.number)


async def test_the_database_is_of_what_waits_and_not_of_what_ever_was(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_queue, "MAX_KEPT_REPLIES", {"sent": 50, "refused": 5})
    monkeypatch.setattr(sqlite_queue, "REPLIES_BETWEEN_CLEANUPS", 20)
    store = FileStore(tmp_path, fsync=False)
    queue = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)

    def pages():
        return inside(queue)._writer.execute("PRAGMA page_count").fetchone()[0]

    for number in range(80):
        await exchange(queue, epoch, number)
    before = pages()
    for number in range(80, 200):
        await exchange(queue, epoch, number)
    assert pages() <= before + 2
    await queue.finish_turn(S, epoch, [], [reply("r199"), reply("r200")])
    assert await lent(queue) == ["r200"]
    await queue.close()
    await store.close()


async def test_numbers_are_never_given_twice(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    queue = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await queue.post(inbound("a"))
    (first,) = await numbers(queue)
    await queue.finish_turn(S, epoch, [first], [])
    await queue.forget_session(S)
    await queue.close()
    queue = await SqliteMessageQueue.open(store, fsync=False)
    await queue.post(inbound("b", session=TWO))
    assert await numbers(queue, TWO) > [first]
    await queue.close()
    await store.close()


async def test_what_an_earlier_process_was_sending_is_due_at_once_and_marked(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    queue = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await queue.finish_turn(S, epoch, [], [reply("lent")])
    await claimed(store, TWO)
    await queue.finish_turn(TWO, epoch, [], [reply("put off", session=TWO)])
    first, second = await queue.lease_replies(["phone"], limit=9, lease_s=600)
    await queue.postpone_reply(second.number, delay_s=600, why="slow down", maybe_sent=False)
    await queue.close()
    queue = await SqliteMessageQueue.open(store, fsync=False)
    found = await queue.lease_replies(["phone"], limit=9, lease_s=60)
    assert [(one.key, one.attempts) for one in found] == [(first.key, 1)]
    await queue.close()
    await store.close()


async def test_what_will_never_arrive_is_sent_again_before_what_came_later(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    queue = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await queue.finish_turn(S, epoch, [], [reply("r1"), reply("r2"), reply("r3")])
    (found,) = await queue.lease_replies(["phone"], limit=1, lease_s=60)
    await queue.mark_undeliverable(found.number, "blocked")
    (dead,) = await queue.list_dead_letters()
    assert (dead.session, dead.why, dead.messages, dead.replies) == (S, "blocked", 0, 1)
    await queue.close()
    queue = await SqliteMessageQueue.open(store, fsync=False)
    assert await queue.revive(S)
    sent = []
    while found := await queue.lease_replies(["phone"], limit=9, lease_s=60):
        sent.extend(one.key for one in found)
        for one in found:
            await queue.mark_delivered(one.number)
    assert sent == ["r1", "r2", "r3"]
    await queue.close()
    await store.close()


WORD = "zq4711"


async def told(root):
    """A queue that holds a word in every form: over, waiting, given up, answered and refused."""
    store = FileStore(root, fsync=False)
    queue = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    for key in ("over", "waits"):
        await queue.post(inbound(key, f"{WORD} {key}"))
    first, _ = await numbers(queue)
    made = [replace(reply(f"{S}/r{n}", seq=n), text=f"{WORD} {n}") for n in (7, 8)]
    await queue.finish_turn(S, epoch, [first], made)
    (refused,) = await queue.lease_replies(["phone"], limit=1, lease_s=60)
    await queue.mark_undeliverable(refused.number, f"cannot parse {WORD}")
    await give_up(queue, S, f"ProviderError: {WORD} is not allowed")
    await queue.post(inbound("other", "stays", session=TWO))
    assert found_in_files(root, WORD)
    return store, queue


@pytest.mark.process
async def test_of_a_deleted_session_no_byte_is_left_and_others_stay(tmp_path):
    store, queue = await told(tmp_path)
    await queue.forget_session(S)
    assert (found_in_files(tmp_path, WORD), found_in_files(tmp_path, S)) == ([], [])
    assert found_in_files(tmp_path, "stays") == ["server.db"]
    await queue.close()
    queue = await SqliteMessageQueue.open(store)
    assert await keys(queue, TWO) == ["other"]
    await queue.close()
    await store.close()


@pytest.mark.process
async def test_of_erased_messages_no_byte_is_left_and_their_messages_wait_on(tmp_path):
    store, queue = await told(tmp_path)
    await queue.erase_messages(S, [7, 8], ["over", "waits"])
    assert found_in_files(tmp_path, WORD) == []
    assert await keys(queue) == ["waits"]
    await queue.close()
    queue = await SqliteMessageQueue.open(store)
    assert [one.message.text for one in await queue.pending(S)] == ["[erased]"]
    await queue.close()
    await store.close()


@pytest.mark.process
async def test_of_many_messages_that_came_and_went_none_stands_in_a_corner_of_a_page(tmp_path):
    """When SQLite moves rows to another page it leaves copies, which deletion does not reach."""
    store = FileStore(tmp_path, fsync=False)
    queue = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await claimed(store, TWO)
    for number in range(600):
        session = (S, TWO)[number % 2]
        words = f"{WORD if session == S else 'other'} " * (1 + number * 37 % 160)
        await queue.post(inbound(f"k{number}", words, session=session))
        if number % 3:
            waiting = await numbers(queue, S)
            await queue.finish_turn(S, epoch, waiting[number % 5 :: 7], [])
    await queue.forget_session(S)
    assert found_in_files(tmp_path, WORD) == []
    assert len(await keys(queue, TWO, limit=999)) == 300
    await queue.close()
    await store.close()


@pytest.mark.process
async def test_whoever_wants_something_forgotten_is_told_where_it_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "BUSY_TIMEOUT_S", 0.1)
    store, queue = await told(tmp_path)
    with closing(sqlite3.connect(database_of(tmp_path), isolation_level=None)) as other:
        # Somebody looks at it for long: the log cannot be cut off meanwhile.
        other.execute("BEGIN")
        other.execute("SELECT * FROM inbox").fetchall()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="another process"):
                await queue.forget_session(S)
        assert found_in_files(tmp_path, WORD)
    await queue.forget_session(S)
    assert found_in_files(tmp_path, WORD) == []
    await queue.close()
    await store.close()


@pytest.mark.process
async def test_what_could_not_be_destroyed_is_destroyed_when_the_queue_is_closed_and_opened(
    tmp_path, monkeypatch
):
    def never(database):
        raise StoreUnavailable("ended here")

    store, queue = await told(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteDatabase, "_purge", never)
        with pytest.raises(StoreUnavailable, match="ended here"):
            await queue.erase_messages(S, [7, 8], ["over", "waits"])
        assert found_in_files(tmp_path, WORD)
        # As a process leaves it that is killed here.
        shutil.copytree(tmp_path / ".server", tmp_path / "copy" / ".server")
    await queue.close()
    again = await opened(tmp_path / "copy")
    assert found_in_files(tmp_path / "copy", WORD) == []
    assert await keys(again) == ["waits"]
    await again.close()
    await store.close()


@pytest.mark.process
async def test_a_database_that_holds_nothing_of_a_session_is_not_written_anew_for_it(
    tmp_path, monkeypatch
):
    store, queue = await told(tmp_path)
    await queue.forget_session(S)
    before = database_of(tmp_path).stat().st_mtime_ns
    await queue.forget_session(S)
    await queue.erase_messages(S, [7], ["over"])
    assert database_of(tmp_path).stat().st_mtime_ns == before
    await queue.close()
    await store.close()


def killed_at_writes(folder, step):
    if not can_wrap_sqlite_writes():
        pytest.skip("the SQLite of this Python cannot be reached, so its writes are not seen")
    # In a process of its own: it forks, which a process with threads should not.
    found = warm.run(
        [sys.executable, "-m", "tests.serve.queue.queue_crash", str(folder), str(step)],
        cwd=ROOT,
    )
    assert found.returncode == 0, found.stderr
    return int(found.stdout)


@pytest.mark.process
def test_a_process_that_is_killed_at_a_write_has_lost_and_doubled_nothing(tmp_path):
    assert killed_at_writes(tmp_path, 60) >= 6


@pytest.mark.process
@pytest.mark.soak
def test_the_same_at_each_single_write_of_the_queue(tmp_path):
    assert killed_at_writes(tmp_path, 1) >= 300


async def test_a_copy_that_sqlite_makes_while_it_is_served_is_whole(tmp_path):
    """As docs/operate.md says."""
    queue = await opened(tmp_path)
    posting = asyncio.gather(*(queue.post(inbound(f"k{n}", "x" * 500)) for n in range(50)))
    await queue.post(inbound("first", session=TWO))
    copy = tmp_path / "restored" / ".server" / "server.db"
    copy.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database_of(tmp_path))) as connection:
        connection.execute(f"VACUUM INTO '{copy}'")
    await posting
    await queue.close()
    restored = await opened(tmp_path / "restored")
    assert await keys(restored, TWO) == ["first"]
    await restored.close()
