"""A folder of the previous release, whose queue and schedules were files, is taken over once.

The files in `tests/golden/server_files` were written by that release.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.server.queues import keys, letter
from tests.stores.folders import holding
from trimtab.errors import LogDamaged
from trimtab.server.queue.sqlite import SqliteMessageQueue
from trimtab.server.schedules.command_line_control import open_schedules
from trimtab.server.schedules.sqlite import SqliteScheduleStore
from trimtab.server.sqlite import previous_release
from trimtab.server.sqlite.database import QueueInUse
from trimtab.stores.files import FileStore
from trimtab.stores.files.lock import FolderLock

pytestmark = pytest.mark.anyio
GOLDEN = Path(__file__).parents[1] / "golden" / "server_files"
SESSIONS = {name: f"default/helper/{name}" for name in "abcde"}


@pytest.fixture
def old(tmp_path):
    """A store's folder as the previous release left it."""
    for folder, name in ((".mail", "mail.jsonl"), (".schedules", "events.jsonl")):
        (tmp_path / folder / "asked").mkdir(parents=True)
        (tmp_path / folder / "lock").write_text("1\n")
        shutil.copy(GOLDEN / name, tmp_path / folder / name)
    return tmp_path


async def opened(root):
    return await SqliteMessageQueue.open(FileStore(root))


async def waiting(queue):
    return {name: await keys(queue, session) for name, session in SESSIONS.items()}


WAITING = {
    "a": ["a1", "a2"],
    "b": [],
    "c": ["c1"],
    "d": ["d1"],
    "e": ["e1", "e2", "e3", "e4"],
}


async def test_all_that_waited_waits_and_the_old_files_are_gone(old):
    queue = await opened(old)
    assert await waiting(queue) == WAITING
    second = (await queue.pending(SESSIONS["a"]))[1]
    assert (second.message.text, second.at) == ("words, é \udc00 🙂", 1.5)
    (dead,) = await queue.list_dead_letters()
    told = (dead.session, dead.why, dead.messages, dead.replies, dead.at)
    assert told == (SESSIONS["c"], "CannotFit: too large", 1, 1, 1000.0)
    assert await queue.depth() == 7
    replies = await queue.lease_replies(["phone"], limit=9, lease_s=60)
    # The one that was lent may have arrived; the one that was put off was due at 1500.
    assert {one.key.removeprefix("default/helper/"): one.attempts for one in replies} == {
        "b/m2": 1,
        "d/m9": 1,
    }
    for one in replies:
        await queue.mark_delivered(one.number)
    (following,) = await queue.lease_replies(["phone"], limit=9, lease_s=60)
    assert following.key == "default/helper/b/m3"
    assert not await queue.post(letter("e1", session=SESSIONS["e"]))
    await queue.close()
    assert sorted(path.name for path in old.iterdir()) == [".server"]


async def test_the_key_of_a_reply_that_has_left_is_still_known(old):
    queue = await opened(old)
    known = await queue.database.read(
        lambda reader: reader.execute(
            "SELECT key, session FROM outbox WHERE state = 'sent'"
        ).fetchall()
    )
    assert known == [(b"default/helper/a/m1", b"default/helper/a")]
    await queue.close()


async def test_the_schedules_go_on_where_they_were(old):
    async with open_schedules(str(old)) as schedules:
        evening, morning = await schedules.find()
        assert (evening.name, evening.paused, evening.next_run_at) == ("evening", True, 1000058400)
        assert (morning.name, morning.message) == ("morning", "What is new?")
        assert morning.next_run_at == 1000002000
        runs = [(one.schedule[-7:], one.due, one.reason[:6]) for one in await schedules.list_runs()]
        assert runs == [
            ("morning", 1000001400.0, ""),
            ("morning", 1000000800.0, "missed"),
            ("evening", 1000000800.0, ""),
        ]
    assert sorted(path.name for path in old.iterdir()) == [".server"]


async def test_what_was_being_forgotten_is_forgotten(old):
    with (old / ".mail" / "mail.jsonl").open("a") as log:
        for record in (
            {"kind": "erased", "session": SESSIONS["d"], "positions": [9], "keys": ["d1"]},
            {"kind": "forgotten", "session": SESSIONS["e"]},
        ):
            log.write(json.dumps({"v": 1, **record}) + "\n")
    queue = await opened(old)
    assert await waiting(queue) == {**WAITING, "e": []}
    assert [one.message.text for one in await queue.pending(SESSIONS["d"])] == ["[erased]"]
    await queue.close()
    for words in ("the erased words", "answer m9", "words of e"):
        assert holding(old, words) == []


async def test_a_batch_that_was_cut_short_is_not_taken_and_what_is_before_it_is(old):
    log = old / ".mail" / "mail.jsonl"
    log.write_bytes(log.read_bytes().rpartition(b"\n {")[0] + b"\n")
    queue = await opened(old)
    assert (await waiting(queue))["e"] == ["e1"]
    await queue.close()


async def test_a_line_that_cannot_be_read_before_others_that_can_is_damage(old):
    log = old / ".mail" / "mail.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[2] = b"x" * 20 + b"\n"
    log.write_bytes(b"".join(lines))
    for _ in range(2):
        with pytest.raises(LogDamaged, match="unreadable line before readable"):
            await opened(old)
    assert log.exists()
    log.unlink()
    queue = await opened(old)
    assert len(await SqliteScheduleStore(queue).find()) == 2
    await queue.close()


async def test_a_process_of_the_previous_release_that_serves_is_named(old):
    lock = FolderLock(old / ".mail", ".mail")
    with pytest.raises(QueueInUse, match="only one process can serve"):
        await opened(old)
    lock.release()
    queue = await opened(old)
    assert await waiting(queue) == WAITING
    await queue.close()


@pytest.mark.parametrize("removed", [0, 1], ids=["before the first folder", "after the first"])
async def test_a_process_that_ends_before_the_files_are_gone_does_not_make_it_two(
    old, monkeypatch, removed
):
    real, left = shutil.rmtree, [removed]

    def ending(path):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        real(path)

    with monkeypatch.context() as patched:
        patched.setattr(previous_release.shutil, "rmtree", ending)
        with pytest.raises(KeyboardInterrupt):
            await opened(old)
    queue = await opened(old)
    assert await waiting(queue) == WAITING
    assert len(await SqliteScheduleStore(queue).list_runs()) == 3
    await queue.close()
    assert sorted(path.name for path in old.iterdir()) == [".server"]


async def test_what_the_previous_release_keeps_after_that_is_taken_over_as_well(old):
    await (await opened(old)).close()
    (old / ".mail").mkdir()
    one = {"number": 1, "session": SESSIONS["b"], "key": "later", "at": 2.0, "route": None}
    said = {"role": "user", "parts": [{"text": "said meanwhile"}]}
    (old / ".mail" / "mail.jsonl").write_text(
        json.dumps({"v": 1, "kind": "letter", **one, "message": said}) + "\n"
    )
    queue = await opened(old)
    assert await waiting(queue) == {**WAITING, "b": ["later"]}
    await queue.close()


async def test_a_failure_in_the_midst_leaves_the_old_files_and_an_empty_database(old, monkeypatch):
    def failing(*_):
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(previous_release, "give_up_session", failing)
        with pytest.raises(Exception, match="disk I/O error"):
            await opened(old)
    with closing(sqlite3.connect(old / ".server" / "server.db")) as connection:
        assert connection.execute("SELECT count(*) FROM inbox").fetchone() == (0,)
    queue = await opened(old)
    assert await waiting(queue) == WAITING
    await queue.close()
