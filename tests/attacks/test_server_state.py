"""What somebody may do to the files of a server, and one user to the others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import Generator
from pathlib import Path
from shutil import copytree

import pytest

from tests.attacks.target import PROVIDER_KEY, Target, attacked, erase, until
from tests.cli.running import trimtab
from tests.stores.folders import holding
from trimtab.errors import StoreError
from trimtab_serve.queue.sqlite.database import SqliteDatabase

pytestmark = pytest.mark.process

SESSIONS = "/v1/agents/helper/sessions"
DATABASE = Path("sessions/.server/server.db")


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Generator[Target]:
    folder = tmp_path_factory.mktemp("state") / "agent"
    folder.mkdir()
    with attacked(folder) as target:
        yield target
        assert target.request("GET", "/healthz", key=None).status == 200


def test_what_a_firewall_refuses_of_one_user_holds_nobody_else_back(served: Target):
    refused = json.dumps({"fault": "forbidden", "repeat": 9})
    sent = served.model.records.total
    assert served.say(f"simulate: {refused}", "refused", key="guest").status == 202
    until(lambda: served.model.records.total > sent)
    assert "event: turn.finished" in served.ask("Good morning!", "other")
    metrics = served.request("GET", "/metrics", key="prometheus").body.decode()
    lines = [line for line in metrics.splitlines() if line.startswith("trimtab_provider_circuit_o")]
    assert [line.rpartition(" ")[2] for line in lines] == ["0.0"]


def test_a_reload_of_no_agents_file_changes_and_blocks_nothing(served: Target):
    file = served.folder / "agent.yaml"
    good = file.read_bytes()
    kept = file.with_suffix(".kept")
    file.rename(kept)

    def cut() -> None:
        file.write_bytes(good[: len(good) // 2])

    def pipe() -> None:
        os.mkfifo(file)

    def circle() -> None:
        file.symlink_to(file.name)

    def endless() -> None:
        file.symlink_to("/dev/zero")

    try:
        for put in (cut, pipe, circle, endless):
            put()
            served.server.process.send_signal(signal.SIGHUP)
            assert served.server.until("reload_failed")["level"].lower() == "error"
            assert served.request("GET", "/healthz", key=None).status == 200
            file.unlink()
    finally:
        kept.rename(file)
    served.server.process.send_signal(signal.SIGHUP)
    served.server.until("reloaded")
    assert "event: turn.finished" in served.ask("Good morning!", "reloaded")


def test_an_erasure_is_not_said_to_be_done_while_a_copy_is_left_in_the_database(served: Target):
    word = "zq7needle"
    fault = json.dumps({"fault": "not_found", "repeat": 9})
    told = served.ask(f"I am {word}. simulate: {fault}", "held")
    assert "event: turn." in told
    reader = sqlite3.connect(served.folder / DATABASE, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
    try:
        held = served.request("DELETE", f"{SESSIONS}/held")
        assert held.status == 503, held
    finally:
        reader.close()
    assert served.request("DELETE", f"{SESSIONS}/held").status in (204, 404)
    assert holding(served.folder, word) == []


def test_the_record_of_erasures_names_nobody_and_outlives_damage(served: Target):
    user, word = "anna.of.the.lake", "zq8needle"
    assert served.say(f"I am {word}.", "annas.own", user=user).status == 202
    assert "event: turn.finished" in served.ask("And?", "annas.own")
    erase(served, f"/v1/users/{user}")
    records = served.folder / "sessions/.erasures/records.jsonl"
    known = len(served.request("GET", "/v1/erasures").document["erasures"])
    with records.open("ab") as file:
        file.write(b'{"v":1,"at":"never"}\n[]\nnull\n{"v":99}\n\xff\xfe{"half')
    erase(served, f"/v1/users/{user}")
    told = served.request("GET", "/v1/erasures")
    assert told.status == 200, told
    assert len(told.document["erasures"]) > known
    for text in (user, word):
        assert holding(served.folder / "sessions", text) == []
    # The session itself goes on: somebody else wrote in it as well.
    for text in (user, word, "annas.own"):
        assert holding(records.parent, text) == []
        assert text not in told.body.decode()
    assert [oct(path.stat().st_mode & 0o077) for path in records.parent.iterdir()] == ["0o0"] * 3


def test_a_server_does_not_begin_with_a_damaged_database(served: Target, tmp_path: Path):
    folder = tmp_path / "copy"
    copytree(served.folder, folder, ignore=lambda at, names: {"server.db-wal", "server.db-shm"})
    database = folder / DATABASE
    with sqlite3.connect(served.folder / DATABASE) as source, sqlite3.connect(database) as copy:
        source.backup(copy)
    source.close()
    copy.close()
    whole = database.read_bytes()
    damaged = bytearray(whole)
    damaged[4096:12_000] = os.urandom(12_000 - 4096)
    future = bytearray(whole)
    future[60:64] = (99).to_bytes(4, "big")

    def begin_with(put: bytes) -> None:
        for file in database.parent.glob("server.db*"):
            file.unlink()
        database.write_bytes(put)

    begin_with(bytes(damaged))
    done = trimtab("serve", "--port", "0", cwd=folder, ANTHROPIC_API_KEY=PROVIDER_KEY)
    assert done.code == 2, done
    assert "is not a readable database" in done.err
    assert database.read_bytes() == bytes(damaged)
    for put, said in ((whole[:5_000], "is not a readable data"), (bytes(future), "upgrade trim")):
        begin_with(put)
        with pytest.raises(StoreError, match=said):
            asyncio.run(SqliteDatabase.open(folder / "sessions"))
        # Whatever can be saved of it still can be.
        assert database.read_bytes() == put


def test_without_knowing_what_was_spent_nothing_is_spent(tmp_path: Path):
    ledger = tmp_path / "sessions/.spending"
    with attacked(tmp_path, cost={"max_per_day": 1000.0}) as target:
        assert "event: turn.finished" in target.ask("Good morning!", "before")
        sent = target.model.records.total
        (ledger / "spending.sqlite3").write_bytes(os.urandom(50_000))
        assert target.say("Good evening!", "after").status == 202
        assert "the spending so far is unknown" in target.server.until("store_failed")["message"]
        # It waits, and is tried again; nothing is sent.
        assert target.model.records.total == sent
