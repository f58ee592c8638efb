"""What was deleted or erased is nowhere, and what is kept can be read by its owner alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.attacks.target import Target, attacked
from tests.serve.queue.postgres import databases
from tests.stores.folders import holding
from trimtab.cli.app import app

pytestmark = pytest.mark.process

WORDS = {"deleted": "zq1needle", "erased": "zq2needle", "typed": "zq3needle", "kept": "zq4needle"}
"""By the session that each is said in."""
DELETED, ERASED, TYPED, KEPT = WORDS.values()
PG_DUMP = shutil.which("pg_dump")
SESSIONS = "/v1/agents/helper/sessions"


@pytest.fixture(scope="session")
def database():
    yield from databases.made()


def forget(target: Target) -> None:
    """Say something in four sessions, and forget it in two of them."""
    for session, word in WORDS.items():
        told = target.ask(f"I am {word}.", session)
        assert "event: turn.finished" in told
    erased = target.request("POST", f"{SESSIONS}/erased/erase", body={"handle": "m2"})
    assert erased.status == 200, erased
    assert target.request("DELETE", f"{SESSIONS}/deleted").status == 204


@pytest.fixture(scope="module")
def served_folder(tmp_path_factory) -> Path:
    """A folder whose server has forgotten something and has ended."""
    folder = tmp_path_factory.mktemp("left")
    before = os.umask(0o022)
    try:
        with attacked(folder) as target:
            forget(target)
            assert holding(folder, KEPT)
            assert [word for word in (DELETED, ERASED) if holding(folder, word)] == []
            assert target.server.end() == 0
    finally:
        os.umask(before)
    return folder


def test_a_deleted_session_is_in_no_file(served_folder: Path):
    assert holding(served_folder, DELETED) == []
    assert holding(served_folder, KEPT)


def test_an_erased_message_is_in_no_file(served_folder: Path):
    assert holding(served_folder, ERASED) == []


def test_what_the_command_line_erases_is_in_no_file(served_folder: Path, monkeypatch):
    monkeypatch.chdir(served_folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(served_folder / "state"))
    assert holding(served_folder, TYPED)
    command = ["session", "erase", "acme/helper/typed", "m2", "--yes"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert holding(served_folder, TYPED) == []


def test_other_users_of_the_machine_read_nothing(served_folder: Path):
    kept = walk(served_folder / "sessions")
    assert len(kept) > 10
    assert [str(path) for path in kept if path.stat().st_mode & 0o077] == []


def walk(path: Path) -> list[Path]:
    return [path, *path.rglob("*")]


@pytest.mark.skipif(PG_DUMP is None, reason="pg_dump is not installed")
def test_what_is_forgotten_in_postgresql_is_in_no_dump(database: str, tmp_path: Path):
    with attacked(tmp_path, session={"store": database}) as target:
        forget(target)
        done = subprocess.run(
            [str(PG_DUMP), "--dbname", database], capture_output=True, text=True, check=True
        )
    assert KEPT in done.stdout
    assert [word for word in (DELETED, ERASED) if word in done.stdout] == []
    assert [word for word in (DELETED, ERASED) if holding(tmp_path, word)] == []
