"""The store on files when the disk refuses, or another process is there."""

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests import warm
from tests.stores.events import held, said
from tests.stores.folders import append, dumped, lines
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import (
    SessionLockedByOtherProcess,
    StoreFull,
    StoreNotWritable,
    StoreUnavailable,
)
from trimtab.stores.files import FileStore

pytestmark = pytest.mark.anyio

WRITER = """
import asyncio, sys
from tests.stores.events import said
from trimtab.stores.files import FileStore

async def main():
    store = FileStore(sys.argv[1])
    seq = await store.position("s")
    print("ready", flush=True)
    while sys.stdin.readline():
        await store.append("s", [said(seq + 1, "x" * 3_000), said(seq + 2, "y")])
        seq += 2
        print(seq, flush=True)

asyncio.run(main())
"""


@contextmanager
def writer(root):
    """Another process that appends two events for each line it is told, and says where it is."""
    process = warm.Popen(
        [sys.executable, "-c", WRITER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=os.getcwd(),  # noqa: PTH109 - where the tests are found
    )
    assert process.stdin
    assert process.stdout
    with process:
        assert process.stdout.readline() == "ready\n"
        try:
            yield process, process.stdin, process.stdout
        finally:
            process.kill()


@contextmanager
def mounted(folder, size):
    """A file system of its own, where that is allowed."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],  # noqa: S607 - found where it is
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"mounting is not allowed here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607 - as above


@pytest.mark.process
async def test_a_second_process_is_refused_and_told_who_writes(tmp_path):
    store = FileStore(tmp_path)
    with writer(tmp_path) as (process, tell, told):
        tell.write("\n")
        tell.flush()
        assert told.readline() == "2\n"
        busy = rf"'s' is written to by process {process.pid}, .*lock; .* release the session"
        with pytest.raises(SessionLockedByOtherProcess, match=busy):
            await store.append("s", [said(3)])
        with pytest.raises(SessionLockedByOtherProcess):
            await store.checkpoint("s", Snapshot(seq=2))
        with pytest.raises(SessionLockedByOtherProcess):
            await store.rewrite("s", [], lambda event: event)
        with pytest.raises(SessionLockedByOtherProcess):
            await store.delete("s")
        assert len(await held(store, "s")) == 2
        assert await store.position("s") == 2
        await store.append("another", [said(1)])
        tell.write("\n")
        tell.flush()
        assert told.readline() == "4\n"
        assert await store.position("s") == 4
    await store.append("s", [said(5)])
    assert await store.position("s") == 5
    await store.close()


async def test_two_stores_of_one_process_are_two_writers(tmp_path):
    one, other = FileStore(tmp_path), FileStore(tmp_path)
    await one.append("s", [said(1)])
    with pytest.raises(SessionLockedByOtherProcess, match=f"{os.getpid()}, this one, .* share"):
        await other.append("s", [said(2)])
    await one.close()
    await other.append("s", [said(2)])
    await other.close()


@pytest.mark.process
async def test_a_killed_writer_has_lost_nothing_that_it_acknowledged(tmp_path):
    acknowledged = 0
    for told_times in range(12):
        with writer(tmp_path) as (process, tell, told):
            tell.write("\n" * (told_times + 3))
            tell.flush()
            for _ in range(told_times):
                acknowledged = int(told.readline())
            process.send_signal(signal.SIGKILL)
            # What it had still said before it died counts as well.
            acknowledged = max([acknowledged, *map(int, told.read().split())])
        store = FileStore(tmp_path)
        events = [event async for event in store.events("s")] if acknowledged else []
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert len(events) >= acknowledged
        assert len(events) % 2 == 0, "a batch is there whole or not at all"


@pytest.mark.process
async def test_a_full_disk_is_named_and_the_log_is_as_before(tmp_path):
    with mounted(tmp_path / "disk", "256k") as disk:
        store = FileStore(disk / "root")
        await store.append("s", [said(1, "first", key="k")])
        filler = disk / "filler"
        filler.write_bytes(b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize - 8_192))
        for text in ("y" * 60_000, os.urandom(100_000).hex()):
            with pytest.raises(StoreFull, match=r"no space is left to write .*: free some"):
                await store.append("s", [said(2, "small"), said(3, text)])
        assert await held(store, "s") == dumped(said(1, "first", key="k"))
        await store.append("s", [said(2, "fits")])
        with pytest.raises(StoreFull):
            await store.rewrite("s", [], lambda e: said(e.seq, "z" * 60_000))
        state = {"large": "x" * 60_000}
        with pytest.raises(StoreFull):
            await store.checkpoint("s", Snapshot(seq=2, state=state))
        assert await store.snapshot("s") is None
        kept = dumped(said(1, "first", key="k"), said(2, "fits"))
        assert await held(store, "s") == kept
        assert list((disk / "root").rglob("*.new")) == []
        filler.unlink()
        await store.append("s", [said(3, "y" * 60_000)])
        await store.checkpoint("s", Snapshot(seq=2, state=state))
        await store.close()
        assert await held(FileStore(disk / "root"), "s") == [*kept, *dumped(said(3, "y" * 60_000))]
        assert await FileStore(disk / "root").find_key("s", "k") == 1


async def test_a_file_as_large_as_is_allowed_counts_as_a_full_disk(tmp_path):
    store = FileStore(tmp_path)
    await store.append("s", [said(1)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        with pytest.raises(StoreFull, match=r"events\.jsonl|/s "):
            await store.append("s", [said(2), said(3, "x" * 30_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / "s" / "events.jsonl").read_text() == dumped(said(1))[0] + "\n"
    await store.append("s", [said(2)])
    assert await held(store, "s") == dumped(said(1), said(2))
    await store.close()


@pytest.mark.process
async def test_a_read_only_folder_can_be_read_and_says_so_when_written(tmp_path):
    with mounted(tmp_path / "disk", "1m") as disk:
        await asyncio.to_thread(append, disk / "root", [said(1, key="k")])
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)  # noqa: ASYNC221, S607 - as above
        store = FileStore(disk / "root")
        assert await held(store, "s") == dumped(said(1, key="k"))
        assert await store.find_key("s", "k") == 1
        assert len(await store.sessions()) == 1
        told = r"may not be written to .*: make it writable"
        with pytest.raises(StoreNotWritable, match=told):
            await store.append("s", [said(2)])
        with pytest.raises(StoreNotWritable, match=told):
            await store.append("new", [said(1)])
        with pytest.raises(StoreNotWritable):
            await store.checkpoint("s", Snapshot(seq=1))
        with pytest.raises(StoreNotWritable):
            await store.delete("s")
        assert await held(store, "s") == dumped(said(1, key="k"))
        await store.close()


def failing(name, monkeypatch, *, code=errno.EIO, times=1):
    """Have a call of the system fail a number of times: no disk here does so at will."""
    real, left = getattr(os, name), [times]

    def call(*args):
        if left[0]:
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return real(*args)

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("name", ["fsync", "pwrite"])
async def test_an_append_that_the_disk_fails_is_undone(tmp_path, monkeypatch, name):
    store = FileStore(tmp_path)
    await store.append("s", [said(1)])
    failing(name, monkeypatch)
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        await store.append("s", [said(2), said(3)])
    assert await held(FileStore(tmp_path), "s") == dumped(said(1))
    await store.append("s", [said(2, "other")])
    assert await held(store, "s") == dumped(said(1), said(2, "other"))
    await store.close()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
async def test_a_disk_that_turned_read_only_is_named(tmp_path, monkeypatch, code):
    store = FileStore(tmp_path)
    await store.append("s", [said(1)])
    failing("pwrite", monkeypatch, code=code)
    with pytest.raises(StoreNotWritable):
        await store.append("s", [said(2)])
    await store.close()


async def test_an_append_that_cannot_be_undone_stops_all_others_until_it_is_repaired(
    tmp_path, monkeypatch
):
    store = FileStore(tmp_path)
    await store.append("s", [said(1)])
    with monkeypatch.context() as broken:
        failing("fsync", broken)
        failing("ftruncate", broken)
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            await store.append("s", [said(2, "lost")])
    with pytest.raises(StoreUnavailable, match=r"could not be undone .* open it again"):
        await store.append("s", [said(2)])
    assert await held(store, "s") == dumped(said(1)), "what was not acknowledged is not read here"
    await store.release("s")
    position = await store.position("s")
    await store.append("s", [said(position + 1)])
    assert await store.position("s") == position + 1
    await store.close()


async def test_an_end_that_cannot_be_written_does_not_fail_an_append(tmp_path, monkeypatch):
    store = FileStore(tmp_path, fsync=False)
    await store.append("s", [said(1)])
    real = os.pwrite

    def pwrite(fd, data, offset):
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".end"):  # noqa: PTH115 - as the system has it
            raise OSError(errno.ENOSPC, "no space")
        return real(fd, data, offset)

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", pwrite)
        await store.append("s", [said(2)])
        await store.append("s", [said(3), said(4)])
    assert await held(store, "s") == dumped(said(1), said(2), said(3), said(4))
    await store.append("s", [said(5)])
    await store.close()
    assert len(await held(FileStore(tmp_path), "s")) == 5


def test_a_folder_that_is_a_file_is_no_store(tmp_path):
    (tmp_path / "root").write_text("")
    with pytest.raises(StoreUnavailable):
        append(tmp_path / "root", [said(1)])
    assert lines(tmp_path / "root") == []
