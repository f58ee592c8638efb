"""Keys that come and go while servers run."""

from __future__ import annotations

from contextlib import ExitStack

import httpx2
import pytest
from typer.testing import CliRunner

from tests.serve.process.processes import serving, write_agent
from trimtab.cli.app import app

pytestmark = pytest.mark.process

NOWHERE = "http://127.0.0.1:1"


def keys(store: str, *command: str) -> str:
    done = CliRunner().invoke(app, ["keys", *command], env={"TRIMTAB_STORE": store})
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def ask(url: str, key: str) -> int:
    return httpx2.get(f"{url}/v1/agents", headers={"Authorization": f"Bearer {key}"}).status_code


def test_a_server_without_keys_tells_how_to_make_one_and_all_processes_see_each_change(
    store, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_agent(tmp_path, NOWHERE, session={"store": store}, serve={"keys": True})
    with ExitStack() as held:
        servers = [held.enter_context(serving(tmp_path))]
        if store != "sessions":
            servers.append(held.enter_context(serving(tmp_path)))
        for server in servers:
            assert "trimtab keys create NAME" in server.until("no_keys")["message"]
            assert ask(server.url, "tt_guess") == 401
        key = keys(store, "create", "web")
        assert [ask(server.url, key) for server in servers] == [200] * len(servers)
        keys(store, "revoke", "web")
        assert [ask(server.url, key) for server in servers] == [401] * len(servers)
