"""`trimtab user`, `tenant` and `erasures`, on a folder that nobody serves."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from tests.stores.folders import holding
from trimtab.cli.app import app
from trimtab.engine.log.message import make_text_message
from trimtab.session import Session
from trimtab.stores.files import FileStore
from trimtab_serve.forgetting.history_file import locate_history_file
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.service.sender import with_sender

WORD = "zq4711needle"


@pytest.fixture
def root(tmp_path):
    async def furnish():
        store = FileStore(tmp_path / "sessions", fsync=False)
        for tenant, user in (("default", "telegram:7"), ("default", "bob"), ("acme", "bob")):
            opened = await Session.create(store, f"{tenant}/helper/of-{user}", model="gpt-4o")
            await opened.add(with_sender(make_text_message("user", f"{WORD} of {user}"), user))
            await opened.add(make_text_message("assistant", "Hello."))
            await opened.close()
        await store.close()

    asyncio.run(furnish())
    return tmp_path / "sessions"


@pytest.fixture
def run(root):
    def run(*arguments, stdin=None):
        env = {"TRIMTAB_STORE": str(root), "COLUMNS": "120", "XDG_STATE_HOME": f"{root}-state"}
        return CliRunner().invoke(app, [*map(str, arguments)], env=env, input=stdin)

    return run


def test_a_user_is_exported_and_then_erased_with_the_lines_typed_into_chats(root, run, tmp_path):
    typed = locate_history_file({"XDG_STATE_HOME": f"{root}-state"})
    typed.parent.mkdir(parents=True)
    typed.write_text(f"\n# now\n+{WORD} of telegram:7\n\n# now\n+something else\n")
    done = run("user", "export", "telegram:7", "-o", tmp_path / "copy.jsonl")
    assert done.exit_code == 0, done.output
    assert "exported 2 messages of 1 session of telegram:7" in done.stderr
    lines = [json.loads(line) for line in (tmp_path / "copy.jsonl").read_text().splitlines()]
    assert [one["kind"] for one in lines] == ["export", "session", "message", "message", "end"]
    assert (tmp_path / "copy.jsonl").stat().st_mode & 0o777 == 0o600

    assert run("user", "erase", "telegram:7", stdin="n\n").exit_code == 1
    assert holding(root, "of-telegram:7") or holding(root, f"{WORD} of telegram:7")
    done = run("user", "erase", "telegram:7", "--yes")
    assert done.exit_code == 0, done.output
    assert (
        "erased telegram:7: 1 session deleted, 0 messages erased in other sessions" in done.stderr
    )
    assert holding(root, f"{WORD} of telegram:7") == []
    assert holding(root, f"{WORD} of bob")
    assert "needle" not in typed.read_text()
    assert "something else" in typed.read_text()


def test_a_tenant_is_exported_and_erased_and_both_are_listed(root, run):
    done = run("tenant", "export", "default")
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()][-1] == "end"
    assert "acme" not in done.stdout
    done = run("tenant", "erase", "default", "--yes")
    assert "erased tenant default: 2 sessions deleted" in done.stderr
    listed = run("session", "list").stdout
    assert "acme/helper/of-bob" in listed
    assert "default/" not in listed
    run("user", "erase", "bob", "--tenant", "acme", "--yes")
    found = json.loads(run("erasures", "--json").stdout)
    told = [(one["kind"], one["tenant"], one["outcome"], one["by"]) for one in found]
    assert told == [
        ("user", "acme", "done", "command line"),
        ("tenant", "default", "done", "command line"),
    ]
    assert len(json.loads(run("erasures", "--user", "bob", "--json").stdout)) == 1
    assert json.loads(run("erasures", "--user", "carl", "--json").stdout) == []
    shown = run("erasures", "--tenant", "acme").stdout
    assert "done        user     acme  1 session, 0 messages  by command line" in shown


def test_an_export_beside_a_server_is_asked_for_over_http(root, run):
    async def serve():
        store = FileStore(root)
        queue = await SqliteMessageQueue.open(store)
        try:
            return await asyncio.to_thread(run, "user", "export", "bob")
        finally:
            await queue.close()
            await store.close()

    done = asyncio.run(serve())
    assert done.exit_code == 2
    assert "GET /v1/users/USER/export" in done.stderr
