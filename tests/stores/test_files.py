"""The store on files: what lies in a folder, and what becomes of it when something is missing."""

import asyncio
import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stores.events import claimed, forked, held, said
from tests.stores.folders import SESSION, append, dumped, holding, lines
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.window.checkpoint import SNAPSHOT_VERSION, Snapshot
from trimtab.errors import (
    DuplicateIdempotencyKey,
    LogDamaged,
    NewerSnapshotError,
    StaleOwner,
    StoreUnavailable,
)
from trimtab.session import Session
from trimtab.stores.files import FileStore, log_reader
from trimtab.stores.files import log_rewrite as rewriting
from trimtab.stores.files.disk import folder_name_to_session, session_to_folder_name
from trimtab.stores.files.snapshots import dump_snapshot_yaml, parse_snapshot_yaml

BATCH = [said(2, "two"), claimed(3, 4), said(4, "four", key="k")]


@pytest.fixture
def root(tmp_path):
    """A log of one event, and of a batch of three."""
    append(tmp_path / "root", [said(1, "one")], BATCH)
    return tmp_path / "root"


def log_of(root):
    return root / SESSION / "events.jsonl"


def end_of(root):
    return root / SESSION / "events.end"


def run(root, step):
    """One step on a store that is closed behind it."""

    async def go():
        store = FileStore(root, fsync=False)
        try:
            return await step(store)
        finally:
            await store.close()

    return asyncio.run(go())


def test_a_log_is_read_with_cat_and_grep(root):
    whole = log_of(root).read_text("ascii")
    assert [json.loads(line) for line in whole.splitlines()] == [
        json.loads(line) for line in dumped(said(1, "one"), *BATCH)
    ]
    assert whole.splitlines()[0] == dumped(said(1, "one"))[0]


def test_the_state_is_yaml_with_a_line_for_each_key(root):
    state = {"epoch": 4, "ratio": 1.5, "on": None, "a: b": {"x": ["ü", "# no"]}, "10": True}
    run(
        root, lambda store: store.checkpoint(SESSION, Snapshot(seq=4, spans=((1, 4),), state=state))
    )
    text = (root / SESSION / "state.yaml").read_text("ascii")
    assert text.splitlines()[:4] == [
        f"version: {SNAPSHOT_VERSION}",
        "seq: 4",
        "spans: [[1, 4]]",
        "epoch: 4",
    ]
    assert text.splitlines()[8:] == ["..."]
    assert parse_snapshot_yaml(text) == {
        "version": SNAPSHOT_VERSION,
        "seq": 4,
        "spans": [[1, 4]],
        **state,
    }
    yaml = pytest.importorskip("yaml", reason="no YAML parser is installed")
    assert yaml.safe_load(text) == parse_snapshot_yaml(text)


@pytest.mark.parametrize("text", ["seq", "seq: [", '"seq: 1', "seq: 1\n\n"])
def test_a_state_that_was_edited_into_something_else_is_left_unused(root, text):
    (root / SESSION / "state.yaml").write_text(text)
    assert run(root, lambda store: store.snapshot(SESSION)) is None


async def seen(root):
    return await held(FileStore(root), SESSION)


async def goes_on(root, event):
    """Write to a log that needs repair; what there is then."""
    store = FileStore(root, fsync=False)
    await store.append(SESSION, [event])
    await store.close()
    return await seen(root)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("end", ["kept", "lost"])
async def test_a_log_torn_at_any_byte_of_its_last_batch_is_as_before_that_batch(
    root, tmp_path, end
):
    whole = log_of(root).read_bytes()
    first = whole.index(b"\n") + 1
    if end == "lost":
        end_of(root).unlink()
    for cut in range(first, len(whole)):
        torn = tmp_path / str(cut)
        shutil.copytree(root, torn)
        log_of(torn).write_bytes(whole[:cut])
        assert await seen(torn) == dumped(said(1, "one"))
        assert log_of(torn).read_bytes() == whole[:cut], "a reader changes nothing"
        again = said(2, "again", key="k")
        assert await goes_on(torn, again) == dumped(said(1, "one"), again)
        aside = torn / SESSION / "events.torn"
        assert (aside.read_bytes() if aside.exists() else b"") == whole[first:cut]


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("end", ["kept", "lost"])
async def test_a_last_batch_with_any_byte_corrupted_is_cut_off_whole(root, tmp_path, end):
    whole = log_of(root).read_bytes()
    first = whole.index(b"\n") + 1
    if end == "lost":
        end_of(root).unlink()
    for at in range(first, len(whole)):
        bad = tmp_path / str(at)
        shutil.copytree(root, bad)
        log_of(bad).write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
        try:
            assert await seen(bad) == dumped(said(1, "one"))
        except LogDamaged:
            # `events.end` says that the batch was whole once; a reader does not decide.
            assert end == "kept"
        assert await goes_on(bad, said(2, "x")) == dumped(said(1, "one"), said(2, "x"))
        assert (bad / SESSION / "events.torn").stat().st_size == len(whole) - first


def test_garbage_of_many_lines_behind_the_last_batch_is_put_aside_with_a_word(root, caplog):
    garbage = b"\x00\xff\n\n{}\n[1]\n{" * 100
    with log_of(root).open("ab") as log:
        log.write(garbage.replace(b"{}", b"{"))
    append(root, [said(5)])
    assert lines(root) == dumped(said(1, "one"), *BATCH, said(5))
    assert "bytes of an unfinished write after event 4 were moved to events.torn" in caplog.text


@pytest.mark.parametrize("end", ["kept", "lost"])
@pytest.mark.parametrize("line", [1, 3])
def test_a_bad_line_in_the_middle_is_named_and_nothing_is_changed(root, end, line):
    append(root, [said(5)], [said(6)])
    rows = log_of(root).read_bytes().splitlines(keepends=True)
    rows[line - 1] = rows[line - 1].replace(b'"kind"', b'"kin\0"')
    log_of(root).write_bytes(b"".join(rows))
    if end == "lost":
        end_of(root).unlink()
    with pytest.raises(LogDamaged, match=rf"events\.jsonl, line {line}: .* restore that line"):
        lines(root)
    with pytest.raises(LogDamaged, match=rf"line {line}"):
        run(root, lambda store: store.rewrite(SESSION, [], lambda event: event))
    if end == "lost":
        with pytest.raises(LogDamaged, match=rf"line {line}"):
            append(root, [said(7)])
    else:
        assert lines(root, (6, None)) == dumped(said(6))
    assert log_of(root).read_bytes() == b"".join(rows)
    run(root, lambda store: store.delete(SESSION))


@pytest.mark.parametrize("end", ["kept", "lost"])
def test_a_missing_line_is_damage(root, end):
    append(root, [said(5)], [said(6)])
    rows = log_of(root).read_bytes().splitlines(keepends=True)
    log_of(root).write_bytes(b"".join(rows[:4] + rows[5:]))
    if end == "lost":
        end_of(root).unlink()
    with pytest.raises(LogDamaged, match="line 5"):
        lines(root)


@pytest.mark.parametrize("how", ["lost", "empty", "behind", "torn", "zeros", "another log's"])
def test_an_end_that_does_not_fit_is_found_again_in_the_log(root, how):
    run(root, lambda store: store.append("other", [said(seq, "x" * seq) for seq in range(1, 9)]))
    behind = end_of(root).read_bytes()
    append(root, [forked(5, "other")], [said(6)])
    right = end_of(root).read_bytes()
    events = dumped(said(1, "one"), *BATCH, forked(5, "other"), said(6))
    wrong = {
        "lost": None,
        "empty": b"",
        "behind": behind,
        "torn": right[:-5],
        "zeros": bytes(len(right)),
        "another log's": (root / "other" / "events.end").read_bytes(),
    }[how]
    end_of(root).unlink()
    if wrong is not None:
        end_of(root).write_bytes(wrong)
    for seq in (1, 2, 3, 4, 5, 6):
        assert lines(root, (seq, seq)) == [events[seq - 1]]
    assert lines(root) == events
    with pytest.raises(StaleOwner):
        run(root, lambda store: store.append(SESSION, [said(7)], epoch=3))
    listed = run(root, lambda store: store.sessions(after="p"))
    assert [(kept.position, kept.messages, kept.parent) for kept in listed] == [(6, 4, "other")]
    assert end_of(root).read_bytes() == right
    append(root, [said(7)])
    assert lines(root) == [*events, *dumped(said(7))]


def test_each_event_of_a_long_log_is_found(root):
    append(root, [said(seq, "x" * (seq * 7919 % 30_000)) for seq in range(5, 200)])
    events = lines(root)
    for seq in (1, 2, 4, 5, 100, 150, 198, 199):
        assert lines(root, (seq, seq)) == [events[seq - 1]]


def test_keys_snapshots_and_state_can_be_thrown_away(root):
    async def step(store):
        await store.checkpoint(SESSION, Snapshot(seq=2))
        await store.checkpoint(SESSION, Snapshot(seq=4))

    run(root, step)
    assert run(root, lambda store: store.find_key(SESSION, "k")) == 4
    assert run(root, lambda store: store.snapshot(SESSION, upto=3)) == Snapshot(seq=2)
    for name in ("index.db", "state.yaml"):
        (root / SESSION / name).unlink()
    assert run(root, lambda store: store.find_key(SESSION, "k")) == 4
    assert run(root, lambda store: store.snapshot(SESSION)) is None
    with pytest.raises(DuplicateIdempotencyKey):
        append(root, [said(5, key="k")])


def test_a_log_that_lost_its_end_forgets_the_snapshots_and_keys_behind_it(root):
    run(root, lambda store: store.checkpoint(SESSION, Snapshot(seq=4)))
    whole = log_of(root).read_bytes()
    log_of(root).write_bytes(whole[: whole.index(b"\n") + 1])
    assert run(root, lambda store: store.snapshot(SESSION)) is None
    assert run(root, lambda store: store.find_key(SESSION, "k")) is None
    append(root, [said(2), said(3, key="k"), said(4, key="later")])
    assert run(root, lambda store: store.find_key(SESSION, "k")) == 3
    assert run(root, lambda store: store.find_key(SESSION, "later")) == 4


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"x" * 9_000)])
def test_an_index_that_is_lost_while_its_session_is_written_to_hides_no_key(root, damage):
    async def step(store):
        await store.checkpoint(SESSION, Snapshot(seq=4))
        await store.append(SESSION, [said(5, key="later")])
        damage(root / SESSION / "index.db")
        for _ in range(3):
            with pytest.raises(DuplicateIdempotencyKey):
                await store.append(SESSION, [said(6, key="k")])
            assert [await store.find_key(SESSION, key) for key in ("k", "later")] == [4, 5]
            await store.checkpoint(SESSION, Snapshot(seq=5))

    run(root, step)
    assert run(root, lambda store: store.find_key(SESSION, "k")) == 4


def test_a_snapshot_of_a_later_release_is_refused_and_one_of_an_earlier_one_left_unused(root):
    state = root / SESSION / "state.yaml"
    state.write_text(dump_snapshot_yaml({"version": 2, "seq": 3, "spans": []}))
    with pytest.raises(NewerSnapshotError, match="upgrade trimtab"):
        run(root, lambda store: store.snapshot(SESSION))
    state.write_text(dump_snapshot_yaml({"version": 0, "seq": 3, "spans": []}))
    assert run(root, lambda store: store.snapshot(SESSION)) is None


def test_events_without_a_version_are_damage_and_stay(root):
    log = log_of(root)
    log.write_bytes(log.read_bytes().replace(b'{"version":1,', b"{"))
    end_of(root).unlink()
    before = log.read_bytes()
    for step in (
        lambda store: store.position(SESSION),
        lambda store: store.append(SESSION, [said(5)]),
    ):
        with pytest.raises(LogDamaged):
            run(root, step)
    assert log.read_bytes() == before


def test_a_large_text_is_kept_once_and_compressed(root):
    text = "a large text " * 10_000
    append(root, [said(5, text)], [said(6, text), said(7, text + "!")])
    blobs = list((root / SESSION / "blobs").iterdir())
    assert len(blobs) == 2
    assert sum(blob.stat().st_size for blob in blobs) < 10_000
    assert log_of(root).stat().st_size < 3_000
    assert lines(root, (5, 7)) == dumped(said(5, text), said(6, text), said(7, text + "!"))


def test_a_blob_that_is_missing_or_spoilt_is_named(root):
    append(root, [said(5, "a large text " * 10_000)])
    (blob,) = (root / SESSION / "blobs").iterdir()
    blob.write_bytes(b"")
    with pytest.raises(LogDamaged, match="does not contain the text that its name stands for"):
        lines(root)
    blob.unlink()
    with pytest.raises(LogDamaged, match=r"event 5 of .* names .*blobs"):
        lines(root)
    append(root, [said(6, "a large text " * 10_000)])
    assert lines(root, (5, 5)) == dumped(said(5, "a large text " * 10_000))


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_erased_text_is_nowhere_in_the_folder(root, size):
    word = "the-hidden-word"
    text = (word + " ") * (size // 10)

    async def step(store):
        await store.append(SESSION, [said(5, text), said(6, "x" + text), said(7, "y" * 100_000)])
        await store.checkpoint(SESSION, Snapshot(seq=7))
        await store.append(SESSION, [said(8, text, key=word)])

    run(root, step)
    with log_of(root).open("ab") as log:
        log.write(b' {"version":1,"seq":9,"torn":"' + word.encode())
    append(root, [said(9)])
    assert "events.torn" in holding(root, word)

    def change(event):
        if isinstance(event.body, MessageAdded) and word in event.body.message.text:
            return replace(event, body=said(1, "[gone]").body)
        return event

    run(root, lambda store: store.rewrite(SESSION, [said(10)], change))
    assert holding(root, word) == []
    kept = lines(root)
    assert len(kept) == 10
    assert kept[6] == dumped(said(7, "y" * 100_000))[0]


def test_what_is_read_and_searched_in_pieces_is_the_whole(root, monkeypatch):
    monkeypatch.setattr(log_reader, "READ_CHUNK_BYTES", 300)
    append(root, [said(seq, f"word{seq % 7} common") for seq in range(5, 60)])
    assert len(lines(root)) == 59
    spans = [(1, 3), (10, 40), (59, None)]
    assert len(lines(root, *spans)) == 35
    found = run(root, lambda store: store.search(SESSION, "word3 common", limit=100))
    assert found[:8] == [59, 52, 45, 38, 31, 24, 17, 10]
    assert len(found) == 55


def test_a_piece_of_a_log_ends_with_large_texts_although_their_lines_are_short(root, monkeypatch):
    append(root, [said(seq, f"{seq}" * 100_000) for seq in range(5, 10)])
    pieces: list[int] = []
    read = log_reader.read_event_chunk

    def note_size(*arguments):
        found, rest = read(*arguments)
        pieces.append(len(found))
        return found, rest

    monkeypatch.setattr("trimtab.stores.files.store.read_event_chunk", note_size)
    monkeypatch.setattr(log_reader, "READ_CHUNK_BYTES", 150_000)
    assert len(lines(root, (5, None))) == 5
    assert pieces == [2, 2, 1]


@pytest.mark.parametrize(
    ("session", "name"),
    [
        ("telegram:12", "telegram%3A12"),
        ("../x", "%2E./x".replace("/", "%2F")),
        (".", "%2E"),
        ("ü", "%C3%BC"),
        ("plain-id_1.2~", "plain-id_1.2~"),
    ],
)
def test_path_traversal_in_a_session_id_names_one_folder(session, name):
    assert session_to_folder_name(session) == name
    assert folder_name_to_session(name) == session


@pytest.mark.parametrize("session", ["", "x" * 256, ":" * 86])
def test_a_session_id_too_long_for_a_folder_name_is_refused(session):
    with pytest.raises(ValueError, match="use an id that gives 1 to 255 bytes"):
        session_to_folder_name(session)


def test_a_session_whose_deletion_was_cut_short_is_gone_and_its_rest_goes_with_the_next_write(root):
    (root / ".deleted").mkdir()
    (root / SESSION).rename(root / ".deleted" / "1")
    assert run(root, lambda store: store.sessions()) == []
    append(root, [said(1)])
    assert list((root / ".deleted").iterdir()) == []
    run(root, lambda store: store.delete(SESSION))
    assert [path.name for path in root.rglob("*")] == [".deleted"]


def test_a_reader_goes_on_through_a_rewrite(root):
    append(root, [said(seq, "large " * 20_000 + str(seq)) for seq in range(5, 30)])

    def change(event):
        large = isinstance(event.body, MessageAdded) and len(event.body.message.text) > 1_000
        return replace(event, body=said(1, "[gone]").body) if large else event

    async def step(store):
        other, seen = FileStore(root), []
        async for event in other.events(SESSION):
            seen.append(event.seq)
            if event.seq == 2:
                await store.rewrite(SESSION, [], change)
        return seen, await held(other, SESSION, [(29, 29)])

    seen, last = run(root, step)
    assert seen == list(range(1, 30))
    assert "[gone]" in last[0]


@pytest.mark.parametrize("name", ["index.db", "state.yaml", "events.end"])
def test_what_is_made_from_the_log_is_left_unused_where_it_was_cut(root, name):
    run(root, lambda store: store.checkpoint(SESSION, Snapshot(seq=2, state={"a": 1, "b": [2]})))
    run(root, lambda store: store.checkpoint(SESSION, Snapshot(seq=4, state={"a": 1, "b": [2]})))
    whole = (root / SESSION / name).read_bytes()
    for kept in range(0, len(whole), max(len(whole) // 50, 1)):
        (root / SESSION / name).write_bytes(whole[:kept])
        snapshot = run(root, lambda store: store.snapshot(SESSION))
        assert snapshot is None or snapshot.state == {"a": 1, "b": [2]}
        assert run(root, lambda store: store.find_key(SESSION, "k")) == 4


def modes(folder):
    """Who may do what, of everything in a folder."""
    return {
        path.relative_to(folder).as_posix(): path.stat().st_mode & 0o777
        for path in (folder, *folder.rglob("*"))
    }


def private(folder):
    return {name: 0o700 if (folder / name).is_dir() else 0o600 for name in modes(folder)}


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


async def everything(store):
    """All kinds of files that a store writes."""
    await store.append(SESSION, [said(1, "one", key="k1"), said(2, "large " * 20_000)])
    await store.checkpoint(SESSION, Snapshot(seq=1))
    await store.append(SESSION, [said(3, key="k3")])
    await store.checkpoint(SESSION, Snapshot(seq=3))
    await store.append("child", [said(1), forked(2, SESSION)])
    await store.rewrite(SESSION, [said(4)], lambda event: event)
    await store.append("gone", [said(1)])
    await store.delete("gone")


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277])
def test_whatever_the_umask_all_is_for_its_owner_alone_from_its_first_moment(
    tmp_path, monkeypatch, mask
):
    root, made = tmp_path / "new" / "sessions", list[int]()
    real = os.open

    def seen(path, flags, mode=0o777, **own):
        if flags & os.O_CREAT:
            made.append(mode)
        return real(path, flags, mode, **own)

    monkeypatch.setattr(os, "open", seen)
    with umask(mask):
        run(root, everything)
    names = {Path(name).name for name in modes(root)}
    assert {"events.jsonl", "events.end", "index.db", "state.yaml", "lock", "child"} < names
    assert {"blobs", "forks", ".deleted"} < names
    assert modes(root) == private(root)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert {*made} == {0o600}


def test_what_others_could_read_is_closed_to_them_by_whoever_writes_next(tmp_path):
    root = tmp_path / "sessions"
    run(root, everything)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    append(root, [said(5)])
    assert modes(root) == private(root)


def test_a_folder_that_holds_something_else_stays_open_and_our_own_in_it_does_not(tmp_path):
    root = tmp_path / "shared"
    root.mkdir(mode=0o755)
    root.chmod(0o755)
    (root / "notes.txt").write_text("of somebody else")
    (root / "notes.txt").chmod(0o644)
    run(root, everything)
    found = modes(root)
    assert (found["."], found["notes.txt"]) == (0o755, 0o644)
    assert modes(root / SESSION) == private(root / SESSION)


def test_whoever_takes_up_a_folder_ends_erasures_and_deletions_that_a_crash_cut_short(
    tmp_path, caplog
):
    root, word = tmp_path / "sessions", "the-hidden-word"
    append(root, [said(1, f"{word} " * 9_000)])
    folder = root / SESSION
    (blob,) = (folder / "blobs").iterdir()
    whole = blob.read_bytes()
    run(root, lambda store: store.rewrite(SESSION, [], lambda e: replace(e, body=said(1).body)))
    blob.write_bytes(whole)  # the log is written anew, and the rest is not swept
    (folder / "sweep").touch()
    (root / ".deleted" / "7f").mkdir(parents=True)
    (root / ".deleted" / "7f" / "events.jsonl").write_text(word)
    shutil.copytree(folder, root / "busy")
    root.chmod(0o755)
    with Held(root / "busy"):
        run(root, lambda store: store.recover())
    assert "session busy was not recovered: session 'busy' is written to by process" in caplog.text
    assert holding(folder, word) == holding(root / ".deleted", word) == []
    assert not (folder / "sweep").exists()
    assert holding(root / "busy", word) != []
    run(root, lambda store: store.recover())
    assert holding(root, word) == []
    assert modes(root) == private(root)


class Held:
    """A session that another process writes to, as far as its lock tells."""

    def __init__(self, folder):
        self._lock = folder / "lock"

    def __enter__(self):
        self._file = self._lock.open("r+")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        self._file.close()


async def erase_again(root, monkeypatch, word):
    """An erasure whose end the disk refuses, then the same again; where the word is after each."""
    store = FileStore(root, fsync=False)
    session = await Session.create(store, SESSION, model="gpt-4o")
    handle = await session.add({"role": "user", "content": f"{word} " * 9_000})

    def refused(*_, **__):
        raise OSError(5, "the disk refuses")

    with monkeypatch.context() as patched:
        patched.setattr(rewriting, "delete_unneeded_blobs", refused)
        with pytest.raises(StoreUnavailable):
            await session.erase(handle)
    left = holding(root, word)
    await session.erase(handle)
    await store.close()
    return left, holding(root, word)


def test_an_erasure_whose_end_the_disk_refused_is_ended_when_it_is_asked_for_again(
    tmp_path, monkeypatch
):
    left, after = asyncio.run(erase_again(tmp_path, monkeypatch, "the-hidden-word"))
    assert len(left) == 1  # the blob
    assert after == []
