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

from benchmarks.crash.sqlite_calls import can_wrap_sqlite_writes
from tests.server.queues import S, claimed, give_up, keys, lent, letter, numbers, reply
from tests.server.served_agents import until
from trimtab.errors import LogDamaged, StoreFull, StoreNotWritable, StoreUnavailable
from trimtab.server.queue import sqlite as sqlite_queue
from trimtab.server.queue.sqlite import SqliteMessageQueue
from trimtab.server.sqlite import database as databases
from trimtab.server.sqlite.database import QueueInUse, SqliteDatabase
from trimtab.stores.files import FileStore

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
TWO = "default/helper/two"
GREP, MOUNT, UMOUNT = (shutil.which(name) or name for name in ("grep", "mount", "umount"))
HOLDER = """
import asyncio, sys
from trimtab.stores.files import FileStore
from trimtab.server.queue.sqlite import SqliteMessageQueue

async def main():
    await SqliteMessageQueue.open(FileStore(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


@contextmanager
def holder(root):
    """Another process that serves from the folder."""
    with subprocess.Popen(
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
    mail = await opened(tmp_path)
    await mail.close()


async def test_the_queue_is_no_session(tmp_path):
    mail = await opened(tmp_path)
    await mail.post(letter("a"))
    assert await FileStore(tmp_path).sessions() == []
    await mail.close()


async def test_nobody_else_may_read_it(tmp_path):
    before = os.umask(0)
    try:
        mail = await opened(tmp_path)
        await mail.post(letter("a"))
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in (tmp_path / ".server").iterdir()
        }
        await mail.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("lock", "server.db", "server.db-shm", "server.db-wal"), 0o600)
    assert stat.S_IMODE((tmp_path / ".server").stat().st_mode) == 0o700


async def test_what_is_posted_beside_the_server_is_noticed_by_it(tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "FOREIGN_WRITE_POLL_S", 0.05)
    due = []
    mail = await opened(tmp_path, on_posted=due.append)
    await mail.post(letter("a"))
    beside = await opened(tmp_path, serve=False)
    await beside.post(letter("b", session=TWO))
    await beside.close()
    await until(lambda: TWO in due)
    assert await keys(mail, TWO) == ["b"]
    await mail.close()


async def test_a_database_of_a_later_release_is_refused(tmp_path):
    await (await opened(tmp_path)).close()
    with closing(sqlite3.connect(database_of(tmp_path))) as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(StoreUnavailable, match="upgrade trimtab"):
        await opened(tmp_path)


async def test_a_file_that_is_no_database_is_damage_and_the_lock_is_given_back(tmp_path):
    mail = await opened(tmp_path)
    await mail.post(letter("a"))
    await mail.close()
    data = database_of(tmp_path).read_bytes()
    database_of(tmp_path).write_bytes(b"nonsense" * (len(data) // 8))
    for _ in range(2):
        with pytest.raises(LogDamaged, match="restore it from a backup"):
            await opened(tmp_path)


async def test_writes_that_come_while_one_is_committed_share_the_next_commit(tmp_path, monkeypatch):
    commits, real = [], SqliteDatabase._commit
    mail = await opened(tmp_path)
    with held_commit(mail, monkeypatch) as (begun, go):
        held = SqliteDatabase._commit
        monkeypatch.setattr(
            SqliteDatabase, "_commit", lambda database: (commits.append(1), held(database))
        )
        first = asyncio.create_task(mail.post(letter("first")))
        await until(begun.is_set)
        others = [asyncio.create_task(mail.post(letter(f"k{n}"))) for n in range(200)]
        await until(lambda: len(inside(mail)._handed_in) == 200)
        go.set()
        assert all(await asyncio.gather(first, *others))
        assert len(await keys(mail, limit=500)) == 201
        assert len(commits) == 2
    monkeypatch.setattr(SqliteDatabase, "_commit", real)
    await mail.close()


async def test_a_write_that_fails_leaves_those_it_shares_a_commit_with_alone(tmp_path, monkeypatch):
    mail = await opened(tmp_path)

    def half(connection):
        mail.post_in_transaction(connection, letter("half"))
        raise LookupError("after its first half")

    with held_commit(mail, monkeypatch) as (begun, go):
        tasks = [asyncio.create_task(mail.post(letter("first")))]
        await until(begun.is_set)
        tasks += [
            asyncio.create_task(one)
            for one in (mail.post(letter("b")), mail.database.write(half), mail.post(letter("c")))
        ]
        await until(lambda: len(inside(mail)._handed_in) == 3)
        go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in results] == [bool, bool, LookupError, bool]
    assert sorted(await keys(mail)) == ["b", "c", "first"]
    await mail.close()


async def test_a_letter_whose_sender_was_cancelled_is_kept_and_its_turn_follows(
    tmp_path, monkeypatch
):
    due = []
    mail = await opened(tmp_path, on_posted=due.append)
    with held_commit(mail, monkeypatch) as (begun, go):
        task = asyncio.create_task(mail.post(letter("a")))
        await until(begun.is_set)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        go.set()
    await mail.post(letter("b", session=TWO))
    assert await keys(mail) == ["a"]
    assert due == [S, TWO]
    await mail.close()


async def test_a_letter_that_is_answered_while_it_is_posted_again_is_not_kept_again(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    mail = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await mail.post(letter("a"))
    looked, go, find = asyncio.Event(), asyncio.Event(), store.find_key

    async def slowly(session, key):
        found = await find(session, key)
        looked.set()
        await go.wait()
        return found

    store.find_key = slowly
    again = asyncio.create_task(mail.post(letter("a")))
    await looked.wait()
    await mail.finish_turn(S, epoch, await numbers(mail), [])
    go.set()
    assert not await again
    assert await keys(mail) == []
    await mail.close()
    await store.close()


async def test_a_closed_queue_says_so(tmp_path):
    mail = await opened(tmp_path)
    await mail.close()
    for ask in (
        mail.depth,
        mail.list_waiting_sessions,
        mail.oldest_waiting_at,
        mail.check_writable,
    ):
        with pytest.raises(StoreUnavailable, match="closed"):
            await ask()
    with pytest.raises(StoreUnavailable, match="closed"):
        await mail.post(letter("a"))


async def test_a_write_beyond_a_limit_of_files_leaves_nothing_and_the_next_one_works(tmp_path):
    mail = await opened(tmp_path)
    await mail.post(letter("a"))
    size = (tmp_path / ".server" / "server.db-wal").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, limits[1]))
    try:
        results = await asyncio.gather(
            *(mail.post(letter(f"k{n}", "x" * 400)) for n in range(2)), return_exceptions=True
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [type(one) for one in results] == [StoreUnavailable, StoreUnavailable]
    assert await keys(mail) == ["a"]
    assert await mail.post(letter("k0"))
    await mail.check_writable()
    await mail.close()
    mail = await opened(tmp_path)
    assert await keys(mail) == ["a", "k0"]
    await mail.close()


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
        mail = await SqliteMessageQueue.open(store)
        epoch = await claimed(store)
        kept = []

        async def fill():
            for number in range(1_000):
                await mail.post(letter(f"k{number}", "x" * 3_000))
                kept.append(f"k{number}")

        with pytest.raises(StoreFull, match="no space is left"):
            await fill()
        assert len(kept) > 20
        with pytest.raises(StoreFull):
            await mail.check_writable()
        assert await keys(mail, limit=2_000) == kept
        with pytest.raises(StoreFull):
            # What cannot be overwritten cannot be said to be gone.
            await mail.forget_session(TWO)
        await store.close()
        grow(disk)
        await mail.check_writable()
        assert await mail.post(letter("more"))
        await mail.finish_turn(S, epoch, (await numbers(mail))[:1], [])
        assert (await keys(mail, limit=2_000)) == [*kept[1:], "more"]
        await mail.close()
        mail = await opened(disk)
        assert (await keys(mail, limit=2_000)) == [*kept[1:], "more"]
        await mail.close()


async def test_another_process_that_writes_is_waited_for_and_then_named(tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "BUSY_TIMEOUT_S", 0.2)
    mail = await opened(tmp_path)
    with closing(sqlite3.connect(database_of(tmp_path), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another process"):
            await mail.post(letter("a"))
        waiting = asyncio.create_task(mail.post(letter("b")))
        await asyncio.sleep(0.05)
        assert await mail.pending(S) == []  # those who read are not held up
        other.execute("ROLLBACK")
        assert await waiting
    assert await keys(mail) == ["b"]
    await mail.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_folder_that_may_not_be_written_to_is_named(tmp_path):
    await (await opened(tmp_path)).close()
    database_of(tmp_path).chmod(0o400)
    (tmp_path / ".server").chmod(0o500)
    with pytest.raises(StoreNotWritable):
        await opened(tmp_path)


async def exchange(mail, epoch, number):
    """A letter that comes, is answered, and whose reply leaves."""
    await mail.post(letter(f"k{number}", "x" * 300))
    await mail.finish_turn(S, epoch, await numbers(mail), [reply(f"r{number}", seq=number)])
    (found,) = await mail.lease_replies(["phone"], limit=1, lease_s=60)
    await mail.mark_delivered(found.number)


async def test_the_database_is_of_what_waits_and_not_of_what_ever_was(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_queue, "MAX_KEPT_REPLIES", {"sent": 50, "refused": 5})
    monkeypatch.setattr(sqlite_queue, "REPLIES_BETWEEN_CLEANUPS", 20)
    store = FileStore(tmp_path, fsync=False)
    mail = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)

    def pages():
        return inside(mail)._writer.execute("PRAGMA page_count").fetchone()[0]

    for number in range(100):
        await exchange(mail, epoch, number)
    before = pages()
    for number in range(100, 400):
        await exchange(mail, epoch, number)
    assert pages() <= before + 2
    await mail.finish_turn(S, epoch, [], [reply("r399"), reply("r400")])
    assert await lent(mail) == ["r400"]
    await mail.close()
    await store.close()


async def test_numbers_are_never_given_twice(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    mail = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await mail.post(letter("a"))
    (first,) = await numbers(mail)
    await mail.finish_turn(S, epoch, [first], [])
    await mail.forget_session(S)
    await mail.close()
    mail = await SqliteMessageQueue.open(store, fsync=False)
    await mail.post(letter("b", session=TWO))
    assert await numbers(mail, TWO) > [first]
    await mail.close()
    await store.close()


async def test_what_an_earlier_process_was_sending_is_due_at_once_and_marked(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    mail = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await mail.finish_turn(S, epoch, [], [reply("lent")])
    await claimed(store, TWO)
    await mail.finish_turn(TWO, epoch, [], [reply("put off", session=TWO)])
    first, second = await mail.lease_replies(["phone"], limit=9, lease_s=600)
    await mail.postpone_reply(second.number, delay_s=600, why="slow down", maybe_sent=False)
    await mail.close()
    mail = await SqliteMessageQueue.open(store, fsync=False)
    found = await mail.lease_replies(["phone"], limit=9, lease_s=60)
    assert [(one.key, one.attempts) for one in found] == [(first.key, 1)]
    await mail.close()
    await store.close()


async def test_what_will_never_arrive_is_sent_again_before_what_came_later(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    mail = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await mail.finish_turn(S, epoch, [], [reply("r1"), reply("r2"), reply("r3")])
    (found,) = await mail.lease_replies(["phone"], limit=1, lease_s=60)
    await mail.mark_undeliverable(found.number, "blocked")
    (dead,) = await mail.list_dead_letters()
    assert (dead.session, dead.why, dead.messages, dead.replies) == (S, "blocked", 0, 1)
    await mail.close()
    mail = await SqliteMessageQueue.open(store, fsync=False)
    assert await mail.revive(S)
    sent = []
    while found := await mail.lease_replies(["phone"], limit=9, lease_s=60):
        sent.extend(one.key for one in found)
        for one in found:
            await mail.mark_delivered(one.number)
    assert sent == ["r1", "r2", "r3"]
    await mail.close()
    await store.close()


WORD = "zq4711"


async def told(root):
    """A queue that holds a word in every form: over, waiting, given up, answered and refused."""
    store = FileStore(root, fsync=False)
    mail = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    for key in ("over", "waits"):
        await mail.post(letter(key, f"{WORD} {key}"))
    first, _ = await numbers(mail)
    made = [replace(reply(f"{S}/r{n}", seq=n), text=f"{WORD} {n}") for n in (7, 8)]
    await mail.finish_turn(S, epoch, [first], made)
    (refused,) = await mail.lease_replies(["phone"], limit=1, lease_s=60)
    await mail.mark_undeliverable(refused.number, f"cannot parse {WORD}")
    await give_up(mail, S, f"ProviderError: {WORD} is not allowed")
    await mail.post(letter("other", "stays", session=TWO))
    assert found_in_files(root, WORD)
    return store, mail


@pytest.mark.process
async def test_of_a_deleted_session_no_byte_is_left_and_others_stay(tmp_path):
    store, mail = await told(tmp_path)
    await mail.forget_session(S)
    assert (found_in_files(tmp_path, WORD), found_in_files(tmp_path, S)) == ([], [])
    assert found_in_files(tmp_path, "stays") == ["server.db"]
    await mail.close()
    mail = await SqliteMessageQueue.open(store)
    assert await keys(mail, TWO) == ["other"]
    await mail.close()
    await store.close()


@pytest.mark.process
async def test_of_erased_messages_no_byte_is_left_and_their_letters_wait_on(tmp_path):
    store, mail = await told(tmp_path)
    await mail.erase_messages(S, [7, 8], ["over", "waits"])
    assert found_in_files(tmp_path, WORD) == []
    assert await keys(mail) == ["waits"]
    await mail.close()
    mail = await SqliteMessageQueue.open(store)
    assert [one.message.text for one in await mail.pending(S)] == ["[erased]"]
    await mail.close()
    await store.close()


@pytest.mark.process
async def test_of_many_letters_that_came_and_went_none_stands_in_a_corner_of_a_page(tmp_path):
    """When SQLite moves rows to another page it leaves copies, which deletion does not reach."""
    store = FileStore(tmp_path, fsync=False)
    mail = await SqliteMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await claimed(store, TWO)
    for number in range(600):
        session = (S, TWO)[number % 2]
        words = f"{WORD if session == S else 'other'} " * (1 + number * 37 % 160)
        await mail.post(letter(f"k{number}", words, session=session))
        if number % 3:
            waiting = await numbers(mail, S)
            await mail.finish_turn(S, epoch, waiting[number % 5 :: 7], [])
    await mail.forget_session(S)
    assert found_in_files(tmp_path, WORD) == []
    assert len(await keys(mail, TWO, limit=999)) == 300
    await mail.close()
    await store.close()


@pytest.mark.process
async def test_whoever_wants_something_forgotten_is_told_where_it_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "BUSY_TIMEOUT_S", 0.1)
    store, mail = await told(tmp_path)
    with closing(sqlite3.connect(database_of(tmp_path), isolation_level=None)) as other:
        # Somebody looks at it for long: the log cannot be cut off meanwhile.
        other.execute("BEGIN")
        other.execute("SELECT * FROM inbox").fetchall()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="another process"):
                await mail.forget_session(S)
        assert found_in_files(tmp_path, WORD)
    await mail.forget_session(S)
    assert found_in_files(tmp_path, WORD) == []
    await mail.close()
    await store.close()


@pytest.mark.process
async def test_what_could_not_be_destroyed_is_destroyed_when_the_queue_is_closed_and_opened(
    tmp_path, monkeypatch
):
    def never(database):
        raise StoreUnavailable("ended here")

    store, mail = await told(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteDatabase, "_purge", never)
        with pytest.raises(StoreUnavailable, match="ended here"):
            await mail.erase_messages(S, [7, 8], ["over", "waits"])
        assert found_in_files(tmp_path, WORD)
        # As a process leaves it that is killed here.
        shutil.copytree(tmp_path / ".server", tmp_path / "copy" / ".server")
    await mail.close()
    again = await opened(tmp_path / "copy")
    assert found_in_files(tmp_path / "copy", WORD) == []
    assert await keys(again) == ["waits"]
    await again.close()
    await store.close()


@pytest.mark.process
async def test_a_database_that_holds_nothing_of_a_session_is_not_written_anew_for_it(
    tmp_path, monkeypatch
):
    store, mail = await told(tmp_path)
    await mail.forget_session(S)
    before = database_of(tmp_path).stat().st_mtime_ns
    await mail.forget_session(S)
    await mail.erase_messages(S, [7], ["over"])
    assert database_of(tmp_path).stat().st_mtime_ns == before
    await mail.close()
    await store.close()


def killed_at_writes(folder, step):
    if not can_wrap_sqlite_writes():
        pytest.skip("the SQLite of this Python cannot be reached, so its writes are not seen")
    # In a process of its own: it forks, which a process with threads should not.
    found = subprocess.run(
        [sys.executable, "-m", "tests.server.queue_crash", str(folder), str(step)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
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
    """As docs/operations.md says."""
    mail = await opened(tmp_path)
    posting = asyncio.gather(*(mail.post(letter(f"k{n}", "x" * 500)) for n in range(50)))
    await mail.post(letter("first", session=TWO))
    copy = tmp_path / "restored" / ".server" / "server.db"
    copy.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database_of(tmp_path))) as connection:
        connection.execute(f"VACUUM INTO '{copy}'")
    await posting
    await mail.close()
    restored = await opened(tmp_path / "restored")
    assert await keys(restored, TWO) == ["first"]
    await restored.close()
