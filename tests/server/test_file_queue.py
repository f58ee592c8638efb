"""The mail on files: one process, whole batches, and a log that does not grow for ever."""

import asyncio
import errno
import gc
import os
import resource
import subprocess
import sys
import threading
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.server.queues import S, claimed, give_up, keys, lent, letter, numbers, reply
from tests.server.served_agents import until
from trimtab.errors import LogDamaged, StoreFull, StoreUnavailable
from trimtab.server.queue import state
from trimtab.server.queue.file_log import FileQueueLog, QueueInUse
from trimtab.server.queue.files import FileMessageQueue
from trimtab.server.queue.inbound_outbound import inbound_to_record
from trimtab.stores.files import FileStore, disk

pytestmark = pytest.mark.anyio

HOLDER = """
import asyncio, sys
from trimtab.stores.files import FileStore
from trimtab.server.queue.files import FileMessageQueue

async def main():
    await FileMessageQueue.open(FileStore(sys.argv[1]))
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
    return await FileMessageQueue.open(FileStore(root), **own)


def log_of(root):
    return root / ".mail" / "mail.jsonl"


async def left(root, *letters):
    mail = await opened(root)
    for key in letters:
        await mail.post(letter(key))
    await mail.close()


@pytest.mark.process
async def test_a_second_process_is_refused_and_told_who_serves(tmp_path):
    with holder(tmp_path) as process:
        with pytest.raises(QueueInUse, match=f"served by process {process.pid}") as refused:
            await opened(tmp_path)
        assert refused.value.holder == str(process.pid)
    mail = await opened(tmp_path)
    await mail.close()


async def test_the_mail_is_no_session(tmp_path):
    mail = await opened(tmp_path)
    await mail.post(letter("a"))
    assert await FileStore(tmp_path).sessions() == []
    await mail.close()


@pytest.mark.parametrize("cut", [1, 20, 600])
async def test_a_write_that_was_cut_short_is_cut_off_and_what_was_before_stays(tmp_path, cut):
    await left(tmp_path, "a", "b")
    whole = log_of(tmp_path).read_bytes()
    # Longer than what is written next: nothing of it may be left behind that.
    last = whole.splitlines()[-1].replace(b"words", b"words " * 100)
    log_of(tmp_path).write_bytes(whole + last[:cut])
    mail = await opened(tmp_path)
    assert log_of(tmp_path).read_bytes() == whole
    assert await keys(mail) == ["a", "b"]
    await mail.post(letter("c"))
    await mail.close()
    mail = await opened(tmp_path)
    assert await keys(mail) == ["a", "b", "c"]
    await mail.close()


@pytest.mark.parametrize("torn", ["the first line", "the middle", "the end"])
async def test_of_a_batch_that_is_not_whole_nothing_is_taken(tmp_path, torn):
    await left(tmp_path, "a")
    before = log_of(tmp_path).read_bytes()
    mail = await opened(tmp_path)
    await mail.post(letter("b"))
    many = [inbound_to_record(replace(letter(f"k{n}"), number=10 + n)) for n in range(5)]
    await asyncio.gather(*map(mail._write_record, many))
    await mail.close()
    whole = log_of(tmp_path).read_bytes()[len(before) :]
    lines = whole.splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if line.endswith(b" \n"))
    group = lines[first:]
    assert len(group) > 2
    match torn:
        case "the first line":
            group[0] = b"\0" * len(group[0])
        case "the middle":
            group[1] = b"\0" * (len(group[1]) - 1) + b"\n"
        case _:
            group.pop()
    log_of(tmp_path).write_bytes(before + b"".join(lines[:first] + group))
    mail = await opened(tmp_path)
    kept = await keys(mail)
    assert kept[:2] == ["a", "b"]
    assert len(kept) == 1 + first == 2
    await mail.close()


async def test_a_line_that_cannot_be_read_before_others_that_can_is_damage(tmp_path):
    await left(tmp_path, "a", "b", "c")
    lines = log_of(tmp_path).read_bytes().splitlines(keepends=True)
    lines[1] = b"x" * (len(lines[1]) - 1) + b"\n"
    log_of(tmp_path).write_bytes(b"".join(lines))
    with pytest.raises(LogDamaged, match="whole records follow"):
        await opened(tmp_path)
    with pytest.raises(LogDamaged):  # and the lock was given back
        await opened(tmp_path)


async def test_a_batch_without_its_end_before_a_record_that_is_whole_is_damage(tmp_path):
    await left(tmp_path, "a", "b", "c")
    lines = log_of(tmp_path).read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][:-1] + b" \n"
    log_of(tmp_path).write_bytes(b"".join(lines))
    with pytest.raises(LogDamaged, match="whole records follow"):
        await opened(tmp_path)


async def test_a_log_of_a_later_release_is_refused(tmp_path):
    await left(tmp_path, "a")
    log = log_of(tmp_path)
    log.write_bytes(log.read_bytes().replace(b'"v":1', b'"v":9'))
    with pytest.raises(ValueError, match="upgrade trimtab"):
        await opened(tmp_path)


async def test_letters_that_come_while_one_is_written_share_a_sync(tmp_path, monkeypatch):
    synced, writes, go = [], threading.Event(), threading.Event()
    sync, append = os.fdatasync, FileQueueLog.append

    def held(log, lines):
        writes.set()
        go.wait(10)
        append(log, lines)

    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), sync(fd)))
    monkeypatch.setattr(FileQueueLog, "append", held)
    mail = await opened(tmp_path)
    first = asyncio.create_task(mail.post(letter("first")))
    await until(writes.is_set)
    others = [asyncio.create_task(mail.post(letter(f"k{n}"))) for n in range(200)]
    await until(lambda: len(mail._queued) == 200)
    go.set()
    assert all(await asyncio.gather(first, *others))
    assert len(await keys(mail, limit=500)) == 201
    assert len(synced) == 2
    await mail.close()


async def test_a_letter_whose_sender_was_cancelled_is_kept_and_its_turn_follows(
    tmp_path, monkeypatch
):
    due, writes, go = [], threading.Event(), threading.Event()
    real = FileQueueLog.append

    def slowly(log, lines):
        writes.set()
        go.wait(10)
        real(log, lines)

    monkeypatch.setattr(FileQueueLog, "append", slowly)
    mail = await opened(tmp_path, on_posted=due.append)
    task = asyncio.create_task(mail.post(letter("a")))
    await until(writes.is_set)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    go.set()
    await mail.post(letter("b", session="default/helper/two"))
    assert await keys(mail) == ["a"]
    assert due == [S, "default/helper/two"]
    await mail.close()


async def test_a_write_that_the_disk_refuses_leaves_nothing_and_the_next_one_works(tmp_path):
    mail = await opened(tmp_path)
    await mail.post(letter("a"))
    size = log_of(tmp_path).stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, limits[1]))
    try:
        results = await asyncio.gather(
            *(mail.post(letter(f"k{n}", "x" * 400)) for n in range(2)), return_exceptions=True
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [type(one) for one in results] == [StoreFull, StoreFull]
    assert await keys(mail) == ["a"]
    assert log_of(tmp_path).stat().st_size == size
    assert await mail.post(letter("k0"))
    await mail.close()
    mail = await opened(tmp_path)
    assert await keys(mail) == ["a", "k0"]
    await mail.close()


async def test_a_closed_mail_says_so(tmp_path):
    mail = await opened(tmp_path)
    await mail.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await mail.post(letter("a"))


async def exchange(mail, epoch, number):
    """A letter that comes, is answered, and whose reply leaves."""
    await mail.post(letter(f"k{number}", "x" * 300))
    await mail.finish_turn(S, epoch, await numbers(mail), [reply(f"r{number}", seq=number)])
    (found,) = await mail.lease_replies(["phone"], limit=1, lease_s=60)
    await mail.mark_delivered(found.number)


async def test_a_log_that_speaks_of_what_is_over_is_written_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "MAX_REMEMBERED_REPLY_KEYS", 50)
    store = FileStore(tmp_path, fsync=False)
    mail = await FileMessageQueue.open(store, fsync=False, min_compaction_bytes=20_000)
    epoch = await claimed(store)
    await mail.post(letter("waits", session="default/helper/two"))
    two = "default/helper/two"
    await give_up(mail, two, replies=[reply("sorry", session=two)])
    await lent(mail)
    largest = 0
    for number in range(300):
        await exchange(mail, epoch, number)
        largest = max(largest, log_of(tmp_path).stat().st_size)
    assert largest < 60_000
    await mail.post(letter("last"))
    last = await numbers(mail)
    await mail.close()
    mail = await FileMessageQueue.open(store, fsync=False)
    assert await keys(mail) == ["last"]
    assert await numbers(mail) == last
    assert [one.why for one in await mail.list_dead_letters()] == ["broken"]
    assert [
        (one.key, one.attempts) for one in await mail.lease_replies(["phone"], limit=9, lease_s=1)
    ] == [("sorry", 1)]
    await mail.finish_turn(S, epoch, [], [reply("r299"), reply("r300")])
    assert await lent(mail) == ["r300"]
    assert await mail.post(letter("more"))
    assert (await numbers(mail))[-1] > last[0]
    await mail.close()
    await store.close()


async def test_what_is_kept_after_writing_anew_has_failed_half_way_is_not_lost(
    tmp_path, monkeypatch
):
    def refused(path):
        raise OSError(errno.EIO, "the folder cannot be synced", str(path))

    mail = await opened(tmp_path, min_compaction_bytes=0)
    with monkeypatch.context() as patched:
        patched.setattr(disk, "fsync_folder", refused)
        await mail.post(letter("a"))
        await mail.post(letter("b"))  # behind the first, whose log has been written anew by then
    await mail.post(letter("c"))
    await mail.close()
    mail = await opened(tmp_path)
    assert await keys(mail) == ["a", "b", "c"]
    await mail.close()


async def test_memory_is_of_what_waits_and_not_of_what_ever_was(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "MAX_REMEMBERED_REPLY_KEYS", 50)
    store = FileStore(tmp_path, fsync=False)
    mail = await FileMessageQueue.open(store, fsync=False, min_compaction_bytes=20_000)
    epoch = await claimed(store)

    async def grown(numbers):
        for number in numbers:
            await exchange(mail, epoch, number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = await grown(range(100))
        after = await grown(range(100, 400))
    finally:
        tracemalloc.stop()
    assert after - before < 30_000
    await mail.close()
    await store.close()


async def test_what_will_never_arrive_is_shown_and_can_be_sent_again(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    mail = await FileMessageQueue.open(store, fsync=False)
    epoch = await claimed(store)
    await mail.finish_turn(S, epoch, [], [reply("r1")])
    (found,) = await mail.lease_replies(["phone"], limit=1, lease_s=60)
    await mail.mark_undeliverable(found.number, "blocked")
    (dead,) = await mail.list_dead_letters()
    assert (dead.session, dead.why, dead.messages, dead.replies) == (S, "blocked", 0, 1)
    await mail.close()
    mail = await FileMessageQueue.open(store, fsync=False)
    assert await mail.revive(S)
    assert await lent(mail) == ["r1"]
    await mail.close()
    await store.close()


WORD = "zq4711"


async def told(root, **own):
    """A mail that holds a word in every form: over, waiting, given up, answered and refused."""
    store = FileStore(root, fsync=False)
    mail = await FileMessageQueue.open(store, fsync=False, **own)
    epoch = await claimed(store)
    for key in ("over", "waits"):
        await mail.post(letter(key, f"{WORD} {key}"))
    first, _ = await numbers(mail)
    made = [replace(reply(f"{S}/r{n}", seq=n), text=f"{WORD} {n}") for n in (7, 8)]
    await mail.finish_turn(S, epoch, [first], made)
    (refused,) = await mail.lease_replies(["phone"], limit=1, lease_s=60)
    await mail.mark_undeliverable(refused.number, f"cannot parse {WORD}")
    await give_up(mail, S, f"ProviderError: {WORD} is not allowed")
    await mail.post(letter("other", "stays", session="default/helper/two"))
    assert log_of(root).read_bytes().count(WORD.encode()) == 6
    return store, mail


async def test_of_a_deleted_session_no_byte_is_left_and_others_stay(tmp_path):
    store, mail = await told(tmp_path)
    await mail.forget_session(S)
    kept = log_of(tmp_path).read_bytes()
    assert (WORD.encode() in kept, S.encode() in kept) == (False, False)
    await mail.close()
    mail = await FileMessageQueue.open(store)
    assert await keys(mail, "default/helper/two") == ["other"]
    await mail.close()
    await store.close()


async def test_of_erased_messages_no_byte_is_left_and_their_letters_wait_on(tmp_path):
    store, mail = await told(tmp_path)
    await mail.erase_messages(S, [7, 8], ["over", "waits"])
    assert WORD.encode() not in log_of(tmp_path).read_bytes()
    assert await keys(mail) == ["waits"]
    await mail.close()
    mail = await FileMessageQueue.open(store)
    assert [one.message.text for one in await mail.pending(S)] == ["[erased]"]
    await mail.close()
    await store.close()


async def test_whoever_wants_something_forgotten_is_told_where_it_is_not(tmp_path, monkeypatch):
    def refused(log, lines):
        raise StoreUnavailable("the disk is away")

    store, mail = await told(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(FileQueueLog, "replace", refused)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="the disk is away"):
                await mail.forget_session(S)
    assert WORD.encode() in log_of(tmp_path).read_bytes()
    await mail.forget_session(S)
    assert WORD.encode() not in log_of(tmp_path).read_bytes()
    await mail.close()
    await store.close()


@pytest.mark.parametrize("verb", ["forget", "erase"])
async def test_what_a_crash_has_cut_short_is_forgotten_by_the_next_who_opens_it(
    tmp_path, monkeypatch, verb
):
    def never(log, lines):
        raise StoreUnavailable("ended here")

    store, mail = await told(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(FileQueueLog, "replace", never)
        with pytest.raises(StoreUnavailable, match="ended here"):
            await (
                mail.forget_session(S)
                if verb == "forget"
                else mail.erase_messages(S, [7, 8], ["over", "waits"])
            )
        await mail.close()
    assert WORD.encode() in log_of(tmp_path).read_bytes()
    mail = await FileMessageQueue.open(store)
    assert WORD.encode() not in log_of(tmp_path).read_bytes()
    assert await keys(mail) == ([] if verb == "forget" else ["waits"])
    await mail.close()
    await store.close()


async def test_a_log_that_holds_nothing_of_a_session_is_not_written_anew_for_it(tmp_path):
    store, mail = await told(tmp_path)
    await mail.forget_session(S)
    before = log_of(tmp_path).stat().st_ino
    await mail.forget_session(S)
    await mail.erase_messages(S, [7], ["over"])
    assert log_of(tmp_path).stat().st_ino == before
    await mail.close()
    await store.close()
